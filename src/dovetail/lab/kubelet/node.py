"""The Node object a kubelet registers, and the conditions it keeps posting."""

from __future__ import annotations

from typing import Any

from dovetail.lab.instances import SimulatedInstance

VERSION = "v1.36.3"
LEASE_SECONDS = 40
KUBELET_PORT = 10250

_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
READY = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
STARTING = (
    "Ready",
    "False",
    "KubeletNotReady",
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized",
)
PRESSED = ("MemoryPressure", "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available")


def conditions(now: str, since: str, *, ready: bool, pressed: bool = False) -> list[dict[str, Any]]:
    items = [*_HEALTHY, READY if ready else STARTING]
    if pressed:
        items[0] = PRESSED
    return [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
        for kind, status, reason, message in items
    ]


def labels_of(instance: SimulatedInstance) -> dict[str, str]:
    """Fargate's nodes have no instance type, and take no volumes of EBS."""
    of_type = {
        "beta.kubernetes.io/instance-type": instance.instance_type,
        "node.kubernetes.io/instance-type": instance.instance_type,
        "topology.ebs.csi.aws.com/zone": instance.zone,
    }
    return {
        "beta.kubernetes.io/arch": instance.arch,
        "beta.kubernetes.io/os": instance.os,
        "failure-domain.beta.kubernetes.io/region": instance.region,
        "failure-domain.beta.kubernetes.io/zone": instance.zone,
        "kubernetes.io/arch": instance.arch,
        "kubernetes.io/hostname": instance.name,
        "kubernetes.io/os": instance.os,
        "topology.kubernetes.io/region": instance.region,
        "topology.kubernetes.io/zone": instance.zone,
        **(of_type if instance.instance_type else {}),
        **instance.labels,
    }


def quantities(resources: Any) -> dict[str, str]:
    """Resources as a node reports them: whole CPUs plainly, memory in Ki."""
    texts = {}
    for name, amount in sorted(resources.items()):
        if name == "cpu":
            texts[name] = str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
        elif name == "memory" or name == "ephemeral-storage":
            texts[name] = f"{amount // 1024}Ki"
        else:
            texts[name] = str(amount)
    return texts


def body_of(instance: SimulatedInstance, now: str, *, ready: bool) -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": instance.ip}]
    if instance.external_ip:
        addresses.append({"type": "ExternalIP", "address": instance.external_ip})
    host = instance.labels.get("kubernetes.io/hostname", instance.name)
    addresses += [{"type": "InternalDNS", "address": host}, {"type": "Hostname", "address": host}]
    spec: dict[str, Any] = {"providerID": instance.provider_id}
    if instance.taints:
        spec["taints"] = [dict(taint) for taint in instance.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": instance.name,
            "labels": labels_of(instance),
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": instance.ip,
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                **instance.annotations,
            },
        },
        "spec": spec,
        "status": {
            "capacity": quantities(instance.capacity),
            "allocatable": quantities(instance.allocatable),
            "conditions": conditions(now, now, ready=ready),
            "addresses": addresses,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "nodeInfo": _info(instance),
        },
    }


def _info(instance: SimulatedInstance) -> dict[str, str]:
    serial = f"{abs(hash_of(instance.provider_id)):032x}"[:32]
    uuid = f"ec2{serial[:5]}-{serial[5:9]}-{serial[9:13]}-{serial[13:17]}-{serial[17:29]}"
    return {
        "machineID": f"ec2{serial[:29]}",
        "systemUUID": uuid,
        "bootID": uuid[::-1],
        "kernelVersion": f"{instance.kernel}.{'x86_64' if instance.arch == 'amd64' else 'aarch64'}",
        "osImage": instance.os_image,
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": instance.kubelet_version or VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": instance.os,
        "architecture": instance.arch,
    }


def hash_of(text: str) -> int:
    """A number that depends on the text alone, in every process."""
    value = 1469598103934665603
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 & (1 << 128) - 1
    return value


def lease_of(instance: SimulatedInstance, uid: str, now: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": instance.name,
            "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": instance.name, "uid": uid}],
        },
        "spec": {"holderIdentity": instance.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }


def csinode_of(instance: SimulatedInstance, uid: str) -> dict[str, Any]:
    driver = {
        "name": "ebs.csi.aws.com",
        "nodeID": instance.provider_id.rsplit("/", 1)[-1],
        "topologyKeys": ["kubernetes.io/os", "topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"],
        "allocatable": {"count": instance.attach_limit},
    }
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": instance.name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": instance.name, "uid": uid}],
        },
        "spec": {"drivers": [driver] if instance.instance_type else []},
    }
