"""AWS as a pod reaches it: with the role of its service account (IRSA, else Pod Identity), or that of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.pod_identity import SERVICE
from dovetail.lab.programs.context import AGENT_URL, PodIdentity

#: How long a set of credentials lives, in seconds; botocore renews them in time.
SESSION_S = 3600
MAX_SESSION_NAME_CHARACTERS = 64


class PodCredentials:
    """`role_of_node` names the role of the instance that a node is."""

    def __init__(self, endpoint: AwsEndpoint, cluster: str, issuer: str, role_of_node: Callable[[str], str]) -> None:
        self.url = endpoint.url
        self._cluster = cluster
        self.region = endpoint.market.region
        self._endpoint = endpoint
        self._issuer = issuer
        self._role_of_node = role_of_node

    def associated_role(self, namespace: str, service_account: str) -> str:
        return self._endpoint.pod_identity.role_of(self._cluster, namespace, service_account)

    def session(self, identity: PodIdentity) -> Any:
        """Credentials are fetched with the first call; where there are none, that call fails with the reason."""
        if identity.role_arn:
            return self._refreshed("assume-role-with-web-identity", lambda: self._of_service_account(identity))
        if identity.asks_agent:
            return self._refreshed("container-role", lambda: self._of_association(identity))
        return self._refreshed("iam-role", lambda: self._of_node(identity.node))

    def _of_service_account(self, identity: PodIdentity) -> dict[str, Any]:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config

        sts = boto3.session.Session(region_name=self.region).client(
            "sts", endpoint_url=self.url, config=Config(signature_version=UNSIGNED)
        )
        answer = sts.assume_role_with_web_identity(
            RoleArn=identity.role_arn,
            RoleSessionName=identity.service_account,
            WebIdentityToken=self._endpoint.web_identity.token(
                self._issuer, identity.namespace, identity.service_account
            ),
            DurationSeconds=SESSION_S,
        )
        return _fields(answer["Credentials"])

    def _of_association(self, identity: PodIdentity) -> dict[str, Any]:
        """As the agent on the node gets them from EKS: the session carries the pod's place as tags."""
        from botocore.exceptions import CredentialRetrievalError

        arn = self.associated_role(identity.namespace, identity.service_account)
        problem = ""
        if not identity.has_agent:
            problem = (
                f"Could not connect to the endpoint URL: {AGENT_URL}; no eks-pod-identity-agent runs on"
                f" {identity.node}: aws eks create-addon --cluster-name {self._cluster}"
                " --addon-name eks-pod-identity-agent"
            )
        elif not arn:
            problem = (
                f"ResourceNotFoundException: no Pod Identity association of {identity.namespace}/"
                f"{identity.service_account}: aws eks create-pod-identity-association"
            )
        elif not self._endpoint.authorization.trusts_pod_identity(arn):
            problem = (
                f"AccessDeniedException: EKS may not assume {arn}: its trust policy must allow {SERVICE}"
                " sts:AssumeRole and sts:TagSession"
            )
        if problem:
            raise CredentialRetrievalError(provider="container-role", error_msg=problem)
        name = f"eks-{self._cluster}-{identity.pod}"[:MAX_SESSION_NAME_CHARACTERS]
        answer = client(self._endpoint, "sts").assume_role(RoleArn=arn, RoleSessionName=name, DurationSeconds=SESSION_S)
        self._endpoint.session_tags[answer["Credentials"]["AccessKeyId"]] = {
            "eks-cluster-name": self._cluster,
            "kubernetes-namespace": identity.namespace,
            "kubernetes-service-account": identity.service_account,
            "kubernetes-pod-name": identity.pod,
        }
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
