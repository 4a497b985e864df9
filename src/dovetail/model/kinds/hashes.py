"""The hash of a pool's template, by which a machine is known to be of an old one.

It is the hash that Karpenter writes, to the bit, so that a cluster may change hands without its machines
drifting. Requirements are left out: a machine that still meets them has not drifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model import duration
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.parts import Taint

HASH_ANNOTATION = "karpenter.sh/nodepool-hash"
VERSION_ANNOTATION = "karpenter.sh/nodepool-hash-version"
VERSION = "v3"

_BASIS, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def pool_hash(pool: NodePool) -> str:
    """The static hash of a pool's template, as its annotation has it."""
    template = pool.spec.template
    spec = template.spec
    reference = spec.node_class_ref
    meta = _struct(
        "ObjectMeta",
        ("Labels", _map(template.metadata.labels)),
        ("Annotations", _map(template.metadata.annotations)),
    )
    grace = spec.termination_grace_period
    expiry = spec.expire_after
    inner = _struct(
        "NodeClaimTemplateSpec",
        ("Taints", _taints(spec.taints)),
        ("StartupTaints", _taints(spec.startup_taints)),
        (
            "NodeClassRef",
            _struct(
                "NodeClassReference",
                ("Kind", _text(reference.kind)),
                ("Name", _text(reference.name)),
                ("Group", _text(reference.group)),
            ),
        ),
        ("TerminationGracePeriod", None if grace is None else _length("Duration", grace)),
        ("ExpireAfter", None if expiry == duration.NEVER else _length("NillableDuration", expiry)),
    )
    labelled = template.metadata.labels or template.metadata.annotations
    return str(_struct("NodeClaimTemplate", ("ObjectMeta", meta if labelled else None), ("Spec", inner)))


def _fnv(data: bytes) -> int:
    found = _BASIS
    for byte in data:
        found = (found * _PRIME & _MASK) ^ byte
    return found


def _word(text: str) -> int:
    return _fnv(text.encode())


def _text(text: str) -> int | None:
    """The hash of a field; an empty one is not there."""
    return _word(text) if text else None


def _pair(one: int, other: int) -> int:
    return _fnv(one.to_bytes(8, "little") + other.to_bytes(8, "little"))


def _struct(name: str, *fields: tuple[str, int | None]) -> int:
    found = _word(name)
    for field, value in fields:
        if value is not None:
            found = _fnv((found ^ _pair(_word(field), value)).to_bytes(8, "little"))
    return found


def _map(values: Mapping[str, str]) -> int | None:
    found = 0
    for key, value in values.items():
        found ^= _pair(_word(key), _word(value))
    return _fnv(found.to_bytes(8, "little")) if values else None


def _taints(taints: Iterable[Taint]) -> int | None:
    found: int | None = None
    for taint in taints:
        fields = (("Key", taint.key), ("Value", taint.value), ("Effect", taint.effect))
        found = (found or 0) ^ _struct("Taint", *((name, _text(value)) for name, value in fields))
    return found


def _length(name: str, text: str) -> int:
    """A duration in its wrapper. Wrapped plainly, a zero is not there; behind a pointer it is."""
    length = duration.nanoseconds(text)
    value = _fnv((length & _MASK).to_bytes(8, "little"))
    return _struct(name, ("Duration", value if length or name == "NillableDuration" else None))
