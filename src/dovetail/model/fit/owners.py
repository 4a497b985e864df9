"""Who a pod belongs to: the selectors by which replicas are spread when the pod itself does not say.

kube-scheduler spreads the pods of one service, ReplicaSet, StatefulSet or ReplicationController softly
over hosts and zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.fit.terms import Spread
from dovetail.model.labels import HOSTNAME, ZONE
from dovetail.model.pods import Pod
from dovetail.model.selector import LabelSelector, LabelSelectorRequirement
from dovetail.model.workloads import ReplicaSet, ReplicationController, Service, StatefulSet

_API = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "ReplicationController": "v1"}


class Owners:
    """Services by namespace and name; the selectors of controllers by kind, namespace and name."""

    def __init__(
        self,
        services: Iterable[Service] = (),
        replica_sets: Iterable[ReplicaSet] = (),
        stateful_sets: Iterable[StatefulSet] = (),
        replication_controllers: Iterable[ReplicationController] = (),
    ) -> None:
        self.services: dict[str, dict[str, Mapping[str, str]]] = {}
        self.selectors: dict[tuple[str, str, str], LabelSelector | None] = {}
        self.generation = 0
        for service in services:
            self.set_service(service)
        for kind, sets in (("ReplicaSet", replica_sets), ("StatefulSet", stateful_sets)):
            for replicaset in sets:
                self.set_controller(
                    kind, replicaset.metadata.namespace, replicaset.metadata.name, replicaset.spec.selector
                )
        for controller in replication_controllers:
            self.set_replication_controller(controller)

    def set_service(self, service: Service) -> None:
        of_namespace = self.services.setdefault(service.metadata.namespace, {})
        if service.spec.selector is None:
            of_namespace.pop(service.metadata.name, None)
        else:
            of_namespace[service.metadata.name] = service.spec.selector
        self.generation += 1

    def remove_service(self, namespace: str, name: str) -> None:
        self.services.get(namespace, {}).pop(name, None)
        self.generation += 1

    def set_replication_controller(self, controller: ReplicationController) -> None:
        selector = LabelSelector(match_labels=controller.spec.selector)
        meta = controller.metadata
        self.set_controller("ReplicationController", meta.namespace, meta.name, selector)

    def set_controller(self, kind: str, namespace: str, name: str, selector: LabelSelector | None) -> None:
        self.selectors[kind, namespace, name] = selector
        self.generation += 1

    def remove_controller(self, kind: str, namespace: str, name: str) -> None:
        self.selectors.pop((kind, namespace, name), None)
        self.generation += 1

    def selector(self, pod: Pod) -> LabelSelector | None:
        """What the pod's replicas have in common, or None if nothing is known of them."""
        labels: dict[str, str] = {}
        of_namespace = self.services.get(pod.metadata.namespace, {})
        for name in sorted(of_namespace):
            selector = of_namespace[name]
            if all(pod.metadata.labels.get(key) == value for key, value in selector.items()):
                labels.update(selector)
        owner = pod.metadata.controller
        own: LabelSelector | None = None
        if owner is not None and _API.get(owner.kind) == owner.api_version:
            own = self.selectors.get((owner.kind, pod.metadata.namespace, owner.name))
        if own is None:
            return LabelSelector(match_labels=labels) if labels else None
        merged = _merged(labels, own)
        return None if merged.empty else merged


def _merged(labels: Mapping[str, str], own: LabelSelector) -> LabelSelector:
    """Both must hold; where they contradict each other, nothing matches."""
    clash = any(labels.get(key, value) != value for key, value in own.match_labels.items())
    if clash:
        from_labels = LabelSelector(match_labels=labels)
        return LabelSelector(
            match_labels=own.match_labels,
            match_expressions=(*own.match_expressions, *_as_expressions(from_labels)),
        )
    return LabelSelector(match_labels={**labels, **own.match_labels}, match_expressions=own.match_expressions)


def _as_expressions(selector: LabelSelector) -> tuple[LabelSelectorRequirement, ...]:
    return tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in selector.match_labels.items()
    )


def default_spread(selector: LabelSelector) -> tuple[Spread, ...]:
    """The soft constraints of pods that have none: hosts loosely, zones more loosely."""
    return (
        Spread(HOSTNAME, 3, 1, True, False, selector),
        Spread(ZONE, 5, 1, True, False, selector),
    )
