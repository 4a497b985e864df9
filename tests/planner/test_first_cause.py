"""The first cause: the pool that gets furthest for a pod, and pools that are not ready where they would hold it."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from dovetail.model.instance_type import InstanceType
from dovetail.model.pods import Pod
from dovetail.planner.plan import Unschedulable
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Pool, Snapshot, UnusablePool
from tests.planner.conftest import SHOP, ZONE, kind, node, pod, pool
from tests.planner.test_explain import the_reason
from tests.planner.test_remedies import guests, requirement, stores

TEAM = {"team": "a"}
TAINT = ({"key": "dedicated", "value": "x", "effect": "NoSchedule"},)


def why(asking: Any, *pools: Pool, unusable: tuple[UnusablePool, ...] = ()) -> Unschedulable:
    return the_reason(provision(Snapshot(pools=pools, unusable_pools=unusable, pending=(asking,))))


def broken(name: str = "broken", leaving: bool = False, types: tuple[InstanceType, ...] = SHOP, **more: Any) -> Any:
    return UnusablePool(
        pool=pool(name, types=types, **more),
        code="BAD_NODECLASS",
        why="is not ready: EC2NodeClass shared: SubnetsNotFound: no subnets",
        remedy="tag a subnet",
        object="ec2nodeclass/shared",
        leaving=leaving,
    )


def test_a_pool_that_is_too_small_is_blamed_before_one_that_the_pod_cannot_use_by_its_label() -> None:
    """The other pool would be large enough, and the pod's selector forbids it."""
    small = pool("small", types=SHOP[:1], labels=TEAM)
    found = why(pod("p", cpu="8", nodeSelector=TEAM), pool("large", labels={"team": "b"}), small)
    assert (found.code, next(iter(found.pools)), found.object) == ("NO_TYPE_FITS", "small", "nodepool/small")


def test_a_pool_that_is_too_small_is_blamed_before_one_whose_taint_the_pod_does_not_tolerate() -> None:
    found = why(pod("p", cpu="8"), pool("tainted", taints=TAINT), pool("small", types=SHOP[:1]))
    assert (found.code, next(iter(found.pools))) == ("NO_TYPE_FITS", "small")


def test_a_pool_whose_taint_is_the_only_obstacle_is_blamed_before_one_of_another_label() -> None:
    wanted = pool("wanted", labels=TEAM, taints=TAINT)
    found = why(pod("p", nodeSelector=TEAM), pool("other", labels={"team": "b"}), wanted)
    assert (found.code, next(iter(found.pools))) == ("UNTOLERATED_TAINT", "wanted")


def test_a_pool_that_is_not_ready_and_would_hold_the_pod_is_the_first_cause_with_its_own_message() -> None:
    found = why(pod("p", cpu="8"), pool("small", types=SHOP[:1]), unusable=(broken(),))
    assert found.message == (
        "NodePool broken is not ready: EC2NodeClass shared: SubnetsNotFound: no subnets; tag a subnet"
    )
    assert (found.code, found.object) == ("BAD_NODECLASS", "ec2nodeclass/shared")
    assert list(found.pools) == ["broken", "small"], "every pool is there, the one to blame first"


def test_a_pool_that_is_not_ready_and_would_not_hold_the_pod_either_is_not_blamed() -> None:
    small = pool("small", types=SHOP[:1])
    tainted = why(pod("p", cpu="8"), small, unusable=(broken(taints=TAINT),))
    assert (tainted.code, next(iter(tainted.pools))) == ("NO_TYPE_FITS", "small")
    too_small = why(pod("p", cpu="8"), small, unusable=(broken(types=SHOP[:1]),))
    assert (too_small.code, next(iter(too_small.pools))) == ("NO_TYPE_FITS", "small")
    assert "it would be refused for cpu 8 (at most 2)" in too_small.pools["broken"].emptied_by


def test_a_pool_without_known_types_is_judged_by_its_template() -> None:
    elsewhere = requirement(ZONE, "z1")
    asking = pod("p", nodeSelector={ZONE: "z2"})
    refusing = broken("one", types=(), requirements=(elsewhere,))
    suited = broken("two", types=(), requirements=(requirement(ZONE, "z2"),))
    found = why(asking, unusable=(refusing, suited))
    assert next(iter(found.pools)) == "two"
    assert "it would be refused for" in found.pools["one"].emptied_by


def test_a_pool_that_is_being_deleted_is_blamed_only_if_no_other_may_be_used() -> None:
    leaving = broken("leaving", leaving=True)
    assert next(iter(why(pod("p", cpu="8"), pool("small", types=SHOP[:1]), unusable=(leaving,)).pools)) == "small"
    assert next(iter(why(pod("p", cpu="8"), pool("t", taints=TAINT), unusable=(leaving,)).pools)) == "leaving"


def test_a_pool_that_is_not_ready_is_not_blamed_where_the_pod_could_not_use_it_anyway() -> None:
    """Ready or not, its nodes have another label: the pod is to be changed."""
    for types in (SHOP, ()):
        refused = why(pod("p", nodeSelector={"team": "b"}), unusable=(broken(labels=TEAM, types=types),))
        assert (refused.code, refused.object) == ("NO_TYPE_MATCHES", "")
        assert "team In [b]" in refused.message
        assert refused.message.endswith("is not ready: EC2NodeClass shared: SubnetsNotFound: no subnets)")
    tainted = why(pod("p"), unusable=(broken(taints=TAINT, types=()),))
    assert (tainted.code, tainted.object) == ("UNTOLERATED_TAINT", "")
    unknown = why(pod("p", nodeSelector={"rack": "r1"}), unusable=(broken(types=()),))
    assert unknown.code == "UNKNOWN_LABEL"


def test_a_pool_that_is_not_ready_and_has_the_misspelt_value_is_blamed_before_one_without_the_label() -> None:
    asking = pod("p", nodeSelector={"team": "pya"})
    reason = why(asking, pool("default"), unusable=(broken("pay", labels={"team": "pay"}),))
    assert next(iter(reason.pools)) == "pay"
    assert "did you mean pay?" in reason.message


def test_an_architecture_is_no_other_one_misspelt() -> None:
    refused = why(pod("p", nodeSelector={"kubernetes.io/arch": "arm64"}), pool("default"))
    assert "(there is amd64)" in refused.message
    assert "did you mean amd64?" in why(pod("p", nodeSelector={"kubernetes.io/arch": "amd46"}), pool("default")).message


def test_zones_of_ready_pools_are_domains_of_a_spread_for_a_pool_that_is_not_ready() -> None:
    """Pods run in z1 alone: the pool that is not ready is in z1 too, so its readiness would not help."""
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    asking = pod("p", labels={"app": "web"}, topologySpreadConstraints=[spread])
    here = (requirement(ZONE, "z1"),)
    running = pod("there", cpu="4", labels={"app": "web"}, nodeName="n1")
    snapshot = Snapshot(
        pools=(pool("ready", requirements=here), pool("other", taints=TAINT)),
        unusable_pools=(broken(requirements=here),),
        nodes=(node("n1", zone="z1", pods=(running,)),),
        pending=(asking,),
    )
    refused = the_reason(provision(snapshot))
    assert (refused.code, refused.object) == ("SPREAD", "nodepool/ready")


def test_a_pool_with_two_taints_is_further_away_than_one_with_a_single_requirement_too_many() -> None:
    """Each taint needs a toleration of its own."""
    two = (*TAINT, {"key": "night", "effect": "NoSchedule"})
    refused = why(
        pod("p", nodeSelector={ZONE: "z1"}),
        pool("tainted", taints=two),
        pool("other", requirements=(requirement(ZONE, "z2"),)),
    )
    assert (refused.code, next(iter(refused.pools))) == ("NO_TYPE_MATCHES", "other")


def test_a_label_of_the_operator_says_which_pool_is_meant_whatever_its_taints() -> None:
    two = (*TAINT, {"key": "night", "effect": "NoSchedule"})
    refused = why(
        pod("p", nodeSelector=TEAM), pool("tainted", labels=TEAM, taints=two), pool("other", labels={"team": "b"})
    )
    assert (refused.code, next(iter(refused.pools))) == ("UNTOLERATED_TAINT", "tainted")


def test_a_pool_of_contradictory_requirements_is_not_blamed_for_a_pod_that_no_offering_satisfies() -> None:
    contradictory = pool("none", requirements=(requirement(ZONE, "z1"), requirement(ZONE, "z2")))
    assert why(pod("p"), contradictory).object == "nodepool/none"
    assert why(pod("p", nodeSelector={"kubernetes.io/arch": "s390x"}), contradictory).object == ""


def test_a_pool_of_contradictory_requirements_is_not_blamed_where_something_else_keeps_the_pod_out_of_all() -> None:
    """Nothing that it could be close to runs: no pool would help, however its requirements read."""
    contradictory = pool("none", requirements=(requirement(ZONE, "z1"), requirement(ZONE, "z2")))
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "absent"}}}
    close = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    refused = why(pod("p", affinity=close), contradictory, pool("plain"))
    assert (refused.code, next(iter(refused.pools))) == ("AFFINITY", "plain")
    assert why(pod("p", cpu="8"), contradictory, pool("small", types=SHOP[:1])).object == "nodepool/none"


def test_a_misspelt_value_is_suggested_by_a_pool_that_does_not_have_the_label_at_all() -> None:
    """The label is known: another pool has it."""
    refused = why(
        pod("p", nodeSelector={"team": "bleu"}), pool("plain"), pool("small", taints=TAINT, labels={"team": "blue"})
    )
    assert refused.code == "NO_TYPE_MATCHES"
    assert next(iter(refused.pools)) == "plain"
    assert "did you mean blue of NodePool small?" in refused.message


def test_without_any_pool_a_pool_is_asked_for() -> None:
    assert why(pod("p")).message == "there is no NodePool; create a NodePool"


def test_a_misspelt_value_of_another_pool_is_suggested() -> None:
    pools = (pool("a-web", labels={"team": "web"}), pool("pay", labels={"team": "payments"}))
    found = why(pod("p", nodeSelector={"team": "paymants"}), *pools)
    assert list(found.pools) == ["pay", "a-web"]
    assert "did you mean payments?" in found.message
    assert "did you mean payments of NodePool pay?" in found.pools["a-web"].emptied_by


def test_a_misspelt_label_of_another_pool_is_suggested() -> None:
    pools = (pool("plain"), pool("gpu", labels={"example.com/accelerator": "a100"}, taints=TAINT))
    found = why(pod("p", nodeSelector={"example.com/acelerator": "a100"}), *pools)
    assert "did you mean example.com/accelerator?" in found.message


def test_pools_that_refuse_for_the_same_are_named_together_and_counted() -> None:
    pools = tuple(pool(f"p{number}", labels={"n": str(number)}) for number in range(5))
    found = why(pod("p", nodeSelector={"team": "x"}), *pools)
    assert found.message.startswith("NodePools p0, p1, p2 and 2 more: team In [x] (no node has that label)")
    assert found.object == "", "no pool is the one to change"


def test_letters_instead_of_instance_types_are_explained_by_the_label_that_was_meant() -> None:
    letters = pool(requirements=(requirement("node.kubernetes.io/instance-type", "c", "m", "t"),))
    found = why(pod("p"), letters)
    assert "(these are no instance types)" in found.message
    assert found.remedy == (
        "write the key karpenter.k8s.aws/instance-category instead of node.kubernetes.io/instance-type"
    )


def test_a_pool_whose_own_requirements_leave_nothing_is_blamed_before_one_that_is_too_small() -> None:
    odd = pool("odd", types=(kind("huge", 64, 256, 3.0),), requirements=(requirement(ZONE, "nowhere"),))
    found = why(pod("p", cpu="32"), odd, pool("small", types=SHOP[:1]))
    assert next(iter(found.pools)) == "odd"


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.lists(stores(), min_size=1, max_size=2, unique_by=lambda each: each.name), guests(), st.booleans())
def test_a_pool_that_the_pod_cannot_use_is_blamed_only_where_it_can_use_none(
    pools: list[Pool], asking: Pod, all_ready: bool
) -> None:
    """And a pool that is not ready is blamed exactly where the pod would have a node if it were."""
    first, *others = pools
    unready = UnusablePool(pool=first, code="NO_NODEPOOL", why="is not ready", remedy="wait", object="nodepool/x")
    snapshot = Snapshot(
        pools=tuple(pools if all_ready else others),
        unusable_pools=() if all_ready else (unready,),
        pending=(asking,),
    )
    plan = provision(snapshot)
    assume(plan.unschedulable)
    found = the_reason(plan)
    blamed = next(iter(found.pools.values()))
    assert set(found.pools) == {each.name for each in pools}, "every pool has its say"
    if blamed.unusable and blamed.misses == 1:
        event("not ready")
        assert not provision(Snapshot(pools=(first,), pending=(asking,))).unschedulable
    elif any(each.suits for each in found.pools.values()):
        event("usable")
        assert blamed.suits or blamed.offers_nothing
    if not all_ready and not provision(Snapshot(pools=(first,), pending=(asking,))).unschedulable:
        assert blamed.unusable or blamed.offers_nothing
