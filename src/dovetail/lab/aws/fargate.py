"""Fargate in the lab: pods that a profile selects get a node of their own, which goes with the pod.

EKS's part is done here as on EKS: a mutating webhook hands the pods to Fargate's scheduler, which sizes a node for
each, waits for it to join and binds the pod. A Fargate node takes one pod, so that pods of DaemonSets stay pending
there.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import CONFIGMAPS, NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.aws import account, mutating_webhooks
from dovetail.lab.aws.ec2 import Timing
from dovetail.lab.aws.eks_images import kubernetes_release
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.fargate_profiles import (
    COMPUTE_TYPE,
    PROFILE_LABEL,
    RESERVED_MIB,
    SCHEDULER,
    Capacity,
    Profile,
    capacity_for,
    claim_names,
    profile_for,
    unsupported,
)
from dovetail.lab.instances import SimulatedInstance, host_name
from dovetail.lab.kubelet.kubelets import Kubelets

Json = dict[str, Any]

LOOK_S = 1.0
RETRY_S = 10.0
WEBHOOK = "0500-amazon-eks-fargate-mutation.amazonaws.com"
_PRIORITY_CLASS, _PRIORITY = "system-node-critical", 2000001000
_MIB = 1024**2
_STORAGE_GIB = 20
_PORT = 23445
_TAINT = {"key": COMPUTE_TYPE, "value": "fargate", "effect": "NoSchedule"}


class FargateNode(msgspec.Struct, frozen=True):
    """A node of Fargate, the pod that it is for, and its network interface."""

    name: str
    pod_uid: str
    interface: str


class Fargate:
    """Runs beside the account."""

    def __init__(
        self,
        endpoint: AwsEndpoint,
        made: account.AwsAccount,
        fleet: Kubelets,
        kube: Kube,
        chance: Chance,
        timing: Timing,
    ) -> None:
        self._endpoint = endpoint
        self._made = made
        self._fleet = fleet
        self._kube = kube
        self._chance = chance
        self._timing = timing
        self._recorder = EventRecorder(kube, SCHEDULER)
        self._nodes: dict[str, FargateNode] = {}
        self._placing: dict[str, asyncio.Task[None]] = {}

    async def run(self, clock: Clock, server: ApiServer | None) -> None:
        """Until cancelled. Nothing is done before the first profile is asked for.

        `server`: the lab's own API server, which needs no socket to reach the webhook.
        """
        requests, loop, requested = self._endpoint.fargate, asyncio.get_running_loop(), asyncio.Event()
        requests.prepare = lambda: loop.call_soon_threadsafe(requested.set)
        await self._remove_former()
        if not self._profiles():
            await requested.wait()
        reachable = mutating_webhooks.client_config(server, _PORT, self.review, clock)
        async with asyncio.TaskGroup() as tasks, reachable as client_config:
            tasks.create_task(self._recorder.run(), name="fargate events")
            webhook = {"name": WEBHOOK, "clientConfig": client_config, "timeoutSeconds": 5}
            await mutating_webhooks.register(self._kube, WEBHOOK, webhook)
            requests.prepared.set()
            while True:
                with suppress(KubeError):  # the next look tries again
                    await self._look(tasks)
                await asyncio.sleep(LOOK_S)

    async def _remove_former(self) -> None:
        """Nodes of an earlier run of the lab: what was on Fargate then is not there any more."""
        try:
            for node in (await self._kube.list(NODES, labels=f"{COMPUTE_TYPE}=fargate")).items:
                await self._kube.delete(NODES, node["metadata"]["name"])
        except KubeError:
            return  # they stay, not ready, for the operator to delete

    def _profiles(self) -> list[Profile]:
        return self._endpoint.fargate.profiles(self._made.cluster)

    async def review(self, body: bytes, content_type: str) -> tuple[int, bytes]:
        """The answer to an admission review: a pod of a profile is handed to Fargate's scheduler."""
        request = msgspec.json.decode(body)["request"]
        pod, namespace = request["object"], request.get("namespace", "")
        profile = profile_for(self._profiles(), pod, namespace)
        return mutating_webhooks.answer(request, [] if profile is None else _patch(pod, profile))

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        listed = (await self._kube.list(PODS, fields=f"spec.schedulerName={SCHEDULER}")).items
        pods = {pod["metadata"]["uid"]: pod for pod in listed}
        for uid, pod in pods.items():
            if not pod["spec"].get("nodeName") and uid not in self._placing:
                self._placing[uid] = tasks.create_task(self._place(pod), name=f"fargate {pod['metadata']['name']}")
        for uid in [uid for uid in self._placing if uid not in pods]:
            self._placing.pop(uid).cancel()
        for name in [node.name for node in self._nodes.values() if node.pod_uid not in pods]:
            await self._remove(self._nodes[name])

    async def _place(self, pod: Json) -> None:
        """Give a pod its node, as soon as that is possible."""
        meta, about = pod["metadata"], InvolvedObject.of("v1", "Pod", pod["metadata"])
        while (problem := await self._problem(pod)) is not None:
            self._recorder.warning(about, "FailedScheduling", problem)
            await asyncio.sleep(RETRY_S)
        capacity = capacity_for(pod)
        assert capacity is not None
        profile = next(row for row in self._profiles() if row.name == meta["labels"][PROFILE_LABEL])
        logging = await self._logging(about)
        annotations = {"CapacityProvisioned": str(capacity), "Logging": logging}
        try:
            await self._kube.patch(PODS, meta["name"], {"metadata": {"annotations": annotations}}, meta["namespace"])
            await asyncio.sleep(self._timing.boot + self._chance.child(meta["uid"]).uniform(0, self._timing.spread))
            node = await self._launch(meta["uid"], profile, capacity)
            await self._kube.bind(meta["name"], meta["namespace"], node, meta["uid"])
        except KubeError:
            self._placing.pop(meta["uid"], None)  # the pod is gone, or the next look tries it again
            return
        message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._recorder.normal(about, "Scheduled", message)

    async def _problem(self, pod: Json) -> str | None:
        """Why Fargate does not run a pod, in the words of its scheduler."""
        problem = unsupported(pod, await self._drivers(pod))
        if problem:
            return problem
        if capacity_for(pod) is None:
            return "Pod not supported on Fargate: the pod asks for more than 16 vCPU or 120 GB of memory"
        name = (pod["metadata"].get("labels") or {}).get(PROFILE_LABEL, "")
        profile = next((row for row in self._profiles() if row.name == name), None)
        if profile is None:
            return f"Misconfigured Fargate Profile: fargate profile {name} does not exist"
        if profile.role_arn not in self._endpoint.front.entries.get(self._made.cluster, {}):
            return (
                f"Misconfigured Fargate Profile: fargate profile {name} blocked for new launches due to: Pod execution "
                "role is not found in auth config or does not have all required permissions for launching fargate pods."
            )
        return None

    async def _drivers(self, pod: Json) -> dict[str, str | None]:
        drivers: dict[str, str | None] = {}
        for name in claim_names(pod):
            drivers[name] = None
            try:
                claim = await self._kube.get(PERSISTENTVOLUMECLAIMS, name, pod["metadata"]["namespace"])
                volume = await self._kube.get(PERSISTENTVOLUMES, claim["spec"].get("volumeName") or "unbound")
            except NotFound:
                continue
            drivers[name] = (volume["spec"].get("csi") or {}).get("driver", "")
        return drivers

    async def _logging(self, about: InvolvedObject) -> str:
        try:
            await self._kube.get(CONFIGMAPS, "aws-logging", "aws-observability")
        except NotFound:
            text = 'Disabled logging because aws-logging configmap was not found. configmap "aws-logging" not found'
            self._recorder.warning(about, "LoggingDisabled", text)
            return "LoggingDisabled: LOGGING_CONFIGMAP_NOT_FOUND"
        return "LoggingEnabled"

    async def _launch(self, pod_uid: str, profile: Profile, capacity: Capacity) -> str:
        """A node in a subnet of the profile; its name, once it has joined."""
        kept = next((node.name for node in self._nodes.values() if node.pod_uid == pod_uid), None)
        if kept is not None:
            return kept  # it was launched before, and the binding failed
        subnets = profile.subnets or tuple(self._made.subnets.values())
        subnet = subnets[len(self._nodes) % len(subnets)]
        interface = await asyncio.get_running_loop().run_in_executor(None, lambda: self._attach(subnet))
        kubelet = kubernetes_release(str(self._endpoint.backend("eks").clusters[self._made.cluster].version))
        instance = simulated(interface, self._made.region, capacity, profile, kubelet, self._timing.ready)
        self._nodes[instance.name] = FargateNode(instance.name, pod_uid, interface["NetworkInterfaceId"])
        await self._fleet.join(instance)
        return instance.name

    def _attach(self, subnet: str) -> Json:
        made: Json = account.client(self._endpoint, "ec2").create_network_interface(
            SubnetId=subnet, Groups=[self._made.security_group], Description="fargate"
        )["NetworkInterface"]
        return made

    async def _remove(self, node: FargateNode) -> None:
        """The pod is gone, and its node goes."""
        self._fleet.vanish(node.name)
        with suppress(NotFound):  # deleted by hand
            await self._kube.delete(NODES, node.name)
        ec2 = account.client(self._endpoint, "ec2")
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: ec2.delete_network_interface(NetworkInterfaceId=node.interface)
        )
        del self._nodes[node.name]


def simulated(
    interface: Json, region: str, capacity: Capacity, profile: Profile, kubelet_version: str, ready_s: float = 0.0
) -> SimulatedInstance:
    """The node for one pod. It has no instance type, and EC2 knows its network interface alone."""
    ip, zone = interface["PrivateIpAddress"], interface["AvailabilityZone"]
    host = host_name(ip, region)
    digest = hashlib.sha256(f"{profile.name} {interface['NetworkInterfaceId']}".encode()).hexdigest()
    total = {
        "cpu": capacity.cpu_milli,
        "memory": capacity.memory_mib * _MIB,
        "ephemeral-storage": _STORAGE_GIB * 1024 * _MIB,
        "pods": 1,
    }
    return SimulatedInstance(
        name=f"fargate-{host}",
        provider_id=f"aws:///{zone}/{digest[:10]}-{digest[10:42]}/fargate-{host}",
        instance_type="",
        zone=zone,
        region=region,
        ip=ip,
        capacity=total,
        allocatable={**total, "memory": total["memory"] - RESERVED_MIB * _MIB},
        labels={COMPUTE_TYPE: "fargate", "kubernetes.io/hostname": host},
        taints=(_TAINT,),
        ready_seconds=ready_s,
        kubelet_version=kubelet_version,
    )


def _patch(pod: Json, profile: Profile) -> list[Json]:
    """What EKS's webhook changes of a pod."""
    labels = {**(pod["metadata"].get("labels") or {}), PROFILE_LABEL: profile.name}
    return [
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/spec/schedulerName", "value": SCHEDULER},
        {"op": "add", "path": "/spec/priorityClassName", "value": _PRIORITY_CLASS},
        {"op": "add", "path": "/spec/priority", "value": _PRIORITY},
        {"op": "add", "path": "/spec/preemptionPolicy", "value": "PreemptLowerPriority"},
    ]
