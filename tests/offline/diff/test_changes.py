"""Changes: what kubectl apply would make of a manifest, and options that name what is not there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.errors import UserError
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.offline.diff.changes import (
    LAST_APPLIED,
    DiffOptions,
    Offerings,
    Replicas,
    applied,
    differences,
    read_change,
    read_manifests,
)
from dovetail.offline.diff.cluster import complete

Json = dict[str, Any]


def deployment(**spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
        "spec": {"replicas": 3, **spec},
    }


def node_class(*terms: Json) -> Json:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "u-2"},
        "spec": {"amiSelectorTerms": list(terms)},
    }


def types() -> dict[str, InstanceType]:
    offerings = tuple(
        Offering(zone=zone, capacity_type=kind, price=0.1 if kind == "on-demand" else 0.04)
        for zone in ("us-west-2a", "us-west-2b")
        for kind in ("on-demand", "spot")
    )
    made = InstanceType(name="m5.large", capacity={}, overhead={}, labels={}, offerings=offerings)
    return {"m5.large": made}


def test_a_manifest_sets_its_fields_and_leaves_those_of_others() -> None:
    live = deployment(paused=True)
    after = applied(live, {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 9}})
    assert after["spec"] == {"replicas": 9, "paused": True}
    assert after["metadata"]["uid"] == "u-1"


def test_a_field_that_was_applied_before_and_is_left_out_now_is_removed() -> None:
    live = deployment(paused=True, minReadySeconds=5)
    last = {"kind": "Deployment", "spec": {"replicas": 3, "paused": True}}
    live["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(last), "team": "shop"}
    after = applied(live, {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}})
    assert after["spec"] == {"replicas": 3, "minReadySeconds": 5}
    assert after["metadata"]["annotations"]["team"] == "shop"


def test_containers_are_merged_by_name_and_requirements_replaced_as_a_whole() -> None:
    live = deployment(
        template={"spec": {"containers": [{"name": "web", "image": "a", "tty": True}, {"name": "proxy"}]}}
    )
    manifest = {
        "kind": "Deployment",
        "metadata": {},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "b"}]}}},
    }
    containers = applied(live, manifest)["spec"]["template"]["spec"]["containers"]
    assert containers == [{"name": "web", "image": "b", "tty": True}, {"name": "proxy"}]
    pool = {"kind": "NodePool", "metadata": {"name": "a"}, "spec": {"requirements": [{"key": "zone"}, {"key": "arch"}]}}
    narrowed = applied(pool, {"kind": "NodePool", "metadata": {}, "spec": {"requirements": [{"key": "zone"}]}})
    assert narrowed["spec"]["requirements"] == [{"key": "zone"}]


def test_what_kubectl_applied_before_and_is_not_known_is_noted() -> None:
    """A recording leaves that annotation out: fields that the manifest drops would stay without a word."""
    live = deployment(paused=True)
    (note,) = read_change([deployment(replicas=9)], DiffOptions(), complete([live]), types()).notes
    assert note.startswith("how Deployment shop/web was applied before is not known here")
    live["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(deployment(paused=True))}
    assert read_change([deployment(replicas=9)], DiffOptions(), complete([live]), types()).notes == ()


def test_differences_name_the_field_and_leave_out_what_servers_write() -> None:
    old, new = deployment(), deployment(replicas=9)
    old["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"] = "1", "2"
    old["status"], new["status"] = {"replicas": 3}, {"replicas": 4}
    assert list(differences(old, new)) == [("spec.replicas", 3, 9)]
    assert list(differences(old, old)) == []


def test_kinds_that_decide_nothing_about_nodes_are_left_out_with_a_note() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web"}}
    kept, notes = read_manifests([{"kind": "List", "items": [service, rollout]}, deployment()])
    assert [item["kind"] for item in kept] == ["Deployment"]
    assert "1 Rollout, 1 Service" in notes[0]


def test_a_misspelt_kind_is_an_error_with_the_kind_that_was_meant() -> None:
    with pytest.raises(UserError) as raised:
        read_manifests([{"apiVersion": "karpenter.sh/v1", "kind": "NodePol", "metadata": {"name": "x"}}])
    assert raised.value.message == "NodePol x: kind: karpenter.sh/v1 has no NodePol; did you mean NodePool?"


def test_options_become_a_change() -> None:
    cluster = complete([deployment(), node_class({"alias": "al2023@latest"})])
    asked = DiffOptions(
        deletions=("deploy/web",),
        replicas=("deployment/shop/web=50",),
        prices=("m5.large=0.2", "m5.large/spot=+50%"),
        sold_out=("m5.large/us-west-2a/spot",),
        lost_zones=("us-west-2b",),
        kubernetes_version="1.37",
    )
    change = read_change([], asked, cluster, types())
    assert change.deletions == (("Deployment", "shop", "web"),)
    assert change.replicas == (Replicas(kind="Deployment", namespace="shop", name="web", count=50),)
    assert {(each.capacity_type, round(each.dollars, 3)) for each in change.prices} == {
        ("on-demand", 0.2),
        ("spot", 0.06),
    }
    assert change.sold_out == (Offerings(instance_type="m5.large", zone="us-west-2a", capacity_type="spot"),)
    assert change.images == {"default": "al2023@latest-1.37"}
    assert len(change.market) == 5


def test_a_pinned_ami_does_not_change_with_the_kubernetes_version() -> None:
    cluster = complete([node_class({"id": "ami-1"})])
    assert read_change([], DiffOptions(kubernetes_version="1.37"), cluster, types()).images == {}


def test_other_ami_selectors_in_a_manifest_are_another_image() -> None:
    cluster = complete([node_class({"alias": "al2023@v20260101"})])
    change = read_change([node_class({"alias": "al2023@v20260601"})], DiffOptions(), cluster, types())
    assert change.images == {"default": "al2023@v20260601"}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (
            DiffOptions(replicas=("deployment/wep=5",)),
            "--scale 'deployment/wep': the cluster has no such Deployment; did you",
        ),
        (DiffOptions(replicas=("deployment/web=many",)), "--scale 'deployment/web=many': is not kind/name=REPLICAS"),
        (DiffOptions(replicas=("pod/web=5",)), "--scale 'pod/web': kind pod is none of Deployment, StatefulSet"),
        (
            DiffOptions(deletions=("nodepool/none",)),
            "--delete 'nodepool/none': the cluster has no such NodePool; name one",
        ),
        (DiffOptions(deletions=("web",)), "--delete 'web': is not kind/name"),
        (DiffOptions(sold_out=("m5.larg",)), "--sold-out 'm5.larg': no instance type m5.larg; did you mean m5.large"),
        (DiffOptions(sold_out=("m5.large/mars",)), "mars is neither a zone"),
        (DiffOptions(prices=("m5.large=cheap",)), "--price 'm5.large=cheap': is not TYPE=DOLLARS"),
        (DiffOptions(price_lines=("m5.large=-1",)), "--price-file 'm5.large=-1': is not TYPE=DOLLARS"),
        (DiffOptions(lost_zones=("mars",)), "--lose-zone 'mars': no such zone; there are us-west-2a, us-west-2b"),
        (
            DiffOptions(images=("gpu=ami-1",)),
            "--ami 'gpu=ami-1': the cluster has no EC2NodeClass gpu; there are default",
        ),
        (DiffOptions(kubernetes_version="new"), "--kubernetes-version 'new': is not a version"),
    ],
)
def test_an_option_that_cannot_be_names_value_and_remedy(asked: DiffOptions, problem: str) -> None:
    cluster = complete([deployment(), node_class({"alias": "al2023@latest"})])
    with pytest.raises(UserError) as raised:
        read_change([], asked, cluster, types())
    assert problem in raised.value.message


def test_a_name_in_two_namespaces_must_be_given_with_one() -> None:
    other = deployment()
    other["metadata"] = {"name": "web", "namespace": "blog", "uid": "u-3"}
    with pytest.raises(UserError, match="there are several; say deployment/shop/web, deployment/blog/web"):
        read_change([], DiffOptions(replicas=("deployment/web=5",)), complete([deployment(), other]), types())
