"""Tokens of `aws eks get-token`, as kubeconfigs of `aws eks update-kubeconfig` use them.

Such a token is a request to STS, signed in advance: its signer is the caller. The account's own credentials, which
created the cluster, are its administrator. Other roles and users come in by an access entry or by the ConfigMap
aws-auth, as the cluster's authentication mode says; RBAC and their access policies decide what they may do.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from dovetail.clock import wall
from dovetail.cloud.aws.awsauth import mapping
from dovetail.lab.apiserver.auth import ADMIN, User
from dovetail.lab.aws.authorization import Principal
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.signatures import AccessKey, signing_key

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
#: Reads the data of the ConfigMap aws-auth; None where there is none.
AwsAuth = Callable[[], Mapping[str, str] | None]
TOKEN_LIFETIME = timedelta(minutes=15)


class ClusterTokens(dict[str, User]):
    """The API server's tokens, and those of EKS."""

    def __init__(
        self, tokens: Mapping[str, User], endpoint: AwsEndpoint, cluster: str, aws_auth: AwsAuth = lambda: None
    ) -> None:
        super().__init__(tokens)
        self._endpoint = endpoint
        self._cluster = cluster
        self._aws_auth = aws_auth
        #: The principals behind the names that were given to them.
        self._principals: dict[str, str] = {}

    def get(self, token: str, default: Any = None) -> Any:
        if not token.startswith(PREFIX):
            return super().get(token, default)
        return self._user(token.removeprefix(PREFIX)) or default

    def _user(self, encoded: str) -> User | None:
        try:
            url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        except (binascii.Error, ValueError):
            return None
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        key = query.get("X-Amz-Credential", "").partition("/")[0]
        credentials = self._endpoint.credentials_of(key)
        if query.get("Action") != "GetCallerIdentity" or credentials is None:
            return None
        if not is_signed(url, query, credentials, self._cluster, wall()):
            return None
        if key == self._endpoint.credentials.access_key:
            return ADMIN
        environ = {"HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 Credential={query['X-Amz-Credential']},"}
        principal = self._endpoint.authorization.principal(environ)
        user = self._mapped(principal) if principal is not None else None
        if user is not None and principal is not None:
            self._principals[user.name] = principal.source
        return user

    def _mapped(self, principal: Principal) -> User | None:
        """An access entry goes before aws-auth; each counts only where the authentication mode lets it."""
        cluster = self._endpoint.backend("eks").clusters.get(self._cluster)
        config = getattr(cluster, "access_config", None) or {}
        mode = str(config.get("authenticationMode", "API_AND_CONFIG_MAP"))
        entry = self._endpoint.front.entries.get(self._cluster, {}).get(principal.source)
        if entry is not None and "API" in mode:
            return _user(str(entry["username"]), entry["kubernetesGroups"], principal)
        if "CONFIG_MAP" not in mode:
            return None
        row = mapping(self._aws_auth(), principal.source)
        return _user(str(row["username"]), row["groups"], principal) if row is not None else None

    def granted_roles(self, user: str, namespace: str) -> Iterable[str]:
        """The ClusterRoles that the access policies of a caller amount to."""
        principal = self._principals.get(user)
        if principal is None:
            return ()
        return self._endpoint.front.access.granted_roles(self._cluster, principal, namespace)


def _user(template: str, groups: Iterable[str], principal: Principal) -> User:
    session = principal.arn.rpartition("/")[2]
    name = template.replace("{{SessionNameRaw}}", session).replace("{{SessionName}}", session.replace("@", "-"))
    name = name.replace("{{AccountID}}", principal.arn.split(":")[4])
    return User(name, (*groups, "system:authenticated"), borrowed=True)


def is_signed(url: str, parameters: Mapping[str, str], credentials: AccessKey, cluster: str, now: datetime) -> bool:
    """Whether the credentials signed this request, for this cluster, not long ago."""
    parts = urlsplit(url)
    try:
        signed_at = datetime.strptime(parameters.get("X-Amz-Date", ""), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        _, day, region, service, _ = parameters["X-Amz-Credential"].split("/")
    except (KeyError, ValueError):
        return False
    if abs(now - signed_at) > TOKEN_LIFETIME or parameters.get("X-Amz-SignedHeaders") != f"host;{CLUSTER_HEADER}":
        return False
    if parameters.get("X-Amz-Security-Token", "") != credentials.session_token:
        return False
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parameters.items())
        if name != "X-Amz-Signature"
    )
    headers = f"host:{parts.netloc}\n{CLUSTER_HEADER}:{cluster}\n"
    payload = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n{parts.path or '/'}\n{query}\n{headers}\nhost;{CLUSTER_HEADER}\n{payload}"
    scope = f"{day}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{parameters['X-Amz-Date']}\n{scope}\n{digest}"
    made = hmac.new(signing_key(credentials.secret_key, day, region, service), text.encode(), hashlib.sha256)
    return hmac.compare_digest(made.hexdigest(), parameters.get("X-Amz-Signature", ""))
