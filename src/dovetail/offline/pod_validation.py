"""What the API server would say of pods that `dovetail plan` is given.

Words and numbers that mean nothing are a wrong input: it is unclear what they ask for. Of anything else that the
server would refuse it is clear enough what is meant; that is planned for, and noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dovetail.errors import UserError
from dovetail.model.meta import without_nulls
from dovetail.model.validation import metadata, resources, scheduling
from dovetail.model.validation.field_errors import FieldError
from dovetail.model.validation.ports import container_ports

Json = dict[str, Any]

#: What a pod says about where it may run.
_WHERE = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")
_GROUPS = ("initContainers", "containers")
#: What containers ask for whose requests need no limits.
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
_NO_OPERATOR = "not a valid selector operator"
#: Operators that only pools may use in a cluster; what they mean is clear.
_OF_POOLS = ("Gte", "Lte")


def validation_errors(name: str, spec: Json, where: str) -> tuple[str, ...]:
    """What the server would refuse of a pod's `spec`, which stands at `where` in the object `name`.

    What cannot be planned for is a problem.
    """
    said: Json = {field: spec[field] for field in _WHERE if spec.get(field)}
    for group in _GROUPS:
        reduced = [_reduced(container) for container in spec.get(group) or ()]
        if any(reduced):
            said[group] = reduced
    if not said:
        return ()
    senseless, others = _validated(msgspec.json.encode(said), where)
    if senseless:
        raise UserError(f"{name}: {senseless}")
    return others


def _reduced(container: Json) -> Json:
    """What a container says that could be wrong: most ask for a little of what there is everywhere."""
    resources = container.get("resources") or {}
    reduced = {"ports": container["ports"]} if container.get("ports") else {}
    if resources.get("limits") or not _PLAIN.issuperset(resources.get("requests") or ()):
        reduced["resources"] = {field: resources[field] for field in ("limits", "requests") if resources.get(field)}
    return reduced


@lru_cache(maxsize=1024)
def _validated(said: bytes, where: str) -> tuple[str, tuple[str, ...]]:
    """The first thing that makes no sense, and all others; most pods say what others have said."""
    spec = without_nulls(msgspec.json.decode(said))
    complaints = list(_complaints(spec, where))
    senseless = (complaint for complaint in complaints if _is_meaningless(complaint, spec, where))
    return next(map(str, senseless), ""), tuple(map(str, complaints))


def _complaints(spec: Json, where: str) -> Iterator[FieldError]:
    yield from scheduling.affinity(spec.get("affinity", {}), f"{where}.affinity")
    yield from metadata.labels(spec.get("nodeSelector", {}), f"{where}.nodeSelector")
    yield from scheduling.tolerations(spec.get("tolerations", ()), f"{where}.tolerations")
    yield from scheduling.spread(spec.get("topologySpreadConstraints", ()), f"{where}.topologySpreadConstraints")
    for group in _GROUPS:
        for index, container in enumerate(spec.get(group, ())):
            yield from _of_container(container, f"{where}.{group}[{index}]")


def _of_container(container: Json, where: str) -> Iterator[FieldError]:
    amounts = {
        field: {name: str(amount) for name, amount in amounts.items()}
        for field, amounts in container.get("resources", {}).items()
    }
    yield from resources.requirements(_completed(amounts), f"{where}.resources")
    entries = [{"protocol": "TCP", **port} for port in container.get("ports", ())]
    yield from container_ports(entries, f"{where}.ports")


def _completed(amounts: Mapping[str, Mapping[str, str]]) -> Json:
    """What has a limit and no request asks for the limit."""
    limits = amounts.get("limits", {})
    return {"limits": limits, "requests": {**limits, **amounts.get("requests", {})}}


def _is_meaningless(complaint: FieldError, spec: Json, where: str) -> bool:
    if complaint.type == "FieldValueNotSupported" or complaint.detail == _NO_OPERATOR:
        return bool(complaint.value) and complaint.value not in _OF_POOLS
    field = complaint.field.rpartition(".")[2]
    if field == "maxSkew":
        return _written(spec, complaint.field.removeprefix(f"{where}."))
    return field == "topologyKey" or (field == "minDomains" and complaint.value <= 0)


def _written(spec: Json, field: str) -> bool:
    """Whether a spread has a skew at all: one that is not written is 1."""
    number = int(field.partition("[")[2].partition("]")[0])
    return "maxSkew" in spec["topologySpreadConstraints"][number]
