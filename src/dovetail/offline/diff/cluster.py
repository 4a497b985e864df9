"""The objects of a cluster, completed so that they can be put into a lab: kinds of today, owners, configuration.

Input comes as an API server lists it, or as files that leave out what planning does not need. What is left out and
would change what happens is replaced by a stand-in, and said in a note.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.errors import UserError
from dovetail.language import message, plural
from dovetail.model.kinds.convert import ConversionError, expand

Json = dict[str, Any]
#: A kind, a namespace (empty for kinds without) and a name.
Key = tuple[str, str, str]

#: What is put into the lab, with whether it lives in a namespace.
KINDS: Mapping[str, bool] = {
    "Namespace": False,
    "PriorityClass": False,
    "StorageClass": False,
    "RuntimeClass": False,
    "CSINode": False,
    "Node": False,
    "NodePool": False,
    "NodeOverlay": False,
    "EC2NodeClass": False,
    "NodeClaim": False,
    "PersistentVolume": False,
    "PersistentVolumeClaim": True,
    "ConfigMap": True,
    "Secret": True,
    "LimitRange": True,
    "ResourceQuota": True,
    "PodDisruptionBudget": True,
    "Deployment": True,
    "ReplicaSet": True,
    "StatefulSet": True,
    "DaemonSet": True,
    "Job": True,
    "Pod": True,
}
#: Kinds of older API versions, which become one or two of today's.
_OLDER = frozenset({"Provisioner", "Machine", "AWSNodeTemplate"})
#: Namespaces that every cluster has.
_USUAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
#: Where pods are described.
TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
#: What a controller of the lab keeps as many of as there are.
_CONTROLLED = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job"})


class DiffInput(msgspec.Struct, frozen=True, kw_only=True):
    """`stored` are objects as a server has them; `manifests` have yet to be created; `notes` say what was assumed."""

    stored: tuple[Json, ...]
    manifests: tuple[Json, ...]
    notes: tuple[str, ...]

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        key = (kind, namespace if KINDS.get(kind, True) else "", name)
        return next((item for item in (*self.stored, *self.manifests) if key_of(item) == key), None)

    def of(self, kind: str) -> list[Json]:
        return [item for item in (*self.stored, *self.manifests) if item["kind"] == kind]


def key_of(item: Json) -> Key:
    metadata = item.get("metadata") or {}
    namespace = (metadata.get("namespace") or "default") if KINDS.get(item["kind"], True) else ""
    return str(item["kind"]), namespace, str(metadata.get("name") or "")


def label_of(item: Json) -> str:
    """An object as messages name it."""
    kind, namespace, name = key_of(item)
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def flat(documents: Iterable[Any]) -> Iterator[Json]:
    """The objects of documents, with Lists taken apart."""
    for document in documents:
        if isinstance(document, list):
            yield from flat(document)
        elif not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise UserError(
                message(
                    "{value} is no object; every document is a mapping with apiVersion and kind", value=_shown(document)
                )
            )
        elif document["kind"].endswith("List") and "items" in document:
            kind = document["kind"].removesuffix("List")
            for item in document["items"] or ():
                yield from flat([{"kind": kind, "apiVersion": document.get("apiVersion"), **item} if kind else item])
        else:
            yield document


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def current(item: Json) -> list[Json]:
    """An object in the API version of today; one of an older kind may become two."""
    version = str(item.get("apiVersion") or "")
    if item["kind"] not in _OLDER and not (version.startswith("karpenter") and not version.endswith("/v1")):
        return [item]
    if item["kind"] == "NodeOverlay":
        return [item]
    try:
        return list(expand(item))
    except ConversionError as problem:
        raise UserError(f"{label_of(item)}: {problem}") from problem


def complete(documents: Iterable[Any]) -> DiffInput:
    """A cluster from the documents of a server's lists, of files or of a recording."""
    by_key: dict[Key, Json] = {}
    left_out: dict[str, int] = {}
    for document in flat(documents):
        for item in current(document):
            if item["kind"] not in KINDS:
                left_out[item["kind"]] = left_out.get(item["kind"], 0) + 1
                continue
            by_key[key_of(item)] = _identified(item)
    notes = list(_left_out(left_out))
    by_key |= _stand_in_owners(by_key, notes)
    stored = [item for item in by_key.values() if _is_stored(item)]
    manifests = [item for item in by_key.values() if not _is_stored(item)]
    _drop_absent_owners(stored)
    stored += _stand_in_configuration([*stored, *manifests], by_key)
    stored += _namespaces([*stored, *manifests], by_key)
    order = {kind: number for number, kind in enumerate(KINDS)}
    manifests.sort(key=lambda item: order[item["kind"]])
    return DiffInput(stored=tuple(stored), manifests=tuple(manifests), notes=tuple(notes))


def _left_out(counts: Mapping[str, int]) -> Iterator[str]:
    scalers = counts.get("HorizontalPodAutoscaler", 0) + counts.get("VerticalPodAutoscaler", 0)
    if scalers:
        yield plural(
            "{n} pod autoscaler is left out: replicas and requests stay as they are",
            "{n} pod autoscalers are left out: replicas and requests stay as they are",
            n=scalers,
        )


def _identified(item: Json) -> Json:
    """A copy of its own; what runs already and has no UID gets one."""
    item = copy.deepcopy(item)
    metadata = item.setdefault("metadata", {})
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}{_uid(item)[:5]}"
    if not metadata.get("name"):
        raise UserError(message("{kind} without a name; every object needs metadata.name", kind=item["kind"]))
    if KINDS[item["kind"]]:
        metadata.setdefault("namespace", "default")
    bound = item["kind"] == "Pod" and (item.get("spec") or {}).get("nodeName")
    if not metadata.get("uid") and (bound or item["kind"] in ("Node", "NodeClaim")):
        metadata["uid"] = _uid(item)
    metadata.pop("resourceVersion", None)
    return item


def _uid(item: Json) -> str:
    return hashlib.blake2b("/".join(key_of(item)).encode(), digest_size=16).hexdigest()


def _is_stored(item: Json) -> bool:
    return bool(item["metadata"].get("uid"))


def _controller(item: Json) -> Json | None:
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _stand_in_owners(by_key: Mapping[Key, Json], notes: list[str]) -> dict[Key, Json]:
    """ReplicaSets in place of controllers that are not in the input: without one an evicted pod would not return."""
    there = {item["metadata"].get("uid") for item in by_key.values()}
    orphans: dict[str, list[Json]] = {}
    for item in by_key.values():
        owner = _controller(item) if item["kind"] == "Pod" else None
        ends = (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if owner is None or ends or owner.get("uid") in there or owner.get("kind") in ("DaemonSet", "Node"):
            continue
        orphans.setdefault(str(owner.get("uid")), []).append(item)
    made: dict[Key, Json] = {}
    for uid, pods in orphans.items():
        owner = _controller(pods[0])
        stand_in = _replica_set(uid, owner or {}, pods)
        if stand_in is not None:
            made[key_of(stand_in)] = stand_in
    if made:
        notes.append(
            plural(
                "{n} workload is not in the input: it is taken to keep as many pods as it has",
                "{n} workloads are not in the input: they are taken to keep as many pods as they have",
                n=len(made),
            )
        )
    return made


def _replica_set(uid: str, owner: Json, pods: Sequence[Json]) -> Json | None:
    """A ReplicaSet with the UID of a missing controller, made the owner of its pods; None if no label selects them."""
    first = pods[0]
    labels = dict(first["metadata"].get("labels") or {})
    for pod in pods[1:]:
        others = pod["metadata"].get("labels") or {}
        labels = {name: value for name, value in labels.items() if others.get(name) == value}
    if not labels:
        return None
    spec = {name: value for name, value in first["spec"].items() if name != "nodeName"}
    for pod in pods:
        reference = _controller(pod)
        if reference is not None:
            reference.update({"apiVersion": "apps/v1", "kind": "ReplicaSet"})
    metadata = first["metadata"]
    template = {"metadata": {"labels": labels, "annotations": dict(metadata.get("annotations") or {})}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": owner.get("name"),
            "namespace": metadata["namespace"],
            "uid": uid,
            "generation": 1,
            "creationTimestamp": metadata.get("creationTimestamp"),
            "labels": labels,
        },
        "spec": {"replicas": len(pods), "selector": {"matchLabels": labels}, "template": template},
        "status": {"replicas": len(pods), "readyReplicas": len(pods), "observedGeneration": 1},
    }


def _drop_absent_owners(stored: Sequence[Json]) -> None:
    """An owner that is not there would take its dependants with it."""
    there = {item["metadata"]["uid"] for item in stored}
    for item in stored:
        owners = item["metadata"].get("ownerReferences")
        if not owners:
            continue
        kept = [owner for owner in owners if owner.get("uid") in there]
        if kept:
            item["metadata"]["ownerReferences"] = kept
        else:
            del item["metadata"]["ownerReferences"]


def pod_spec(item: Json) -> Json:
    """The pod spec of a pod or of a workload's template; empty for other kinds."""
    spec: Json = item.get("spec") or {}
    if item["kind"] in TEMPLATED:
        spec = (spec.get("template") or {}).get("spec") or {}
    return spec if item["kind"] in TEMPLATED or item["kind"] == "Pod" else {}


def _stand_in_configuration(items: Sequence[Json], by_key: Mapping[Key, Json]) -> list[Json]:
    """ConfigMaps and Secrets that pods name, with the keys they name: their content has no part in where pods run."""
    data_keys: dict[Key, set[str]] = {}
    for item in items:
        namespace = key_of(item)[1]
        for kind, name, keys in _references(pod_spec(item)):
            data_keys.setdefault((kind, namespace, name), set()).update(keys)
    return [
        {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": _uid({"kind": kind, "metadata": {"name": name, "namespace": namespace}}),
            },
            "data": dict.fromkeys(sorted(keys), ""),
        }
        for (kind, namespace, name), keys in sorted(data_keys.items())
        if name and (kind, namespace, name) not in by_key
    ]


def _references(spec: Json) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Kind, name and keys of the configuration that a pod spec names."""
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for source in container.get("envFrom") or ():
            for kind, field in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                if source.get(field):
                    yield kind, str(source[field].get("name") or ""), ()
        for variable in container.get("env") or ():
            value_from = variable.get("valueFrom") or {}
            for kind, field in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
                if value_from.get(field):
                    yield kind, str(value_from[field].get("name") or ""), (str(value_from[field].get("key") or ""),)
    for volume in spec.get("volumes") or ():
        if volume.get("configMap"):
            yield "ConfigMap", str(volume["configMap"].get("name") or ""), ()
        if volume.get("secret"):
            yield "Secret", str(volume["secret"].get("secretName") or ""), ()


def _namespaces(items: Sequence[Json], by_key: Mapping[Key, Json]) -> list[Json]:
    """The namespaces that objects live in and the input leaves out."""
    names = {key_of(item)[1] for item in items} - _USUAL_NAMESPACES - {""}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "uid": _uid({"kind": "Namespace", "metadata": {"name": name}}),
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        for name in sorted(names)
        if ("Namespace", "", name) not in by_key
    ]
