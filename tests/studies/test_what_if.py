"""What is predicted of a change, and what then happens in the lab."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.errors import UserError
from dovetail.offline.diff.changes import ProposedChange, Replicas
from dovetail.offline.diff.cluster import DiffInput, complete
from dovetail.studies.what_if.predict import predict
from dovetail.studies.what_if.run import WhatIfInput
from tests.studies.random_changes import CHANGES, HORIZON_S, REGION, compare, exported, types

Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> WhatIfInput:
    """A pool, twelve pods of a Deployment, and the nodes that they were given."""
    objects, now = exported([pool_manifest(), deployment_manifest("web", 12)])
    return WhatIfInput(cluster=complete(objects), types=types(), region=REGION, now=now, horizon_s=HORIZON_S)


def pool_manifest(**spec: Any) -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge", "c5.xlarge"]},
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "requirements": requirements, "expireAfter": "Never"}},
            "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "1"}]},
            **spec,
        },
    }


def deployment_manifest(name: str, replicas: int, cpu: str = "1") -> Json:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def test_the_cluster_is_restored_as_it_was(cluster: WhatIfInput) -> None:
    """Nothing moves in a cluster at rest: no node comes or goes, no pod is evicted."""
    prediction = predict(cluster, ProposedChange(manifests=(deployment_manifest("web", 12), pool_manifest())))
    assert prediction.now.nodes == 4
    assert prediction.now.pods == 12
    assert prediction.now.pending == 0
    assert not prediction.changed
    assert prediction.applied.at_rest


def test_more_replicas_are_nodes_to_add(cluster: WhatIfInput) -> None:
    asked = Replicas(kind="Deployment", namespace="default", name="web", count=20)
    prediction = predict(cluster, ProposedChange(replicas=(asked,)))
    assert prediction.applied.objects[0].fields == (("spec.replicas", "12", "20"),)
    assert prediction.applied.end.nodes > prediction.now.nodes
    assert {node.reason for node in prediction.applied.nodes} == {"Provisioned"}
    assert not prediction.applied.evictions
    assert prediction.applied.end.pending == 0
    assert prediction.applied.end.per_hour >= prediction.applied.end.lower_bound > prediction.now.lower_bound


def test_an_ami_replaces_nodes_under_the_budget(cluster: WhatIfInput) -> None:
    prediction = predict(cluster, ProposedChange(images={"default": "ami-0new"}, market=("AMI",)))
    waves = [wave for wave in prediction.applied.waves if wave.reason == "Drifted"]
    assert len(waves) == prediction.now.nodes
    assert all(len(wave.nodes) == 1 and wave.detail == "AMIDrift" for wave in waves)
    assert {wave.budgets for wave in waves} == {("default: 1 at once",)}
    assert len(prediction.applied.evictions) >= 12
    assert sorted({eviction.at for eviction in prediction.applied.evictions})[0] > waves[0].at
    assert not prediction.applied.blocked


def test_a_budget_of_zero_holds_drifted_nodes_and_says_so(cluster: WhatIfInput) -> None:
    pdb = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }
    prediction = predict(cluster, ProposedChange(manifests=(pdb,), images={"default": "ami-0new"}, market=("AMI",)))
    assert not prediction.applied.evictions
    assert len(prediction.applied.blocked) == prediction.now.nodes
    blockers = [text for node in prediction.applied.blocked for text in node.blockers]
    assert blockers
    assert all("[PDB]" in text for text in blockers)


def test_a_drifted_node_without_a_replacement_says_which_pods_have_no_place(cluster: WhatIfInput) -> None:
    """The pool no longer allows what holds the pods: nodes stay, and the report must not leave the reason out."""
    arm = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    pool = pool_manifest()
    pool["spec"]["template"]["spec"]["requirements"].append(arm)
    prediction = predict(cluster, ProposedChange(manifests=(pool,)))
    assert len(prediction.applied.blocked) == prediction.now.nodes
    assert not prediction.applied.evictions
    for node in prediction.applied.blocked:
        assert node.reason == "Drifted"
        assert node.blockers
        assert all(text.startswith("pod default/web-") and "NO_TYPE_MATCHES" in text for text in node.blockers)


def test_pods_that_no_node_holds_are_pending_with_a_reason(cluster: WhatIfInput) -> None:
    prediction = predict(cluster, ProposedChange(manifests=(deployment_manifest("giant", 2, cpu="64"),)))
    (pending,) = prediction.applied.pending
    assert pending.count == 2
    assert pending.code in ("NO_TYPE_FITS", "TOO_LARGE")
    assert pending.remedy


def test_a_budget_that_opens_later_is_waited_for(cluster: WhatIfInput) -> None:
    """Disruption is shut for the hour in which the change is made: the first node goes after it."""
    hour = cluster.now.hour
    shut = {"nodes": "0", "schedule": f"0 {hour} * * *", "duration": "1h"}
    pool = pool_manifest(disruption={"consolidateAfter": "30s", "budgets": [shut, {"nodes": "100%"}]})
    prediction = predict(cluster, ProposedChange(manifests=(pool,), images={"default": "ami-0new"}, market=("AMI",)))
    left = 3600 - (cluster.now.minute * 60 + cluster.now.second)
    assert prediction.applied.waves
    assert prediction.applied.waves[0].at >= left - 10  # the change is made some seconds after the start
    assert not prediction.applied.blocked


def test_what_the_server_refuses_is_an_error_with_the_field(cluster: WhatIfInput) -> None:
    wrong = deployment_manifest("web", 12)
    wrong["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    with pytest.raises(UserError, match=r"Deployment default/web: .*spec\.template\.metadata\.labels: Invalid value"):
        predict(cluster, ProposedChange(manifests=(wrong,)))


def test_deleting_a_nodepool_removes_its_nodes(cluster: WhatIfInput) -> None:
    prediction = predict(cluster, ProposedChange(deletions=(("NodePool", "", "default"),)))
    assert prediction.applied.end.nodes == 0
    assert prediction.applied.end.pending == 12
    assert [change.action for change in prediction.applied.objects] == ["-"]


def test_objects_from_files_without_defaults_change_nothing_by_themselves(cluster: WhatIfInput) -> None:
    """A file or a recording leaves out what a server fills in: the first write must not look like a new template."""
    bare = []
    for item in cluster.cluster.stored:
        template = (item.get("spec") or {}).get("template")
        if item["kind"] in ("Deployment", "ReplicaSet") and template:
            template = {**template, "spec": {"containers": template["spec"]["containers"]}}
            item = {**item, "spec": {**item["spec"], "template": template}}
        bare.append(item)
    setup = WhatIfInput(
        cluster=DiffInput(stored=tuple(bare), manifests=(), notes=()),
        types=cluster.types,
        region=REGION,
        now=cluster.now,
        horizon_s=HORIZON_S,
    )
    asked = Replicas(kind="Deployment", namespace="default", name="web", count=13)
    prediction = predict(setup, ProposedChange(replicas=(asked,)))
    assert prediction.applied.end.pods == 13
    assert len(prediction.applied.nodes) == 1


# -- held to what happens

#: Of a hundred random changes so many may come out otherwise: ties are broken by names of new nodes, which a prediction
#: cannot know (docs/diff.md).
MAX_MISSED_DOLLARS, MAX_MISSED = 3, 3


@pytest.mark.parametrize("seed", [0, 1, 7, 8, 49, 67])
def test_a_random_change_happens_as_predicted(seed: int) -> None:
    """49 and 67: pods must be drained in an order that does not depend on when the controller heard of them."""
    comparison = compare(seed)
    assert comparison.happened.at_rest and comparison.predicted.at_rest
    assert comparison.dollars_hold and comparison.evictions_hold, comparison.line()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_random_changes_happen_as_predicted() -> None:
    """Dollars within 1 %, evictions within 10 %, as far as chance does not decide."""
    comparisons = [compare(seed) for seed in range(100)]
    assert len({each.kind for each in comparisons}) == len(CHANGES)
    dollars = [each.line() for each in comparisons if not each.dollars_hold]
    missed = [each.line() for each in comparisons if not (each.dollars_hold and each.evictions_hold)]
    assert len(dollars) <= MAX_MISSED_DOLLARS, "\n".join(dollars)
    assert len(missed) <= MAX_MISSED, "\n".join(missed)
