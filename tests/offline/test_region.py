"""Where a plan without a catalogue launches, and what NodeClasses make of what is sold there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dovetail.cli.plan import plan
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION
from dovetail.offline.objects import Objects
from dovetail.offline.region import region_of
from dovetail.offline.snapshot import snapshot

ZONE = "topology.kubernetes.io/zone"
AWS = "karpenter.k8s.aws"


def _pool(*requirements: dict[str, Any], **more: Any) -> dict[str, Any]:
    reference = {"group": AWS, "kind": "EC2NodeClass", "name": "default"}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": list(requirements)}}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec, **more}


def _class(**spec: Any) -> dict[str, Any]:
    full = {"amiSelectorTerms": [{"alias": "al2023@latest"}], **spec}
    return {"apiVersion": f"{AWS}/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": full}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _pod(name: str = "a", selector: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", **requests}}}
    spec = {"containers": [container], "nodeSelector": selector or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)

    def run(*objects: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "in.yaml").write_text(yaml.safe_dump_all(objects))
        result = CliRunner().invoke(plan, ["-f", str(tmp_path / "in.yaml"), "--deadline", "0", "-o", "json"])
        found: dict[str, Any] = {**json.loads(result.stdout), "notes": result.stderr}
        return found

    return run


def _objects(*given: dict[str, Any]) -> Objects:
    objects = Objects()
    for each in given:
        objects.add(each)
    return objects


def test_the_region_is_the_one_asked_for_or_the_inputs_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"topology.kubernetes.io/region": "eu-west-1"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    zoned = _pool(_in(ZONE, "us-west-2a", "us-west-2b"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert region_of("ap-northeast-1", _objects(node)) == "ap-northeast-1"
    assert region_of(None, _objects(node)) == "eu-west-1"
    assert region_of(None, _objects(zoned)) == "us-west-2"
    node_zone = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {ZONE: "eu-central-1b"}}}
    assert region_of(None, _objects(node_zone)) == "eu-central-1"
    assert region_of(None, _objects()) == "us-east-1"
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
    assert region_of(None, _objects()) == "us-east-2"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert region_of(None, _objects(_pool(_in(ZONE, "moon-1a")))) == "ap-northeast-2"


def test_a_disk_is_as_large_as_the_class_makes_it(ask: Any) -> None:
    wanting = _pod(**{"ephemeral-storage": "50Gi"})
    why = ask(_pool(), _class(), wanting)["pods"]["default/a"]["unschedulable"]
    assert why["remedy"] == "ask for less, or let the NodeClass give nodes a larger disk"
    cured = _class(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}}])
    assert ask(_pool(), cured, wanting)["pods"]["default/a"] == {"machine": "m-1"}
    striped = ask(_pool(), _class(instanceStorePolicy="RAID0"), wanting)
    assert "d" in striped["machines"][0]["instanceType"].partition(".")[0], "one with disks of its own"


def test_pods_are_as_many_as_the_kubelet_takes_whichever_generation_says_so(ask: Any) -> None:
    many = [_pod(f"p-{number}") for number in range(6)]
    small = _pool(_in("node.kubernetes.io/instance-type", "m5.large"))
    assert len(ask(small, _class(), *many)["machines"]) == 1
    assert len(ask(small, _class(kubelet={"maxPods": 2}), *many)["machines"]) == 3
    beta = {**small, "apiVersion": "karpenter.sh/v1beta1"}
    beta["spec"]["template"]["spec"] |= {"kubelet": {"maxPods": 3}, "nodeClassRef": {"name": "default"}}
    assert len(ask(beta, *many)["machines"]) == 2


def test_windows_is_what_a_class_of_windows_images_sells(ask: Any) -> None:
    pods = (_pod("w", {"kubernetes.io/os": "windows"}), _pod("l", {"kubernetes.io/os": "linux"}))
    found = ask(_pool(), _class(amiSelectorTerms=[{"alias": "windows2022@latest"}]), *pods)["pods"]
    assert found["default/w"] == {"machine": "m-1"}
    assert found["default/l"]["unschedulable"]["nodePools"]["default"]["emptiedBy"].endswith("(there is windows)")


def test_prices_have_their_source(ask: Any) -> None:
    (planned,) = ask(_pool(_in("karpenter.sh/capacity-type", "spot")), _pod())["machines"]
    assert planned["priceSource"].startswith("estimated ")


def test_what_was_left_out_or_taken_for_granted_is_noted(ask: Any) -> None:
    notes = ask(_pod())["notes"]
    assert "no NodePool in the input: on-demand c, m and r nodes for linux/amd64 in ap-northeast-2" in notes
    gated = _pod()
    gated["spec"]["schedulingGates"] = [{"name": "x/y"}]
    notes = ask(_pool(), gated)["notes"]
    assert notes == "note: 1 pod left out: held back by scheduling gates\n"
    notes = ask(_pool(), {**_class(), "metadata": {"name": "other"}}, _pod())["notes"]
    assert "EC2NodeClass default is not in the input; AL2023 nodes are taken" in notes


def test_a_pool_that_no_server_would_take_is_planned_with_a_note(ask: Any) -> None:
    found = ask(_pool(_in(f"{AWS}/instance-familiy", "m5")), _pod())
    assert found["pods"]["default/a"] == {"machine": "m-1"}
    assert f'requirements[0].key: Invalid value: "{AWS}/instance-familiy": label domain "{AWS}" is' in found["notes"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"metadata": {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "it is being deleted"),
        (
            {
                "status": {
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "False",
                            "reason": "NodeClassNotReady",
                            "message": "no subnets",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ]
                }
            },
            "it is not ready: no subnets",
        ),
    ],
)
def test_a_pool_that_launches_nothing_is_left_out_and_it_is_reported_why(
    ask: Any, more: dict[str, Any], said: str
) -> None:
    found = ask(_pool(**more), _pod())
    assert found["pods"]["default/a"]["unschedulable"]["code"] == "NO_NODEPOOL"
    assert f"note: NodePool default is left out: {said}" in found["notes"]


def _team_pools(count: int) -> list[dict[str, Any]]:
    pools = []
    for number in range(count):
        pool = _pool(metadata={"name": f"team-{number}"})
        pool["spec"]["template"]["metadata"] = {"labels": {"team": f"t{number}"}}
        pools.append(pool)
    return pools


def test_nodepools_of_one_class_share_their_types() -> None:
    """A thousand NodePools that differ in one label took a minute and 3 GB: each had types of its own."""
    pools = snapshot(_objects(*_team_pools(3), _class(), _pod()), (), False, "us-east-1").pools
    assert len(pools) == 3
    assert len({id(pool.types) for pool in pools}) == 1


def test_nodepools_share_their_types_where_overlays_select_by_no_label_of_theirs() -> None:
    overlay = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "dear"}}
    dear = {**overlay, "spec": {"requirements": [_in("team", "t0")], "priceAdjustment": "+50%"}}
    objects = _objects(*_team_pools(3), _class(), dear, _pod())
    first, *others = snapshot(objects, (), False, "us-east-1").pools
    assert len({id(pool.types) for pool in others}) == 1
    assert first.types[0].offerings[0].price == pytest.approx(1.5 * (others[0].types[0].offerings[0].price or 0))


def test_a_kubelet_of_its_own_gives_a_nodepool_types_of_its_own() -> None:
    few = _pool(metadata={"name": "few", "annotations": {KUBELET_ANNOTATION: '{"maxPods": 5}'}})
    pools = snapshot(_objects(few, *_team_pools(1), _class(), _pod()), (), False, "us-east-1").pools
    assert [pool.types[0].capacity["pods"] == 5 for pool in pools] == [True, False]
