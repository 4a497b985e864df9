"""`aws eks create-fargate-profile` in the lab: what EKS checks and does before the profile is there."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from dovetail.lab.aws.account_state import AccountState
from dovetail.lab.aws.fargate_profiles import SERVICE, Profile, trusts_fargate
from dovetail.lab.aws.http_forms import Answer, Environ, body_of

_PATH = re.compile(r"^/clusters/(?P<cluster>[^/]+)/fargate-profiles$")
#: How long a request waits for the cluster to be prepared, in seconds.
PREPARATION_S = 20.0


class FargateRequests:
    """Looks at requests before moto answers them. `entries` are the access entries, by cluster and principal.

    A first profile waits until the cluster is `prepared`: pods that are created after the answer are then looked at.
    Where no cluster is attached to the account nothing waits.
    """

    def __init__(self, account: AccountState, entries: dict[str, dict[str, dict[str, Any]]]) -> None:
        self._account = account
        self._entries = entries
        self.prepared = threading.Event()
        #: Asks for the preparation, from any thread.
        self.prepare: Callable[[], Any] | None = None

    def answer(self, environ: Environ) -> Answer | None:
        match = _PATH.match(environ.get("PATH_INFO", ""))
        if match is None or environ["REQUEST_METHOD"] != "POST":
            return None
        body = json.loads(body_of(environ) or b"{}")
        problem = self._problem(str(body.get("podExecutionRoleArn", "")))
        if problem:
            return _refused(problem)
        cluster = unquote(match["cluster"])
        self._entries.setdefault(cluster, {}).setdefault(body["podExecutionRoleArn"], _entry(cluster, body))
        if self.prepare is not None:
            self.prepare()
            self.prepared.wait(PREPARATION_S)
        return None

    def _problem(self, role_arn: str) -> str:
        roles = list(self._account.backend("iam", "aws").roles.values())
        role = next((role for role in roles if role.arn == role_arn), None)
        if role is None:
            return f"The role with name {role_arn.rpartition('/')[2]} cannot be found."
        text = role.assume_role_policy_document
        if not trusts_fargate(json.loads(text if text.lstrip().startswith("{") else unquote(text))):
            return f"Misconfigured PodExecutionRole Trust Policy; Please add the {SERVICE} Service Principal"
        return ""

    def profiles(self, cluster: str) -> list[Profile]:
        """The profiles of a cluster."""
        kept = self._account.backend("eks").clusters.get(cluster)
        return [_profile(row) for row in list(kept.fargate_profiles.values())] if kept is not None else []


def _profile(row: Any) -> Profile:
    return Profile(
        name=row.fargate_profile_name,
        role_arn=row.pod_execution_role_arn,
        selectors=tuple((selector["namespace"], selector.get("labels") or {}) for selector in row.selectors),
        subnets=tuple(row.subnets or ()),
    )


def _entry(cluster: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The access entry with which EKS lets pods of Fargate join."""
    return {
        "clusterName": cluster,
        "principalArn": body["podExecutionRoleArn"],
        "type": "FARGATE_LINUX",
        "username": "system:node:{{SessionName}}",
        "kubernetesGroups": ["system:nodes"],
        "accessEntryArn": f"arn:aws:eks:::access-entry/{cluster}/role",
        "tags": {},
    }


def _refused(text: str) -> Answer:
    body = {"__type": "InvalidParameterException", "code": "InvalidParameterException", "message": text}
    return 400, "application/json", json.dumps(body).encode()
