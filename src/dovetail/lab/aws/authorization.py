"""IAM in the lab: what a role's policies do not allow, AWS refuses, in AWS's words.

Requests of role sessions (IRSA, Pod Identity, instance profiles) and of IAM users are judged by the policies of the
role or user. The credentials of `dovetail env` are the account's own and may do everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

import msgspec

from dovetail.install.policy import PolicyDecision, decide
from dovetail.lab.aws.account_state import AccountState
from dovetail.lab.aws.authentication import error
from dovetail.lab.aws.http_forms import EC2_NAMESPACE, Answer, Environ
from dovetail.lab.aws.permissions import Permission, Permissions, read
from dovetail.lab.aws.pod_identity import trusts

_KEY = re.compile(r"Credential=([^/\s]+)/")


class Principal(msgspec.Struct, frozen=True):
    """Whose credentials signed a request, and the policies that speak for it."""

    arn: str
    source: str
    policies: tuple[Mapping[str, Any], ...]
    tags: Mapping[str, str] = {}
    #: A permissions boundary: what it does not allow is refused, whatever the policies say.
    boundary: tuple[Mapping[str, Any], ...] | None = None
    #: Of a role's session: the id of the role.
    role_id: str = ""


class AccessDenied(msgspec.Struct, frozen=True):
    """`permission` is what was not allowed, `message` what AWS says of it."""

    permission: Permission
    message: str


@lru_cache(maxsize=512)
def _document(text: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(text if text.lstrip().startswith("{") else unquote(text))
    return document


class Authorization:
    """Judges requests by the policies in the account's IAM."""

    def __init__(self, endpoint: AccountState) -> None:
        self._endpoint = endpoint
        self._permissions = Permissions(endpoint)

    def answer(self, environ: Environ) -> Answer | None:
        """The answer to a request that is not allowed; None for one that is."""
        principal = self.principal(environ)
        if principal is None:
            return None
        request = read(environ)
        for permission in self._permissions.of(request):
            refusal = denial_of(principal, permission)
            if refusal is not None:
                if permission.later:
                    return _failed_fleet(refusal)
                return _refused(environ, refusal)
        return None

    def principal(self, environ: Environ) -> Principal | None:
        """None for the account's own credentials."""
        match = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
        key = match[1] if match else ""
        if not key or key == self._endpoint.credentials.access_key:
            return None
        session = self._session(key)
        if session is not None:
            tags = self._endpoint.session_tags.get(key, {})
            return self.role(session.role_arn, session.arn, tags)
        iam = self._endpoint.backend("iam", "aws")
        kept = iam.access_keys.get(key)
        return self.user(kept.user_name) if kept is not None and kept.user_name in iam.users else None

    def named(self, arn: str) -> Principal | None:
        """A principal by the ARN of its role or user."""
        name = arn.rpartition("/")[2]
        if ":user/" in arn:
            return self.user(name) if name in self._endpoint.backend("iam", "aws").users else None
        role = self._role(arn)
        return self.role(role.arn, role.arn, {}) if role is not None else None

    def role(self, role_arn: str, arn: str, session_tags: Mapping[str, str]) -> Principal:
        role = self._role(role_arn)
        if role is None:
            return Principal(arn, role_arn, ())
        tags = {tag["Key"]: tag["Value"] for tag in role.tags or ()}
        return Principal(arn, role_arn, self._policies(role), {**tags, **session_tags}, self._boundary(role), role.id)

    def user(self, name: str) -> Principal:
        iam = self._endpoint.backend("iam", "aws")
        user = iam.users[name]
        groups = [group for group in iam.groups.values() if user in group.users]
        policies = tuple(policy for holder in (user, *groups) for policy in self._policies(holder))
        return Principal(user.arn, user.arn, policies, boundary=self._boundary(user))

    def trusts_pod_identity(self, role_arn: str) -> bool:
        """Whether the role lets EKS Pod Identity give out its credentials."""
        role = self._role(role_arn)
        return role is not None and trusts(_document(role.assume_role_policy_document))

    def _role(self, arn: str) -> Any:
        return next(
            (role for role in list(self._endpoint.backend("iam", "aws").roles.values()) if role.arn == arn), None
        )

    def _policies(self, holder: Any) -> tuple[Mapping[str, Any], ...]:
        """Inline ones and the default versions of those attached."""
        inline = [_document(text) for text in holder.policies.values()]
        return (*inline, *(self._managed(policy) for policy in holder.managed_policies.values()))

    def _managed(self, policy: Any) -> Mapping[str, Any]:
        version = next(item for item in policy.versions if item.version_id == policy.default_version_id)
        return _document(version.document)

    def _boundary(self, holder: Any) -> tuple[Mapping[str, Any], ...] | None:
        arn = getattr(holder, "permissions_boundary_arn", None)
        if not arn:
            return None
        policy = self._endpoint.backend("iam", "aws").managed_policies.get(arn)
        return (self._managed(policy),) if policy is not None else ()

    def _session(self, key: str) -> Any:
        from moto.backends import get_backend

        for accounts in list(get_backend("sts").values()):
            for backend in list(accounts.values()):
                session = backend.get_assumed_role_from_access_key(key)
                if session is not None:
                    return session
        return None


def denial_of(principal: Principal, permission: Permission) -> AccessDenied | None:
    """Why a permission is not given; None where it is."""
    account = principal.arn.split(":")[4]
    context: dict[str, str | list[str]] = {
        "aws:PrincipalArn": principal.source,
        "aws:PrincipalAccount": account,
        "aws:SecureTransport": "true",  # the lab's loopback address stands for AWS's https endpoints
        **{f"aws:PrincipalTag/{key}": value for key, value in principal.tags.items()},
        **permission.context,
    }
    action, resource = permission.action, permission.resource
    decision, _ = decide(principal.policies, action, resource, context)
    why = f"no identity-based policy allows the {action} action"
    if decision is PolicyDecision.ALLOWED and principal.boundary is not None:
        decision, _ = decide(principal.boundary, action, resource, context)
        why = f"no permissions boundary allows the {action} action"
    if decision is PolicyDecision.ALLOWED:
        return None
    subject = f"User: {principal.arn} is not authorized to perform: {action}"
    if resource not in (None, "*"):
        subject = f"{subject} on resource: {resource}"
    if decision is PolicyDecision.EXPLICIT_DENY:
        return AccessDenied(permission, f"{subject} with an explicit deny in an identity-based policy")
    return AccessDenied(permission, f"{subject} because {why}")


def _refused(environ: Environ, refusal: AccessDenied) -> Answer:
    service = read(environ).service
    if service == "ec2":
        message = f"You are not authorized to perform this operation. {refusal.message}"
        return error(environ, 403, "UnauthorizedOperation", message)
    in_json = service == "eks" or (environ.get("HTTP_X_AMZ_TARGET") and service != "sqs")
    code = "AccessDeniedException" if in_json else "AccessDenied"
    return error(environ, 400 if environ.get("HTTP_X_AMZ_TARGET") else 403, code, refusal.message)


def _failed_fleet(refusal: AccessDenied) -> Answer:
    """A fleet that may be asked for and whose instances may not be launched: an error for each offering."""
    message = escape(f"You are not authorized to perform this operation. {refusal.message}")
    item = f"<item><errorCode>UnauthorizedOperation</errorCode><errorMessage>{message}</errorMessage></item>"
    inside = f"<requestId>lab</requestId><fleetId>fleet-lab</fleetId><errorSet>{item}</errorSet><fleetInstanceSet/>"
    return 200, "text/xml", f"<CreateFleetResponse {EC2_NAMESPACE}>{inside}</CreateFleetResponse>".encode()
