"""Stories that end the same on every control plane: manifests, a while, and what is to be seen then.

`record.py` plays them around a real control plane and keeps what it saw; the tests play them in virtual time.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import yaml

from dovetail.kube.client import Kube
from dovetail.kube.resources import CORE_EVENTS, NODES, PODS, Resource
from dovetail.lab.cluster import Lab

Json = dict[str, Any]
MANIFESTS = Path(__file__).parents[2] / "clients" / "typed" / "manifests"
RECORDED = Path(__file__).parents[2] / "data" / "living"
#: Each story by its manifest, and the seconds until everything in it has come to rest.
WORKLOAD_RUNS = {"odd": 75.0, "other": 50.0, "hpas": 48.0, "silent": 10.0}
#: Seconds that a kubelet is silent at the end of a story.
SILENCE = {"silent": 75.0}

#: Seconds until a fresh cluster is at rest, and from one manifest to the next: no two of them race.
SETTLED, APART = 8.0, 0.4
#: Written by our own kubelets, or of the server's own start.
_LEFT_ALONE = frozenset({"kubelet", "ipallocator-repair-controller"})
_RULES = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"\b10\.\d+\.\d+\.\d+\b", "<ip>"),
        (r"\bip-10-0-0-\d+[a-z0-9.-]*", "<node>"),
        (r"multiple HPAs: \[.*?\]", "multiple HPAs: <names>"),
        (r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}\b", "<name>"),
    )
)
_LEFT_OUT = frozenset({"lastProbeTime", "lastHeartbeatTime", "uncountedTerminatedPods", "generation"})


async def play(lab: Lab, workload_run: str) -> Json:
    """Apply the run's manifests on one node; returns the cluster's state at its end."""
    await lab.nodes(1)
    await asyncio.sleep(SETTLED)
    served = await _served(lab.kube)
    made = []
    for document in yaml.safe_load_all((MANIFESTS / f"{workload_run}.yaml").read_text()):
        resource = served[document["kind"]]
        namespace = document["metadata"].setdefault("namespace", "default") if resource.namespaced else None
        await lab.kube.create(resource, document, namespace)
        made.append((resource, document["metadata"]["name"], namespace))
        await asyncio.sleep(APART)
    await asyncio.sleep(WORKLOAD_RUNS[workload_run])
    if workload_run in SILENCE:
        lab.fleet.silence(next(iter(lab.fleet.seats)))
        await asyncio.sleep(SILENCE[workload_run])
    seen: Json = {"statuses": {}, "events": []}
    for resource, name, namespace in made:
        found = await lab.kube.get(resource, name, namespace)
        if found.get("status"):
            seen["statuses"][f"{resource.kind} {name}"] = plain(_status(resource, found["status"]))
    seen["events"] = sorted({*await _said(lab.kube)})
    for node in (await lab.kube.list(NODES)).items:
        taints = [{key: each[key] for key in ("key", "effect")} for each in node["spec"].get("taints", [])]
        seen["statuses"]["Node"] = plain({"conditions": node["status"]["conditions"], "taints": taints})
    return seen


async def _served(kube: Kube) -> dict[str, Resource]:
    """Kind → resource, of everything the manifests use."""
    found = {}
    for group, version in (
        ("", "v1"),
        ("apps", "v1"),
        ("batch", "v1"),
        ("policy", "v1"),
        ("autoscaling", "v2"),
        ("storage.k8s.io", "v1"),
        ("networking.k8s.io", "v1"),
        ("scheduling.k8s.io", "v1"),
    ):
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        response = await kube.request("GET", path)
        for each in yaml.safe_load(response.body)["resources"]:
            if "/" not in each["name"]:
                found[each["kind"]] = Resource(group, version, each["name"], each["kind"], each["namespaced"])
    return found


def _status(resource: Resource, status: Json) -> Json:
    """What a pod's containers do is our kubelets' word: only its place counts."""
    if resource != PODS:
        return status
    placed = [
        each for each in status["conditions"] if each["type"] == "PodScheduled" or "Node" in each.get("reason", "")
    ]
    return {"phase": status["phase"], "conditions": placed}


async def _said(kube: Kube) -> list[str]:
    lines = []
    for event in (await kube.list(CORE_EVENTS)).items:
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
        about = event["involvedObject"]
        if source not in _LEFT_ALONE:
            words = (source, event["type"], event["reason"], f"{about['kind']} {about['name']}", event["message"])
            lines.append(" | ".join(plain(word) for word in words))
    return lines


def plain(value: Any) -> Any:
    """The value without what differs from run to run."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in _LEFT_OUT}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        for pattern, text in _RULES:
            value = pattern.sub(text, value)
    return value
