"""A pod as scheduling sees it, worked out once for all pods that are alike.

Two pods with the same namespace, labels and scheduling fields share one `PodInfo.shape`; so thousands of
replicas cost one parse. What selectors ask of a pod is its `kind`: namespace, labels and whether it is going.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakValueDictionary

import msgspec

from dovetail.model.fit.terms import AffinityTerm, Spread, WeightedTerm, affinity_terms, spreads, weighted_terms
from dovetail.model.host_ports import HostPort, host_ports
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import incoming_requests, requests, scored_requests
from dovetail.model.pods import (
    Container,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PreferredSchedulingTerm,
    Toleration,
    Volume,
)
from dovetail.model.selector import LabelSelectorRequirement, integer

_MATCH_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class SelectorFacts(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What a selector can tell of a pod. Interned: the same facts are the same object."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool


_KINDS: WeakValueDictionary[tuple[str, frozenset[tuple[str, str]], bool], SelectorFacts] = WeakValueDictionary()


def kind_of(namespace: str, labels: Mapping[str, str], terminating: bool) -> SelectorFacts:
    """The one Kind of these facts."""
    key = (namespace, frozenset(labels.items()), terminating)
    cached = _KINDS.get(key)
    if cached is None:
        cached = _KINDS[key] = SelectorFacts(namespace, dict(labels), terminating)
    return cached


class Shape(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Everything scheduling asks of a pod that does not depend on its name.

    `kind` is what it is while it is not going. `scored` and `placed` are what scores count for it while it comes
    and once it is there.
    """

    kind: SelectorFacts
    namespace: str
    labels: Mapping[str, str]
    requests: Mapping[str, int]
    scored: Mapping[str, int]
    placed: Mapping[str, int]
    ports: tuple[HostPort, ...]
    tolerations: tuple[Toleration, ...]
    node_selector: Mapping[str, str]
    node_terms: tuple[NodeSelectorTerm, ...] | None
    node_preferences: tuple[PreferredSchedulingTerm, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    preferred_affinity: tuple[WeightedTerm, ...]
    preferred_anti_affinity: tuple[WeightedTerm, ...]
    spread: tuple[Spread, ...]
    soft_spread: tuple[Spread, ...]
    own_spread: bool
    volumes: tuple[Volume, ...]
    images: tuple[str, ...]

    @property
    def has_affinity(self) -> bool:
        """Has something to say about other pods, so that others must listen when they are placed."""
        return bool(self.affinity or self.anti_affinity or self.preferred_affinity or self.preferred_anti_affinity)


class PodInfo(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod with its shape. `held` is what it takes of its node: a resize in flight counts in full."""

    pod: Pod
    shape: Shape
    kind: SelectorFacts
    held: Mapping[str, int]
    scored: Mapping[str, int]

    @property
    def key(self) -> str:
        return self.pod.metadata.uid or self.pod.metadata.key

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


_SHAPES: dict[bytes, Shape] = {}
_LARGEST_CACHE = 100_000
#: Shapes by the very parts they were made of: callers that intern equal parts find them without comparing.
_PARTS: dict[tuple[int, ...], tuple[tuple[object, ...], Shape]] = {}
_MOST_PARTS = 512
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def _parts(pod: Pod) -> tuple[object, ...]:
    """All that a shape is made of."""
    spec = pod.spec
    return (
        spec.containers,
        spec.init_containers,
        pod.metadata.namespace,
        pod.metadata.labels,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        spec.overhead,
        spec.resources,
        spec.volumes,
    )


def _signature(pod: Pod, parts: tuple[object, ...]) -> bytes:
    spec = pod.spec
    requested = (
        [_asked(container) for container in spec.containers],
        [_asked(init_container) for init_container in spec.init_containers],
    )
    return _encoder.encode((*requested, *parts[2:]))


def _asked(container: Container) -> tuple[object, ...]:
    return container.name, container.resources.requests, container.ports, container.restart_policy, container.image


def shape_of(pod: Pod) -> Shape:
    """The shape a pod shares with its likes."""
    parts = _parts(pod)
    key = tuple(map(id, parts))
    cached = _PARTS.get(key)
    if cached is not None:
        return cached[1]
    signature = _signature(pod, parts)
    shape = _SHAPES.get(signature)
    if shape is None:
        if len(_SHAPES) > _LARGEST_CACHE:
            _SHAPES.clear()
        shape = _SHAPES[signature] = _shape(pod)
    if len(_PARTS) >= _MOST_PARTS:
        _PARTS.clear()
    _PARTS[key] = parts, shape  # the parts are held, so that nothing else can have their place in memory
    return shape


def _shape(pod: Pod) -> Shape:
    spec = pod.spec
    unresized = msgspec.structs.replace(pod, status=type(pod.status)())
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    pod_affinity = spec.affinity.pod_affinity if spec.affinity else None
    pod_anti_affinity = spec.affinity.pod_anti_affinity if spec.affinity else None
    required = node_affinity.required if node_affinity else None
    return Shape(
        kind=kind_of(pod.metadata.namespace, pod.metadata.labels, False),
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        requests=requests(unresized),
        scored=incoming_requests(unresized),
        placed=scored_requests(unresized),
        ports=host_ports(pod),
        tolerations=spec.tolerations,
        node_selector=spec.node_selector,
        node_terms=required.node_selector_terms if required is not None else None,
        node_preferences=node_affinity.preferred if node_affinity else (),
        affinity=affinity_terms(pod, pod_affinity.required if pod_affinity else ()),
        anti_affinity=affinity_terms(pod, pod_anti_affinity.required if pod_anti_affinity else ()),
        preferred_affinity=weighted_terms(pod, pod_affinity.preferred if pod_affinity else ()),
        preferred_anti_affinity=weighted_terms(pod, pod_anti_affinity.preferred if pod_anti_affinity else ()),
        spread=spreads(pod, "DoNotSchedule"),
        soft_spread=spreads(pod, "ScheduleAnyway"),
        own_spread=bool(spec.topology_spread_constraints),
        volumes=spec.volumes,
        images=tuple(init_container.image for init_container in (*spec.init_containers, *spec.containers)),
    )


def _as_asked(pod: Pod) -> bool:
    """Whether every container runs with what its spec asks for: then no resize is in flight."""
    status, spec = pod.status, pod.spec
    reported = [
        (container_status.name, container_status.resources.requests, container_status.allocated_resources)
        for container_status in (*status.container_statuses, *status.init_container_statuses)
        if container_status.resources is not None
    ]
    if not reported:
        return True
    requested = {
        container.name: container.resources.requests for container in (*spec.containers, *spec.init_containers)
    }
    return not [name for name, given, allocated in reported if not requested.get(name) == given == allocated]


def pod_info(pod: Pod) -> PodInfo:
    """A pod, prepared."""
    shape = shape_of(pod)
    going = pod.metadata.deletion_timestamp is not None
    kind = kind_of(shape.namespace, shape.labels, True) if going else shape.kind
    if pod.status.resources is not None or not _as_asked(pod):
        return PodInfo(pod, shape, kind, requests(pod), scored_requests(pod))
    return PodInfo(pod, shape, kind, shape.requests, shape.placed)


def node_matches(shape: Shape, node: Node) -> bool:
    """Whether a node is one that the pod's selector and required node affinity ask for."""
    labels = node.metadata.labels
    for key, value in shape.node_selector.items():
        if labels.get(key) != value:
            return False
    return shape.node_terms is None or any(term_matches(term, node) for term in shape.node_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Every expression and field of a term must hold; a term that asks for nothing matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    if not all(_label_matches(match_expression, labels) for match_expression in term.match_expressions):
        return False
    return all(_field_matches(match_field, node.metadata.name) for match_field in term.match_fields)


def _label_matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator in _MATCH_OPERATORS:
        return LabelSelectorRequirement(
            key=requirement.key, operator=requirement.operator, values=requirement.values
        ).matches(labels)
    if requirement.operator not in ("Gt", "Lt") or len(requirement.values) != 1 or requirement.key not in labels:
        return False
    mine, bound = integer(labels[requirement.key]), integer(requirement.values[0])
    if mine is None or bound is None:
        return False
    return mine > bound if requirement.operator == "Gt" else mine < bound


def _field_matches(requirement: NodeSelectorRequirement, name: str) -> bool:
    if requirement.key != "metadata.name" or len(requirement.values) != 1:
        return False
    return (name == requirement.values[0]) == (requirement.operator == "In")
