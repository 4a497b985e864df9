"""Rolling a Deployment: how many pods each of its ReplicaSets should have next.

Pure arithmetic over (Deployment, ReplicaSets): what to scale, in Kubernetes' order. The surge and the
unavailability allowed bound every step, so that calling it again after each step ends in the new state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.lab.controllers.views import Json

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


class ScaleReplicaSet(NamedTuple):
    """Give a ReplicaSet this many replicas. `forced`: rewrite its annotations even if the number stays."""

    name: str
    replicas: int
    forced: bool = False


def replicas(workload: Json) -> int:
    value = workload["spec"].get("replicas")
    return 1 if value is None else int(value)


def available(replicaset: Json) -> int:
    return int(replicaset.get("status", {}).get("availableReplicas", 0))


def share(value: int | str | None, total: int, *, up: bool) -> int:
    """An int-or-percent of a total."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.rstrip("%")) * total
    return -(-percent // 100) if up else percent // 100


def allowances(deployment: Json) -> tuple[int, int]:
    """(surge, unavailable): both zero would never move, so then one pod may be missing."""
    strategy = deployment["spec"].get("strategy", {})
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return 0, 0
    rolling = strategy.get("rollingUpdate", {})
    desired = replicas(deployment)
    surge = share(rolling.get("maxSurge"), desired, up=True)
    unavailable = share(rolling.get("maxUnavailable"), desired, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, desired)


def is_rolling(deployment: Json) -> bool:
    return bool(deployment["spec"].get("strategy", {}).get("type", "RollingUpdate") == "RollingUpdate")


def initial(deployment: Json, existing: Iterable[Json]) -> int:
    """The replicas a new ReplicaSet starts with."""
    if not is_rolling(deployment):
        return replicas(deployment)
    return _grown(deployment, existing, current=0)


def _grown(deployment: Json, existing: Iterable[Json], current: int) -> int:
    surge, _ = allowances(deployment)
    room = replicas(deployment) + surge - sum(replicas(rs) for rs in existing)
    return current if room <= 0 else current + min(room, replicas(deployment) - current)


def next_steps(deployment: Json, new: Json, old: Sequence[Json]) -> list[ScaleReplicaSet]:
    """The next scaling of a rolling update: the new set up, or else the old ones down."""
    desired = replicas(deployment)
    if replicas(new) > desired:
        return [ScaleReplicaSet(_name(new), desired)]
    if replicas(new) < desired:
        grown = _grown(deployment, [*old, new], replicas(new))
        if grown != replicas(new):
            return [ScaleReplicaSet(_name(new), grown)]
    return _shrink(deployment, new, [rs for rs in old if replicas(rs) > 0])


def _shrink(deployment: Json, new: Json, old: list[Json]) -> list[ScaleReplicaSet]:
    if not old:
        return []
    _, unavailable = allowances(deployment)
    minimum = replicas(deployment) - unavailable
    total = sum(replicas(rs) for rs in (*old, new))
    spare = total - minimum - (replicas(new) - available(new))
    if spare <= 0:
        return []
    sizes = {_name(rs): replicas(rs) for rs in old}
    cleaned = 0
    for rs in oldest_first(old):
        sick = sizes[_name(rs)] - available(rs)
        step = min(spare - cleaned, sick)
        if step > 0:
            sizes[_name(rs)] -= step
            cleaned += step
    left = sum(available(rs) for rs in (*old, new)) - minimum
    for rs in oldest_first(old):
        step = min(sizes[_name(rs)], max(0, left))
        sizes[_name(rs)] -= step
        left -= step
    return [
        ScaleReplicaSet(_name(rs), sizes[_name(rs)]) for rs in oldest_first(old) if sizes[_name(rs)] != replicas(rs)
    ]


def was_scaled(deployment: Json, sets: Iterable[Json]) -> bool:
    """Whether `spec.replicas` changed since the sets were last sized."""
    for rs in sets:
        desired = rs["metadata"].get("annotations", {}).get(DESIRED)
        if replicas(rs) > 0 and desired is not None and desired != str(replicas(deployment)):
            return True
    return False


def rescale(deployment: Json, new: Json | None, old: Sequence[Json]) -> list[ScaleReplicaSet]:
    """Follow a changed `spec.replicas`, in proportion while two sets share the pods."""
    desired = replicas(deployment)
    everything = [*old] if new is None else [*old, new]
    live = [rs for rs in everything if replicas(rs) > 0]
    if len(live) <= 1:
        only = live[0] if live else new or (oldest_first(old)[-1] if old else None)
        return [] if only is None or replicas(only) == desired else [ScaleReplicaSet(_name(only), desired)]
    if new is not None and _saturated(deployment, new):
        return [ScaleReplicaSet(_name(rs), 0) for rs in old if replicas(rs) > 0]
    return _in_proportion(deployment, live) if is_rolling(deployment) else []


def _in_proportion(deployment: Json, live: list[Json]) -> list[ScaleReplicaSet]:
    surge, _ = allowances(deployment)
    desired = replicas(deployment)
    allowed = desired + surge if desired > 0 else 0
    add = allowed - sum(replicas(rs) for rs in live)
    by_age = oldest_first(live)
    if add > 0:
        by_age.reverse()
    order = sorted(by_age, key=lambda rs: -replicas(rs))
    sizes: dict[str, int] = {}
    added = 0
    for rs in order:
        part = _fraction(deployment, rs, desired + surge) if add else 0
        part = min(part, add - added) if add > 0 else max(part, add - added)
        sizes[_name(rs)] = replicas(rs) + (part if add else 0)
        added += part if add else 0
    if add:
        largest = _name(order[0])
        sizes[largest] = max(0, sizes[largest] + add - added)
    return [ScaleReplicaSet(_name(rs), sizes[_name(rs)], forced=True) for rs in order]


def _fraction(deployment: Json, rs: Json, maximum: int) -> int:
    if replicas(deployment) == 0:
        return -replicas(rs)
    before = int(rs["metadata"].get("annotations", {}).get(MAXIMUM, 0))
    before = before or int(deployment.get("status", {}).get("replicas", 0))
    if before == 0:
        return 0
    return math.floor(replicas(rs) * maximum / before + 0.5) - replicas(rs)


def _saturated(deployment: Json, rs: Json) -> bool:
    desired = replicas(deployment)
    noted = rs["metadata"].get("annotations", {}).get(DESIRED)
    return replicas(rs) == desired and noted == str(desired) and available(rs) == desired


def oldest_first(sets: Iterable[Json]) -> list[Json]:
    return sorted(sets, key=lambda rs: (rs["metadata"].get("creationTimestamp", ""), _name(rs)))


def _name(rs: Json) -> str:
    return str(rs["metadata"]["name"])
