"""What the API server lets pass and the controllers refuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.model.formats import qualified_name
from dovetail.model.kinds import NodeOverlay, NodePool
from dovetail.model.kinds.convert import to_v1
from dovetail.model.kinds.validation import overlay_problems, pool_problems


def pool(**template: Any) -> NodePool:
    return msgspec.convert({"spec": {"template": template}}, NodePool)


def test_a_sound_pool_has_no_problems() -> None:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "nonsense"]}
    assert pool_problems(pool(metadata={"labels": {"a": "b"}}, spec={"requirements": [requirement]})) == []


def test_a_time_longer_than_can_be_counted_is_named_with_its_field() -> None:
    """The definition asks for the form alone; a user who means never may write any number of nines."""
    given = {
        "disruption": {"consolidateAfter": "9999999h"},
        "template": {"spec": {"expireAfter": "2562047h", "terminationGracePeriod": "99999999999s"}},
    }
    assert pool_problems(msgspec.convert({"spec": given}, NodePool)) == [
        'spec.disruption.consolidateAfter: time: invalid duration "9999999h", no more than 2562047h can be counted',
        'spec.template.spec.terminationGracePeriod: time: invalid duration "99999999999s", '
        "no more than 2562047h can be counted",
    ]


def test_taints_that_repeat_are_named() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    found = pool_problems(pool(spec={"taints": [taint], "startupTaints": [taint]}))
    assert found == ["duplicate taint Key/Effect pair a=NoSchedule"]


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ({"key": "a", "operator": "In"}, "key a with operator In must have a value defined"),
        (
            {"key": "a", "operator": "Gt", "values": ["x"]},
            "key a with operator Gt must have a single positive integer value",
        ),
        ({"key": "a", "operator": "Exists", "values": ["a b"]}, "invalid value a b for key a, a valid label must be"),
        ({"key": "karpenter.sh/x", "operator": "Exists"}, "using label karpenter.sh/x is not allowed"),
        (
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["cheap"]},
            "no valid values found in [cheap] for karpenter.sh/capacity-type, expected one of: "
            "map[on-demand:{} reserved:{} spot:{}], got: [cheap]",
        ),
        (
            {"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": ["host"]},
            "no valid values found in [host] for karpenter.k8s.aws/instance-tenancy, expected one of: "
            "map[dedicated:{} default:{}], got: [host]",
        ),
        ({"key": "karpenter.k8s.aws/ec2nodeclass", "operator": "Exists"}, "using label karpenter.k8s.aws/ec2nodeclass"),
        (
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "x"], "minValues": 2},
            "not enough valid values found in [spot x] for karpenter.sh/capacity-type, expected at least 2",
        ),
        (
            {"key": "a", "operator": "In", "values": ["1"], "minValues": 2},
            "key a with operator In must have at least minimum number of values defined in 'values' field",
        ),
    ],
)
def test_a_requirement_is_refused_in_karpenters_words(term: Any, text: str) -> None:
    [found] = pool_problems(pool(spec={"requirements": [term]}))
    assert found.startswith("invalid value: ")
    assert text in found
    assert found.endswith(" in requirements, restricted")


def test_the_pools_own_label_is_restricted() -> None:
    found = pool_problems(pool(metadata={"labels": {"karpenter.sh/nodepool": "x"}}))
    assert found == ['invalid key name "karpenter.sh/nodepool" in labels, restricted']


def test_a_provisioners_label_is_no_problem() -> None:
    provisioner = {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "a"}, "spec": {}}
    assert pool_problems(msgspec.convert(to_v1(provisioner), NodePool)) == []


def test_an_overlay_adds_extended_resources_only() -> None:
    overlay = msgspec.convert(
        {"spec": {"capacity": {"cpu": 1}, "requirements": [{"key": "a", "operator": "NotIn"}]}}, NodeOverlay
    )
    assert overlay_problems(overlay) == [
        "key a with operator NotIn must have a value defined",
        "invalid capacity: cpu in resource, restricted",
    ]


@pytest.mark.parametrize("resource", ["cpu", "vpc.amazonaws.com/efa", "aws.amazon.com/neuron", "habana.ai/gaudi"])
def test_an_overlay_adds_nothing_that_the_cloud_counts(resource: str) -> None:
    overlay = msgspec.convert({"spec": {"capacity": {resource: "1", "example.com/thing": "1"}}}, NodeOverlay)
    assert overlay_problems(overlay) == [f"invalid capacity: {resource} in resource, restricted"]


def test_a_reason_within_a_reason_is_quoted_as_go_does() -> None:
    [found] = pool_problems(pool(metadata={"labels": {"Example.com/a": "b"}}))
    assert found.startswith('invalid key name "Example.com/a" in labels, "prefix part a lowercase')
    assert r"(\\.[a-z0-9]" in found


def test_qualified_names() -> None:
    assert not qualified_name("example.com/a")
    assert len(qualified_name("a/b/c")) == 1
    assert qualified_name("a/b/c")[0].startswith("a valid label key must consist of")
    assert len(qualified_name("x" * 254 + "_/a")) == 2
    assert qualified_name("/a") == ("prefix part must be non-empty",)
    assert qualified_name("Example.com/a")[0].startswith("prefix part a lowercase RFC 1123 subdomain")


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("1h30m", 5400), ("Never", None), ("9999999h", None)])
def test_a_quiet_time_that_nothing_can_count_never_passes(text: str, seconds: int | None) -> None:
    found = msgspec.convert({"spec": {"disruption": {"consolidateAfter": text}}}, NodePool).spec.disruption.quiet_time
    assert (None if found is None else found.total_seconds()) == seconds
