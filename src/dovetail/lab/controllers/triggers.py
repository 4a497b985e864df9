"""When the change began that a service's endpoints now show: what whoever measures their delay subtracts from.

Readiness tells its instant, and so does the service's creation; a pod that went tells none.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.lab.controllers.views import Json, PodView

TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"


class Triggers:
    """Remembers, for each service, the instants it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = {}

    def marks(self, service: Json, pods: Iterable[PodView]) -> dict[str, str]:
        """The annotation that says the earliest instant not seen before; none if there is none."""
        meta = service["metadata"]
        conditions = ((pod.metadata.name, pod.status.condition("Ready")) for pod in pods)
        now = {name: each.last_transition_time for name, each in conditions if each and each.last_transition_time}
        seen = self._seen.get(meta["uid"])
        self._seen[meta["uid"]] = now
        if seen is None:
            return {TRIGGER: meta["creationTimestamp"]}
        fresh = [instant for name, instant in now.items() if instant > seen.get(name, "")]
        return {TRIGGER: min(fresh)} if fresh else {}

    def forget(self, service: Json) -> None:
        self._seen.pop(service["metadata"]["uid"], None)
