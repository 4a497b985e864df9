"""What every controller is given: the client, the clock, the shared stores, the event recorder."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.events import EventRecorder
from dovetail.kube.resources import NODES, PODS, Resource
from dovetail.lab.controllers.informer import Informer, Listener
from dovetail.lab.controllers.interning import share_pod
from dovetail.lab.controllers.views import Json, NodeFields, PodFields

T = TypeVar("T")


class ControllerContext:
    """The tools of the controller manager. A store is opened by the first controller that asks for it."""

    def __init__(self, kube: Kube, clock: Clock, chance: Chance, recorder: EventRecorder) -> None:
        self.kube = kube
        self.clock = clock
        self.chance = chance
        self.recorder = recorder
        self.informers: dict[Resource, Informer[Any]] = {}
        self.pods: Informer[PodFields] = self._open(
            PODS,
            PodFields,
            share_pod,
            owner=lambda pod: pod.metadata.controller.uid if pod.metadata.controller else None,
            orphans=lambda pod: None if pod.metadata.controller else pod.metadata.namespace,
            node=lambda pod: pod.spec.node_name or None,
            namespace=lambda pod: pod.metadata.namespace,
        )
        self.nodes: Informer[NodeFields] = self._open(NODES, NodeFields)
        self._of_kind: dict[str, list[Listener[PodFields]]] = {}
        self.pods.listen(self._pod_changed)

    def with_recorder(self, recorder: EventRecorder) -> ControllerContext:
        """The same tools with another voice: each controller signs its own events."""
        other = object.__new__(ControllerContext)
        other.__dict__.update(self.__dict__)
        other.recorder = recorder
        return other

    def listen_to_pods_of(self, kind: str, listener: Listener[PodFields]) -> None:
        """Listen to pods that an object of this kind manages, or to those without a controller (``)."""
        self._of_kind.setdefault(kind, []).append(listener)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        for kind in {_manager(pod): None for pod in (old, new) if pod is not None}:
            for listener in self._of_kind.get(kind, ()):
                listener(old, new)

    def now(self) -> datetime:
        return self.clock.now()

    def store(self, resource: Resource) -> Informer[Json]:
        """The shared store of a workload kind, as JSON, indexed by controlling owner and by namespace."""
        informer = self.informers.get(resource)
        if informer is None:
            informer = self._open(resource, dict, owner=_owner_of, namespace=_namespace_of)
        return informer

    def typed(self, resource: Resource, type: type[T], **indices: Any) -> Informer[T]:
        """The shared store of a kind that is read through a view."""
        informer = self.informers.get(resource)
        return informer if informer is not None else self._open(resource, type, **indices)

    def _open(self, resource: Resource, type: Any, keep: Any = None, **indices: Any) -> Informer[Any]:
        informer: Informer[Any] = Informer(self.kube, resource, type, indices, keep=keep)
        self.informers[resource] = informer
        return informer


def _manager(pod: PodFields) -> str:
    owner = pod.metadata.controller
    return owner.kind if owner is not None else ""


def _owner_of(item: Json) -> str | None:
    for owner in item["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def _namespace_of(item: Json) -> str | None:
    namespace = item["metadata"].get("namespace")
    return str(namespace) if namespace else None
