"""The hash of a pool's template, by which a node is known to be of an old one.

It is the hash that Karpenter writes, to the bit, so that a cluster may change hands without its nodes
drifting. Requirements are left out: a node that still meets them has not drifted.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model import duration
from dovetail.model.kinds.common import NodeClassRef, Taint
from dovetail.model.kinds.nodepool import NodePool, UnsaidList, UnsaidMap
from dovetail.model.kinds.struct_hash import bag, mapping, number, struct, word

HASH_ANNOTATION = "karpenter.sh/nodepool-hash"
VERSION_ANNOTATION = "karpenter.sh/nodepool-hash-version"
VERSION = "v3"


def pool_hash(pool: NodePool) -> str:
    """The static hash of a pool's template, as its annotation has it."""
    meta, spec = pool.spec.template.metadata, pool.spec.template.spec
    labels, annotations = _map(meta.labels), _map(meta.annotations)
    said = labels is not None or annotations is not None
    grace, expiry = spec.termination_grace_period, spec.expire_after
    inner = struct(
        "NodeClaimTemplateSpec",
        (
            ("Taints", _taints(spec.taints)),
            ("StartupTaints", _taints(spec.startup_taints)),
            ("NodeClassRef", _reference(spec.node_class_ref)),
            ("TerminationGracePeriod", None if grace is None else _length("Duration", grace)),
            ("ExpireAfter", None if expiry == duration.NEVER else _length("NillableDuration", expiry)),
        ),
    )
    outer = struct("ObjectMeta", (("Labels", labels), ("Annotations", annotations))) if said else None
    return str(struct("NodeClaimTemplate", (("ObjectMeta", outer), ("Spec", inner))))


def _reference(reference: NodeClassRef) -> int:
    fields = (("Kind", reference.kind), ("Name", reference.name), ("Group", reference.group))
    return struct("NodeClassReference", ((name, _text(value)) for name, value in fields))


def _text(text: str) -> int | None:
    """The hash of a field; an empty one is not there."""
    return word(text) if text else None


def _map(values: Mapping[str, str]) -> int | None:
    if isinstance(values, UnsaidMap):
        return None
    return mapping({key: word(value) for key, value in values.items()})


def _taints(taints: tuple[Taint, ...]) -> int | None:
    return None if isinstance(taints, UnsaidList) else bag(map(_taint, taints))


def _taint(taint: Taint) -> int:
    fields = (("Key", taint.key), ("Value", taint.value), ("Effect", taint.effect))
    return struct("Taint", ((name, _text(value)) for name, value in fields))


def _length(name: str, text: str) -> int:
    """A duration in its wrapper. Wrapped plainly, a zero is not there; behind a pointer it is."""
    length = duration.nanoseconds(text)
    return struct(name, (("Duration", number(length) if length or name == "NillableDuration" else None),))
