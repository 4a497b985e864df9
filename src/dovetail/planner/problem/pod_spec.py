"""Shapes: the scheduling constraints of a pod, read once and shared by all pods with equal ones.

Two pods have one shape if everything that the planner reads of them is equal. The key is the encoded fields
themselves, so it is exact. Which labels and volumes matter is decided later, for each snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dovetail.model import pod_resources
from dovetail.model.fit.storage import disk_name
from dovetail.model.pods import NodeSelectorTerm, Pod, PodAffinityTerm, Toleration
from dovetail.model.quantity import QuantityError
from dovetail.planner.cache import PlannerCache
from dovetail.planner.requirements import NEVER, NODE_NAME, Clause, Term, clause, of_selector

_encode = msgspec.msgpack.Encoder().encode

#: (ip, protocol, port)
Port = tuple[str, str, int]
_EVERYWHERE = "0.0.0.0"
#: Prefix of a pod's claims that are disks named in the pod itself.
DISK = "disk "


class SpreadConstraint(msgspec.Struct, frozen=True):
    """A topology spread constraint with its selector resolved."""

    key: str
    max_skew: int
    hard: bool
    selector: Term
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


class AffinityRule(msgspec.Struct, frozen=True):
    """A pod affinity or anti-affinity term. `weight` 0 means required."""

    key: str
    selector: Term
    namespaces: tuple[str, ...]
    namespace_selector: Term | None
    weight: int = 0


class PodConstraints:
    """The scheduling constraints of pods. Shapes are interned, so identity is equality."""

    __slots__ = (
        "affinity",
        "amounts",
        "anti",
        "claims",
        "code",
        "controller",
        "daemon",
        "error",
        "labels",
        "namespace",
        "ports",
        "preferred",
        "priority",
        "priority_class",
        "relaxation_levels",
        "requests",
        "requests_key",
        "required",
        "selector_key",
        "spreads",
        "tolerated",
        "tolerations",
    )

    def __init__(self, pod: Pod) -> None:
        spec, meta = pod.spec, pod.metadata
        self.namespace = meta.namespace or "default"
        self.labels: Mapping[str, str] = meta.labels
        self.selector_key = repr((self.namespace, sorted(meta.labels.items())))
        """Namespace and labels, for selectors; a string, because strings cache their hash."""
        self.tolerations: tuple[Toleration, ...] = spec.tolerations
        self.priority = spec.priority
        self.priority_class = spec.priority_class_name
        self.error = "the pod claims devices, which are not planned for" if spec.resource_claims else ""
        self.code = "DEVICES" if spec.resource_claims else "UNREADABLE"
        """The reason code of the error, if there is one."""
        self.requests = self._requests(pod)
        self.amounts = tuple(sorted(self.requests.items()))
        self.tolerated = tuple(
            sorted(
                (toleration.key, toleration.operator, toleration.value, toleration.effect)
                for toleration in spec.tolerations
            )
        )
        self.required = _required(pod)
        affinity = spec.affinity
        preferred = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
        self.preferred: tuple[tuple[int, Term], ...] = tuple(
            (preferred_term.weight, _term(preferred_term.preference)) for preferred_term in preferred
        )
        self.spreads = tuple(
            SpreadConstraint(
                clause(topology_spread.topology_key, "")[0],
                topology_spread.max_skew,
                topology_spread.when_unsatisfiable != "ScheduleAnyway",
                of_selector(topology_spread.label_selector, self.labels, topology_spread.match_label_keys),
                topology_spread.min_domains or 0,
                topology_spread.node_affinity_policy != "Ignore",
                topology_spread.node_taints_policy == "Honor",
            )
            for topology_spread in spec.topology_spread_constraints
        )
        self.affinity = self._affinity_rules(affinity.pod_affinity if affinity else None)
        self.anti = self._affinity_rules(affinity.pod_anti_affinity if affinity else None)
        self.ports = (*_ports(pod), *((_EVERYWHERE, disk, 1) for disk in disks_of(pod)))
        self.requests_key = repr((self.amounts, self.ports))
        """The requests as a string."""
        self.relaxation_levels: tuple[object, Any] = (None, None)
        """The relaxation levels that were computed last, and their inputs; see `pod_classes`."""
        self.claims = tuple(sorted(claim_names(pod))) if spec.volumes else ()
        owner = meta.controller
        self.daemon = owner is not None and owner.kind in ("DaemonSet", "Node")
        self.controller = owner.uid if owner is not None else ""

    def _requests(self, pod: Pod) -> dict[str, int]:
        try:
            requests = pod_resources.requests(pod)
        except QuantityError as problem:
            self.error = f"the pod's requests cannot be read: {pod_resources.unreadable(pod) or problem}"
            return {"pods": 1}
        requests["pods"] = 1
        negative = [name for name, amount in requests.items() if amount < 0]
        if negative:
            self.error = f"the pod's requests cannot be read: {negative[0]} is less than nothing"
        return {name: amount for name, amount in requests.items() if amount > 0}

    def _affinity_rules(self, source: object) -> tuple[AffinityRule, ...]:
        if source is None:
            return ()
        required: Iterable[PodAffinityTerm] = getattr(source, "required", ())
        preferred = getattr(source, "preferred", ())
        terms = [(term, 0) for term in required] + [
            (preferred_term.pod_affinity_term, preferred_term.weight) for preferred_term in preferred
        ]
        return tuple(self._affinity_rule(term, weight) for term, weight in terms)

    def _affinity_rule(self, term: PodAffinityTerm, weight: int) -> AffinityRule:
        chosen = term.namespace_selector
        own = (self.namespace,) if chosen is None and not term.namespaces else ()
        return AffinityRule(
            clause(term.topology_key, "")[0],
            of_selector(term.label_selector, self.labels, term.match_label_keys, term.mismatch_label_keys),
            tuple(sorted({*term.namespaces, *own})),
            of_selector(chosen, {}) if chosen is not None else None,
            weight,
        )


def _required(pod: Pod) -> tuple[Term, ...]:
    """The alternative required terms; the node selector is part of each."""
    base: list[Clause] = [clause(key, "In", (value,)) for key, value in pod.spec.node_selector.items()]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return (tuple(sorted(base)),)
    terms = [_term(term) for term in affinity.required.node_selector_terms]
    full = tuple(dict.fromkeys(tuple(sorted({*base, *term})) for term in terms if term))
    return full or ((NEVER,),)


def _term(term: NodeSelectorTerm) -> Term:
    parts = [clause(expression.key, expression.operator, expression.values) for expression in term.match_expressions]
    parts += [(NODE_NAME, match_field.operator, tuple(sorted(match_field.values))) for match_field in term.match_fields]
    return tuple(sorted(parts))


def _ports(pod: Pod) -> tuple[Port, ...]:
    if not any(container.ports for container in (*pod.spec.containers, *pod.spec.init_containers)):
        return ()
    sidecars = [init_container for init_container in pod.spec.init_containers if init_container.sidecar]
    ports = {
        (port.host_ip if port.host_ip not in ("", "::") else _EVERYWHERE, port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port
    }
    return tuple(sorted(ports))


def claim_names(pod: Pod) -> Iterable[tuple[str, str | None]]:
    """The pod's claims by key, with the StorageClass of an ephemeral volume's template."""
    namespace = pod.metadata.namespace or "default"
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield f"{namespace}/{volume.persistent_volume_claim.claim_name}", None
        elif volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
            made_of = volume.ephemeral.volume_claim_template.spec.storage_class_name
            yield f"{namespace}/{pod.metadata.name}-{volume.name}", made_of or ""
    yield from ((disk, None) for disk in disks_of(pod))


def disks_of(pod: Pod) -> list[str]:
    """The disks that a pod names itself. A node attaches each of them once, as it has each port once."""
    return [DISK + name for name in sorted(set(filter(None, map(disk_name, pod.spec.volumes))))]


def signature(pod: Pod) -> bytes:
    """The exact key of a pod's shape."""
    spec, meta = pod.spec, pod.metadata
    if len(spec.containers) == 1 and not (spec.volumes or spec.init_containers or pod.status.container_statuses):
        only = spec.containers[0]
        return _key(
            (
                meta.namespace,
                meta.labels,
                meta.owner_references,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                only.resources,
                only.ports,
                spec.overhead,
                spec.resources,
                spec.priority,
                spec.priority_class_name,
                spec.resource_claims,
            )
        )
    own = list(claim_names(pod)) if spec.volumes else None
    statuses = pod.status.container_statuses
    resized = statuses if any(status.resources is not None for status in statuses) else None
    parts = (
        meta.namespace,
        meta.labels,
        meta.owner_references,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        [(c.resources, c.ports) for c in spec.containers],
        [(c.resources, c.ports, c.restart_policy) for c in spec.init_containers],
        spec.overhead,
        spec.resources,
        own,
        spec.priority,
        spec.priority_class_name,
        resized,
        spec.resource_claims,
    )
    return _key(parts)


def _key(parts: tuple[object, ...]) -> bytes:
    """The parts as bytes. Quantities may exceed 64 bits; such pods are rare and fit on no node."""
    try:
        return _encode(parts)
    except OverflowError:
        return repr(parts).encode()


class ShapedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with its shape. There is one for every pod of a cluster, so the garbage collector does not track it."""

    pod: Pod
    shape: PodConstraints


def shape_of(pod: Pod, memory: PlannerCache) -> PodConstraints:
    """The pod's shape, cached by UID as long as the pod object is the same."""
    by_uid: dict[str, ShapedPod] = memory.table("pods")
    cached = by_uid.get(pod.metadata.uid)
    if cached is not None and cached.pod is pod:
        return cached.shape
    shape = interned(pod, memory)
    if pod.metadata.uid:
        by_uid[pod.metadata.uid] = ShapedPod(pod, shape)
    return shape


def last_shapes_of(pods: Iterable[Pod], memory: PlannerCache) -> list[PodConstraints]:
    """The shapes of pods, from the cache where possible; new ones are not cached."""
    by_uid: dict[str, ShapedPod] = memory.table("pods")
    shapes: dict[bytes, PodConstraints] = memory.table("shapes")
    last_shapes = []
    for pod in pods:
        cached = by_uid.get(pod.metadata.uid)
        if cached is not None and cached.pod is pod:
            last_shapes.append(cached.shape)
            continue
        key = signature(pod)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = PodConstraints(pod)
        last_shapes.append(shape)
    return last_shapes


def forgotten_shape_of(pod: Pod, memory: PlannerCache) -> PodConstraints:
    """The shape of a pod that has left its node; it is removed from the cache."""
    by_uid: dict[str, ShapedPod] = memory.table("pods")
    cached = by_uid.get(pod.metadata.uid)
    if cached is None or cached.pod is not pod:
        return interned(pod, memory)
    del by_uid[pod.metadata.uid]
    return cached.shape


def interned(pod: Pod, memory: PlannerCache) -> PodConstraints:
    """The pod's shape, interned; the pod itself is not cached."""
    shapes = memory.table("shapes")
    key = signature(pod)
    shape: PodConstraints | None = shapes.get(key)
    if shape is None:
        shape = shapes[key] = PodConstraints(pod)
    return shape
