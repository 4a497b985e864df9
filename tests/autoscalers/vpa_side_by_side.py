"""An API server over HTTP for the programs of both implementations, and random workloads for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.autoscalers.vpa.crds import definitions
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.resources import (
    CORE_EVENTS,
    CRDS,
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.http import HttpMount
from dovetail.lab.in_process import InProcess
from dovetail.lab.server import LabServer
from dovetail.model.meta import stamp

Json = dict[str, Any]
#: Answers a request of a program, or lets it pass with None.
Intercept = Callable[[Request], Awaitable[Response | None]]


class InterceptedServer:
    """The lab's API server; `intercept` sees the requests of programs first."""

    def __init__(self, server: LabServer) -> None:
        self.address = ""
        self.intercept: Intercept | None = None
        self._server = server

    async def handle(self, request: Request) -> Response:
        answer = await self.intercept(request) if self.intercept is not None else None
        return answer or await self._server.handle(request)


class ServedApi(msgspec.Struct, frozen=True):
    """An API server that programs reach with a kubeconfig, and the test without HTTP."""

    kube: Kube
    clock: Clock
    server: InterceptedServer
    kubeconfig: Path


@asynccontextmanager
async def served_api(folder: Path) -> AsyncIterator[ServedApi]:
    clock = Clock(asyncio.get_running_loop())
    lab = LabServer(clock, Chance(1).child("apiserver"))
    server = InterceptedServer(lab)
    mount = HttpMount(server)
    await mount.start()
    kube = Kube(InProcess(lab), clock)
    for definition in definitions():
        await kube.create(CRDS, definition)
    kubeconfig = folder / "kubeconfig"
    named = {"clusters": {"server": f"http://127.0.0.1:{mount.port}"}, "users": {}, "contexts": {}}
    named["contexts"] = {"cluster": "lab", "user": "lab"}
    config: Json = {kind: [{"name": "lab", kind.removesuffix("s"): body}] for kind, body in named.items()}
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "lab", **config}))
    try:
        yield ServedApi(kube, clock, server, kubeconfig)
    finally:
        await mount.stop()


WORKLOADS: tuple[Resource, ...] = (DEPLOYMENTS, STATEFULSETS, DAEMONSETS, REPLICASETS, JOBS, CRONJOBS)


def api_version(resource: Resource) -> str:
    return f"{resource.group}/{resource.version}"


def workload_spec(resource: Resource, name: str, labels: dict[str, str], template: Json) -> Json:
    """The spec of a workload of any kind with two pods."""
    if resource in (JOBS, CRONJOBS):
        job = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
        return job if resource is JOBS else {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    if resource is not DAEMONSETS:
        spec["replicas"] = 2
    return {**spec, "serviceName": name} if resource is STATEFULSETS else spec


def random_policies(chance: Chance, containers: list[str]) -> list[Json]:
    """Container policies that the API server takes."""
    policies = []
    for name in (*containers, "*"):
        if chance.random() < 0.6:
            continue
        policy: Json = {"containerName": name}
        for odds, field, choices in (
            (0.25, "mode", ("Auto", "Off")),
            (0.3, "minAllowed", ({"cpu": "50m"}, {"memory": "2Gi"}, {"cpu": "1", "memory": "300M"})),
            (0.3, "maxAllowed", ({"cpu": "100m"}, {"memory": "5e8"}, {"cpu": "2", "memory": "1Gi"})),
            (0.3, "controlledResources", (["cpu"], ["memory"], [])),
            (0.2, "controlledValues", ("RequestsOnly",)),
            (0.2, "oomBumpUpRatio", ("1.5", 3)),
            (0.2, "oomMinBumpUp", ("0", "200Mi")),
            (0.2, "memoryAggregationIntervalSeconds", (60, 7200)),
        ):
            if chance.random() < odds:
                policy[field] = chance.choice(choices)
        policies.append(policy)
    return policies


class MeasuredPods:
    """A workload whose pods the test plays: they come and go, run out of memory, and use what the script says."""

    def __init__(self, chance: Chance, number: int) -> None:
        self.chance = chance
        self.name = f"app-{number}"
        self.resource = chance.choice(WORKLOADS)
        self.containers = [f"c{index}" for index in range(chance.choice((1, 1, 2, 3)))]
        self.labels = {"app": self.name}
        self.statuses: dict[str, list[Json]] = {}
        #: Milli-cores and bytes by pod and container.
        self.use: dict[tuple[str, str], list[float]] = {}
        self._made = 0

    async def create(self, kube: Kube) -> None:
        template = {"metadata": {"labels": self.labels}, "spec": self._pod_spec()}
        spec = workload_spec(self.resource, self.name, dict(self.labels), template)
        made = await kube.create(self.resource, {"metadata": {"name": self.name, "namespace": "default"}, "spec": spec})
        if self.resource is JOBS:
            self.labels |= made["spec"]["selector"]["matchLabels"]
        for _ in range(self.chance.choice((0, 1, 2, 3))):
            await self.add_pod(kube)

    def target(self) -> Json:
        return {"apiVersion": api_version(self.resource), "kind": self.resource.kind, "name": self.name}

    def _pod_spec(self) -> Json:
        resources = {"requests": {"cpu": "100m", "memory": "300Mi"}}
        return {"containers": [{"name": name, "image": "nginx", "resources": resources} for name in self.containers]}

    async def add_pod(self, kube: Kube) -> None:
        self._made += 1
        name = f"{self.name}-{self._made}"
        spec = {**self._pod_spec(), "nodeName": "n"}
        if self.chance.random() < 0.3:
            spec["initContainers"] = [{"name": "init", "image": "busybox", "restartPolicy": "Always"}]
        labels = self.labels | ({"extra": self.chance.choice(("a", "b"))} if self.chance.random() < 0.2 else {})
        await kube.create(PODS, {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec})
        self.statuses[name] = [
            {"name": item, "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
            for item in self.containers
        ]
        await self.write(kube, name, phase="Pending" if self.chance.random() < 0.08 else "Running")
        for container in (*self.containers, "init"):
            self.use[name, container] = [self.chance.choice((1, 20, 300, 5000)), self.chance.choice((0, 5e6, 8e7, 3e9))]

    async def write(self, kube: Kube, name: str, **fields: Any) -> None:
        """Write a pod's status as a kubelet does."""
        status = {"containerStatuses": self.statuses[name], **fields}
        await kube.patch(PODS, name, {"status": status}, "default", kind="merge", subresource="status")

    async def play(self, kube: Kube, at: Any) -> None:
        """One random thing that happens to the pods; `at` is the script's time."""
        happening = self.chance.choice(
            ("killed", "killed", "restarted", "pod", "gone", "container", "grows", "evicted", "relabelled", "finished")
        )
        if happening == "pod" or not self.statuses:
            return await self.add_pod(kube)
        if happening == "container":
            self.containers = self.chance.choice(([*self.containers, f"n{self._made}"], self.containers[:1]))
            return await self.add_pod(kube)
        name = self.chance.choice(sorted(self.statuses))
        status = self.chance.choice(self.statuses[name])
        if happening in ("killed", "restarted"):
            end = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "startedAt": at, "finishedAt": at}}
            status["restartCount"] += happening == "restarted"
            status |= {"state": end} if happening == "killed" else {"state": {"running": {}}, "lastState": end}
            await self.write(kube, name)
        elif happening == "gone":
            del self.statuses[name]
            await kube.request("DELETE", PODS.path("default", name), (("gracePeriodSeconds", "0"),))
        elif happening == "grows":
            for (pod, _), use in self.use.items():
                if pod == name:
                    use[:] = [use[0] * 3, use[1] * 1.4 + 1e6]
        elif happening == "evicted":
            await kube.create(CORE_EVENTS, self._eviction(name))
        elif happening == "relabelled":
            labels = {"metadata": {"labels": {"extra": self.chance.choice(("a", "b", "c"))}}}
            await kube.patch(PODS, name, labels, "default", kind="merge")
        else:
            await self.write(kube, name, phase=self.chance.choice(("Succeeded", "Failed")))
        return None

    def _eviction(self, pod: str) -> Json:
        """A kubelet's eviction for lack of memory."""
        self._made += 1
        notes = {
            "offending_containers": self.containers[0],
            "offending_containers_usage": self.chance.choice(("700Mi", "3Gi", "x")),
            "starved_resource": self.chance.choice(("memory", "memory", "ephemeral-storage")),
        }
        return {
            "metadata": {"name": f"{pod}.{self._made}", "namespace": "default", "annotations": notes},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod},
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "type": "Warning",
        }

    def measured(self, taken: Any) -> list[Json]:
        """PodMetrics of the pods that are there; now and then one, or a resource, is missing."""
        items = []
        for name in sorted(self.statuses):
            if self.chance.random() < 0.05:
                continue
            containers = []
            for (pod, container), (millicores, size) in self.use.items():
                usage = {
                    "cpu": f"{int(millicores * self.chance.uniform(0.7, 1.3) * 1e6)}n",
                    "memory": f"{int(size * self.chance.uniform(0.9, 1.05) / 1024)}Ki",
                }
                if self.chance.random() < 0.05:
                    del usage[self.chance.choice(("cpu", "memory"))]
                if pod == name:
                    containers.append({"name": container, "usage": usage})
            metadata = {"name": name, "namespace": "default"}
            items.append({"metadata": metadata, "timestamp": stamp(taken), "window": "15s", "containers": containers})
        return items
