"""How soon nodes are asked for: from pending pods to CreateFleet, at AWS over HTTP, every side a process of its own.

    python -m bench provisioning

The lab (API server, scheduler, kubelets, AWS) is one process, `dovetail run` another, this driver a third, so that
CPU seconds can be distinguished. Two questions: 1,000 mixed pods on an empty cluster, from the last pod's creation to
the last node asked for; and single pods that each need a node, one after the other, on a cluster of 1,000
nodes, beyond the batch window.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.ec2_calls import MIX
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.lab.apiserver_only import ApiServerOnly
from dovetail.lab.aws import account, eks
from dovetail.lab.aws.ec2 import Ec2, Timing
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.http_forms import Answer, Environ, body_of
from dovetail.lab.aws.initial_instances import register
from dovetail.lab.aws.injected_errors import asked
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.in_process import InProcess
from dovetail.lab.instances import plain_pool
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.server import LabServer
from dovetail.model.kinds import crds
from tests.controllers.aws_world import CLASS, CLUSTER, ON_DEMAND, REGION

VERSION = "1.34"
WINDOW = 1.0
FAMILIES = frozenset({"c5", "m5", "r5"})
SINGLES = 60
#: Seconds without a new node after which there will be none.
QUIET = 8.0
_COUNT = re.compile(r"TotalTargetCapacity=(\d+)")


# -- the lab's process


def report_fleet(environ: Environ) -> Answer | None:
    """Prints when nodes are asked for, and leaves the answer to the others."""
    if asked(environ)[1] == "CreateFleet":
        count = int(_COUNT.findall(body_of(environ).decode())[0])
        reported = json.dumps({"fleet": time.time(), "instances": count})
        sys.stdout.write(reported + "\n")  # one write: many threads print
        sys.stdout.flush()
    return None


async def _lab(folder: Path, nodes: int) -> None:
    clock, chance = Clock(asyncio.get_running_loop()), Chance(1)
    bare = ApiServerOnly(clock, chance, 0, "bench", None, make=LabServer)
    url = await bare.start()
    (folder / "kubeconfig").write_text(bare.kubeconfig())
    server = bare.server
    assert isinstance(server, LabServer)
    endpoint = AwsEndpoint(LabOfferings(REGION, FAMILIES))
    endpoint.front.services.insert(0, report_fleet)
    made = account.build(endpoint, CLUSTER, version=VERSION, api_url=url, ca=bare.identity.authority)
    parts = LabParts(
        pace=ReportingDetail(lean=True, heartbeat_seconds=None), quiet=True, check=False, faults=False, storage=False
    )
    transport = InProcess(server, {"authorization": "Bearer bench"})
    async with Lab(transport, clock, chance, parts, server=server) as lab:
        for definition in crds.definitions():
            await lab.kube.create(kinds.CRDS, definition)
        await eks._authorise(lab, made)
        present = plain_pool(nodes, "m5.large", (f"{REGION}a", f"{REGION}c"))
        await lab.join(present)
        instances = Ec2(endpoint, made, lab.fleet, lab.client("kubelet"), chance, Timing(3600.0, 0.0, 0.0))
        # `dovetail run` refuses a cluster whose nodes EC2 does not know.
        for instance_id, node in register(endpoint, made, present, VERSION).nodes.items():
            instances.adopt(instance_id, node)
        print(json.dumps({"aws": endpoint.url}), flush=True)
        await instances.run()


# -- the driver's


class Side:
    """A process and what it says, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.startswith(b"{"):
                self.said.append(json.loads(line))

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def stop(self) -> None:
        self.process.terminate()
        await self.process.wait()
        self._reading.cancel()


async def _start(*command: str, **environment: str) -> Side:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, env={**os.environ, **environment}, limit=1 << 24
    )
    return Side(process)


async def _until(holds: Any, *sides: Side) -> Any:
    """Wait as long as every process lives."""
    while not (found := holds()):
        if any(side.process.returncode is not None for side in sides):
            raise RuntimeError("a process ended before its time")
        await asyncio.sleep(0.02)
    return found


class Stage:
    """A lab and an autoscaler that has settled."""

    def __init__(self, lab: Side, ours: Side, kube: Kube) -> None:
        self.lab = lab
        self.ours = ours
        self.kube = kube

    def fleets(self) -> list[float]:
        """When nodes were asked for, call by call."""
        return [line["fleet"] for line in self.lab.said if "fleet" in line]

    def instances(self) -> int:
        return sum(line.get("instances", 0) for line in self.lab.said)

    async def created(self, count: int) -> float:
        """When there were so many pods, by what their owners say."""
        seen = 0
        while seen < count:
            await asyncio.sleep(0.1)
            sets = (await self.kube.list(kinds.REPLICASETS, "default")).items
            seen = sum((each.get("status") or {}).get("replicas", 0) for each in sets)
        return time.time()

    async def settled(self) -> None:
        """Until nothing more was asked of AWS for a while, and every claim was."""
        last = (0, 0.0)
        while len(self.fleets()) != last[0] or time.time() - last[1] < QUIET:
            await asyncio.sleep(0.5)
            claims = len((await self.kube.list(kinds.NODECLAIMS)).items)
            if len(self.fleets()) != last[0] or self.instances() < claims:
                last = (len(self.fleets()), time.time())

    async def pods(self, name: str, replicas: int, cpu: str, memory: str) -> None:
        labels = {"app": name}
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        spec = {"containers": [container], "nodeSelector": {"karpenter.sh/nodepool": "default"}}
        await self.kube.create(
            kinds.DEPLOYMENTS,
            {
                "metadata": {"name": name},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            },
            "default",
        )


async def _stage(folder: Path, nodes: int) -> Stage:
    lab = await _start(sys.executable, "-m", "bench.provisioning", "lab", str(folder), str(nodes))
    await _until(lambda: lab.said, lab)
    config = folder / "kubeconfig"
    ours = await _start(
        str(Path(sys.executable).with_name("dovetail")),
        "run",
        f"--kubeconfig={config}",
        f"--cluster-name={CLUSTER}",
        f"--region={REGION}",
        "--disable-leader-election=true",
        "--metrics-port=0",
        "--health-probe-port=0",
        AWS_ENDPOINT_URL=lab.said[0]["aws"],
        AWS_ACCESS_KEY_ID="lab",
        AWS_SECRET_ACCESS_KEY="lab",
    )
    kube = Kube(load(str(config), None).transport(), Clock(asyncio.get_running_loop()), chance=Chance(2))
    await kube.create(kinds.EC2NODECLASSES, {"metadata": {"name": "default"}, "spec": CLASS})
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"requirements": [ON_DEMAND], "nodeClassRef": reference}}
    await kube.create(kinds.NODEPOOLS, {"metadata": {"name": "default"}, "spec": {"template": template}})
    stage = Stage(lab, ours, kube)
    await stage.pods("first", 1, "100m", "64Mi")
    await _until(stage.fleets, lab, ours)
    await asyncio.sleep(3)
    return stage


async def burst(folder: Path) -> None:
    stage = await _stage(folder, 0)
    before, ours, lab = stage.instances(), stage.ours.cpu(), stage.lab.cpu()
    calls = len(stage.fleets())
    for number, (cpu, memory) in enumerate(MIX):
        await stage.pods(f"mix{number}", 1000 // len(MIX), cpu, memory)
    created = await stage.created(1001)
    await stage.settled()
    took = stage.fleets()[-1] - created
    print(
        f"1,000 mixed pods, empty cluster: {stage.instances() - before} nodes in {len(stage.fleets()) - calls} calls,"
        f" the last asked for {took:.2f} s"
        f" after the last pod came (batch window {WINDOW:.0f} s included);"
        f" CPU {stage.ours.cpu() - ours:.1f} s ours, {stage.lab.cpu() - lab:.1f} s the lab's"
    )
    await _close(stage)


async def singles(folder: Path, nodes: int = 1000) -> None:
    stage = await _stage(folder, nodes)
    ours, lab = stage.ours.cpu(), stage.lab.cpu()
    took: list[float] = []
    for number in range(SINGLES):
        before = len(stage.fleets())
        began = time.time()
        await stage.pods(f"single{number}", 1, "1900m", "64Mi")
        await _until(lambda before=before: len(stage.fleets()) > before, stage.ours)
        took.append(stage.fleets()[before] - began - WINDOW)
    took.sort()
    print(
        f"{SINGLES} single pods, {nodes} nodes: pending to CreateFleet beyond the batch window"
        f" p50 {statistics.median(took):.2f} s, p99 {took[int(len(took) * 0.99)]:.2f} s;"
        f" CPU {stage.ours.cpu() - ours:.1f} s ours, {stage.lab.cpu() - lab:.1f} s the lab's"
    )
    await _close(stage)


async def _close(stage: Stage) -> None:
    await stage.kube.close()
    await stage.ours.stop()
    await stage.lab.stop()


def main() -> None:
    if sys.argv[1:2] == ["lab"]:
        asyncio.run(_lab(Path(sys.argv[2]), int(sys.argv[3])))
        return
    for question in (burst, singles):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(question(Path(folder)))


if __name__ == "__main__":
    main()
