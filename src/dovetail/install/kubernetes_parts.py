"""The parts of an installation in the cluster: objects of the release, definitions, and the nodes' line in aws-auth.

Objects carry Helm's ownership marks, so that `helm upgrade` can take the release over, and an annotation of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.install.chart import Json, Release
from dovetail.install.iam import OWNER_TAG
from dovetail.install.sprig import dump_yaml, load_yaml
from dovetail.install.steps import ABSENT, EXISTS, Account, Change, StepStatus, Write
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS, Resource
from dovetail.language import message
from dovetail.model.kinds import crds
from dovetail.model.quantity import parse

#: What was applied last, so that a repetition writes nothing; and the ConfigMap's lines that are ours.
APPLIED = "dovetail.sh/applied-hash"
ADDED_ROLES = "dovetail.sh/added-roles"
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
DEFINITION = "CustomResourceDefinition"
#: What releases may consist of, whatever their values.
RELEASE_KINDS = (
    ("apiextensions.k8s.io/v1", DEFINITION),
    ("v1", "ServiceAccount"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
)

_PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "EC2NodeClass": "ec2nodeclasses",
    "PriorityClass": "priorityclasses",
}
_CLUSTER_WIDE = frozenset(
    {
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "FlowSchema",
        "PriorityClass",
        "NodePool",
        "EC2NodeClass",
        "PriorityLevelConfiguration",
        "APIService",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "StorageClass",
    }
)


def resource_of(obj: Mapping[str, Any]) -> Resource:
    """The address of an object's kind."""
    group, slash, version = str(obj["apiVersion"]).rpartition("/")
    kind = str(obj["kind"])
    plural = _PLURALS.get(kind, kind.lower() + "s")
    return Resource(group if slash else "", version, plural, kind, kind not in _CLUSTER_WIDE)


def marked(obj: Json, release: Release, owner: str) -> Json:
    """The object with Helm's ownership marks and ours, and a digest of what it says."""
    import hashlib

    digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()[:16]
    metadata = dict(obj["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), "app.kubernetes.io/managed-by": "Helm"}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        RELEASE_NAME: release.name,
        RELEASE_NAMESPACE: release.namespace,
        OWNER_TAG: owner,
        APPLIED: digest,
    }
    return {**obj, "metadata": metadata}


class Object(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is wholly ours. `keep`: one of this name that is not ours is used as it is.

    `editable`: once made it is the operator's to edit; otherwise an edit is taken back by a repetition.
    """

    body: Json
    owner: str
    keep: bool = False
    editable: bool = False
    #: A command that prints the body but for our marks; shown in place of a long body.
    printed_by: str = ""

    @property
    def resource(self) -> Resource:
        return resource_of(self.body)

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        namespace = self.body["metadata"].get("namespace")
        return str(namespace) if namespace else None

    @property
    def title(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.body['kind']} {where}{self.name}"

    async def read(self, account: Account) -> Any:
        try:
            return await account.kube.get(self.resource, self.name, self.namespace)
        except NotFound:
            return None

    def change(self, there: Any) -> Change:
        apply = Write(
            verb="apply", resource=self.resource, name=self.name, namespace=self.namespace, body=self.body,
            printed_by=self.printed_by,
        )  # fmt: skip
        if there is None:
            return Change(StepStatus.CREATE, (apply,))
        annotations = there["metadata"].get("annotations") or {}
        if OWNER_TAG not in annotations and self.keep:
            return Change(StepStatus.EXISTS, why=message("was there before; used as it is"))
        if there["metadata"].get("deletionTimestamp"):
            return Change(StepStatus.CHANGE, (apply,), why=message("is being deleted"))
        if annotations.get(APPLIED) != self.body["metadata"]["annotations"][APPLIED]:
            return Change(StepStatus.CHANGE, (apply,))
        edited = "" if self.editable else difference(self.body, there)
        if edited:
            return Change(StepStatus.CHANGE, (apply,), why=message("{field} was edited", field=edited))
        return EXISTS

    def removal(self, there: Any) -> Change:
        if there is None:
            return ABSENT
        if OWNER_TAG not in (there["metadata"].get("annotations") or {}):
            return Change(StepStatus.LEAVE, why=message("was there before the installation"))
        return Change(
            StepStatus.REMOVE, (Write(verb="delete", resource=self.resource, name=self.name, namespace=self.namespace),)
        )


def difference(desired: Any, there: Any, path: str = "") -> str:
    """The path of the first field that is not as wanted; empty if all are. Fields that only the server has count not.

    An empty value may be absent, and quantities are compared by their amount: the server writes them in its own form.
    """
    if isinstance(desired, Mapping) and isinstance(there, Mapping):
        for key, value in desired.items():
            field = f"{path}.{key}" if path else str(key)
            if differing := difference(value, there.get(key), field):
                return differing
        return ""
    if isinstance(desired, list) and isinstance(there, list):
        if len(desired) != len(there):
            return path
        pairs = enumerate(zip(desired, there, strict=True))
        return next((differing for index, pair in pairs if (differing := difference(*pair, f"{path}[{index}]"))), "")
    if desired == there or (not desired and there is None) or _same_amount(desired, there):
        return ""
    return path


def _same_amount(desired: Any, there: Any) -> bool:
    amount = _amount(desired)
    return amount is not None and amount == _amount(there)


def _amount(value: Any) -> int | None:
    """A quantity as a number; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse(str(value)).nano
    except ValueError:
        return None


def definition_parts(release: Release, owner: str) -> list[Object]:
    """Our custom resource definitions."""
    return [
        Object(body=marked(body, release, owner), owner=owner, keep=True, printed_by=f"dovetail crds {kind.name}")
        for kind, body in zip(crds.KINDS, crds.definitions(), strict=True)
    ]


async def installed_objects(account: Account, owner: str) -> list[Json]:
    """The objects of releases that carry our mark, whatever values they were installed with."""
    marked_objects: list[Json] = []
    for api_version, kind in RELEASE_KINDS:
        resource = resource_of({"apiVersion": api_version, "kind": kind})
        try:
            listing = await account.kube.list(resource, labels="app.kubernetes.io/managed-by=Helm")
        except NotFound:  # the definition of a kind that not every cluster has
            continue
        marked_objects += [
            {"apiVersion": api_version, "kind": kind, "metadata": obj["metadata"]}
            for obj in listing.items
            if (obj["metadata"].get("annotations") or {}).get(OWNER_TAG) == owner
        ]
    return marked_objects


class MappedRole(msgspec.Struct, frozen=True, kw_only=True):
    """The line of the node role in aws-auth, on clusters that authenticate by it. Other lines stay as they are."""

    role_arn: str
    owner: str

    @property
    def title(self) -> str:
        return f"aws-auth: {self.role_arn.rsplit('/', 1)[-1]}"

    @property
    def line(self) -> str:
        return (
            f"- groups:\n  - system:bootstrappers\n  - system:nodes\n  rolearn: {self.role_arn}\n"
            "  username: system:node:{{EC2PrivateDNSName}}\n"
        )

    async def read(self, account: Account) -> Any:
        try:
            return await account.kube.get(CONFIGMAPS, "aws-auth", "kube-system")
        except NotFound:
            return None

    def change(self, there: Any) -> Change:
        if there is None:
            metadata = {
                "name": "aws-auth",
                "namespace": "kube-system",
                "annotations": {OWNER_TAG: self.owner, ADDED_ROLES: self.role_arn},
            }
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mapRoles": self.line}}
            write = Write(verb="apply", resource=CONFIGMAPS, name="aws-auth", namespace="kube-system", body=body)
            return Change(StepStatus.CREATE, (write,))
        text = _text(there)
        roles = load_yaml(text or "[]")
        if not isinstance(roles, list):
            return Change(StepStatus.EXISTS, why=message("mapRoles is not a list; mend it, and map the role by hand"))
        if any(isinstance(row, dict) and row.get("rolearn") == self.role_arn for row in roles):
            return EXISTS
        if roles and not text.startswith("- "):
            text = dump_yaml(roles) + "\n"
        elif not roles:
            text = ""
        if text and not text.endswith("\n"):
            text += "\n"
        return Change(StepStatus.CHANGE, (self._write(text + self.line, [*_added(there), self.role_arn]),))

    def removal(self, there: Any) -> Change:
        if there is None or self.role_arn not in _added(there):
            return ABSENT
        text = _text(there).replace(self.line, "")
        if not text and OWNER_TAG in (there["metadata"].get("annotations") or {}):
            delete = Write(verb="delete", resource=CONFIGMAPS, name="aws-auth", namespace="kube-system")
            return Change(StepStatus.REMOVE, (delete,))
        added = [arn for arn in _added(there) if arn != self.role_arn]
        return Change(StepStatus.REMOVE, (self._write(text, added),))

    def _write(self, text: str, added: list[str]) -> Write:
        annotations = {ADDED_ROLES: ",".join(added) if added else None}
        body = {"metadata": {"annotations": annotations}, "data": {"mapRoles": text}}
        return Write(verb="patch", resource=CONFIGMAPS, name="aws-auth", namespace="kube-system", body=body)


def _text(config: Mapping[str, Any]) -> str:
    return str((config.get("data") or {}).get("mapRoles") or "")


def _added(config: Mapping[str, Any]) -> list[str]:
    text = (config["metadata"].get("annotations") or {}).get(ADDED_ROLES, "")
    return [arn for arn in text.split(",") if arn]
