"""`dovetail explain` as it is typed: kinds by kubectl's names, manifests, what-if, json, and options that do not go."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from dovetail.cli.explain import _moment, explain
from dovetail.cli.explain_evaluation import with_pods_that_fit_nowhere
from dovetail.cli.explain_subjects import KINDS, ExplainSubject, subject_of
from dovetail.controllers.explain import Answer

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  limits: {cpu: "1"}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [m]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx, resources: {requests: {cpu: "1"}}}]}
"""


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    file = tmp_path / "cluster.yaml"
    file.write_text(POOL)

    def run(*words: str, status: int = 0) -> str:
        result = CliRunner().invoke(explain, [*words, "-f", str(file)])
        assert result.exit_code == status, result.output
        return result.output

    return run


def test_a_pod_of_manifests_is_explained_in_one_line(ask: Any) -> None:
    text = ask("pod/web")
    assert text.count("\n") == 1
    assert text.startswith("pod/default/web-0 pending: NodePool default: cpu limit (1 left) left none of ")
    assert text.endswith("(LIMIT_REACHED)\n")


def test_verbose_adds_the_pools_and_the_command_that_helps(ask: Any) -> None:
    text = ask("pod/web", "-v")
    assert "  nodepool default: " in text
    assert 'kubectl patch nodepool default --type merge -p \'{"spec": {"limits": {"cpu": ' in text
    assert "left after cpu" in ask("pod/web", "-vv")


def test_json_has_the_documented_fields(ask: Any) -> None:
    found = json.loads(ask("pod/web", "-o", "json"))
    documented = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    assert [field for field in found if f"| `{field}` |" not in documented] == []
    assert (found["kind"], found["code"], found["class"]) == ("Explanation", "LIMIT_REACHED", "admin")
    assert found["object"] == "nodepool/default"
    assert found["commands"] and found["commands"][0].startswith("kubectl patch nodepool default ")
    assert found["facts"]["changes"][0]["patch"]["spec"]["limits"]["cpu"]


def test_what_if_plans_with_other_requests_and_without_a_value_says_what_it_takes(ask: Any) -> None:
    assert "would get a node if you raise limits.cpu to " in ask("pod/web", "--what-if")
    assert "with memory=900Gi: would still wait: " in ask("pod/web", "--what-if=memory=900Gi")
    assert "is not a quantity" in ask("pod/web", "--what-if=cpu=many", status=2)
    assert "is none of cpu, memory" in ask("pod/web", "--what-if=cups=2", status=2)


def test_a_pod_that_is_not_in_the_manifests_is_reported_with_those_that_are(ask: Any) -> None:
    assert "pods that do: default/web-0" in ask("pod/other", status=2)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("po/a",), ExplainSubject("pod", "default/a")),
        (("pods", "a"), ExplainSubject("pod", "default/a")),
        (("pod/prod/a",), ExplainSubject("pod", "prod/a")),
        (("no/ip-1",), ExplainSubject("node", "ip-1")),
        (("deploy/web",), ExplainSubject("deployment", "default/web")),
        (("Deployment/web",), ExplainSubject("deployment", "default/web")),
        (("nodepools.karpenter.sh/x",), ExplainSubject("nodepool", "x")),
        (("provisioner/x",), ExplainSubject("provisioner", "x")),
        (("ns", "prod"), ExplainSubject("namespace", "prod")),
    ],
)
def test_kinds_have_the_names_that_kubectl_takes(words: tuple[str, ...], found: ExplainSubject) -> None:
    assert subject_of(words, "default") == found


def test_a_misspelt_kind_is_suggested_and_a_missing_name_asked_for() -> None:
    with pytest.raises(click.UsageError, match="did you mean deployment"):
        subject_of(("deploymnt/web",), "default")
    with pytest.raises(click.UsageError, match="name the object, as in pod/NAME"):
        subject_of(("pod",), "default")
    assert len(set(KINDS.values())) >= 17


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("node/x", "--what-if", "cpu=1"), "--what-if is about a pod"),
        (("deploy/x", "--why", "spot"), "--why is about a pod, a node or a nodeclaim"),
        (("pod/x", "--at", "5m", "--watch"), "--at is about the past"),
        (("node/x", "-f", "x.yaml"), "-f explains a pod of the manifests"),
    ],
)
def test_options_that_do_not_go_with_each_other_are_refused(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(explain, list(words))
    assert result.exit_code == 2
    assert said in result.output


def test_times_are_read_as_people_write_them() -> None:
    now = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
    assert _moment("11:30", now) == datetime(2026, 1, 2, 11, 30, tzinfo=UTC)
    assert _moment("13:00", now) == datetime(2026, 1, 1, 13, 0, tzinfo=UTC), "of yesterday"
    assert _moment("30m", now) == datetime(2026, 1, 2, 11, 30, tzinfo=UTC)
    assert _moment("2026-01-01T10:00:00Z", now) == datetime(2026, 1, 1, 10, 0, tzinfo=UTC)
    with pytest.raises(click.UsageError, match="write 14:05"):
        _moment("yesterday", now)


def test_a_node_whose_pods_fit_nowhere_else_does_not_stay_for_its_price() -> None:
    """Consolidation compares fleets; whether these pods can move at all is found out when it is asked."""
    said = Answer(subject="node/n1", line="stays: no cheaper replacement (NEAR_BEST)", code="NEAR_BEST")
    pinned = with_pods_that_fit_nowhere(said, running(nodeSelector={"kubernetes.io/hostname": "n1"}), "n1", "c1")
    assert (pinned.code, pinned.object, pinned.source) == ("PODS_WOULD_NOT_FIT", "pod/default/web", "evaluated")
    assert pinned.line.startswith("stays: pod default/web fits nowhere else: NodePool default: kubernetes.io/hostname")
    assert with_pods_that_fit_nowhere(said, running(), "n1", "c1") == said


def running(**spec: Any) -> list[dict[str, Any]]:
    """A node with a pod of a workload and one of a DaemonSet, and the NodePool that launched it."""
    pool = next(yaml.safe_load_all(POOL))
    labels = {"karpenter.sh/nodepool": "default", "kubernetes.io/hostname": "n1"}
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "29"}
    status = {"capacity": amounts, "allocatable": amounts, "providerID": "aws:///a/i-1", "nodeName": "n1"}
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    pod = {"containers": [container], "nodeName": "n1"}
    return [
        {**pool, "spec": {**pool["spec"], "limits": {"cpu": "100"}}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}, "status": status},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c1", "labels": labels}}
        | {"spec": {"requirements": []}, "status": status},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {**pod, **spec}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "ownerReferences": [daemon]}, "spec": pod},
    ]
