"""EKS's webhook for IAM roles of pods: a pod whose service account has a role gets the variables and the token for it.

A pod keeps what it got at its creation: an annotation or an association that comes later is for the pods after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import PODS, SERVICEACCOUNTS
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.aws import mutating_webhooks
from dovetail.lab.aws.pod_identity import SERVICE
from dovetail.lab.aws.web_identity import AUDIENCE
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.programs.context import (
    AGENT_TOKEN_FILE,
    AGENT_TOKEN_VARIABLE,
    AGENT_URI,
    AGENT_URL,
    ROLE_ARN,
    ROLE_TOKEN_FILE,
    ROLE_TOKEN_VARIABLE,
)
from dovetail.lab.programs.execution import ROLE_ANNOTATION

Json = dict[str, Any]

CONFIGURATION, WEBHOOK = "pod-identity-webhook", "iam-for-pods.amazonaws.com"
_PORT = 23443
_AUDIENCE, _EXPIRATION = "eks.amazonaws.com/audience", "eks.amazonaws.com/token-expiration"
_REGIONAL, _SKIPPED = "eks.amazonaws.com/sts-regional-endpoints", "eks.amazonaws.com/skip-containers"
_SKIP_LABEL = "eks.amazonaws.com/skip-pod-identity-webhook"
_REGIONAL_VARIABLE, _REGION_VARIABLES = "AWS_STS_REGIONAL_ENDPOINTS", ("AWS_DEFAULT_REGION", "AWS_REGION")
TOKEN_LIFETIME_S, MIN_TOKEN_LIFETIME_S = 86400, 600


class InjectedIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is given: a token in a volume, and the variables by which AWS's libraries find it."""

    volume: str
    audience: str
    folder: str
    file: str
    variables: Mapping[str, str]
    regional: bool = True
    expiration: str = ""


class PodIdentityWebhook:
    """`role_of` names the role of a Pod Identity association; `annotations` reads those of a service account."""

    def __init__(
        self,
        region: str,
        role_of: Callable[[str, str], str],
        annotations: Callable[[str, str], Awaitable[Mapping[str, str]]],
    ) -> None:
        self._region = region
        self._role_of = role_of
        self._annotations = annotations

    async def review(self, body: bytes, content_type: str) -> tuple[int, bytes]:
        request = msgspec.json.decode(body)["request"]
        return mutating_webhooks.answer(request, await self.patch(request["object"], request.get("namespace", "")))

    async def patch(self, pod: Json, namespace: str) -> list[Json]:
        """What changes in a pod; nothing where its service account has no role. An association goes first."""
        account = pod["spec"].get("serviceAccountName") or "default"
        annotations = await self._annotations(namespace, account)
        if self._role_of(namespace, account):
            identity = _associated()
        elif role_arn := annotations.get(ROLE_ANNOTATION, ""):
            identity = _annotated(role_arn, annotations)
        else:
            return []
        return _patch(pod, identity, self._region)


def _associated() -> InjectedIdentity:
    folder, _, file = AGENT_TOKEN_FILE.rpartition("/")
    return InjectedIdentity(
        volume="eks-pod-identity-token", audience=SERVICE, folder=folder, file=file,
        variables={AGENT_URI: AGENT_URL, AGENT_TOKEN_VARIABLE: AGENT_TOKEN_FILE},
    )  # fmt: skip


def _annotated(role_arn: str, annotations: Mapping[str, str]) -> InjectedIdentity:
    folder, _, file = ROLE_TOKEN_FILE.rpartition("/")
    return InjectedIdentity(
        volume="aws-iam-token", audience=annotations.get(_AUDIENCE) or AUDIENCE, folder=folder, file=file,
        variables={ROLE_ARN: role_arn, ROLE_TOKEN_VARIABLE: ROLE_TOKEN_FILE},
        regional=annotations.get(_REGIONAL, "true") != "false", expiration=annotations.get(_EXPIRATION, ""),
    )  # fmt: skip


def _patch(pod: Json, identity: InjectedIdentity, region: str) -> list[Json]:
    spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
    skipped = {name.strip() for name in annotations.get(_SKIPPED, "").split(",")}
    changes: list[Json] = []
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        changed = [
            container if container["name"] in skipped else _container(container, identity, region)
            for container in containers
        ]
        if changed != containers:
            changes.append({"op": "add", "path": f"/spec/{field}", "value": changed})
    volumes = spec.get("volumes") or []
    if not changes:
        return []
    if not any(volume["name"] == identity.volume for volume in volumes):
        token = {
            "audience": identity.audience,
            "expirationSeconds": _lifetime_s(annotations.get(_EXPIRATION) or identity.expiration),
            "path": identity.file,
        }
        volume = {"name": identity.volume, "projected": {"sources": [{"serviceAccountToken": token}]}}
        changes.insert(0, {"op": "add", "path": "/spec/volumes", "value": [volume, *volumes]})
    if not spec.get("serviceAccountName"):  # without one no token may be projected
        changes.insert(0, {"op": "add", "path": "/spec/serviceAccountName", "value": "default"})
    return changes


def _container(container: Json, identity: InjectedIdentity, region: str) -> Json:
    """The container with the variables that it has not, and the token."""
    env = list(container.get("env") or [])
    there = {variable["name"] for variable in env}
    added: dict[str, str] = {}
    if identity.regional and _REGIONAL_VARIABLE not in there:
        added[_REGIONAL_VARIABLE] = "regional"
    if not there & set(_REGION_VARIABLES):
        added |= dict.fromkeys(_REGION_VARIABLES, region)
    if not there & set(identity.variables):
        added |= identity.variables
    mounts = list(container.get("volumeMounts") or [])
    if not any(mount["mountPath"] == identity.folder for mount in mounts):
        mounts.append({"name": identity.volume, "mountPath": identity.folder, "readOnly": True})
    env += [{"name": name, "value": value} for name, value in added.items()]
    return {**container, "env": env, "volumeMounts": mounts}


def _lifetime_s(text: str) -> int:
    return max(int(text), MIN_TOKEN_LIFETIME_S) if text.isdigit() else TOKEN_LIFETIME_S


@asynccontextmanager
async def registered(
    kube: Kube, server: ApiServer | None, clock: Clock, region: str, role_of: Callable[[str, str], str]
) -> AsyncIterator[None]:
    """The webhook is called for new pods while the block runs. `server`: the lab's own API server."""

    async def annotations(namespace: str, name: str) -> Mapping[str, str]:
        if server is not None:
            account: Any = server.cluster.get("", "serviceaccounts", namespace, name)
        else:
            try:
                account = await kube.get(SERVICEACCOUNTS, name, namespace)
            except NotFound:
                account = None
        return {} if account is None else account["metadata"].get("annotations") or {}

    webhook = PodIdentityWebhook(region, role_of, annotations)
    async with mutating_webhooks.client_config(server, _PORT, webhook.review, clock) as client_config:
        skip = {"key": _SKIP_LABEL, "operator": "DoesNotExist"}
        configuration = await mutating_webhooks.register(
            kube,
            CONFIGURATION,
            {
                "name": WEBHOOK,
                "clientConfig": client_config,
                "objectSelector": {"matchExpressions": [skip]},
                "reinvocationPolicy": "IfNeeded",
                "timeoutSeconds": 10,
            },
        )
        started = stamp(clock.start)
        is_new = configuration["metadata"]["creationTimestamp"] >= started
        await _replace_unreviewed_pods(kube, webhook, since="" if is_new else started)
        yield


async def _replace_unreviewed_pods(kube: Kube, webhook: PodIdentityWebhook, since: str) -> None:
    """Pods that came while nothing answered the webhook: their controllers make new ones.

    That was `since` the lab's start, or, where no earlier run registered the webhook, always. Other pods were reviewed,
    and keep what they got.
    """
    for pod in (await kube.list(PODS)).items:
        meta = pod["metadata"]
        if (
            meta.get("ownerReferences")
            and meta["creationTimestamp"] >= since
            and _SKIP_LABEL not in (meta.get("labels") or {})
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            and await webhook.patch(pod, meta["namespace"])
        ):
            with suppress(NotFound):
                await kube.delete(PODS, meta["name"], meta["namespace"])
