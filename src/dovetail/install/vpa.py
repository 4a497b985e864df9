"""The Vertical Pod Autoscaler in a cluster: definitions, rights, accounts, Deployments and the webhook's Service.

Nothing of it is at AWS: any cluster with metrics.k8s.io will do. Objects of the same name that were there before are
used as they are and stay. The definitions stay while there are VerticalPodAutoscalers, which would go with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.autoscalers.vpa.admission_controller import CONFIGURATION
from dovetail.autoscalers.vpa.api import VPAS, WEBHOOKS
from dovetail.autoscalers.vpa.manifests import ADMISSION, RECOMMENDER, UPDATER, leftovers, manifests
from dovetail.install.iam import OWNER_TAG
from dovetail.install.kubernetes_parts import Object
from dovetail.install.plan import RefusedError, annotated
from dovetail.install.run import Report, apply_parts, look_at_pods, remove_parts, wait_for_deployment, wait_until
from dovetail.install.steps import Account, Change, StepStatus
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.resources import DEPLOYMENTS
from dovetail.language import message, plural

OWNER = "vpa"
PROGRAMS = (RECOMMENDER, UPDATER, ADMISSION)
METRICS_PATH = "/apis/metrics.k8s.io/v1beta1"


class VpaInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """The parts in order; `definitions` are removed last, and only if nothing uses them."""

    namespace: str
    definitions: tuple[Object, ...]
    cluster: tuple[Object, ...]


async def deployments(account: Account, namespace: str) -> dict[str, dict[str, Any]]:
    """The Deployments of these names, ours or not."""
    there = {}
    for name in PROGRAMS:
        try:
            there[name] = await account.kube.get(DEPLOYMENTS, name, namespace, type=dict)
        except NotFound:
            continue
    return there


def plan(
    there: Mapping[str, Mapping[str, Any]], namespace: str, image: str, tag: str, *, removing: bool = False
) -> VpaInstallation:
    """Pure. Raises `RefusedError` where a Vertical Pod Autoscaler that is not ours runs."""
    for name, deployment in there.items():
        if not removing and OWNER_TAG not in (deployment["metadata"].get("annotations") or {}):
            raise RefusedError(
                message(
                    "Deployment {namespace}/{name} was not made by dovetail; remove that Vertical Pod Autoscaler first:"
                    " hack/vpa-down.sh, or kubectl delete deployment {programs} -n {namespace}",
                    namespace=namespace,
                    name=name,
                    programs=" ".join(PROGRAMS),
                )
            )
    parts = [Object(body=annotated(body, OWNER), owner=OWNER, keep=True) for body in manifests(image, tag, namespace)]
    return VpaInstallation(
        namespace=namespace,
        definitions=tuple(part for part in parts if part.body["kind"] == "CustomResourceDefinition"),
        cluster=tuple(part for part in parts if part.body["kind"] != "CustomResourceDefinition"),
    )


async def metrics_problem(account: Account) -> str:
    """What the API server says of metrics.k8s.io; "" if it answers, and usage can be read."""
    try:
        await account.kube.request("GET", METRICS_PATH)
    except KubeError as problem:
        return str(problem)
    return ""


async def install(account: Account, planned: VpaInstallation, report: Report, *, wait_s: float) -> int:
    """How many parts changed. `wait_s` bounds the wait for each Deployment and the webhook; 0 does not wait."""
    changed = await apply_parts(account, (*planned.definitions, *planned.cluster), report)
    for name in PROGRAMS if wait_s else ():
        await wait_for_deployment(
            account,
            name=name,
            namespace=planned.namespace,
            remedy=look_at_pods(planned.namespace, app=name),
            wait_s=wait_s,
            report=report,
        )
    if wait_s:
        await _wait_for_webhook(account, planned.namespace, wait_s, report)
    return changed


async def _wait_for_webhook(account: Account, namespace: str, wait_s: float, report: Report) -> None:
    """Until the admission controller has registered itself: a VPA that is created before keeps an empty mode."""

    async def look() -> tuple[bool, str]:
        try:
            await account.kube.get(WEBHOOKS, CONFIGURATION)
        except KubeError as problem:
            return False, str(problem)
        return True, message("registered")

    waited = await wait_until(look, wait_s, account.kube.clock)
    if not waited.done:
        raise RefusedError(
            message(
                "the admission controller has not registered its webhook after {wait_s:g} s ({seen}); see kubectl logs "
                "-n {namespace} deploy/{name}, then repeat the command",
                wait_s=wait_s,
                seen=waited.seen,
                namespace=namespace,
                name=ADMISSION,
            )
        )
    report(f"{WEBHOOKS.kind} {CONFIGURATION}: {waited.seen}", Change(StepStatus.EXISTS))


async def kept_definitions(account: Account) -> str:
    """Why the definitions stay; "" if no VerticalPodAutoscaler is left."""
    try:
        count = len((await account.kube.list(VPAS)).items)
    except NotFound:
        return ""
    if not count:
        return ""
    return plural(
        "one VerticalPodAutoscaler would go with it; kubectl get vpa -A shows it",
        "{n} VerticalPodAutoscalers would go with it; kubectl get vpa -A shows them",
        n=count,
    )


async def uninstall(account: Account, planned: VpaInstallation, report: Report) -> int:
    """Interrupted at any step, it can be repeated. The webhook goes first: no pod waits for a program that is gone."""
    ours = await deployments(account, planned.namespace)
    if any(OWNER_TAG in (item["metadata"].get("annotations") or {}) for item in ours.values()):
        for resource, name in leftovers():
            try:
                await account.kube.delete(resource, name, planned.namespace if resource.namespaced else None)
            except NotFound:
                continue
    changed = await remove_parts(account, tuple(reversed(planned.cluster)), report)
    kept = await kept_definitions(account)
    if not kept:
        return changed + await remove_parts(account, tuple(reversed(planned.definitions)), report)
    for part in planned.definitions:
        if await part.read(account) is not None:
            report(part, Change(StepStatus.LEAVE, why=kept))
    return changed
