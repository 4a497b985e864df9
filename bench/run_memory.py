"""Memory of `dovetail run` on a large cluster: after the first sync, after planning, and at its peak.

The lab's API server holds the cluster in a process of its own; the autoscaler is the program as users start it, with a
simulated cloud. Three NodePools and pending pods make it plan and launch. `python -m bench.run_memory 500 10000` takes
another size than 5,000 nodes and 100,000 pods.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.synthetic_pods import pod

NODES, PODS_, APPS = 5_000, 100_000, 50
#: Pods that no node has room for.
PENDING = 300
TARGET_SYNCED_MB, TARGET_PEAK_MB = 300, 350
#: Seconds that a run may take to read the cluster, and that it is left alone afterwards.
SYNC_TIMEOUT_S, SETTLE_S = 300.0, 30.0
METRICS_PORT = 18971
ZONES = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")


def node(number: int) -> dict[str, Any]:
    """A node as a kubelet and Karpenter leave it."""
    name = f"ip-10-{number // 65536}-{number // 256 % 256}-{number % 256}.ap-northeast-2.compute.internal"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
        "topology.kubernetes.io/zone": ZONES[number % 3],
        "topology.kubernetes.io/region": "ap-northeast-2",
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
    }
    resources = {"cpu": "7910m", "memory": "31482000Ki", "pods": "58", "ephemeral-storage": "18242267924"}
    images = [{"names": [f"registry.example.com/team/image-{n}@sha256:{n:064x}"], "sizeBytes": n} for n in range(40)]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///{ZONES[number % 3]}/i-{number:017x}"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [ready],
            "images": images,
            "nodeInfo": {"kubeletVersion": "v1.36.3", "architecture": "amd64", "operatingSystem": "linux"},
        },
    }


def bound_pod(number: int, nodes: int, owners: Sequence[str]) -> dict[str, Any]:
    """A pod on a node; `owners` are the UIDs of the ReplicaSets, without which the server would collect it."""
    made = pod(number)
    made["spec"]["nodeName"] = node(number % nodes)["metadata"]["name"]
    made["metadata"]["ownerReferences"][0]["uid"] = owners[number % len(owners)]
    return made


def replica_set(number: int) -> dict[str, Any]:
    labels = {"app": f"app-{number}"}
    box = {"name": "main", "image": "registry.example.com/team/main:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [box]}}
    return {
        "metadata": {"name": f"app-{number}-7d9c5b6f4", "namespace": "bench"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def pending_pod(number: int, owners: Sequence[str]) -> dict[str, Any]:
    """A pod that is larger than what is free anywhere."""
    made = pod(number)
    made["metadata"]["ownerReferences"][0]["uid"] = owners[number % len(owners)]
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3", "memory": "6Gi"}}
    return made


def node_pool(name: str, weight: int) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    families = {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]}
    return {
        "metadata": {"name": name},
        "spec": {
            "weight": weight,
            "template": {
                "metadata": {"labels": {"example.com/pool": name}},
                "spec": {"nodeClassRef": reference, "requirements": [families]},
            },
        },
    }


def node_class() -> dict[str, Any]:
    tags = [{"tags": {"karpenter.sh/discovery": "bench"}}]
    return {
        "metadata": {"name": "default"},
        "spec": {
            "role": "KarpenterNodeRole-bench",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": tags,
            "securityGroupSelectorTerms": tags,
        },
    }


def serve(nodes: int, pods: int, kubeconfig: str) -> None:
    """Hold the cluster until the process is ended; the kubeconfig is written once everything is there."""
    from dovetail.chance import Chance
    from dovetail.clock import Clock
    from dovetail.kube.client import Kube
    from dovetail.kube.resources import CRDS, EC2NODECLASSES, NAMESPACES, NODEPOOLS, PODS, REPLICASETS
    from dovetail.kube.resources import NODES as NODES_KIND
    from dovetail.lab.apiserver_only import ApiServerOnly
    from dovetail.lab.in_process import InProcess
    from dovetail.model.kinds.crds import KINDS, definition

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        bare = ApiServerOnly(clock, Chance(1), 0, "bench-token")
        await bare.start()
        kube = Kube(InProcess(bare.server, {"authorization": "Bearer bench-token"}), clock)
        for kind in KINDS:
            await kube.create(CRDS, definition(kind))
        await kube.create(NAMESPACES, {"metadata": {"name": "bench"}})
        made = [await kube.create(REPLICASETS, replica_set(number)) for number in range(APPS)]
        owners = [each["metadata"]["uid"] for each in made]
        gc.disable()
        for number in range(nodes):
            await kube.create(NODES_KIND, node(number))
        for number in range(pods):
            await kube.create(PODS, bound_pod(number, nodes, owners))
        await kube.create(EC2NODECLASSES, node_class())
        for number, name in enumerate(("default", "batch", "shop")):
            await kube.create(NODEPOOLS, node_pool(name, number + 1))
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for number in range(pods, pods + PENDING):
            waiting = await kube.create(PODS, pending_pod(number, owners))
            status = {"status": {"conditions": [unschedulable]}}
            await kube.patch(PODS, waiting["metadata"]["name"], status, "bench", subresource="status")
        written = bare.kubeconfig()
        await asyncio.to_thread(Path(kubeconfig).write_text, written)
        await asyncio.Event().wait()

    asyncio.run(main())


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident now, and at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return int(found["VmRSS"].split()[0]) / 1024, int(found["VmHWM"].split()[0]) / 1024


def synced(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return b"karpenter_cluster_state_synced 1.0" in answer.read()
    except OSError:
        return False


def measure(kubeconfig: str, log: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "dovetail.cli",
        "run",
        "--cloud",
        "simulated",
        "--kubeconfig",
        kubeconfig,
        "--disable-leader-election",
        "--metrics-port",
        str(METRICS_PORT),
        "--health-probe-port",
        "0",
        "--disable-cluster-state-observability",
    ]
    with log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            while not synced(METRICS_PORT):
                if process.poll() is not None or time.monotonic() - began > SYNC_TIMEOUT_S:
                    raise SystemExit(f"the autoscaler did not read the cluster:\n{log.read_text()[-2000:]}")
                time.sleep(0.5)
            seconds = time.monotonic() - began
            now, peak = memory_mb(process.pid)
            print(f"after the first sync ({seconds:.0f} s)    {now:6.0f} MB   target {TARGET_SYNCED_MB}", flush=True)
            time.sleep(SETTLE_S)
            now, peak = memory_mb(process.pid)
            launched = log.read_text(errors="replace").count('"created nodeclaim"')
            print(f"{SETTLE_S:.0f} s later, {launched:4} launches   {now:6.0f} MB", flush=True)
            print(f"peak                        {peak:6.0f} MB   target {TARGET_PEAK_MB}", flush=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:3]] or [NODES, PODS_]
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        environment = {**os.environ, "XDG_STATE_HOME": folder}
        code = f"from bench.run_memory import serve; serve({sizes[0]}, {sizes[1]}, {kubeconfig!r})"
        server = subprocess.Popen([sys.executable, "-c", code], env=environment)
        try:
            while not Path(kubeconfig).exists():
                if server.poll() is not None:
                    raise SystemExit("the API server ended")
                time.sleep(0.5)
            assert yaml.safe_load(Path(kubeconfig).read_text())
            print(f"{sizes[0]:,} nodes, {sizes[1]:,} pods", flush=True)
            measure(kubeconfig, Path(folder) / "log")
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
