"""IAM roles for service accounts: tokens of the cluster's issuer, and what STS makes of them.

`AssumeRoleWithWebIdentity` is the one call that needs no signature: the token proves who asks. STS gives credentials
only where the issuer is a provider of the account, and the role's trust policy names it and the service account.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

from dovetail.lab.aws.http_forms import Environ, body_of

ACTION = "AssumeRoleWithWebIdentity"
AUDIENCE = "sts.amazonaws.com"
TOKEN_LIFETIME = timedelta(days=1)


class IdentityRefused(Exception):
    """STS gives no credentials; `code` is AWS's word for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class WebIdentity:
    """Signs the tokens of service accounts, and decides by trust policies which roles they may assume."""

    def __init__(self, iam: Callable[[], Any], now: Callable[[], datetime]) -> None:
        self._key = secrets.token_bytes(32)
        self._iam = iam
        self._now = now

    def token(self, issuer: str, namespace: str, service_account: str) -> str:
        """A token that the API server projects into a pod, for the audience of STS."""
        now = self._now()
        claims = {
            "iss": issuer,
            "sub": f"system:serviceaccount:{namespace}:{service_account}",
            "aud": [AUDIENCE],
            "iat": int(now.timestamp()),
            "exp": int((now + TOKEN_LIFETIME).timestamp()),
        }
        body = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}"
        return f"{body}.{self._signature(body)}"

    def check(self, environ: Environ) -> None:
        """Raises IdentityRefused unless the request's token may assume the role that it names."""
        form = parse_qs(body_of(environ).decode(errors="replace"))
        claims = self._claims(form.get("WebIdentityToken", [""])[0])
        arn = form.get("RoleArn", [""])[0]
        issuer = str(claims["iss"]).removeprefix("https://")
        providers = list(self._iam().open_id_providers.values())
        provider = next((row for row in providers if row.url.removeprefix("https://") == issuer), None)
        if provider is None:
            raise IdentityRefused(
                "InvalidIdentityToken", f"No OpenIDConnect provider found in your account for https://{issuer}"
            )
        if AUDIENCE not in provider.client_id_list:
            raise IdentityRefused("InvalidIdentityToken", "Incorrect token audience")
        role = next((role for role in list(self._iam().roles.values()) if role.arn == arn), None)
        if role is None or not trusts(_document(role.assume_role_policy_document), issuer, claims):
            raise IdentityRefused("AccessDenied", f"Not authorized to perform sts:{ACTION} on {arn}")

    def _claims(self, token: str) -> Mapping[str, Any]:
        body, _, signature = token.rpartition(".")
        if not body or not hmac.compare_digest(signature, self._signature(body)):
            raise IdentityRefused("InvalidIdentityToken", "The token is not one of this cluster's issuer")
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body.split(".")[1] + "=="))
        if claims["exp"] <= self._now().timestamp():
            raise IdentityRefused("ExpiredTokenException", "Token expired")
        return claims

    def _signature(self, body: str) -> str:
        return _base64(hmac.new(self._key, body.encode(), hashlib.sha256).digest())


def is_web_identity(environ: Environ) -> bool:
    """Whether a request is the one that needs no signature."""
    if "form" not in environ.get("CONTENT_TYPE", "") or environ.get("HTTP_AUTHORIZATION"):
        return False
    return f"Action={ACTION}".encode() in body_of(environ).split(b"&")


def trusts(policy: Mapping[str, Any], issuer: str, claims: Mapping[str, Any]) -> bool:
    """Whether a statement of the trust policy lets the token in."""
    return any(_statement_trusts(statement, issuer, claims) for statement in _listed(policy.get("Statement")))


def _statement_trusts(statement: Mapping[str, Any], issuer: str, claims: Mapping[str, Any]) -> bool:
    federated = _listed((statement.get("Principal") or {}).get("Federated"))
    return (
        statement.get("Effect") == "Allow"
        and bool({f"sts:{ACTION}", "sts:*", "*"} & set(_listed(statement.get("Action"))))
        and any(str(arn).endswith(f":oidc-provider/{issuer}") for arn in federated)
        and all(
            _holds(operator, name, _listed(accepted), issuer, claims)
            for operator, conditions in (statement.get("Condition") or {}).items()
            for name, accepted in conditions.items()
        )
    )


def _holds(operator: str, name: str, accepted: list[Any], issuer: str, claims: Mapping[str, Any]) -> bool:
    """One condition. An operator that STS's tokens have no use for lets nothing in."""
    claim = name.removeprefix(f"{issuer}:")
    values = [str(value) for value in _listed(claims.get(claim))] if claim != name else []
    if operator.endswith("StringEquals"):
        return any(value in accepted for value in values)
    if operator.endswith("StringLike"):
        return any(fnmatch.fnmatchcase(value, str(pattern)) for value in values for pattern in accepted)
    return False


def _document(policy: Any) -> Mapping[str, Any]:
    document: Mapping[str, Any] = policy if isinstance(policy, dict) else json.loads(unquote(policy))
    return document


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _encoded(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
