"""EKS Pod Identity: associations of service accounts with roles, and the credentials that they give."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from dovetail.lab.aws.http_forms import Answer, Environ, body_of, json_answer

_PATH = re.compile(r"^/clusters/(?P<cluster>[^/]+)/pod-identity-associations(?:/(?P<id>[^/]+))?$")
SERVICE = "pods.eks.amazonaws.com"
_NEEDED = frozenset({"sts:AssumeRole", "sts:TagSession"})


class PodIdentityAssociations:
    """Kept by cluster and id; served on EKS's paths."""

    def __init__(self, region: str, account: str) -> None:
        self._region = region
        self._account = account
        self._lock = threading.Lock()
        self._made = 0
        self._kept: dict[str, dict[str, dict[str, Any]]] = {}

    def role_of(self, cluster: str, namespace: str, service_account: str) -> str:
        """The role of a service account; empty without an association."""
        with self._lock:
            rows = list(self._kept.get(cluster, {}).values())
        return next(
            (
                str(row["roleArn"])
                for row in rows
                if (row["namespace"], row["serviceAccount"]) == (namespace, service_account)
            ),
            "",
        )

    def answer(self, environ: Environ) -> Answer | None:
        match = _PATH.match(environ.get("PATH_INFO", ""))
        if match is None:
            return None
        with self._lock:
            kept = self._kept.setdefault(unquote(match["cluster"]), {})
            method = environ["REQUEST_METHOD"]
            if match["id"] is None:
                return self._create(match["cluster"], kept, environ) if method == "POST" else _listed(kept, environ)
            row = kept.get(match["id"])
            if row is None:
                message = f"The association with ID {match['id']} was not found in the cluster {match['cluster']}."
                return json_answer(404, {"message": message}, "ResourceNotFoundException")
            if method == "DELETE":
                del kept[match["id"]]
            elif method == "POST":
                row["roleArn"] = json.loads(body_of(environ) or b"{}").get("roleArn", row["roleArn"])
            return json_answer(200, {"association": row})

    def _create(self, cluster: str, kept: dict[str, dict[str, Any]], environ: Environ) -> Answer:
        body = json.loads(body_of(environ) or b"{}")
        where = (body.get("namespace"), body.get("serviceAccount"))
        if any((row["namespace"], row["serviceAccount"]) == where for row in kept.values()):
            message = f"Association already exists: namespace {where[0]}, service account {where[1]}"
            return json_answer(409, {"message": message}, "ResourceInUseException")
        self._made += 1
        identifier = f"a-{self._made:016x}"
        prefix = f"arn:aws:eks:{self._region}:{self._account}:podidentityassociation/{cluster}"
        kept[identifier] = {
            "clusterName": cluster,
            "namespace": where[0],
            "serviceAccount": where[1],
            "roleArn": body.get("roleArn"),
            "associationArn": f"{prefix}/{identifier}",
            "associationId": identifier,
            "tags": dict(body.get("tags") or {}),
        }
        return json_answer(200, {"association": kept[identifier]})


def trusts(policy: Mapping[str, Any]) -> bool:
    """Whether EKS may give out the role's credentials: its trust policy lets the service assume and tag a session."""
    granted: set[str] = set()
    for statement in _list(policy.get("Statement")):
        principal = statement.get("Principal") or {}
        services = _list(principal.get("Service")) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow" and SERVICE in services:
            granted |= {str(action) for action in _list(statement.get("Action"))}
    return granted >= _NEEDED or "sts:*" in granted


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _listed(kept: Mapping[str, Mapping[str, Any]], environ: Environ) -> Answer:
    query = parse_qs(environ.get("QUERY_STRING", ""))
    short = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    rows = [
        {name: row[name] for name in short}
        for row in kept.values()
        if all(row[name] in query[name] for name in ("namespace", "serviceAccount") if name in query)
    ]
    return json_answer(200, {"associations": rows})
