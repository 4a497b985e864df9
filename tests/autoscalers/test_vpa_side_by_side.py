"""Ours and upstream's programs on the same random scripts, step by step: the same statuses, checkpoints and answers.

A list of metrics is answered only when both recommenders ask for it, so that both see the same cluster in every loop.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from dovetail.autoscalers.vpa.api import CHECKPOINTS, LIMITRANGES, VPAS
from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.kube.client import Kube
from dovetail.kube.resources import DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS, REPLICASETS, STATEFULSETS
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import tls
from dovetail.lab.real_control_plane import free_ports
from dovetail.model.meta import stamp
from tests.autoscalers.upstream_vpa import our_program, running, upstream_program, webhook_flags
from tests.autoscalers.vpa_side_by_side import MeasuredPods, ServedApi, random_policies, served_api, workload_spec

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]
Json = dict[str, Any]
#: The recommender of each implementation, by the prefix of its VPAs.
NAMES = {"ours": "ours", "theirs": "default"}
PROGRAMS = {"ours": our_program, "theirs": upstream_program}
#: For watches to deliver what the script changed, on a busy host.
DELIVERY_S = 1.0
STEP_TIMEOUT_S = 240.0
STATUS_LEASE = "vpa-admission-controller"
#: What stands before the changes of each container in the annotation that lists them.
_CONTAINER = re.compile(r"(?:; )?container \d+: ")


class Turnstile:
    """Holds lists of metrics until both recommenders ask for one."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[Response]] = []
        self._both = asyncio.Event()

    async def intercept(self, request: Request) -> Response | None:
        if not request.path.startswith("/apis/metrics.k8s.io/") or not request.path.endswith("/pods"):
            return None
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        if len(self._waiting) == len(NAMES):
            self._both.set()
        return await answer

    async def wait(self) -> None:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            await self._both.wait()

    def let_go(self, items: list[Json]) -> None:
        listed = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        headers = {"content-type": "application/json"}
        waiting, self._waiting = self._waiting, []
        self._both.clear()
        for answer in waiting:
            answer.set_result(Response(status=200, headers=headers, body=msgspec.json.encode(listed)))

    def forget(self) -> None:
        """The programs that wait have ended."""
        self._waiting, self._both = [], asyncio.Event()


def start_recommenders(stack: ExitStack, api: ServedApi) -> None:
    for side, name in NAMES.items():
        flags = [
            f"--kubeconfig={api.kubeconfig}",
            f"--recommender-name={name}",
            "--recommender-interval=2s",
            f"--address=127.0.0.1:{free_ports(1)[0]}",
            "--kube-api-qps=2000",
            "--kube-api-burst=2000",
            "--feature-gates=PerVPAConfig=true",
            "--cpu-integer-post-processor-enabled=true",
        ]
        log = api.kubeconfig.parent / f"recommender-{side}.log"
        stack.enter_context(running([*PROGRAMS[side]("recommender"), *flags], log))


async def create_vpas(kube: Kube, pods: MeasuredPods) -> None:
    """The same VPA for either recommender; some name a target that does not exist."""
    target = pods.target() | ({"name": "none"} if pods.chance.random() < 0.1 else {})
    container = pods.chance.choice(pods.containers)
    whole = {f"vpa-post-processor.kubernetes.io/{container}_integerCPU": "true"}
    annotations = whole if pods.chance.random() < 0.15 else {}
    policies = random_policies(pods.chance, pods.containers)
    for side, name in NAMES.items():
        metadata = {"name": f"{side}-{pods.name}", "namespace": "default", "annotations": annotations}
        spec: Json = {"targetRef": target, "recommenders": [{"name": name}]}
        spec["resourcePolicy"] = {"containerPolicies": policies}
        await kube.create(VPAS, {"metadata": metadata, "spec": spec})


def plain_histogram(held: Json) -> Json:
    """Without what upstream's random order of merging decides: the last bits of a sum, the time of an empty one."""
    held = dict(held)
    if not held.get("bucketWeights"):
        held.pop("referenceTimestamp", None)
    return {**held, "totalWeight": f"{held.get('totalWeight', 0):.10g}"}


async def written(kube: Kube, side: str) -> tuple[dict[str, Json], dict[str, Json]]:
    """Statuses and checkpoints of one implementation, without the times of writing."""
    statuses, checkpoints = {}, {}
    for item in (await kube.list(VPAS)).items:
        status = item.get("status") or {}
        conditions = [
            {key: value for key, value in condition.items() if key != "lastTransitionTime"}
            for condition in status.get("conditions") or ()
        ]
        if item["metadata"]["name"].startswith(f"{side}-"):
            statuses[item["metadata"]["name"].removeprefix(side)] = {**status, "conditions": conditions}
    for item in (await kube.list(CHECKPOINTS)).items:
        held = {key: value for key, value in item["status"].items() if key != "lastUpdateTime"}
        held |= {name: plain_histogram(held[name]) for name in ("cpuHistogram", "memoryHistogram")}
        if item["metadata"]["name"].startswith(f"{side}-"):
            checkpoints[item["metadata"]["name"].removeprefix(side)] = held
    return statuses, checkpoints


async def recommend_side_by_side(folder: Path, seed: int, workloads: int, steps: int) -> tuple[int, int]:
    """Play a script, with both recommenders started anew in its middle; the numbers of recommendations and checkpoints
    that were compared."""
    chance = Chance(seed)
    async with served_api(folder) as api:
        turnstile = Turnstile()
        api.server.intercept = turnstile.intercept
        loads = [MeasuredPods(chance.child(str(number)), number) for number in range(workloads)]
        for pods in loads:
            await pods.create(api.kube)
            await create_vpas(api.kube, pods)
        taken = api.clock.now().replace(microsecond=0) - timedelta(minutes=31 * steps)
        recommended = saved = 0
        with ExitStack() as stack:
            start_recommenders(stack, api)
            for step in range(steps):
                await turnstile.wait()
                if step == steps // 2:
                    stack.close()
                    turnstile.forget()
                    start_recommenders(stack, api)
                    await turnstile.wait()
                ours, theirs = await written(api.kube, "ours"), await written(api.kube, "theirs")
                assert ours[0] == theirs[0], f"statuses after step {step}"
                assert ours[1] == theirs[1], f"checkpoints after step {step}"
                recommended += sum("recommendation" in status for status in theirs[0].values())
                saved += len(theirs[1])
                taken += timedelta(minutes=chance.choice((0, 1, 1, 30)))
                for pods in loads:
                    if chance.random() < 0.5:
                        await pods.play(api.kube, stamp(taken - timedelta(seconds=chance.choice((0, 20, 90000)))))
                await asyncio.sleep(DELIVERY_S)
                turnstile.let_go([item for pods in loads for item in pods.measured(taken)])
        return recommended, saved


def test_recommenders_agree_in_every_loop(tmp_path: Path) -> None:
    """Kills and evictions for lack of memory, restarts, changed containers and labels, pods that end, and policies."""
    recommended, saved = run_scaled(recommend_side_by_side(tmp_path, seed=1, workloads=30, steps=12))
    assert recommended > 200
    assert saved > 300


# Admission: the same reviews to either webhook.


def random_amounts(chance: Chance, scale: int) -> Json:
    amounts = {}
    for name, choices in (("cpu", (50, 100, 250, 1000)), ("memory", (50, 100, 256, 1024))):
        if chance.random() < 0.9:
            amounts[name] = f"{chance.choice(choices) * scale}{'m' if name == 'cpu' else 'Mi'}"
    return amounts


async def create_controlled(kube: Kube, chance: Chance, namespace: str) -> Json:
    """A Deployment with its VPA, recommendation and perhaps a LimitRange in a namespace; a pod to be admitted."""
    await kube.create(NAMESPACES, {"metadata": {"name": namespace}})
    names = [f"c{index}" for index in range(chance.choice((1, 2, 3)))]
    labels = {"app": "w"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata: Json = {"name": "w", "namespace": namespace}
    made = await kube.create(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": made["metadata"]["uid"]}
    metadata = {"name": "w-1", "namespace": namespace, "ownerReferences": [{**above, "controller": True}]}
    made = await kube.create(REPLICASETS, {"metadata": metadata, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w-1", "uid": made["metadata"]["uid"]}
    if chance.random() < 0.3:
        limit = {"type": "Container", "max": {"cpu": "500m", "memory": "512Mi"}, "default": {"cpu": "400m"}}
        body = {"metadata": {"name": "limits", "namespace": namespace}, "spec": {"limits": [limit]}}
        await kube.create(LIMITRANGES, body)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}
    mode = chance.choice(("Off", "Initial", "Recreate", "InPlaceOrRecreate"))
    vpa: Json = {"targetRef": target, "updatePolicy": {"updateMode": mode}}
    vpa["resourcePolicy"] = {"containerPolicies": random_policies(chance, names)}
    if chance.random() < 0.4:
        vpa["startupBoost"] = {"cpu": {"type": "Factor", "factor": 3, "durationSeconds": 10}}
    await kube.create(VPAS, {"metadata": {"name": "v", "namespace": namespace}, "spec": vpa})
    items = [{"containerName": name, "target": random_amounts(chance, 1)} for name in names if chance.random() < 0.9]
    status = {"status": {"recommendation": {"containerRecommendations": items}}}
    await kube.patch(VPAS, "v", status, namespace, kind="merge", subresource="status")
    containers = [
        {"name": name, "image": "x", "resources": {"requests": random_amounts(chance, 1)}}
        | ({"resources": {"limits": random_amounts(chance, 4)}} if chance.random() < 0.4 else {})
        for name in names
    ]
    metadata = {"generateName": "w-1-", "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    return {"metadata": metadata, "spec": {"containers": containers}}


def random_vpa(chance: Chance) -> Json:
    """A VPA with any fault that the webhook knows."""
    policy: Json = {}
    for odds, field, choices in (
        (0.9, "containerName", ("*", "a", "")),
        (0.4, "mode", ("Auto", "Off", "Of")),
        (0.4, "controlledValues", ("RequestsOnly", "RequestsAndLimits")),
        (0.4, "controlledResources", (["cpu"], ["nvidia.com/gpu"], ["cpu", "disk"])),
        (0.4, "minAllowed", ({"cpu": "100m"}, {"cpu": "0.5m"}, {"memory": "1.5"})),
        (0.4, "maxAllowed", ({"cpu": "1"}, {"cpu": "1n"}, {"memory": "100m"})),
        (0.3, "oomBumpUpRatio", ("1", "0.9", 3)),
        (0.3, "oomMinBumpUp", ("0", "-1", "100Mi")),
        (0.3, "memoryAggregationIntervalSeconds", (0, 60)),
        (0.3, "startupBoost", ({"cpu": {"type": "Factor"}}, {"cpu": {"type": "Quantity", "quantity": "1.5m"}})),
    ):
        if chance.random() < odds:
            policy[field] = chance.choice(choices)
    spec: Json = {"targetRef": {"kind": "Deployment", "name": "w"}, "resourcePolicy": {"containerPolicies": [policy]}}
    if chance.random() < 0.7:
        mode = chance.choice(("Off", "Recreate", "Auto", "InPlace", "Sometimes"))
        spec["updatePolicy"] = {"updateMode": mode, "minReplicas": chance.choice((0, 1))}
    if chance.random() < 0.2:
        spec["recommenders"] = [{"name": "a"}, {"name": "b"}]
    return {"metadata": {"name": "x", "namespace": "default"}, "spec": spec}


def review(kind: str, group: str, obj: Json, namespace: str, old: Json | None = None) -> Json:
    named = {"group": group, "version": "v1", "kind": kind}
    resource = {"group": group, "version": "v1", "resource": f"{kind.lower()}s"}
    request: Json = {"uid": "u", "kind": named, "requestKind": named, "resource": resource, "namespace": namespace}
    request |= {"name": obj["metadata"].get("name", ""), "operation": "UPDATE" if old else "CREATE"}
    request |= {"object": obj, "oldObject": old, "userInfo": {}, "dryRun": False}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def plain_answer(body: bytes) -> Json:
    """An answer without what upstream's random order of maps decides."""
    answer: Json = msgspec.json.decode(body)["response"]
    (answer.get("status") or {}).pop("metadata", None)
    if "patch" in answer:
        patches = msgspec.json.decode(base64.b64decode(answer["patch"]))
        for patch in patches:
            if patch["path"].endswith("vpaUpdates"):
                patch["value"] = [sorted(part.split(", ")) for part in _CONTAINER.split(patch["value"])]
        answer["patch"] = sorted(patches, key=lambda patch: patch["path"])
    return answer


async def admit_side_by_side(folder: Path, seed: int, pods: int, vpas: int) -> tuple[int, int]:
    """Ask both webhooks; the numbers of patched pods and of refused VPAs."""
    chance = Chance(seed)
    async with served_api(folder) as api:
        reviews = []
        for number in range(pods):
            namespace = f"ns{number}"
            pod = await create_controlled(api.kube, chance.child(namespace), namespace)
            reviews.append(review("Pod", "", pod, namespace))
        for _ in range(vpas):
            old = random_vpa(chance) if chance.random() < 0.3 else None
            kind = "VerticalPodAutoscaler"
            reviews.append(review(kind, "autoscaling.k8s.io", random_vpa(chance), "default", old))
        ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        with ExitStack() as stack:
            for side, port in ports.items():
                certificates = folder / side
                certificates.mkdir()
                flags = webhook_flags(certificates, tls.make(api.clock.now()), port)
                flags += [f"--kubeconfig={api.kubeconfig}", f"--address=127.0.0.1:{free_ports(1)[0]}"]
                flags += ["--register-webhook=false", "--feature-gates=InPlace=true,CPUStartupBoost=true"]
                program = PROGRAMS[side]("admission-controller")
                stack.enter_context(running([*program, *flags], folder / f"{side}.log"))
            async with aiohttp.ClientSession() as session:

                async def ask(side: str, body: Json) -> Json:
                    url, headers = f"https://127.0.0.1:{ports[side]}/", {"content-type": "application/json"}
                    data = msgspec.json.encode(body)
                    async with session.post(url, data=data, headers=headers, ssl=trust) as answer:
                        return plain_answer(await answer.read())

                for side in NAMES:
                    await answering(ask, side, reviews[0])
                answers = [(await ask("ours", body), await ask("theirs", body)) for body in reviews]
    for body, (ours, theirs) in zip(reviews, answers, strict=True):
        assert ours == theirs, body["request"]["object"]
    return sum("patch" in theirs for _, theirs in answers[:pods]), sum(
        not theirs["allowed"] for _, theirs in answers[pods:]
    )


async def answering(ask: Any, side: str, body: Json) -> None:
    """Until a webhook that was just started answers."""
    async with asyncio.timeout(STEP_TIMEOUT_S):
        while True:
            try:
                await ask(side, body)
                return
            except aiohttp.ClientError:
                await asyncio.sleep(0.3)


def test_webhooks_answer_alike(tmp_path: Path) -> None:
    patched, refused = run_scaled(admit_side_by_side(tmp_path, seed=1, pods=150, vpas=300))
    assert patched > 100
    assert refused > 150


# The updater: the same clusters, one after the other, each at an API server of its own.

UPDATER_INTERVAL_S = 6
MODES = ("Recreate", "Recreate", "InPlaceOrRecreate", "InPlaceOrRecreate", "InPlace", "Off")


class LoopGate:
    """Notes what an updater writes, and holds each of its loops until the test lets it go.

    A loop begins with a look at the admission controller's lease.
    """

    def __init__(self) -> None:
        self.writes: list[tuple[str, str, str]] = []
        self._begun, self._free = asyncio.Event(), asyncio.Event()

    async def intercept(self, request: Request) -> Response | None:
        if request.method == "GET" and request.path.endswith(f"/leases/{STATUS_LEASE}"):
            self._free.clear()
            self._begun.set()
            await self._free.wait()
        elif request.method != "GET":
            path, _, event = request.path.partition("/events/")  # the name of an event ends with the time
            self.writes.append((request.method, f"{path} {event.split('.')[0]}".strip(), plain_write(request)))
        return None

    async def wait(self) -> list[tuple[str, str, str]]:
        """Until a loop begins; what was written since the last one did, in no order."""
        async with asyncio.timeout(STEP_TIMEOUT_S):
            await self._begun.wait()
        self._begun.clear()
        writes, self.writes = self.writes, []
        return sorted(writes)

    def let_go(self) -> None:
        self._free.set()


def plain_write(request: Request) -> str:
    """What a write says: patches in any order, events by their reason."""
    if request.path.endswith("/eviction"):
        return ""
    body = msgspec.json.decode(request.body)
    if isinstance(body, list):
        return str(sorted(str(sorted(patch.items())) for patch in body))
    if request.method == "PATCH":
        return f"seen {body['count']} times"
    return f"{body['involvedObject']['name']} {body['reason']} {body['message']}"


async def create_updatable(kube: Kube, clock: Clock, chance: Chance, namespace: str) -> None:
    """A ReplicaSet or StatefulSet, its pods and its VPA. No two pods differ equally from what is recommended."""
    await kube.create(NAMESPACES, {"metadata": {"name": namespace}})
    resource, replicas = chance.choice((REPLICASETS, STATEFULSETS)), chance.choice((1, 2, 3, 4, 6))
    labels, now = {"app": "w"}, clock.now()
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {**workload_spec(resource, "w", labels, template), "replicas": replicas}
    made = await kube.create(resource, {"metadata": {"name": "w", "namespace": namespace}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": resource.kind, "name": "w", "uid": made["metadata"]["uid"]}
    for number in range(replicas):
        requests = {"cpu": f"{chance.choice((50, 200, 700)) + 7 * number}m", "memory": f"{100 + 11 * number}Mi"}
        resources = {"requests": requests}
        metadata: Json = {"name": f"w-{number}", "namespace": namespace, "labels": labels}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
        if chance.random() < 0.4:
            metadata["annotations"] = {"vpaObservedContainers": chance.choice(("c", "", "other", "No Name"))}
        pod = {"containers": [{"name": "c", "image": "x", "resources": resources}], "nodeName": "n"}
        await kube.create(PODS, {"metadata": metadata, "spec": {**pod, "terminationGracePeriodSeconds": 0}})
        held: Json = {
            "name": "c",
            "image": "x",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "resources": resources,
        }
        if chance.random() < 0.2:
            times = {"startedAt": stamp(now - timedelta(seconds=90)), "finishedAt": stamp(now - timedelta(seconds=30))}
            held["lastState"] = {"terminated": {"reason": "OOMKilled", "exitCode": 137, **times}}
        conditions: list[Json] = [{"type": "Ready", "status": "True"}]
        if chance.random() < 0.25:
            kind, reason = (
                chance.choice(("PodResizePending", "PodResizeInProgress")),
                chance.choice(("Deferred", "Error")),
            )
            conditions.append({"type": kind, "status": "True", "reason": reason})
        status = {
            "phase": chance.choice(("Running", "Running", "Running", "Pending")),
            "startTime": stamp(now - timedelta(hours=chance.choice((1, 20)))),
            "containerStatuses": [held],
            "conditions": conditions,
        }
        await kube.patch(PODS, f"w-{number}", {"status": status}, namespace, kind="merge", subresource="status")
    policy: Json = {"updateMode": chance.choice(MODES)}
    if chance.random() < 0.4:
        policy["minReplicas"] = chance.choice((1, 3))
    if chance.random() < 0.3:
        requirement = {
            "resources": ["cpu"],
            "changeRequirement": chance.choice(("TargetHigherThanRequests", "TargetLowerThanRequests")),
        }
        policy["evictionRequirements"] = [requirement]
    target = {"apiVersion": "apps/v1", "kind": resource.kind, "name": "w"}
    vpa = {"metadata": {"name": "v", "namespace": namespace}, "spec": {"targetRef": target, "updatePolicy": policy}}
    await kube.create(VPAS, vpa)
    await recommend(kube, chance, namespace)


async def recommend(kube: Kube, chance: Chance, namespace: str) -> None:
    target = {"cpu": f"{chance.choice((60, 333, 800))}m", "memory": f"{chance.choice((90, 500))}Mi"}
    bound = target if chance.random() < 0.6 else None
    lower, upper = bound or {"cpu": "1m", "memory": "1Mi"}, bound or {"cpu": "99", "memory": "99Gi"}
    item = {"containerName": "c", "target": target, "lowerBound": lower, "upperBound": upper}
    status = {"status": {"recommendation": {"containerRecommendations": [item]}}}
    await kube.patch(VPAS, "v", status, namespace, kind="merge", subresource="status")


async def updates_of(side: str, folder: Path, seed: int, groups: int, loops: int) -> list[list[tuple[str, str, str]]]:
    """What the updater of one implementation writes in each loop."""
    async with served_api(folder) as api:
        kube, gate = api.kube, LoopGate()
        amounts = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
        await kube.create(NODES, {"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}})
        await kube.patch(NODES, "n", {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")
        lease = {"metadata": {"name": STATUS_LEASE, "namespace": "kube-system"}, "spec": {"holderIdentity": "x"}}
        await kube.create(LEASES, lease)
        chances = {f"ns{number}": Chance(seed).child(str(number)) for number in range(groups)}
        for namespace, chance in chances.items():
            await create_updatable(kube, api.clock, chance, namespace)
        api.server.intercept = gate.intercept
        flags = [f"--kubeconfig={api.kubeconfig}", f"--address=127.0.0.1:{free_ports(1)[0]}"]
        flags += [f"--updater-interval={UPDATER_INTERVAL_S}s", "--admission-controller-status-lease-timeout=1h"]
        flags += ["--feature-gates=InPlace=true", "--kube-api-qps=2000", "--kube-api-burst=2000"]
        written = []
        with running([*PROGRAMS[side]("updater"), *flags], folder / f"updater-{side}.log"):
            await gate.wait()
            for _ in range(loops):
                gate.let_go()
                written.append(await gate.wait())
                for namespace, chance in chances.items():
                    if chance.random() < 0.5:
                        await recommend(kube, chance, namespace)
                await asyncio.sleep(DELIVERY_S)
            gate.let_go()
        return written


def test_updaters_write_the_same_in_every_loop(tmp_path: Path) -> None:
    """Evictions, resizes, annotations and events, by update mode, tolerance, requirements and state of the pods."""
    writes = {}
    for side in NAMES:
        (tmp_path / side).mkdir()
        writes[side] = run_scaled(updates_of(side, tmp_path / side, seed=1, groups=40, loops=3))
    for ours, theirs in zip(writes["ours"], writes["theirs"], strict=True):
        assert ours == theirs
    paths = [path for loop in writes["theirs"] for _, path, _ in loop]
    assert sum(path.endswith("/eviction") for path in paths) > 10
    assert sum(path.endswith("/resize") for path in paths) > 10
