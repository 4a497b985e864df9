"""Every generation converts to v1 without loss, and back."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.kinds import EC2NodeClass, NodePool
from dovetail.model.kinds.convert import ConversionError, convert, expand, from_v1, gather, review, to_v1
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, with_kubelet
from dovetail.model.kinds.notes import Notes
from dovetail.model.meta import view
from tests.kinds import kinds_manifests as m

VERSIONS = {"NodePool": ("v1beta1", "v1alpha5"), "EC2NodeClass": ("v1beta1", "v1alpha1")}
VERSIONS["NodeClaim"] = VERSIONS["NodePool"]


@given(m.older)
def test_an_older_object_comes_back_as_it_was(old: Any) -> None:
    before = copy.deepcopy(old)
    assert from_v1(to_v1(old), old["apiVersion"]) == before
    assert old == before


@given(m.newest, st.data())
def test_a_v1_object_survives_a_reader_of_an_older_generation(new: Any, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS[new["kind"]]))
    assert to_v1(from_v1(new, version)) == new


@given(m.older, m.json_values, st.sampled_from(["spec", "status", "metadata"]))
def test_conversion_never_crashes_on_a_malformed_object(old: Any, junk: Any, where: str) -> None:
    old = {**old, where: junk}
    assert from_v1(to_v1(old), old["apiVersion"]) == old


def test_an_edit_in_v1_is_not_undone_by_what_was_remembered() -> None:
    old = copy.deepcopy(m.SEED_PROVISIONER)
    old["spec"]["ttlSecondsUntilExpired"] = 7200
    old["spec"]["kubeletConfiguration"] = {"containerRuntime": "containerd", "maxPods": 20}
    new = to_v1(old)
    new["spec"]["template"]["spec"]["expireAfter"] = "1h"
    assert from_v1(new, "v1alpha5")["spec"]["ttlSecondsUntilExpired"] == 3600


def test_a_beta_pool_means_the_same_in_v1() -> None:
    pool = view(to_v1(m.SEED_POOL), NodePool)
    assert pool.spec.template.spec.expire_after == "720h"
    assert pool.spec.disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert pool.spec.disruption.consolidate_after == "0s"
    reference = pool.spec.template.spec.node_class_ref
    assert (reference.group, reference.kind, reference.name) == ("karpenter.k8s.aws", "EC2NodeClass", "default")


def test_upstreams_annotations_carry_kubelet_and_class_reference() -> None:
    old = copy.deepcopy(m.SEED_POOL)
    old["spec"]["template"]["spec"]["kubelet"] = {"podsPerCore": 2, "maxPods": 20}
    annotations = to_v1(old)["metadata"]["annotations"]
    assert annotations["compatibility.karpenter.sh/v1beta1-kubelet-conversion"] == '{"maxPods":20,"podsPerCore":2}'
    assert annotations["compatibility.karpenter.sh/v1beta1-nodeclass-reference"] == '{"name":"default"}'


def test_a_known_family_without_image_terms_becomes_an_alias() -> None:
    spec = to_v1(m.SEED_CLASS)["spec"]
    assert spec["amiSelectorTerms"] == [{"alias": "al2023@latest"}]
    assert "amiFamily" not in spec


def test_ubuntu_boots_as_al2_with_its_own_root_disk() -> None:
    old = copy.deepcopy(m.SEED_CLASS)
    old["spec"]["amiFamily"] = "Ubuntu"
    new = to_v1(old)
    assert new["spec"]["amiFamily"] == "AL2"
    assert new["spec"]["blockDeviceMappings"][0]["deviceName"] == "/dev/sda1"
    marks = new["metadata"]["annotations"]["compatibility.karpenter.k8s.aws/v1beta1-ubuntu"]
    assert marks == "amiFamily,blockDeviceMappings,incompatible"


@pytest.mark.parametrize(
    ("spec", "policy", "after", "expiry"),
    [
        ({"consolidation": {"enabled": True}}, "WhenEmptyOrUnderutilized", "0s", "Never"),
        ({"ttlSecondsAfterEmpty": 30}, "WhenEmpty", "30s", "Never"),
        ({"ttlSecondsUntilExpired": 2592000}, "WhenEmpty", "Never", "2592000s"),
    ],
)
def test_a_provisioners_ways_out(spec: Any, policy: str, after: str, expiry: str) -> None:
    pool = view(to_v1({**m.SEED_PROVISIONER, "spec": spec}), NodePool).spec
    assert pool.disruption.consolidation_policy == policy
    assert pool.disruption.consolidate_after == after
    assert pool.template.spec.expire_after == expiry


def test_a_provisioner_means_what_its_webhook_would_have_added() -> None:
    pool = to_v1({**m.SEED_PROVISIONER, "spec": {"providerRef": {"name": "x"}}})
    asked = {each["key"]: each["values"] for each in pool["spec"]["template"]["spec"]["requirements"]}
    assert asked == {
        "kubernetes.io/os": ["linux"],
        "kubernetes.io/arch": ["amd64"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
        "karpenter.k8s.aws/instance-generation": ["2"],
    }


def test_nodes_of_a_provisioner_keep_its_label() -> None:
    labels = to_v1(m.SEED_PROVISIONER)["spec"]["template"]["metadata"]["labels"]
    assert labels["karpenter.sh/provisioner-name"] == "default"


def test_selector_maps_become_the_product_of_their_choices() -> None:
    old = copy.deepcopy(m.SEED_TEMPLATE)
    old["spec"]["subnetSelector"] = {"tier": "a, b", "team": "x", "any": ""}
    old["spec"]["securityGroupSelector"] = {"aws-ids": "sg-1,sg-2"}
    old["spec"]["amiSelector"] = {"aws::name": "one,two", "aws::owners": "self", "team": "*"}
    spec = to_v1(old)["spec"]
    assert spec["subnetSelectorTerms"] == [
        {"tags": {"tier": "a", "team": "x", "any": "*"}},
        {"tags": {"tier": "b", "team": "x", "any": "*"}},
    ]
    assert spec["securityGroupSelectorTerms"] == [{"id": "sg-1"}, {"id": "sg-2"}]
    assert spec["amiSelectorTerms"] == [
        {"name": "one", "owner": "self", "tags": {"team": "*"}},
        {"name": "two", "owner": "self", "tags": {"team": "*"}},
    ]


def test_a_template_keeps_its_hop_limit_of_two() -> None:
    found = view(to_v1(m.SEED_TEMPLATE), EC2NodeClass)
    assert found.spec.metadata_options.http_put_response_hop_limit == 2
    assert found.family == "AL2"


def test_an_inline_provider_is_a_node_class_of_the_provisioners_name() -> None:
    old = copy.deepcopy(m.SEED_PROVISIONER)
    del old["spec"]["providerRef"]
    old["spec"]["provider"] = {"subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}}
    pool, node_class = expand(old)
    assert pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "default"
    assert (node_class["kind"], node_class["metadata"]["name"]) == ("EC2NodeClass", "default")


def test_names_that_collide_are_an_error_that_says_so() -> None:
    found, collisions = gather([m.SEED_PROVISIONER, m.SEED_POOL, m.SEED_TEMPLATE])
    assert set(found) == {("NodePool", "default"), ("EC2NodeClass", "default")}
    pool = {**m.SEED_POOL, "apiVersion": "karpenter.sh/v1"}
    found, collisions = gather([m.SEED_PROVISIONER, pool])
    assert len(collisions) == 1
    assert 'NodePool "default" and Provisioner "default" are both NodePool "default"' in collisions[0].text
    assert found["NodePool", "default"]["spec"]["limits"] == pool["spec"]["limits"]


def test_a_v1_object_that_came_through_the_beta_door_unconverted_is_mended() -> None:
    """Without a webhook the server relabels and prunes; kubectl's annotation has the rest."""
    stored = copy.deepcopy(m.SEED_POOL)
    stored["apiVersion"] = "karpenter.sh/v1"
    del stored["spec"]["disruption"]["expireAfter"]
    applied = copy.deepcopy(m.SEED_POOL)
    applied["spec"]["disruption"]["expireAfter"] = "24h"
    stored["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)}
    pool = view(to_v1(stored), NodePool)
    assert pool.spec.template.spec.expire_after == "24h"
    assert pool.spec.template.spec.node_class_ref.kind == "EC2NodeClass"


def test_a_review_is_answered_in_order_and_a_failure_is_said() -> None:
    request = {"uid": "7", "desiredAPIVersion": "karpenter.sh/v1", "objects": [m.SEED_POOL]}
    answer = review({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request})
    assert answer["response"]["uid"] == "7"
    assert answer["response"]["convertedObjects"] == [to_v1(m.SEED_POOL)]
    request["desiredAPIVersion"] = "karpenter.sh/v7"
    answer = review({"request": request})
    assert answer["response"]["result"] == {
        "status": "Failure",
        "message": "NodePool karpenter.sh/v1 has no v7 form",
    }


def test_convert_of_the_same_version_changes_nothing() -> None:
    assert convert(m.SEED_POOL, "karpenter.sh/v1beta1") == m.SEED_POOL
    with pytest.raises(ConversionError):
        from_v1({"kind": "Pod", "apiVersion": "v1"}, "v1beta1")


def test_every_change_of_meaning_leaves_a_note() -> None:
    notes = Notes()
    to_v1({**m.SEED_TEMPLATE, "spec": {"launchTemplate": "mine", "subnetSelector": {"a": "b"}}}, notes)
    assert [note.path for note in notes.found if note.meaning] == ["spec.launchTemplate"]


def test_a_pools_own_kubelet_settings_go_before_its_classs() -> None:
    node_class = {"metadata": {"name": "a"}, "spec": {"role": "x", "kubelet": {"maxPods": 1}}}
    assert with_kubelet(node_class, {}) is node_class
    assert with_kubelet(node_class, {KUBELET_ANNOTATION: "not json"}) is node_class
    found = with_kubelet(node_class, {KUBELET_ANNOTATION: '{"maxPods":20}'})
    assert found["spec"] == {"role": "x", "kubelet": {"maxPods": 20}}
