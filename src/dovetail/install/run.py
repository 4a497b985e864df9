"""Installing: each part is read, compared and brought to what it should be; every step can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws.errors import code_of
from dovetail.install.plan import Installation, RefusedError
from dovetail.install.steps import Account, AwsCall, Change, InstallPart, Step, StepStatus, Write
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.kube.resources import CRDS, DEPLOYMENTS
from dovetail.language import message

MANAGER = "dovetail-install"
#: IAM answers from copies that lag behind: a role that was just made may not be there yet.
LAG_ATTEMPTS, LAG_PAUSE_S = 6, 2.0
LAG_CODES = frozenset({"NoSuchEntity", "InvalidParameterValue", "InvalidParameterException"})
LOOK_INTERVAL_S = 1.0
#: A shorter wait is not reported.
PATIENCE_S = 15.0
#: Written as by `kubectl rollout restart`.
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"

Report = Callable[[InstallPart | str, Change], None]


async def changes(account: Account, parts: Iterable[InstallPart]) -> list[tuple[InstallPart, Change]]:
    """What there is to do about each part; nothing is written. Parts that have nothing to act on yet are left out."""
    planned = [(part, part.change(await part.read(account))) for part in parts]
    return [(part, change) for part, change in planned if change.status is not StepStatus.ABSENT]


async def removals(account: Account, parts: Iterable[InstallPart]) -> list[tuple[InstallPart, Change]]:
    return [(part, part.removal(await part.read(account))) for part in parts]


async def take(account: Account, step: Step) -> None:
    """One step. A deletion of what is gone is done."""
    if isinstance(step, AwsCall):
        await _call(account, step)
    else:
        await _write(account, step)


async def _call(account: Account, step: AwsCall) -> None:
    for attempt in range(1, LAG_ATTEMPTS + 1):
        try:
            await account.calls(step.service, step.operation, **step.arguments)
            return
        except Exception as error:  # what is no lag goes on to the caller
            if step.service == "iam" and code_of(error) == "EntityAlreadyExists":
                return
            removing = step.operation.startswith(("delete_", "remove_", "detach_"))
            if removing and code_of(error) in ("NoSuchEntity", "ResourceNotFoundException"):
                return
            if attempt == LAG_ATTEMPTS or code_of(error) not in LAG_CODES:
                raise
        await asyncio.sleep(LAG_PAUSE_S)


async def _write(account: Account, step: Write) -> None:
    kube = account.kube
    if step.verb == "delete":
        try:
            await kube.delete(step.resource, step.name, step.namespace, propagation="Background")
        except NotFound:
            return
    elif step.verb == "patch":
        await kube.patch(step.resource, step.name, step.body, step.namespace, manager=MANAGER)
    elif step.verb == "restart":
        annotations = {RESTARTED_AT: kube.clock.now().isoformat(timespec="seconds")}
        body = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        await kube.patch(step.resource, step.name, body, step.namespace, manager=MANAGER)
    else:
        for attempt in range(1, LAG_ATTEMPTS + 1):
            try:
                await kube.apply(step.resource, step.body, manager=MANAGER)
                return
            except (NotFound, Conflict):  # a definition that is not served yet, or an object still going
                if attempt == LAG_ATTEMPTS:
                    raise
            await asyncio.sleep(LAG_PAUSE_S)


async def apply_parts(account: Account, parts: Sequence[InstallPart], report: Report) -> int:
    """Bring each part to what it should be, one after another; how many changed."""
    changed = 0
    for part in parts:
        change = part.change(await part.read(account))
        if change.status is StepStatus.ABSENT:
            continue
        report(part, change)
        for step in change.steps:
            await take(account, step)
        changed += bool(change.steps)
    return changed


async def remove_parts(account: Account, parts: Sequence[InstallPart], report: Report) -> int:
    changed = 0
    for part in parts:
        change = part.removal(await part.read(account))
        report(part, change)
        for step in change.steps:
            await take(account, step)
        changed += bool(change.steps)
    return changed


class WaitResult(msgspec.Struct, frozen=True):
    """Whether what was waited for came about, and what was seen last."""

    done: bool
    seen: str


async def wait_until(test: Callable[[], Any], timeout_s: float, clock: Any) -> WaitResult:
    """Look once a second; `test` says (done, what is seen)."""
    until = clock.monotonic() + timeout_s
    while True:
        done, seen = await test()
        if done or clock.monotonic() >= until:
            return WaitResult(done, seen)
        await asyncio.sleep(LOOK_INTERVAL_S)


def available(account: Account, name: str, namespace: str) -> Callable[[], Any]:
    """A Deployment with a replica that is ready, and none left of an earlier revision."""

    async def look() -> tuple[bool, str]:
        try:
            deployment = await account.kube.get(DEPLOYMENTS, name, namespace)
        except KubeError as problem:
            return False, str(problem)
        status, replicas = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
        if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
            return False, message("the Deployment was not looked at yet")
        ready, earlier = (
            status.get("availableReplicas", 0),
            status.get("replicas", 0) - status.get("updatedReplicas", 0),
        )
        if earlier > 0:
            return False, message("pods of an earlier revision still run: {earlier}", earlier=earlier)
        return ready >= min(1, replicas), message(
            "{ready} of {wanted} replicas are ready", ready=ready, wanted=replicas
        )

    return look


async def definitions_served(account: Account, timeout_s: float) -> None:
    """Objects of a definition can be made once it is established."""
    for name in ("nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):

        async def look(name: str = name) -> tuple[bool, str]:
            definition = await account.kube.get(CRDS, name)
            rows = (definition.get("status") or {}).get("conditions") or ()
            done = any(row["type"] == "Established" and row["status"] == "True" for row in rows)
            return done, message("{name} is not established", name=name)

        waited = await wait_until(look, timeout_s, account.kube.clock)
        if not waited.done:
            raise RefusedError(
                message(
                    "{seen} after {timeout_s:g} s; see kubectl describe crd {name}",
                    seen=waited.seen,
                    timeout_s=timeout_s,
                    name=name,
                )
            )


async def wait_for_deployment(
    account: Account, *, name: str, namespace: str, remedy: str, wait_s: float, report: Report
) -> None:
    """Wait until a Deployment is available, and report a long wait; refused with the remedy where it takes too long."""
    look, title, reported = available(account, name, namespace), f"Deployment {namespace}/{name}", ""
    patient_until = account.kube.clock.monotonic() + PATIENCE_S

    async def look_and_report() -> tuple[bool, str]:
        nonlocal reported
        done, seen = await look()
        if not done and seen != reported and account.kube.clock.monotonic() > patient_until:
            reported = seen
            report(f"{title}: {seen}", Change(StepStatus.WAIT))
        return done, seen

    waited = await wait_until(look_and_report, wait_s, account.kube.clock)
    if not waited.done:
        raise RefusedError(
            message(
                "Deployment {namespace}/{name}: {seen} after {wait_s:g} s; {remedy}",
                namespace=namespace,
                name=name,
                seen=waited.seen,
                wait_s=wait_s,
                remedy=remedy,
            )
        )
    report(f"{title}: {waited.seen}", Change(StepStatus.EXISTS))


def look_at_pods(namespace: str, app: str = "") -> str:
    """The remedy for a Deployment that does not become available; `app`: the label of its pods, where they have it."""
    if app:
        return message(
            "see kubectl describe pods -n {namespace} -l app={app}, then repeat the command",
            namespace=namespace,
            app=app,
        )
    return message("see kubectl describe pods -n {namespace}, then repeat the command", namespace=namespace)


async def install(account: Account, planned: Installation, report: Report, *, wait_s: float) -> int:
    """All of it. `wait_s` bounds the wait for the controller; 0 does not wait."""
    changed = await apply_parts(account, planned.cloud, report)
    changed += await apply_parts(account, planned.cluster, report)
    await definitions_served(account, max(wait_s, 30.0))
    release = planned.release
    if wait_s:
        await wait_for_deployment(
            account,
            name=release.deployment_name(planned.values),
            namespace=release.namespace,
            remedy=message("dovetail doctor names the cause; mend it, then repeat the command"),
            wait_s=wait_s,
            report=report,
        )
    return changed + await apply_parts(account, planned.first_pool, report)
