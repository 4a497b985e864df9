"""Two faults of one case: which NodePool is to blame, and what it lacks first."""

from __future__ import annotations

from tests.explain.cluster_case import TYPE, ZONE, Case, Expected, Json, need, nodepool
from tests.explain.faults import (
    bound_volume,
    class_not_ready,
    cpu_limit,
    misspelt_value,
    pool_not_ready,
    taint,
    too_small_pool,
    unknown_label,
    zero_limit,
)

# -- two pools that the pod may use, each with a trouble of its own: the one that gets further is to blame


def _second(case: Case, kind: str = "c.large") -> Json:
    """Another pool of the team, with one small type."""
    other = nodepool("second", labels={"team": case.team})
    need(other, TYPE, "In", kind)
    case.more.append(other)
    return other


def limit_beside_too_small(case: Case) -> Expected:
    _second(case)
    case.asked["cpu"] = "3"
    case.pool["spec"]["limits"] = {"cpu": "1"}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def class_not_ready_beside_too_small(case: Case) -> Expected:
    _second(case)
    case.asked["cpu"] = case.chance.choice(["3", "8"])
    return class_not_ready(case)


def leaving_beside_limit(case: Case) -> Expected:
    second = _second(case)
    second["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return zero_limit(case)


def tainted_beside_too_small(case: Case) -> Expected:
    second = _second(case, "m.4xlarge")
    second["spec"]["template"]["spec"]["taints"] = [{"key": "dedicated", "effect": "NoSchedule"}]
    return too_small_pool(case)


def other_zone_beside_too_small(case: Case) -> Expected:
    """The large pool is where the volume is not; the small one is where it is."""
    need(_second(case, "m.4xlarge"), ZONE, "In", "z1")
    need(case.pool, ZONE, "In", "z2")
    need(case.pool, TYPE, "In", "m.large")
    case.more += bound_volume("z2")
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    case.asked["cpu"] = "3"
    return "NO_TYPE_FITS", f"nodepool/{case.name}", True


# -- two troubles of the pool that the pod is meant for: no other pool is to blame


def class_not_ready_at_the_limit(case: Case) -> Expected:
    cpu_limit(case)
    return class_not_ready(case)


def taint_at_the_limit(case: Case) -> Expected:
    zero_limit(case)
    return taint(case)


def taint_of_a_pool_not_ready(case: Case) -> Expected:
    pool_not_ready(case)
    code, thing, _ = taint(case)
    return code, thing, False


def misspelt_value_at_the_limit(case: Case) -> Expected:
    """Others are tainted: tolerating their taints would not help."""
    case.decoys = [case._decoy(team, "tainted") for team in case.others]
    cpu_limit(case)
    return misspelt_value(case)


def unknown_label_beside_taints(case: Case) -> Expected:
    case.decoys = [case._decoy(team, "tainted") for team in case.others]
    too_small_pool(case)
    return unknown_label(case)


def memory_limit_beside_taint(case: Case) -> Expected:
    """Its own pool is at the limit; the one with room has another team's taint."""
    case.pool["spec"]["limits"] = {"memory": "1Gi"}
    second = nodepool("second", labels={"team": case.team})
    second["spec"]["template"]["spec"]["taints"] = [{"key": "night", "effect": "NoSchedule"}]
    case.more.append(second)
    return "LIMIT_REACHED", f"nodepool/{case.name}", True
