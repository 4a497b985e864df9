"""The status ConfigMap: health, scale-up and scale-down of the cluster and of every group, as YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import yaml

from dovetail.autoscalers.node_groups.annotations import LAST_UPDATED
from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState, Readiness

MAX_ERROR_MESSAGE_CHARS = 500
TRUNCATED = "<truncated>"
INITIALIZING, RUNNING = "Initializing", "Running"


class StatusWriter:
    """Remembers when each status last changed; `text` renders the newest one."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], tuple[str, str | None]] = {}

    def text(
        self,
        state: GroupClusterState,
        candidates: Mapping[str, Sequence[str]],
        now: datetime,
        *,
        scale_down_at: datetime | None = None,
    ) -> str:
        """The YAML of the ConfigMap's key `status`. `candidates`: unneeded nodes by group, worked out at that time."""
        probe, scale_down_probe = _stamp(state.total.time), _stamp(scale_down_at)
        groups = [self._group(state, name, candidates.get(name, ()), now, scale_down_probe) for name in state.groups]
        scaling = any(group["scaleUp"]["status"] == "InProgress" for group in groups)
        total = sum(len(names) for names in candidates.values())
        healthy = "Healthy" if state.is_cluster_healthy() else "Unhealthy"
        document: dict[str, Any] = {
            "time": _go_time(now),
            "autoscalerStatus": RUNNING,
            "clusterWide": {
                "health": {
                    "status": healthy,
                    "nodeCounts": _counts(state.total),
                    **self._times("", "health", healthy, probe),
                },
                "scaleUp": self._timed("", "scaleUp", "InProgress" if scaling else "NoActivity", probe),
                "scaleDown": self._scale_down("", total, scale_down_probe),
            },
        }
        if groups:
            document["nodeGroups"] = groups
        return _yaml(document)

    def _group(
        self,
        state: GroupClusterState,
        name: str,
        candidates: Sequence[str],
        now: datetime,
        scale_down_probe: str | None,
    ) -> dict[str, Any]:
        group = state.groups[name]
        readiness = state.readiness.get(name, Readiness())
        probe = _stamp(readiness.time)
        safety = state.safety(name, now)
        healthy = "Healthy" if safety.healthy else "Unhealthy"
        if state.is_scaling_up(name):
            status = "InProgress"
        elif not safety.healthy:
            status = "Unhealthy"
        else:
            status = "Backoff" if safety.backoff is not None else "NoActivity"
        scale_up: dict[str, Any] = {"status": status}
        if safety.backoff is not None and status == "Backoff":
            error = safety.backoff.error
            scale_up["backoffInfo"] = {
                "errorCode": error.code,
                "errorMessage": _shortened(error.message),
            }
        scale_up |= self._times(name, "scaleUp", status, probe)
        return {
            "name": name,
            "health": {
                "status": healthy,
                "nodeCounts": _counts(readiness),
                "cloudProviderTarget": group.target_size,
                "minSize": group.min_size,
                "maxSize": group.max_size,
                **self._times(name, "health", healthy, probe),
            },
            "scaleUp": scale_up,
            "scaleDown": self._scale_down(name, len(candidates), scale_down_probe),
        }

    def _scale_down(self, group: str, count: int, probe: str | None) -> dict[str, Any]:
        status = "CandidatesPresent" if count else "NoCandidates"
        condition: dict[str, Any] = {"status": status}
        if count:
            condition["candidates"] = count
        return condition | self._times(group, "scaleDown", status, probe)

    def _timed(self, group: str, what: str, status: str, probe: str | None) -> dict[str, Any]:
        return {"status": status} | self._times(group, what, status, probe)

    def _times(self, group: str, what: str, status: str, probe: str | None) -> dict[str, str | None]:
        """When it was last looked at (never for a group without a node), and since when it is so."""
        last = self._since.get((group, what))
        if last is None or last[0] != status:
            last = self._since[group, what] = (status, probe)
        return {"lastProbeTime": probe, "lastTransitionTime": last[1]}


def initializing(now: datetime, problem: str = "") -> str:
    """What the ConfigMap says before the first loop, or while the cluster has nothing to begin with."""
    why = {"message": problem} if problem else {}
    return _yaml({"time": _go_time(now), "autoscalerStatus": INITIALIZING, **why})


def config_map(name: str, namespace: str, data: Mapping[str, str], now: datetime) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": {LAST_UPDATED: _go_time(now)}},
        "data": dict(data),
    }


def _counts(readiness: Readiness) -> dict[str, Any]:
    suspended = {"suspended": len(readiness.suspended)} if readiness.suspended else {}
    deleted = {"beingDeleted": len(readiness.deleted)} if readiness.deleted else {}
    return {
        "registered": {
            "total": len(readiness.registered),
            "ready": len(readiness.ready),
            "notStarted": len(readiness.not_started),
            **suspended,
            **deleted,
            "unready": {"total": len(readiness.unready), "resourceUnready": len(readiness.resource_unready)},
        },
        "longUnregistered": len(readiness.long_unregistered),
        "unregistered": len(readiness.unregistered),
    }


def _shortened(message: str) -> str:
    """The message as far as a ConfigMap has room for those of all groups, with a mark where it was cut."""
    if len(message) <= MAX_ERROR_MESSAGE_CHARS:
        return message
    return message[: MAX_ERROR_MESSAGE_CHARS - len(TRUNCATED)] + TRUNCATED


class _StatusDumper(yaml.SafeDumper):
    """Quotes as Go programs do, so that what people grep for is there."""

    def choose_scalar_style(self) -> str:
        style: str = super().choose_scalar_style()
        return '"' if style == "'" else style


def _yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_StatusDumper, sort_keys=False, default_flow_style=False, width=1000)
    return text


def _stamp(now: datetime | None) -> str | None:
    return None if now is None else f"{now:%Y-%m-%dT%H:%M:%S}{_fraction(now)}Z"


def _go_time(now: datetime) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S}{_fraction(now)} +0000 UTC"


def _fraction(now: datetime) -> str:
    """Of the second, as Go writes it: without zeros at its end, and none where there is none."""
    return f".{now:%f}".rstrip("0").rstrip(".")
