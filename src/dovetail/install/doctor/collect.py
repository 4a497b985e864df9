"""Reads a cluster and its AWS account into `Facts`. Nothing is written, and no secret is kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from dovetail.cloud.aws.client import Calls
from dovetail.install.doctor.aws_answers import collect_account
from dovetail.install.doctor.facts import Facts, SourceAnswer, State, condition, environment
from dovetail.install.pod_role import AGENT_VARIABLE, ROLE_VARIABLE
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, Disconnected, Forbidden, KubeError, NotFound, Unauthorized
from dovetail.kube.resources import Resource
from dovetail.kube.transport import LAB_TIME
from dovetail.language import message

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
CLUSTERROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", False)
CLUSTERROLEBINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
ROLES = Resource(RBAC, "v1", "roles", "Role")
ROLEBINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
APISERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)
LIMITRANGES = Resource("", "v1", "limitranges", "LimitRange")
VALIDATING = Resource(ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False)
MUTATING = Resource(ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)

#: Every kind that is listed; `doctor --rbac` prints the right for each.
LISTED = (
    kinds.NODES,
    kinds.PODS,
    kinds.PERSISTENTVOLUMES,
    kinds.PERSISTENTVOLUMECLAIMS,
    kinds.STORAGECLASSES,
    LIMITRANGES,
    kinds.SERVICES,
    kinds.SERVICEACCOUNTS,
    kinds.DEPLOYMENTS,
    kinds.DAEMONSETS,
    kinds.PDBS,
    kinds.HPAS,
    VPAS,
    kinds.LEASES,
    kinds.ENDPOINTSLICES,
    APISERVICES,
    kinds.CRDS,
    kinds.NODEPOOLS,
    kinds.NODECLAIMS,
    kinds.EC2NODECLASSES,
    CLUSTERROLES,
    CLUSTERROLEBINDINGS,
    ROLES,
    ROLEBINDINGS,
    VALIDATING,
    MUTATING,
)
AWS_AUTH = "configmap kube-system/aws-auth"
VERSION, METRICS = "/version", "/apis/metrics.k8s.io/v1beta1"
#: Faults that are injected into a lab; no other API server has this page.
LAB_FAULTS = "/lab/faults"
#: Only in a bundle, for its reader: what the controller wrote last, and what it and the nodes measure.
LOG_LINES = 500
#: Events by which the controller reports safe mode.
SAFE_MODE = "events of safe mode"
#: Events by which a controller says that no NodePool serves a pod, and how their text begins.
REFUSALS, REFUSAL_TEXT = "events of pods that no NodePool serves", "Failed to schedule pod, "
NODE_METRICS = f"{METRICS}/nodes"
#: Variables of containers that checks read; every other may hold a secret and is dropped.
KEPT_VARIABLES = frozenset(
    (
        "CLUSTER_ENDPOINT",
        "CLUSTER_NAME",
        "INTERRUPTION_QUEUE",
        "AWS_REGION",
        ROLE_VARIABLE,
        AGENT_VARIABLE,
        "LEADER_ELECTION_NAME",
        "LEADER_ELECTION_NAMESPACE",
        "DISABLE_LEADER_ELECTION",
        "FEATURE_GATES",
        "ISOLATED_VPC",
        "RESERVED_ENIS",
        "VM_MEMORY_OVERHEAD_PERCENT",
        # of the Amazon VPC CNI
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
        "ENABLE_IPv6",
        "ENABLE_POD_ENI",
        "ENABLE_PREFIX_DELEGATION",
    )
)
#: Flags of Cluster Autoscaler that checks read.
KEPT_FLAGS = ("--node-group-auto-discovery", "--nodes", "--cloud-provider")
#: Keys and tokens that are known by their form, wherever they are.
KEY_TEXT = re.compile(r"(?:AKIA|ASIA)[0-9A-Z]{12,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]*")
#: What may be a secret in a line of a log.
SECRET_TEXT = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|eyJ[\w-]{10,}\.[\w-]+\.[\w-]*"
    r"|(?i:(?:authorization|bearer|password|passwd|secret|token|x-amz-signature)[\"']?\s*[=:]?\s*)(?:(?i:bearer)\s+)?\S+"
)
#: Of these only the presence is kept: the controller then has credentials of its own.
CREDENTIAL_VARIABLES = frozenset(("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"))
#: Fields that may hold secrets, or that only take space.
DROPPED_FIELDS = frozenset(("managedFields", "userData", "args", "command", "data", "stringData", "envFrom"))
#: Label keys are free text: one called `data` is no secret.
LABEL_FIELDS = frozenset(("labels", "matchLabels", "nodeSelector", "selector"))
#: Annotations of these domains are kept; of others nothing is known.
KEPT_ANNOTATIONS = ("kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "eks.amazonaws.com", "helm.sh", "dovetail.sh")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def without_secrets(value: Any) -> Any:
    """The object without fields and variables that may hold a secret."""
    if isinstance(value, dict):
        return {
            key: _kept(key, inner) for key, inner in value.items() if key not in DROPPED_FIELDS and key != LAST_APPLIED
        }
    if isinstance(value, str):
        return KEY_TEXT.sub("(removed)", value)
    return [without_secrets(inner) for inner in value] if isinstance(value, list) else value


def _kept(key: str, inner: Any) -> Any:
    if key in LABEL_FIELDS:
        return inner
    if key == "annotations" and isinstance(inner, dict):
        inner = {name: text for name, text in inner.items() if name.partition("/")[0].endswith(KEPT_ANNOTATIONS)}
    return _variables(inner) if key == "env" and isinstance(inner, list) else without_secrets(inner)


def _variables(rows: list[Any]) -> list[dict[str, Any]]:
    kept = []
    for row in rows:
        if row.get("name") in KEPT_VARIABLES:
            kept.append({"name": row["name"], "value": row.get("value")})
        elif row.get("name") in CREDENTIAL_VARIABLES:
            kept.append({"name": row["name"]})
    return kept


#: Fields of pods that checks read; pods are by far the most objects.
POD_METADATA = (
    "name",
    "namespace",
    "labels",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
    "creationTimestamp",
)
POD_SPEC = ("nodeName", "nodeSelector", "affinity", "tolerations", "volumes", "priority", "dnsPolicy")
POD_STATUS = ("phase", "conditions", "containerStatuses")


def _pod(obj: dict[str, Any]) -> dict[str, Any]:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    containers = [
        {
            "name": box.get("name"),
            "image": box.get("image"),
            "resources": box.get("resources") or {},
            "env": _variables(box.get("env") or []),
        }
        for box in spec.get("containers") or ()
    ]
    claims = [volume for volume in spec.get("volumes") or () if "persistentVolumeClaim" in volume]
    kept = {
        "metadata": {key: metadata[key] for key in POD_METADATA if key in metadata},
        "spec": {key: spec[key] for key in POD_SPEC if key in spec} | {"containers": containers, "volumes": claims},
        "status": {key: status[key] for key in POD_STATUS if key in status},
    }
    annotations = kept["metadata"].get("annotations")
    if annotations:
        names = [key for key in annotations if key.startswith("karpenter.sh/")]
        kept["metadata"]["annotations"] = {key: annotations[key] for key in names}
    return kept


def trimmed(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """What is kept of an object: schemas only of Karpenter's kinds, since others are large and not checked."""
    if resource == kinds.PODS:
        return _pod(obj)
    if resource == kinds.CRDS and "karpenter" not in obj["metadata"]["name"]:
        return {"metadata": {"name": obj["metadata"]["name"]}}
    if resource == kinds.CRDS:
        return obj
    kept: dict[str, Any] = without_secrets(obj)
    if resource == kinds.DEPLOYMENTS:
        kept["flags"] = _flags(obj)
        kept["replicas set by"] = _replicas_managers(obj)
    return kept


def _flags(deployment: Mapping[str, Any]) -> list[str]:
    """The flags of Cluster Autoscaler; those of other programs may hold secrets."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or ()
    words = [
        str(word)
        for box in containers
        if "cluster-autoscaler" in str(box.get("image")) or "cluster-autoscaler" in (box.get("command") or ())
        for word in (*(box.get("command") or ()), *(box.get("args") or ()))
    ]
    return [word for word in words if word.startswith(KEPT_FLAGS)]


def _replicas_managers(deployment: Mapping[str, Any]) -> list[str]:
    """Which programs own `spec.replicas`."""
    rows = deployment["metadata"].get("managedFields") or ()
    return [
        str(row.get("manager"))
        for row in rows
        if "f:replicas" in ((row.get("fieldsV1") or {}).get("f:spec") or {}) and row.get("subresource") != "scale"
    ]


async def collect(
    kube: Kube,
    calls: Calls | None,
    *,
    server: str,
    cluster: str = "",
    logs: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> Facts:
    """Read everything. Without `calls` nothing is asked at AWS, and the checks that need it are not made.

    `logs` adds what only a reader of a bundle wants: the controller's log and metrics.
    """
    progress(message("the cluster's objects"))
    lists = await asyncio.gather(*(_list(kube, resource) for resource in LISTED))
    answers = {resource.name: answer for resource, answer in zip(LISTED, lists, strict=True)}
    if {answer.state for answer in lists} == {State.UNREACHABLE}:
        raise Disconnected(lists[0].message)
    answers[AWS_AUTH] = await _aws_auth(kube)
    answers[METRICS], _ = await _raw(kube, METRICS)
    answers[LAB_FAULTS], _ = await _raw(kube, LAB_FAULTS)
    answers[SAFE_MODE] = await _list(kube, kinds.CORE_EVENTS, fields="reason=SafeMode")
    answers[REFUSALS] = await _refusals(kube, answers)
    answers[VERSION], time = await _raw(kube, VERSION)
    if logs:
        progress(message("the controller's log and metrics"))
        answers |= await _logs(kube, answers)
    cluster = cluster or _cluster_name(answers)
    region, now = "", time or kube.clock.now()
    if calls is not None:
        region = calls.region
        cluster, account = await collect_account(calls, answers, cluster, server, now, progress)
        answers |= account
    return Facts(time=now, cluster=cluster, region=region, answers=answers)


async def _list(kube: Kube, resource: Resource, fields: str = "") -> SourceAnswer:
    right = f"list {resource.name}"
    try:
        listing = await kube.list(resource, fields=fields or None, trim=lambda obj: trimmed(resource, obj))
    except KubeError as error:
        return _without(error, right)
    return SourceAnswer(data=listing.items, right=right)


async def _refusals(kube: Kube, answers: Mapping[str, SourceAnswer]) -> SourceAnswer:
    """Only asked where a pod waits: a busy cluster has many events."""
    pods = answers[kinds.PODS.name].data or ()
    if not any((condition(pod, "PodScheduled") or {}).get("status") == "False" for pod in pods):
        return SourceAnswer(data=[])
    answer = await _list(kube, kinds.CORE_EVENTS, fields="reason=FailedScheduling")
    if answer.state is not State.READ:
        return answer
    refusals = [event for event in answer.data if str(event.get("message")).startswith(REFUSAL_TEXT)]
    return SourceAnswer(data=refusals, right=answer.right)


async def _logs(kube: Kube, answers: Mapping[str, SourceAnswer]) -> dict[str, SourceAnswer]:
    """Of each pod of the controllers the last lines and the metrics, and what the nodes use."""
    made: dict[str, SourceAnswer] = {}
    made[NODE_METRICS], _ = await _raw(kube, NODE_METRICS)
    for pod in answers[kinds.PODS.name].data or ():
        labels = pod["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/name") not in ("karpenter", "dovetail", "cluster-autoscaler"):
            continue
        path = kinds.PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
        made[f"log of {pod['metadata']['name']}"] = await _text(kube, f"{path}/log", (("tailLines", str(LOG_LINES)),))
        made[f"metrics of {pod['metadata']['name']}"] = await _text(kube, f"{path}:8080/proxy/metrics")
    return made


async def _text(kube: Kube, path: str, query: tuple[tuple[str, str], ...] = ()) -> SourceAnswer:
    """A page of text without what looks like a secret."""
    right = f"get {path}"
    try:
        response = await kube.request("GET", path, query)
    except KubeError as error:
        return _without(error, right)
    text = response.body.decode(errors="replace")
    return SourceAnswer(data=SECRET_TEXT.sub("(removed)", text), right=right)


async def _aws_auth(kube: Kube) -> SourceAnswer:
    right = message("get configmaps in kube-system")
    try:
        config_map = await kube.get(kinds.CONFIGMAPS, "aws-auth", "kube-system")
    except KubeError as error:
        return _without(error, right)
    return SourceAnswer(data={"mapRoles": (config_map.get("data") or {}).get("mapRoles", "")}, right=right)


async def _raw(kube: Kube, path: str) -> tuple[SourceAnswer, datetime | None]:
    """A page of the API server, and the time that the server says it is: a lab's may run faster than ours."""
    right = f"get {path}"
    try:
        response = await kube.request("GET", path)
    except KubeError as error:
        return _without(error, right), None
    stated = response.headers.get(LAB_TIME) or response.headers.get("date")
    try:
        data = msgspec.json.decode(response.body)
    except msgspec.DecodeError as error:
        return SourceAnswer(state=State.UNREACHABLE, right=right, message=f"{path}: {error}"), None
    return SourceAnswer(data=data, right=right), parsedate_to_datetime(stated) if stated else None


def _without(error: KubeError, right: str) -> SourceAnswer:
    if isinstance(error, NotFound):
        return SourceAnswer(state=State.ABSENT, right=right)
    refused = isinstance(error, (Forbidden, Unauthorized))
    message = error.message if isinstance(error, ApiError) else str(error)
    return SourceAnswer(state=State.REFUSED if refused else State.UNREACHABLE, right=right, message=message)


def _cluster_name(answers: Mapping[str, SourceAnswer]) -> str:
    """What the controller's Deployment says; empty where there is none."""
    for deployment in answers[kinds.DEPLOYMENTS.name].data or ():
        labels = deployment["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/name") == "karpenter" and environment(deployment).get("CLUSTER_NAME"):
            return environment(deployment)["CLUSTER_NAME"]
    return ""
