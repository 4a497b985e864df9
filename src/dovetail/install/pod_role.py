"""Which role a Deployment's pods hold: EKS's webhook gives it to a pod at its creation, and never changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.install.steps import ABSENT, EXISTS, Account, Change, StepStatus, Write
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import DEPLOYMENTS, PODS, Resource
from dovetail.language import message

WEBHOOK = "pod-identity-webhook"
_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
ROLE_VARIABLE, AGENT_VARIABLE = "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI"


def holds_role(pod: Mapping[str, Any], role_arn: str) -> bool:
    """Whether a pod has the role of its ServiceAccount, or Pod Identity's agent to ask, which goes first."""
    variables = _variables(pod["spec"])
    return AGENT_VARIABLE in variables or bool(role_arn and variables.get(ROLE_VARIABLE) == role_arn)


def _variables(spec: Mapping[str, Any]) -> dict[str, str]:
    return {row["name"]: row.get("value", "") for box in spec["containers"] for row in box.get("env") or ()}


class PodRole(msgspec.Struct, frozen=True, kw_only=True):
    """The role of a Deployment's pods; they are restarted where it is another. Empty: Pod Identity's association."""

    deployment: str
    namespace: str
    role_arn: str

    @property
    def title(self) -> str:
        return message(
            "role of the pods of Deployment {namespace}/{name}", namespace=self.namespace, name=self.deployment
        )

    async def read(self, account: Account) -> Any:
        """The newest pod; None while there is none to restart, or no webhook that would give it a role."""
        try:
            await account.kube.get(_WEBHOOKS, WEBHOOK)
            deployment = await account.kube.get(DEPLOYMENTS, self.deployment, self.namespace)
        except NotFound:
            return None
        template = deployment["spec"]["template"]
        if ROLE_VARIABLE in _variables(template["spec"]):  # chosen by the values, and left alone by the webhook
            return None
        labels = ",".join(f"{key}={value}" for key, value in deployment["spec"]["selector"]["matchLabels"].items())
        listing = await account.kube.list(PODS, self.namespace, labels=labels)
        pods = [pod for pod in listing.items if not pod["metadata"].get("deletionTimestamp")]
        return max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)

    def change(self, there: Any) -> Change:
        if there is None:
            return ABSENT
        if holds_role(there, self.role_arn):
            return EXISTS
        restart = Write(verb="restart", resource=DEPLOYMENTS, name=self.deployment, namespace=self.namespace)
        former = _variables(there["spec"]).get(ROLE_VARIABLE)
        why = message("they started with {former}", former=former) if former else message("they started without a role")
        return Change(StepStatus.CHANGE, (restart,), why=why)

    def removal(self, there: Any) -> Change:
        return ABSENT
