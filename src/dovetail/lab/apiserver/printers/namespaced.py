"""Columns of configuration, storage, access and the rest."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.printers.cells import ColumnHeader, containers, created, human, labels

Json = dict[str, Any]
NAME = ColumnHeader("Name", format="name")
AGE = ColumnHeader("Age")


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


CONFIGMAPS = (NAME, ColumnHeader("Data"), AGE)


def configmap(obj: Json, now: datetime) -> list[Any]:
    size = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    return [_name(obj), size, created(obj, now)]


SECRETS = (NAME, ColumnHeader("Type"), ColumnHeader("Data"), AGE)


def secret(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), created(obj, now)]


ACCOUNTS = (NAME, AGE)


def account(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), created(obj, now)]


VOLUMES = (
    NAME,
    ColumnHeader("Capacity"),
    ColumnHeader("Access Modes"),
    ColumnHeader("Reclaim Policy"),
    ColumnHeader("Status"),
    ColumnHeader("Claim"),
    ColumnHeader("StorageClass"),
    ColumnHeader("VolumeAttributesClass"),
    ColumnHeader("Reason"),
    AGE,
    ColumnHeader("VolumeMode", priority=1),
)
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_LEGACY_CLASS = "volume.beta.kubernetes.io/storage-class"


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for name, short in _MODES.items() if name in (modes or []))


def _phase(obj: Json) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else (obj.get("status") or {}).get("phase", "")


def _class(obj: Json) -> str:
    legacy = (obj["metadata"].get("annotations") or {}).get(_LEGACY_CLASS)
    return str(legacy if legacy is not None else (obj.get("spec") or {}).get("storageClassName") or "")


def volume(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    claim = spec.get("claimRef")
    return [
        _name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        (obj.get("status") or {}).get("reason", ""),
        created(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


CLAIMS = (
    NAME,
    ColumnHeader("Status"),
    ColumnHeader("Volume"),
    ColumnHeader("Capacity"),
    ColumnHeader("Access Modes"),
    ColumnHeader("StorageClass"),
    ColumnHeader("VolumeAttributesClass"),
    AGE,
    ColumnHeader("VolumeMode", priority=1),
)


def claim(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = spec.get("volumeName", "")
    return [
        _name(obj),
        _phase(obj),
        bound,
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        created(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


STORAGE_CLASSES = (
    NAME,
    ColumnHeader("Provisioner"),
    ColumnHeader("ReclaimPolicy"),
    ColumnHeader("VolumeBindingMode"),
    ColumnHeader("AllowVolumeExpansion"),
    AGE,
)
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def storage_class(obj: Json, now: datetime) -> list[Any]:
    annotations = obj["metadata"].get("annotations") or {}
    default = any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)
    return [
        _name(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        created(obj, now),
    ]


ATTACHMENTS = (
    NAME,
    ColumnHeader("Attacher", format="name"),
    ColumnHeader("PV"),
    ColumnHeader("Node"),
    ColumnHeader("Attached", "boolean"),
    AGE,
)


def attachment(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    source = (spec.get("source") or {}).get("persistentVolumeName") or ""
    attached = bool((obj.get("status") or {}).get("attached"))
    return [_name(obj), spec.get("attacher", ""), source, spec.get("nodeName", ""), attached, created(obj, now)]


CSI_NODES = (NAME, ColumnHeader("Drivers", "integer"), AGE)


def csi_node(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), len((obj.get("spec") or {}).get("drivers") or []), created(obj, now)]


CSI_DRIVERS = (
    NAME,
    ColumnHeader("AttachRequired", "boolean"),
    ColumnHeader("PodInfoOnMount", "boolean"),
    ColumnHeader("StorageCapacity", "boolean"),
    ColumnHeader("TokenRequests"),
    ColumnHeader("RequiresRepublish", "boolean"),
    ColumnHeader("Modes"),
    AGE,
)


def csi_driver(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    tokens = spec.get("tokenRequests")
    return [
        _name(obj),
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        "<unset>" if tokens is None else ",".join(token.get("audience", "") for token in tokens),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or []) or "<none>",
        created(obj, now),
    ]


LEASES = (NAME, ColumnHeader("Holder"), AGE)


def lease(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), (obj.get("spec") or {}).get("holderIdentity") or "", created(obj, now)]


PRIORITIES = (
    NAME,
    ColumnHeader("Value", "integer"),
    ColumnHeader("Global-Default", "boolean"),
    AGE,
    ColumnHeader("PreemptionPolicy"),
)


def priority(obj: Json, now: datetime) -> list[Any]:
    row = [_name(obj), obj.get("value", 0), bool(obj.get("globalDefault")), created(obj, now)]
    return [*row, obj.get("preemptionPolicy") or ""]


BINDINGS = (
    NAME,
    ColumnHeader("Role"),
    AGE,
    ColumnHeader("Users", priority=1),
    ColumnHeader("Groups", priority=1),
    ColumnHeader("ServiceAccounts", priority=1),
)


def binding(obj: Json, now: datetime) -> list[Any]:
    role = obj.get("roleRef") or {}
    who: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        who.setdefault(subject.get("kind", ""), []).append(name)
    row = [_name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", created(obj, now)]
    return row + [", ".join(who[kind]) for kind in ("User", "Group", "ServiceAccount")]


QUOTAS = (NAME, ColumnHeader("Request"), ColumnHeader("Limit"), AGE)


def quota(obj: Json, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    used, hard = status.get("used") or {}, status.get("hard") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        column = limits if name.startswith("limits.") else requests
        column.append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [_name(obj), ", ".join(requests), ", ".join(limits), created(obj, now)]


WEBHOOKS = (NAME, ColumnHeader("Webhooks", "integer"), AGE)


def webhook(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), len(obj.get("webhooks") or []), created(obj, now)]


RUNTIMES = (NAME, ColumnHeader("Handler"), AGE)


def runtime(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("handler", ""), created(obj, now)]


TEMPLATES = (NAME, ColumnHeader("Containers"), ColumnHeader("Images"), ColumnHeader("Pod Labels"))


def template(obj: Json, now: datetime) -> list[Any]:
    names, images = containers(obj.get("template"))
    own = ((obj.get("template") or {}).get("metadata") or {}).get("labels")
    return [_name(obj), names, images, labels(own)]


CERTIFICATES = (
    NAME,
    AGE,
    ColumnHeader("SignerName"),
    ColumnHeader("Requestor"),
    ColumnHeader("RequestedDuration"),
    ColumnHeader("Condition"),
)


def certificate(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    seconds = spec.get("expirationSeconds")
    kinds = {condition.get("type") for condition in status.get("conditions") or []}
    word = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        word += ",Failed"
    if status.get("certificate"):
        word += ",Issued"
    took = "<none>" if seconds is None else human(seconds)
    row = [_name(obj), created(obj, now), spec.get("signerName") or "<none>", spec.get("username", "")]
    return [*row, took, word]


ATTRIBUTES_CLASSES = (NAME, ColumnHeader("DriverName"), AGE)


def attributes_class(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("driverName", ""), created(obj, now)]


API_SERVICES = (NAME, ColumnHeader("Service"), ColumnHeader("Available"), AGE)


def api_service(obj: Json, now: datetime) -> list[Any]:
    service = (obj.get("spec") or {}).get("service")
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    word = "Unknown"
    for condition in (obj.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Available":
            word = condition.get("status", "")
            if word != "True":
                word = f"{word} ({condition.get('reason', '')})"
    return [_name(obj), where, word, created(obj, now)]


FLOW_SCHEMAS = (
    NAME,
    ColumnHeader("PriorityLevel"),
    ColumnHeader("MatchingPrecedence"),
    ColumnHeader("DistinguisherMethod"),
    AGE,
    ColumnHeader("MissingPL"),
)


def flow_schema(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    method = (spec.get("distinguisherMethod") or {}).get("type", "<none>")
    dangling = "?"
    for condition in (obj.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Dangling":
            dangling = condition.get("status", "")
    return [_name(obj), level, spec.get("matchingPrecedence", 0), method, created(obj, now), dangling]


PRIORITY_LEVELS = (
    NAME,
    ColumnHeader("Type"),
    ColumnHeader("NominalConcurrencyShares"),
    ColumnHeader("Queues"),
    ColumnHeader("HandSize"),
    ColumnHeader("QueueLengthLimit"),
    AGE,
)


def priority_level(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    limited = spec.get("limited")
    queuing = ((limited or {}).get("limitResponse") or {}).get("queuing") or {}
    shares = (limited or {}).get("nominalConcurrencyShares", "<none>")
    sizes = [queuing.get(key, "<none>") for key in ("queues", "handSize", "queueLengthLimit")]
    return [_name(obj), spec.get("type", ""), shares, *sizes, created(obj, now)]


SERVICE_CIDRS = (NAME, ColumnHeader("CIDRs"), AGE)


def service_cidr(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), ",".join((obj.get("spec") or {}).get("cidrs") or ()), created(obj, now)]


ADMISSION_POLICIES = (NAME, ColumnHeader("Validations", "integer"), ColumnHeader("ParamKind"), AGE)


def admission_policy(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    parameter = spec.get("paramKind")
    kind = f"{parameter.get('apiVersion', '')}/{parameter.get('kind', '')}" if parameter else "<unset>"
    return [_name(obj), len(spec.get("validations") or ()), kind, created(obj, now)]


ADMISSION_BINDINGS = (NAME, ColumnHeader("PolicyName"), ColumnHeader("ParamRef"), AGE)


def admission_binding(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    reference = spec.get("paramRef")
    shown = "<unset>"
    if reference:
        place = reference.get("namespace")
        shown = f"{place}/{reference.get('name', '')}" if place else f"*/{reference.get('name', '')}"
    return [_name(obj), spec.get("policyName", ""), shown, created(obj, now)]


DEVICE_CLASSES = (NAME, AGE)


def device_class(obj: Json, now: datetime) -> list[Any]:
    return [_name(obj), created(obj, now)]
