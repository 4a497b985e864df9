"""What `dovetail up` prints: what runs and what to type next; then, without a screen, a line for every change."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.kube.resources import CORE_EVENTS, NODES, PODS
from dovetail.lab.controllers.informer import Informer
from dovetail.lab.controllers.views import Json, NodeFields, PodFields
from dovetail.language import message, plural, source
from dovetail.language.recognition import recognized
from dovetail.runfile import command_for

if TYPE_CHECKING:
    from rich.console import Console

    from dovetail.lab.up import StartedLab

REFRESH_SECONDS = 1.0
#: Seconds for which a reported warning is not repeated.
WARNING_REPEAT_S = 60.0


def welcome(running: StartedLab, names: list[str], dashboard: str = "") -> list[str]:
    """The first screen."""
    settings = running.settings
    zones = ", ".join(settings.zones[: len(names) or None])
    speed = "" if settings.speed == 1 else message(", {speed:g} seconds a second", speed=settings.speed)
    plane = message("embedded") if settings.control_plane == "embedded" else "Kubernetes v1.36.3"
    kept = message("kept in {data}", data=settings.data) if settings.data else message("in memory")
    return [
        f"Kubernetes  {running.url}   ({plane}, {kept}{speed})",
        message(
            "nodes       {count} x {node_type} in {zones}", count=len(names), node_type=settings.node_type, zones=zones
        ),
        message("kubeconfig  {path}", path=settings.kubeconfig),
        message("seed        {seed}", seed=running.seed),
        *_cloud(running),
        *([message("dashboard   {url}", url=dashboard)] if dashboard else []),
        "",
        message("Next, in another terminal:"),
        *_path(),
        f'  eval "$({command_for("env", settings.name)})"',
        message("  kubectl get nodes        (no kubectl? dovetail kubectl get nodes)"),
        "  kubectl create deployment web --image=nginx --replicas=3",
        "  kubectl rollout status deployment/web",
        "",
        message("Ctrl-C stops the lab."),
    ]


def _path() -> list[str]:
    """How to get at the command where a terminal would not find it."""
    activate = Path(sys.prefix, "bin", "activate")
    if shutil.which("dovetail") or not activate.exists():
        return []
    near = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return [message("  . {near}     (puts dovetail and a kubectl in the PATH)", near=near)]


def _cloud(running: StartedLab) -> list[str]:
    settings = running.settings
    if running.eks is None:
        return []
    if settings.fresh:
        lines = [
            message(
                "AWS         EKS cluster {cluster_name} in {region}; no autoscaler is installed",
                cluster_name=settings.cluster_name,
                region=settings.region,
            )
        ]
        return [*lines, "install     dovetail install", *_charts(running)]
    return [
        message(
            "AWS         EKS cluster {cluster_name} in {region}; tag karpenter.sh/discovery, "
            "role KarpenterNodeRole-{cluster_name}",
            cluster_name=settings.cluster_name,
            region=settings.region,
        ),
    ]


def _charts(running: StartedLab) -> list[str]:
    """Where Helm finds the chart."""
    address = running.eks.charts.address if running.eks is not None and running.eks.charts is not None else ""
    return (
        [message("            or helm, with --plain-http: oci://{address}/karpenter/karpenter", address=address)]
        if address
        else []
    )


def faults_now(running: StartedLab) -> list[str]:
    """The kinds of faults that the lab has now."""
    faults = running.lab.faults
    return sorted({fault.kind for fault in faults.now.values()}) if faults is not None else []


#: How many pods are in a state, in the order shown.
_STATES = {
    "running": source("{n} running"),
    "starting": source("{n} starting"),
    "pending": source("{n} pending"),
    "failed": source("{n} failed"),
    "done": source("{n} done"),
    "going": source("{n} going"),
}


class StatusLines:
    """Counts nodes and pods, keeps the last events."""

    def __init__(self, running: StartedLab, console: Console, dashboard: str = "") -> None:
        self._running = running
        self._dashboard = dashboard
        self._console = console
        kube = running.lab.client("dovetail-view")
        self._pods: Informer[PodFields] = Informer(kube, PODS, PodFields)
        self._nodes: Informer[NodeFields] = Informer(kube, NODES, NodeFields)
        self._news: Informer[Json] = Informer(kube, CORE_EVENTS, dict)
        self._warnings: list[Json] = []
        self._warned: dict[tuple[str, ...], float] = {}
        self._last_line: str = ""
        self._news.listen(self._event)

    def _event(self, old: Json | None, new: Json | None) -> None:
        if new is not None and new.get("type") == "Warning" and old is None:
            self._warnings.append(new)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._pods, self._nodes, self._news):
                tasks.create_task(informer.run())
            for informer in (self._pods, self._nodes):
                await informer.synced.wait()
            names = sorted(key for key, _ in self._nodes.items())
            for line in (*map(recognized, self._running.notes), *welcome(self._running, names, self._dashboard)):
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            await self._plain()

    async def _plain(self) -> None:
        while True:
            self._warn()
            line = self._summary()
            if line != self._last_line:
                self._last_line = line
                clock = self._running.lab.clock.now().strftime("%H:%M:%S")
                self._console.print(f"{clock}  {line}", markup=False, highlight=False, soft_wrap=True)
            await asyncio.sleep(3 * REFRESH_SECONDS * self._running.settings.speed)

    def _warn(self) -> None:
        now = self._running.lab.clock.monotonic()
        self._warned = {gist: moment for gist, moment in self._warned.items() if now - moment < WARNING_REPEAT_S}
        for gist, events in together(self._warnings).items():
            if self._warned.setdefault(gist, now) == now:
                self._console.print(_line(events), markup=False, highlight=False, soft_wrap=True)
        self._warnings.clear()

    def _summary(self) -> str:
        counts = Counter(_state(pod) for pod in self._pods.all())
        up = sum(_ready(node) for node in self._nodes.all())
        total = len(self._nodes)
        nodes = plural("{n} node", "{n} nodes", n=total) + ("" if up == total else message(", {up} ready", up=up))
        pods = ", ".join(message(text, n=counts[name]) for name, text in _STATES.items() if counts[name])
        broken = faults_now(self._running)
        faults = message("; broken: {faults}", faults=", ".join(broken)) if broken else ""
        return message("{nodes}; pods: {pods}", nodes=nodes, pods=pods or message("none")) + faults


def together(events: Iterable[Json]) -> dict[tuple[str, ...], list[Json]]:
    """Events by what they say, in the order in which it was last said."""
    events_by_gist: dict[tuple[str, ...], list[Json]] = {}
    for event in events:
        gist = (event["involvedObject"]["kind"], event.get("reason", ""), event.get("message", ""))
        alike = events_by_gist.pop(gist, [])
        alike.append(event)
        events_by_gist[gist] = alike
    return events_by_gist


def _line(events: Sequence[Json]) -> str:
    """A line for events that say the same."""
    last = events[-1]
    when = (last.get("lastTimestamp") or last.get("eventTime") or "")[11:19]
    names = sorted({f"{event['involvedObject']['kind'].lower()}/{event['involvedObject']['name']}" for event in events})
    more = message(" and {count} more", count=len(names) - 1) if len(names) > 1 else ""
    return f"{when}  {names[0]}{more}  {last.get('reason', '')}: {last.get('message', '')}"


def _ready(node: NodeFields) -> bool:
    condition = node.status.condition("Ready")
    return condition is not None and condition.status == "True"


def _state(pod: PodFields) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "going"
    if pod.status.phase in ("Failed", "Succeeded"):
        return "failed" if pod.status.phase == "Failed" else "done"
    if pod.status.phase == "Running":
        return "running"
    return "starting" if pod.spec.node_name else "pending"
