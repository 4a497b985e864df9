"""What stands in v1 for an object of the first generation: owned by it, and carrying no more than it should."""

from __future__ import annotations

from typing import Any

from dovetail.model.kinds.adopt import PROVISIONER_ANNOTATION, adopted, owned_by

PROVISIONER: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1alpha5",
    "kind": "Provisioner",
    "metadata": {
        "name": "default",
        "uid": "u-1",
        "labels": {"team": "shop"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "ours"},
    },
    "spec": {"providerRef": {"name": "default"}},
}


def test_a_provisioner_owns_the_pool_that_stands_for_it() -> None:
    (pool,) = adopted(PROVISIONER)
    assert (pool["apiVersion"], pool["kind"], pool["metadata"]["name"]) == ("karpenter.sh/v1", "NodePool", "default")
    (owner,) = pool["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Provisioner", "u-1", True)
    assert owned_by(pool, PROVISIONER)
    assert not owned_by({"metadata": {"name": "default"}}, PROVISIONER)


def test_a_pool_carries_its_provisioners_words_but_not_what_kubectl_applied() -> None:
    """kubectl would take them for its own and undo what we write."""
    (pool,) = adopted(PROVISIONER)
    assert pool["metadata"]["labels"] == {"team": "shop"}
    assert pool["metadata"]["annotations"] == {"note": "ours", PROVISIONER_ANNOTATION: "default"}


def test_nodes_get_their_provisioners_name_by_an_annotation_since_v1_reserves_the_label() -> None:
    (pool,) = adopted(PROVISIONER)
    assert "metadata" not in pool["spec"]["template"]


def test_inline_settings_are_a_class_of_their_own_with_the_default_profile_if_they_name_none() -> None:
    inline = {"subnetSelector": {"team": "shop"}, "securityGroupSelector": {"team": "shop"}}
    spec = {key: value for key, value in PROVISIONER["spec"].items() if key != "providerRef"}
    _, plain = adopted(PROVISIONER | {"spec": spec | {"provider": inline}}, "nodes")
    assert (plain["kind"], plain["spec"]["instanceProfile"]) == ("EC2NodeClass", "nodes")
    _, named = adopted(PROVISIONER | {"spec": spec | {"provider": inline | {"instanceProfile": "own"}}}, "nodes")
    assert named["spec"]["instanceProfile"] == "own"
