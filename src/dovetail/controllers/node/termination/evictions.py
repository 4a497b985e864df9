"""Evictions: each pod is evicted through the Eviction API, again and again until it is gone.

A refusal is an answer, not an error: the PDB that refused is named on the node's and the pod's events,
and the next try waits a little longer.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.controllers.context import Context
from dovetail.controllers.node.termination.drain import Forced
from dovetail.kube.errors import ApiError, Conflict, NotFound
from dovetail.kube.resources import PODS
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

MIN_RETRY_S, MAX_RETRY_S = 0.1, 10.0


class Evictions:
    """Remembers refusals, so that the eviction of a guarded pod is not requested a thousand times a second."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._refused: dict[str, tuple[float, float]] = {}  # uid -> (pause, next try)

    async def evict(self, node: Node, pods: Iterable[Pod], reason: str) -> None:
        for pod in pods:
            if self._refused.get(pod.metadata.uid, (0.0, 0.0))[1] <= self._context.clock.monotonic():
                await self._evict(node, pod, reason)

    async def force(self, node: Node, pods: Iterable[Forced], reason: str) -> None:
        """Delete without eviction the pods whose time is up."""
        context = self._context
        for pod in pods:
            meta = pod.pod.metadata
            try:
                await context.kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=pod.grace)
            except (NotFound, Conflict):
                continue
            except ApiError as answer:
                self._publish(node, f"deleting pod {meta.key}: {answer.message}")
                continue
            self._forget(pod.pod)
            context.metrics.pods_drained.labels(reason).inc()
            context.event_publisher.publish(
                pod.pod,
                "Normal",
                "Disrupted",
                f"Deleting the pod to accommodate the terminationTime {stamp(pod.end)} of the node. "
                f"The pod was granted {pod.grace} seconds of grace-period of its "
                f"{pod.pod.spec.termination_grace_period_seconds} terminationGracePeriodSeconds. "
                "This bypasses the PDB of the pod and the do-not-disrupt annotation.",
            )

    async def _evict(self, node: Node, pod: Pod, reason: str) -> None:
        context, meta = self._context, pod.metadata
        try:
            await context.kube.evict(meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict) as answer:
            self._forget(pod)
            context.metrics.evictions.labels(str(answer.status)).inc()
            return
        except ApiError as answer:  # by a PDB, a webhook, RBAC: the other pods may be evicted all the same
            context.metrics.evictions.labels(str(answer.status)).inc()
            self._postpone(node, pod, answer)
            return
        self._forget(pod)
        context.metrics.evictions.labels("200").inc()
        context.metrics.pods_drained.labels(reason).inc()
        context.event_publisher.publish(pod, "Normal", "Evicted", f"Evicted pod: {reason}", same=meta.uid)

    def _postpone(self, node: Node, pod: Pod, answer: ApiError) -> None:
        pause = min(MAX_RETRY_S, 2 * self._refused.get(pod.metadata.uid, (MIN_RETRY_S / 2, 0.0))[0])
        self._refused[pod.metadata.uid] = (pause, self._context.clock.monotonic() + pause)
        self._publish(node, f"evicting pod {pod.metadata.key}: {answer.message}")

    def _publish(self, node: Node, what: str) -> None:
        self._context.event_publisher.publish(node, "Warning", "FailedDraining", f"Failed to drain node, {what}")

    def _forget(self, pod: Pod) -> None:
        self._refused.pop(pod.metadata.uid, None)
