"""Remedies that remedy: a pod that does what a reason says has a node, at the price that was reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.model.pods import Pod, Toleration
from dovetail.planner.offerings.open_labels import pool_clauses
from dovetail.planner.plan import Funnel
from dovetail.planner.provision import provision
from dovetail.planner.requirements import text
from dovetail.planner.snapshot import Pool, Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, ZONE, Solve, kind, near, pod, pool
from tests.planner.test_daemons import daemon
from tests.planner.test_explain import the_funnel, the_reason

ARCH, CATEGORY, CAPACITY = "kubernetes.io/arch", "karpenter.k8s.aws/instance-category", "karpenter.sh/capacity-type"
GPU = "example.com/gpu"


def _category(name: str) -> dict[str, Any]:
    return {CATEGORY: (name,)}


STORE = (
    kind("c.small", 2, 4, 0.08, labels=_category("c"), spot=True),
    kind("m.small", 2, 8, 0.10, labels=_category("m")),
    kind("m.large", 16, 64, 0.80, labels=_category("m"), zones=("z1", "z2")),
    kind("t.arm", 2, 8, 0.06, labels={**_category("t"), ARCH: ("arm64",)}, zones=("z2", "z3")),
    kind("g.one", 8, 32, 1.50, labels=_category("g"), capacity={GPU: 1}, zones=("z1",)),
    kind("u.huge", 64, 512, 9.00, labels=_category("u"), zones=("z3",)),
)


def requirement(key: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": values, **more}


def seldom(draw: st.DrawFn, usual: Any, *others: Any) -> Any:
    """One trouble at a time is what reasons are about."""
    return draw(st.sampled_from(others)) if draw(st.integers(0, 3)) == 3 else usual


@st.composite
def stores(draw: st.DrawFn) -> Pool:
    """A pool that may forbid something."""
    needs = [requirement(CATEGORY, *seldom(draw, ("c", "m"), ("c",), ("m",), ("c", "t"), ("g", "m")))]
    needs += seldom(draw, (), *([requirement(ZONE, *where)] for where in (("z1",), ("z2", "z3"), ("z1", "z3"))))
    needs += seldom(draw, (), [requirement(CAPACITY, "on-demand")])
    needs += seldom(draw, (), [requirement("node.kubernetes.io/instance-type", "c.small", "m.small", min_values=2)])
    taints = seldom(draw, (), ("team",), ("team", "tier"))
    return pool(
        draw(st.sampled_from("ab")),
        types=STORE,
        requirements=tuple(needs),
        limits=seldom(draw, {}, {"cpu": 1000}, {"nodes": 0}, {"memory": 2**33}),
        labels=draw(st.sampled_from([{}, {"team": "a"}])),
        taints=tuple({"key": key, "value": "x", "effect": "NoSchedule"} for key in taints),
    )


@st.composite
def guests(draw: st.DrawFn) -> Pod:
    asked = seldom(
        draw,
        {},
        {ARCH: "arm64"},
        {ARCH: "x86"},
        {ZONE: "z3"},
        {ZONE: "z9"},
        {"team": "a"},
        {"team": "b"},
        {CAPACITY: "spot"},
        {CATEGORY: "m", ZONE: "z3"},
    )
    return pod(
        "a",
        cpu=seldom(draw, "1", "3", "12", "50", "90"),
        memory=seldom(draw, "1Gi", "6Gi", "100Gi"),
        requests=seldom(draw, {}, {GPU: "1"}, {GPU: "3"}),
        nodeSelector=asked,
    )


def treated(snapshot: Snapshot, funnel: Funnel, name: str) -> Snapshot:
    """The world after a pod did what the funnel of a pool says; of all pools that one is left."""
    (inserted,) = snapshot.pending
    one = next(each for each in snapshot.pools if each.name == name)
    if "widen its " in funnel.remedy:
        expected = funnel.remedy.partition("widen its ")[2].split(" and ")
        kept = [
            need for need, each in zip(one.requirements, pool_clauses(one), strict=True) if text(each) not in expected
        ]
        assert len(kept) + len(expected) == len(one.requirements)
        one = replace(one, requirements=tuple(kept))
    else:
        inserted, one, snapshot = _REMEDIES[funnel.code](inserted, one, snapshot, funnel)
    return replace(snapshot, pending=(inserted,), pools=(one,))


Cured = tuple[Pod, Pool, Snapshot]


def _tolerating(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    """Of every taint that is named, and of no other."""
    named = [each for each in one.taints if f"{each.key}={each.value}:" in funnel.emptied_by]
    tolerations = tuple(Toleration(key=each.key, operator="Exists") for each in named)
    return replace(inserted, spec=replace(inserted.spec, tolerations=tolerations)), one, snapshot


def _asking_less(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    """As much as the nearest miss has: enough for that one, but not for a choice."""
    assert funnel.nearest is not None
    assume(not any(each.min_values for each in one.requirements))
    room = next(each.capacity for each in STORE if each.name == funnel.nearest.instance_type)
    (container,) = inserted.spec.containers
    less = {"cpu": f"{room['cpu']}m", "memory": str(room["memory"]), GPU: str(room.get(GPU, 0))}
    requests = {
        key: less[key] if key in funnel.nearest_lacks else asked for key, asked in container.resources.requests.items()
    }
    resources = replace(container.resources, requests=requests)
    spec = replace(inserted.spec, containers=(replace(container, resources=resources),))
    return replace(inserted, spec=spec), one, snapshot


def _asking_another(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    key = funnel.emptied_by.partition(" ")[0]
    selector = {name: value for name, value in inserted.spec.node_selector.items() if name != key}
    return replace(inserted, spec=replace(inserted.spec, node_selector=selector)), one, snapshot


def _declaring(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    key = funnel.emptied_by.partition(" ")[0]
    return inserted, replace(one, labels={**one.labels, key: inserted.spec.node_selector[key]}), snapshot


def _unlimited(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    named = funnel.emptied_by.partition(" ")[0]
    return inserted, replace(one, limits={name: most for name, most in one.limits.items() if name != named}), snapshot


def _undemanding(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    needs = tuple(replace(each, min_values=None) for each in one.requirements)
    return inserted, replace(one, requirements=needs), snapshot


def _patient(inserted: Pod, one: Pool, snapshot: Snapshot, funnel: Funnel) -> Cured:
    return inserted, one, replace(snapshot, unavailable=frozenset())


_REMEDIES: dict[str, Callable[[Pod, Pool, Snapshot, Funnel], Cured]] = {
    "UNTOLERATED_TAINT": _tolerating,
    "NO_TYPE_FITS": _asking_less,
    "NO_TYPE_MATCHES": _asking_another,
    "UNKNOWN_LABEL": _declaring,
    "LIMIT_REACHED": _unlimited,
    "MIN_VALUES": _undemanding,
    "NO_OFFERING": _patient,
}
_GONE = frozenset((each.name, zone, "on-demand") for each in STORE[:2] for zone in ("z1", "z2", "z3"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.lists(stores(), min_size=1, max_size=2, unique_by=lambda each: each.name), guests(), st.booleans())
def test_a_pod_that_does_what_the_reason_says_has_a_place_at_the_price_that_was_reported(
    pools: list[Pool], inserted: Pod, sold_out: bool
) -> None:
    snapshot = Snapshot(pools=tuple(pools), pending=(inserted,), unavailable=_GONE if sold_out else frozenset())
    plan = provision(snapshot)
    assume(plan.unschedulable)
    why = the_reason(plan)
    name, blamed = next(iter(why.pools.items()))
    assume(blamed.misses == 1 and not blamed.offers_nothing)
    event(f"{why.code}{', widened' if 'widen its' in blamed.remedy else ''}")
    cured = treated(snapshot, blamed, name)
    after = provision(cured)
    assert [str(each) for each in verify(after, cured)] == []
    assert not after.unschedulable, (why.message, the_reason(after).message)
    assert blamed.nearest is not None
    assert after.cost.per_hour == pytest.approx(blamed.nearest.price)


def test_the_pool_that_a_toleration_opens_is_blamed_not_the_one_that_has_no_such_node(solve: Solve) -> None:
    """Both lack one thing; but no pod launches GPUs for a general pool because a pod forgot a toleration."""
    taint = {"key": GPU, "value": "true", "effect": "NoSchedule"}
    pools = (
        pool("general", types=STORE, requirements=(requirement(CATEGORY, "c", "m"),)),
        pool("gpu", types=STORE, requirements=(requirement(CATEGORY, "g"),), taints=(taint,)),
    )
    why = the_reason(solve(pod("a", requests={GPU: "1"}), pools=pools))
    assert why.code == "UNTOLERATED_TAINT"
    assert list(why.pools) == ["gpu", "general"]
    assert why.pools["general"].remedy == "allow instance types that have some"
    assert "(nearest: g.one in z1, $1.5000/h)" in why.message


def test_every_taint_that_must_be_tolerated_is_named(solve: Solve) -> None:
    taints = tuple({"key": key, "effect": "NoSchedule"} for key in ("a", "b"))
    assert the_funnel(solve(pod("a"), pools=(pool(taints=taints),))).emptied_by == "taints a:NoSchedule, b:NoSchedule"


def test_a_node_that_the_pool_forbids_is_the_nearest_one(solve: Solve) -> None:
    modest = pool(types=STORE, requirements=(requirement(CATEGORY, "c", "m"), requirement(ZONE, "z1", "z3")))
    funnel = the_funnel(solve(pod("a", requests={GPU: "1"}), pools=(modest,)))
    assert funnel.emptied_by == f"{GPU} 1 (no type has any)"
    assert funnel.remedy == f"ask for less, or widen its {CATEGORY} In [c, m]"
    assert funnel.miss == "g.one in z1, $1.5000/h"


def test_a_node_that_daemons_would_fill_is_no_remedy(solve: Solve) -> None:
    small = pool(types=STORE, requirements=(requirement(CATEGORY, "c"),))
    greedy = daemon("log", cpu="5")
    assert the_funnel(solve(pod("a", cpu="12"), pools=(small,))).miss == "m.large in z1, $0.8000/h"
    assert the_funnel(solve(pod("a", cpu="12"), pools=(small,), daemons=(greedy,))).miss == "u.huge in z3, $9.0000/h"


def test_requirements_that_contradict_each_other_are_reported_together(solve: Solve) -> None:
    term = {"matchExpressions": [{"key": ARCH, "operator": "In", "values": ["arm64"]}]}
    both = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    funnel = the_funnel(solve(pod("a", nodeSelector={ARCH: "amd64"}, affinity=both), pools=(pool(types=STORE),)))
    assert funnel.emptied_by == f"{ARCH} In [amd64] and In [arm64] (no value is both)"
    assert funnel.remedy == "leave one of them"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ({"taem": "a"}, "no node has that label; did you mean team?"),
        ({"karpenter.sh/instance-category": "m"}, f"no node has that label; did you mean {CATEGORY}?"),
        ({ARCH: "x86_64"}, "there are amd64, arm64"),
        ({"karpenter.k8s.aws/instance-cpu": "128"}, "there are 2, 8, 16, 64"),
        ({HOSTNAME: "n9"}, "a new node gets a name of its own"),
    ],
)
def test_what_there_is_instead_is_reported(solve: Solve, asked: dict[str, str], hint: str) -> None:
    funnel = the_funnel(solve(pod("a", nodeSelector=asked), pools=(pool(types=STORE, labels={"team": "a"}),)))
    (key, value), *_ = asked.items()
    assert funnel.emptied_by == f"{key} In [{value}] ({hint})"


def test_of_many_values_the_one_that_was_meant_is_reported(solve: Solve) -> None:
    many = tuple(kind(f"m{number}.large", 2, 8, 0.1) for number in range(4, 12))
    asked = pod("a", nodeSelector={"node.kubernetes.io/instance-type": "m5.lrage"})
    assert the_funnel(solve(asked, pools=(pool(types=many),))).emptied_by.endswith("(did you mean m5.large?)")
    huge = pod("a", nodeSelector={"karpenter.k8s.aws/instance-cpu": "128"})
    sizes = tuple(kind(f"m.{cpu}", cpu, 8, 0.1) for cpu in (1, 2, 4, 8, 16, 32, 64))
    assert the_funnel(solve(huge, pools=(pool(types=sizes),))).emptied_by.endswith("(there are 1 to 64)")
    mistyped = pool(types=many, requirements=(requirement("node.kubernetes.io/instance-type", "m55.large"),))
    assert the_funnel(solve(pod("a"), pools=(mistyped,))).emptied_by.endswith("(did you mean m5.large?)")


def test_requirements_of_a_pool_that_leave_nothing_together_are_named(solve: Solve) -> None:
    """Each of them is met by something; the third has no part in it."""
    odd = pool(
        types=STORE,
        requirements=(
            requirement(CATEGORY, "c", "m"),
            requirement(ARCH, "arm64"),
            requirement("kubernetes.io/os", "linux"),
        ),
    )
    expected = f"its own requirements {CATEGORY} In [c, m] and {ARCH} In [arm64]"
    assert the_funnel(solve(pod("a"), pools=(odd,))).emptied_by == expected
    why = the_reason(solve(pod("a", cpu="99"), pools=(replace(odd, name="odd"), pool())))
    assert why.code == "NO_TYPE_FITS", "a pool that offers something is nearer"


def test_a_choice_that_is_too_small_is_blamed_and_counted(solve: Solve) -> None:
    picky = pool(types=STORE, requirements=(requirement(CATEGORY, "c", "m", min_values=2),), limits={"cpu": 1})
    funnel = the_funnel(solve(pod("a", cpu="9"), pools=(picky,)))
    assert (funnel.code, funnel.emptied_by) == ("MIN_VALUES", f"minValues 2 of {CATEGORY} (there is 1)")
    assert funnel.nearest_lacks == "cpu limit (1m left)"


def test_co_located_pods_in_another_namespace_and_co_located_pods_without_a_place_are_reported(solve: Solve) -> None:
    shy: Any = near("podAffinity", ZONE, "db")
    shy["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaces"] = ["data"]
    expected = f"pod affinity to app=db in data by {ZONE} (no such pod)"
    assert the_funnel(solve(pod("a", **shy))).emptied_by == expected
    huge = pod("db", cpu="99", labels={"app": "db"})
    plan = solve(pod("a", **near("podAffinity", ZONE, "db")), huge)
    (funnel,) = plan.unschedulable["default/a"].pools.values()
    assert funnel.emptied_by == f"pod affinity to app=db by {ZONE} (those pods have no node either)"


def test_a_disk_that_is_too_small_is_the_node_classes_matter(solve: Solve) -> None:
    """No larger type has a larger one."""
    types = (kind("one", 2, 8, 0.1, capacity={"ephemeral-storage": 2**30}),)
    funnel = the_funnel(solve(pod("a", requests={"ephemeral-storage": "2Gi"}), pools=(pool(types=types),)))
    assert funnel.remedy == "ask for less, or let the NodeClass give nodes a larger disk"


def test_more_volumes_than_anything_attaches_are_counted(solve: Solve) -> None:
    disks = [{"name": f"v{number}", "awsElasticBlockStore": {"volumeID": f"vol-{number}"}} for number in range(5)]
    types = tuple(
        kind(name, 2, 8, price, attach_limits={"ebs.csi.aws.com": most})
        for name, price, most in (("few", 0.1, 2), ("many", 0.3, 4))
    )
    funnel = the_funnel(solve(pod("a", volumes=disks), pools=(pool(types=types),)))
    assert (funnel.code, funnel.emptied_by) == ("VOLUME_LIMIT", "5 volumes of ebs.csi.aws.com (at most 4)")
    assert funnel.miss == "many in z1, $0.3000/h, lacks 1 volume of ebs.csi.aws.com"


def test_a_pod_that_claims_devices_is_not_planned_for(solve: Solve) -> None:
    why = the_reason(solve(pod("a", resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])))
    assert why.code == "DEVICES"
    plain, claiming = pod("b"), pod("c", resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
    assert list(solve(plain, claiming).unschedulable) == ["default/c"]
