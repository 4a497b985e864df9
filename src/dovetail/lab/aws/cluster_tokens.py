"""Tokens of `aws eks get-token`, as kubeconfigs of `aws eks update-kubeconfig` use them.

Such a token is a request to STS, signed in advance: who signed it is who asks. The account's own credentials are the
cluster's administrator; roles and users come in by an access entry, and RBAC decides what they may do.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from dovetail.clock import wall
from dovetail.lab.apiserver.auth import ADMIN, User
from dovetail.lab.aws.endpoint import Endpoint
from dovetail.lab.aws.signatures import Credentials, signing_key

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
TOKEN_LIFETIME = timedelta(minutes=15)


class ClusterTokens(dict[str, User]):
    """The API server's tokens, and those of EKS."""

    def __init__(self, tokens: Mapping[str, User], endpoint: Endpoint, cluster: str) -> None:
        super().__init__(tokens)
        self._endpoint = endpoint
        self._cluster = cluster

    def get(self, token: str, default: Any = None) -> Any:
        if not token.startswith(PREFIX):
            return super().get(token, default)
        return self._user(token.removeprefix(PREFIX)) or default

    def _user(self, encoded: str) -> User | None:
        try:
            url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        except (binascii.Error, ValueError):
            return None
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        key = asked.get("X-Amz-Credential", "").partition("/")[0]
        credentials = self._endpoint.credentials_of(key)
        if asked.get("Action") != "GetCallerIdentity" or credentials is None:
            return None
        if not is_signed(url, asked, credentials, self._cluster, wall()):
            return None
        if key == self._endpoint.credentials.access_key:
            return ADMIN
        environ = {"HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 Credential={asked['X-Amz-Credential']},"}
        principal = self._endpoint.authorization.principal(environ)
        entry = self._endpoint.front.entries.get(self._cluster, {}).get(principal.source if principal else "")
        if entry is None:
            return None
        return User(str(entry["username"]), (*entry["kubernetesGroups"], "system:authenticated"), borrowed=True)


def is_signed(url: str, asked: Mapping[str, str], credentials: Credentials, cluster: str, now: datetime) -> bool:
    """Whether the credentials signed this request, for this cluster, not long ago."""
    parts = urlsplit(url)
    try:
        signed_at = datetime.strptime(asked.get("X-Amz-Date", ""), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        _, day, region, service, _ = asked["X-Amz-Credential"].split("/")
    except (KeyError, ValueError):
        return False
    if abs(now - signed_at) > TOKEN_LIFETIME or asked.get("X-Amz-SignedHeaders") != f"host;{CLUSTER_HEADER}":
        return False
    if asked.get("X-Amz-Security-Token", "") != credentials.session_token:
        return False
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(asked.items())
        if name != "X-Amz-Signature"
    )
    headers = f"host:{parts.netloc}\n{CLUSTER_HEADER}:{cluster}\n"
    payload = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n{parts.path or '/'}\n{query}\n{headers}\nhost;{CLUSTER_HEADER}\n{payload}"
    scope = f"{day}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{asked['X-Amz-Date']}\n{scope}\n{digest}"
    made = hmac.new(signing_key(credentials.secret_key, day, region, service), text.encode(), hashlib.sha256)
    return hmac.compare_digest(made.hexdigest(), asked.get("X-Amz-Signature", ""))
