"""AWS as a pod reaches it: with the role of its service account, or else with that of its node's instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import Endpoint

#: How long a set of credentials lives, in seconds; botocore renews them in time.
SESSION_S = 3600


class PodCredentials:
    """`role_of_node` names the role of the instance that a node is."""

    def __init__(self, endpoint: Endpoint, issuer: str, role_of_node: Callable[[str], str]) -> None:
        self.url = endpoint.url
        self.region = endpoint.market.region
        self._endpoint = endpoint
        self._issuer = issuer
        self._role_of_node = role_of_node

    def session(self, namespace: str, service_account: str, role_arn: str, node: str) -> Any:
        """Credentials are fetched with the first call; where STS gives none, that call fails with its words."""
        if not role_arn:
            return self._refreshed("iam-role", lambda: self._of_node(node))
        return self._refreshed(
            "assume-role-with-web-identity", lambda: self._of_service_account(namespace, service_account, role_arn)
        )

    def _of_service_account(self, namespace: str, service_account: str, role_arn: str) -> dict[str, Any]:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config

        sts = boto3.session.Session(region_name=self.region).client(
            "sts", endpoint_url=self.url, config=Config(signature_version=UNSIGNED)
        )
        answer = sts.assume_role_with_web_identity(
            RoleArn=role_arn,
            RoleSessionName=service_account,
            WebIdentityToken=self._endpoint.web_identity.token(self._issuer, namespace, service_account),
            DurationSeconds=SESSION_S,
        )
        return _fields(answer["Credentials"])

    def _of_node(self, node: str) -> dict[str, Any]:
        answer = client(self._endpoint, "sts").assume_role(
            RoleArn=self._role_of_node(node), RoleSessionName=node.partition(".")[0], DurationSeconds=SESSION_S
        )
        return _fields(answer["Credentials"])

    def _refreshed(self, method: str, fetch: Callable[[], dict[str, Any]]) -> Any:
        import boto3
        import botocore.session
        from botocore.credentials import DeferredRefreshableCredentials

        core = botocore.session.get_session()
        core._credentials = DeferredRefreshableCredentials(method=method, refresh_using=fetch)
        return boto3.session.Session(botocore_session=core, region_name=self.region)


def _fields(credentials: dict[str, Any]) -> dict[str, Any]:
    """As botocore takes them."""
    return {
        "access_key": credentials["AccessKeyId"],
        "secret_key": credentials["SecretAccessKey"],
        "token": credentials["SessionToken"],
        "expiry_time": credentials["Expiration"].isoformat(),
    }
