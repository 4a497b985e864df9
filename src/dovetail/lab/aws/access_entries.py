"""EKS access entries: which IAM principals may join or use a cluster, and the access policies that they have.

EKS authorizes by access policies beside RBAC; each grants what a default ClusterRole grants, in the whole cluster or
in some namespaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from dovetail.lab.aws.http_forms import Answer, Environ, body_of, json_answer

_ENTRY = re.compile(
    r"^/clusters/(?P<cluster>[^/]+)/access-entries"
    r"(?:/(?P<arn>.+?))?(?P<policies>/access-policies(?:/(?P<policy>.+))?)?$"
)
_POLICY_ARN = "arn:aws:eks::aws:cluster-access-policy/"
#: Access policies, and the ClusterRole that grants the same.
POLICIES: Mapping[str, str] = {
    f"{_POLICY_ARN}AmazonEKSAdminPolicy": "admin",
    f"{_POLICY_ARN}AmazonEKSClusterAdminPolicy": "cluster-admin",
    f"{_POLICY_ARN}AmazonEKSEditPolicy": "edit",
    f"{_POLICY_ARN}AmazonEKSViewPolicy": "view",
}
_JOINING = ("EC2", "FARGATE", "HYBRID")


class AccessEntries:
    """Served on EKS's paths. `entries`: by cluster and principal; `policies`: scopes by cluster, principal and ARN."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, dict[str, Any]]] = {}
        self.policies: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}

    def forget(self) -> None:
        self.entries.clear()
        self.policies.clear()

    def granted_roles(self, cluster: str, principal_arn: str, namespace: str) -> Iterable[str]:
        """The ClusterRoles that the access policies of a principal amount to, for requests in a namespace."""
        for policy, row in list(self.policies.get((cluster, principal_arn), {}).items()):
            scope = row["accessScope"]
            patterns = scope.get("namespaces") or ()
            if scope["type"] == "cluster" or any(namespace and fnmatchcase(namespace, name) for name in patterns):
                yield POLICIES[policy]

    def answer(self, environ: Environ) -> Answer | None:
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        if path == "/access-policies":
            rows = [{"name": arn.rpartition("/")[2], "arn": arn} for arn in sorted(POLICIES)]
            return json_answer(200, {"accessPolicies": rows})
        match = _ENTRY.match(path)
        if not match:
            return None
        cluster, arn = match["cluster"], unquote(match["arn"] or "")
        kept = self.entries.setdefault(cluster, {})
        if not arn:
            if method == "POST":
                return self._create(cluster, json.loads(body_of(environ) or b"{}"))
            return json_answer(200, {"accessEntries": sorted(kept)})
        if arn not in kept:
            text = f"The specified principalArn could not be found: {arn}"
            return json_answer(404, {"message": text}, "ResourceNotFoundException")
        if match["policies"]:
            return self._associate(cluster, arn, method, unquote(match["policy"] or ""), environ)
        if method == "DELETE":
            kept.pop(arn)
            self.policies.pop((cluster, arn), None)
            return json_answer(200, {})
        if method == "POST":
            body = json.loads(body_of(environ) or b"{}")
            kept[arn] |= {name: body[name] for name in ("username", "kubernetesGroups") if name in body}
        return json_answer(200, {"accessEntry": kept[arn]})

    def _create(self, cluster: str, body: Mapping[str, Any]) -> Answer:
        arn, kept = body["principalArn"], self.entries[cluster]
        if arn in kept:
            text = "The specified access entry resource is already in use on this cluster."
            return json_answer(409, {"message": text}, "ResourceInUseException")
        groups = body.get("kubernetesGroups") or ()
        reserved = next((group for group in groups if group.startswith(("system:", "eks:"))), None)
        if reserved is not None:
            text = f"The kubernetes group name {reserved} is invalid, it cannot start with system:"
            return json_answer(400, {"message": text}, "InvalidParameterException")
        kept[arn] = _entry(cluster, arn, body)
        return json_answer(200, {"accessEntry": kept[arn]})

    def _associate(self, cluster: str, arn: str, method: str, policy: str, environ: Environ) -> Answer:
        """Lists, associates or takes off the access policies of an entry."""
        kept = self.policies.setdefault((cluster, arn), {})
        about = {"clusterName": cluster, "principalArn": arn}
        if method == "GET":
            return json_answer(200, {**about, "associatedAccessPolicies": [kept[name] for name in sorted(kept)]})
        if method == "DELETE":
            if kept.pop(policy, None) is None:
                text = f"The specified policyArn is not associated with the access entry: {policy}"
                return json_answer(404, {"message": text}, "ResourceNotFoundException")
            return json_answer(200, {})
        body = json.loads(body_of(environ) or b"{}")
        policy, scope = str(body.get("policyArn", "")), body.get("accessScope") or {}
        if policy not in POLICIES:
            text = f"The policyArn parameter format is not valid: {policy}"
            return json_answer(400, {"message": text}, "InvalidParameterException")
        if self.entries[cluster][arn]["type"] != "STANDARD":
            text = "Access policies can be associated with access entries of type STANDARD only"
            return json_answer(400, {"message": text}, "InvalidRequestException")
        if scope.get("type") not in ("cluster", "namespace") or (scope["type"] == "namespace") != bool(
            scope.get("namespaces")
        ):
            text = "accessScope: type must be cluster, or namespace with namespaces"
            return json_answer(400, {"message": text}, "InvalidParameterException")
        kept[policy] = {"policyArn": policy, "accessScope": scope}
        return json_answer(200, {**about, "associatedAccessPolicy": kept[policy]})


def _entry(cluster: str, arn: str, body: Mapping[str, Any]) -> dict[str, Any]:
    kind = body.get("type", "STANDARD")
    groups = ["system:nodes"] if kind.startswith(_JOINING) else list(body.get("kubernetesGroups") or ())
    account = arn.split(":")[4] if arn.count(":") > 4 else "123456789012"
    return {
        "clusterName": cluster,
        "principalArn": arn,
        "type": kind,
        "username": body.get("username") or _username(kind, arn),
        "kubernetesGroups": groups,
        "accessEntryArn": f"arn:aws:eks:::access-entry/{cluster}/{account}",
        "tags": dict(body.get("tags") or {}),
    }


def _username(kind: str, arn: str) -> str:
    """What EKS calls a principal for which no name is given."""
    if kind.startswith("EC2"):
        return "system:node:{{EC2PrivateDNSName}}"
    if kind.startswith("FARGATE"):
        return "system:node:{{SessionName}}"
    account, separator, role = arn.partition(":role/")
    if not separator:
        return arn
    return f"{account.replace(':iam:', ':sts:')}:assumed-role/{role.rpartition('/')[2]}/{{{{SessionName}}}}"
