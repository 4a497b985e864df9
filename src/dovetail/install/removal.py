"""Removing an installation to its last tag: what it made, in the opposite order, and nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from dovetail.install.aws_parts import AccessEntry, DiscoveryTag, IamRole, InstanceProfile, SqsQueue
from dovetail.install.discovery import Found, is_controller
from dovetail.install.iam import OWNER_TAG
from dovetail.install.kubernetes_parts import DEFINITION, RELEASE_NAME, RELEASE_NAMESPACE, MappedRole, Object
from dovetail.install.plan import Installation, RefusedError, is_ours
from dovetail.install.run import (
    MANAGER,
    Report,
    WaitResult,
    look_at_pods,
    remove_parts,
    take,
    wait_for_deployment,
    wait_until,
)
from dovetail.install.steps import Account, Change, InstallPart, StepStatus
from dovetail.install.take_over import FormerAutoscaler, former_replicas
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EC2NODECLASSES,
    LEASES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    SECRETS,
    Resource,
)
from dovetail.language import message, plural
from dovetail.model.kinds.crds import KINDS
from dovetail.model.taints import PREFER_NO_SCHEDULE, UNSCHEDULABLE
from dovetail.model.wellknown import PLACING

TERMINATION_FINALIZER = "karpenter.sh/termination"
PLACING_TAINT = PLACING
HISTORY_LABEL = "dovetail.sh/history=true"


class Nodes(StrEnum):
    """What becomes of the nodes."""

    REFUSE = "refuse"
    DRAIN = "drain"
    KEEP = "keep"


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The parts to remove, in order: first what runs, then what it ran with."""

    #: Whether a controller runs that this installation did not make.
    other_runs: bool
    #: Whether the nodes are ours to end or to release; not where another controller runs, or nothing of ours is there.
    owns_nodes: bool
    release: tuple[InstallPart, ...]
    definitions: tuple[InstallPart, ...]
    namespace: tuple[InstallPart, ...]
    cloud: tuple[InstallPart, ...]


def plan_removal(discovered: Found, planned: Installation, nodes: Nodes) -> Removal:
    """Pure. Raises `RefusedError` while nodes would be lost."""
    other_runs = _other_controller_runs(discovered)
    owns_nodes = bool(discovered.installed) and not other_runs
    if owns_nodes and discovered.node_claims and nodes is Nodes.REFUSE:
        shown = ", ".join(discovered.node_claims[:5]) + (" …" if len(discovered.node_claims) > 5 else "")
        raise RefusedError(
            plural(
                "{n} node would be lost ({shown}); --drain moves its pods and ends it, "
                "--keep-nodes leaves it running without an autoscaler",
                "{n} nodes would be lost ({shown}); --drain moves their pods and ends them, "
                "--keep-nodes leaves them running without an autoscaler",
                n=len(discovered.node_claims),
                shown=shown,
            )
        )
    others = [name for name in discovered.node_pools if name != "default"]
    if owns_nodes and others and nodes is Nodes.REFUSE:
        raise RefusedError(
            message(
                "NodePools {others} were not made by the installation and would be deleted with the "
                "definitions; delete them first, or choose --drain or --keep-nodes",
                others=", ".join(others),
            )
        )
    objects = [part for part in planned.cluster if isinstance(part, Object)]
    kinds: dict[str, list[InstallPart]] = {"Namespace": [], DEFINITION: []}
    rest: list[InstallPart] = []
    for part in objects:
        kinds.get(part.body["kind"], rest).append(part)
    tags = [part for part in planned.cloud if isinstance(part, DiscoveryTag)]
    covered = {tag.resource for tag in tags}
    owner = planned.site.cluster
    stray: list[InstallPart] = [
        DiscoveryTag(kind="resource", resource=name, owner=owner) for name in discovered.tagged if name not in covered
    ]
    queues = {part.name for part in planned.cloud if isinstance(part, SqsQueue)}
    stray += [SqsQueue(name=name, owner=owner, policy={}) for name in discovered.queues if name not in queues]
    return Removal(
        other_runs=other_runs,
        owns_nodes=owns_nodes,
        release=(*_of_other_values(discovered, planned), *reversed(rest)),
        definitions=() if other_runs else tuple(kinds[DEFINITION]),
        namespace=() if other_runs else tuple(kinds["Namespace"]),
        cloud=(*stray, *_opposite_order(planned, Nodes.KEEP if other_runs else nodes)),
    )


def _other_controller_runs(discovered: Found) -> bool:
    """Karpenter, or a release of Helm: it goes on with the nodes, the definitions and the namespace."""
    return any(not is_ours(obj) and obj["spec"].get("replicas", 1) for obj in discovered.autoscalers)


def _of_other_values(discovered: Found, planned: Installation) -> list[InstallPart]:
    """Objects of the release that only the values name with which it was installed."""
    planned_titles = {part.title for part in planned.cluster}
    release, others = (planned.release.name, planned.release.namespace), list[InstallPart]()
    for obj in discovered.installed:
        annotations, part = obj["metadata"]["annotations"], Object(body=dict(obj), owner=planned.site.cluster)
        of_release = release == (annotations.get(RELEASE_NAME), annotations.get(RELEASE_NAMESPACE))
        if of_release and obj["kind"] != DEFINITION and part.title not in planned_titles:
            others.append(part)
    return sorted(others, key=lambda part: not part.title.startswith("Deployment "))


def _opposite_order(planned: Installation, nodes: Nodes) -> list[InstallPart]:
    """A profile goes before the role that it holds, rules before their queue. Nodes that stay need their role."""
    parts = reversed(planned.cloud)
    if nodes is not Nodes.KEEP:
        return list(parts)
    return [part for part in parts if not _needed_by_nodes(part, planned.site.node_role)]


def _needed_by_nodes(part: InstallPart, node_role: str) -> bool:
    if isinstance(part, IamRole):
        return part.name == node_role
    return isinstance(part, InstanceProfile | AccessEntry | MappedRole)


async def uninstall(
    account: Account, planned: Installation, removal: Removal, nodes: Nodes, report: Report, *, wait_s: float
) -> int:
    """Undo an installation; how many parts were removed. Interrupted at any step, it can be repeated."""
    owns_nodes = removal.owns_nodes
    ours = owns_nodes and await _definitions_are_ours(account, removal)
    if owns_nodes and nodes is Nodes.DRAIN:
        await drain(account, report, wait_s)
    removed = 0
    if nodes is not Nodes.KEEP and not removal.other_runs:
        removed += await remove_parts(account, tuple(reversed(planned.first_pool)), report)
    if ours and nodes is not Nodes.KEEP:
        await _delete_classes(account, report, wait_s)
    removed += await remove_parts(account, removal.release, report)
    if not removal.other_runs:
        await _wait_for_pods(account, planned, wait_s)
    if owns_nodes:
        if nodes is Nodes.KEEP:
            await release_nodes(account, report)
        await clear_taints(account, report)
        await _own_objects(account, planned.release.namespace)
    if ours:
        await _strip_finalizers(account)
    for parts in (removal.definitions, removal.namespace, removal.cloud):
        removed += await remove_parts(account, parts, report)
    return removed


async def _definitions_are_ours(account: Account, removal: Removal) -> bool:
    for part in removal.definitions:
        there = await part.read(account)
        if there is not None and OWNER_TAG not in (there["metadata"].get("annotations") or {}):
            return False
    return True


async def _listed(account: Account, resource: Resource) -> list[dict[str, Any]]:
    try:
        return (await account.kube.list(resource)).items
    except NotFound:
        return []


async def drain(account: Account, report: Report, wait_s: float) -> None:
    """Delete the NodePools; the controller, which still runs, drains and ends their nodes."""
    for pool in await _listed(account, NODEPOOLS):
        name = pool["metadata"]["name"]
        report(message("NodePool {name} and its nodes", name=name), Change(StepStatus.REMOVE))
        await _delete(account, NODEPOOLS, name)

    async def gone() -> tuple[bool, str]:
        claims = await _listed(account, NODECLAIMS)
        return not claims, message("{count} nodes are still draining", count=len(claims))

    _must(await wait_until(gone, wait_s, account.kube.clock), wait_s)


async def _delete_classes(account: Account, report: Report, wait_s: float) -> None:
    """While the controller runs, which takes the instance profiles and launch templates of a class away."""
    for resource in (NODEPOOLS, EC2NODECLASSES):
        for obj in await _listed(account, resource):
            if obj["metadata"].get("deletionTimestamp"):
                continue
            report(f"{resource.kind} {obj['metadata']['name']}", Change(StepStatus.REMOVE))
            await _delete(account, resource, obj["metadata"]["name"])

    async def gone() -> tuple[bool, str]:
        classes = await _listed(account, EC2NODECLASSES)
        running = await _running(account)
        return not classes or not running, message("{count} EC2NodeClasses are still terminating", count=len(classes))

    _must(await wait_until(gone, wait_s, account.kube.clock), wait_s)


async def _running(account: Account) -> bool:
    controllers = [obj for obj in await _listed(account, DEPLOYMENTS) if is_controller(obj)]
    return any((obj.get("status") or {}).get("availableReplicas", 0) for obj in controllers)


def _must(waited: WaitResult, wait_s: float) -> None:
    if not waited.done:
        raise RefusedError(
            message("{seen} after {wait_s:g} s; repeat the command to go on waiting", seen=waited.seen, wait_s=wait_s)
        )


async def _wait_for_pods(account: Account, planned: Installation, wait_s: float) -> None:
    """Nothing is taken from under a controller that still runs."""
    selector = planned.release.pod_labels(planned.values)

    async def gone() -> tuple[bool, str]:
        pods = (await account.kube.list(PODS, planned.release.namespace, labels=selector)).items
        return not pods, message("{count} pods of the controller are still ending", count=len(pods))

    _must(await wait_until(gone, max(wait_s, 60.0), account.kube.clock), wait_s)


async def release_nodes(account: Account, report: Report) -> None:
    """Nodes go on without us: no finalizer waits for a controller, and their instances are not ended."""
    for resource in (NODECLAIMS, NODES):
        for obj in await _listed(account, resource):
            finalizers = obj["metadata"].get("finalizers") or []
            if TERMINATION_FINALIZER in finalizers:
                left = [name for name in finalizers if name != TERMINATION_FINALIZER]
                title = message(
                    "{resource_kind} {name}: runs on without an autoscaler",
                    resource_kind=resource.kind,
                    name=obj["metadata"]["name"],
                )
                report(title, Change(StepStatus.CHANGE))
                await account.kube.patch(
                    resource, obj["metadata"]["name"], {"metadata": {"finalizers": left}}, manager=MANAGER
                )


async def clear_taints(account: Account, report: Report) -> None:
    """The taint under which pods are bound would keep others away for ever."""
    for node in await _listed(account, NODES):
        taints = node["spec"].get("taints") or []
        ours = {taint["key"]: taint["effect"] for taint in taints if taint["key"] == PLACING_TAINT}
        if not ours:
            continue
        report(
            message("taint {placing_taint} of Node {name}", placing_taint=PLACING_TAINT, name=node["metadata"]["name"]),
            Change(StepStatus.REMOVE),
        )
        spec: dict[str, Any] = {}
        if ours[PLACING_TAINT] == PREFER_NO_SCHEDULE:  # the node was cordoned with it
            ours[UNSCHEDULABLE], spec["unschedulable"] = "", None
        spec["taints"] = [taint for taint in taints if taint["key"] not in ours]
        await account.kube.patch(NODES, node["metadata"]["name"], {"spec": spec}, manager=MANAGER)


async def _own_objects(account: Account, namespace: str) -> None:
    """What the controller itself made in its namespace: the lease, the history, the webhook's certificate."""
    await _delete(account, LEASES, "karpenter-leader-election", namespace)
    await _delete(account, SECRETS, "dovetail-webhook-certificate", namespace)
    for kept in (await account.kube.list(CONFIGMAPS, namespace, labels=HISTORY_LABEL)).items:
        await _delete(account, CONFIGMAPS, kept["metadata"]["name"], namespace)


async def _strip_finalizers(account: Account) -> None:
    """No controller is left that would take them off: the definitions could never go."""
    for kind in KINDS:
        resource = Resource(kind.group, kind.versions[0].name, kind.plural, kind.kind, kind.namespaced)
        for obj in await _listed(account, resource):
            if obj["metadata"].get("finalizers"):
                await account.kube.patch(
                    resource,
                    obj["metadata"]["name"],
                    {"metadata": {"finalizers": None}},
                    obj["metadata"].get("namespace"),
                    manager=MANAGER,
                )


async def _delete(account: Account, resource: Resource, name: str, namespace: str | None = None) -> None:
    try:
        await account.kube.delete(resource, name, namespace)
    except NotFound:
        return


def parts_to_hand_back(discovered: Found, planned: Installation) -> list[InstallPart]:
    """Karpenter starts and waits for the lease; then ours goes. Definitions and the namespace stay."""
    if not any(former_replicas(obj) is not None for obj in discovered.autoscalers):
        raise RefusedError(message("no Deployment was taken over; there is nothing to hand back to"))
    objects = [part for part in planned.cluster if isinstance(part, Object)]
    ours = [part for part in objects if part.body["kind"] not in ("Namespace", "CustomResourceDefinition")]
    return [*planned.first_pool, *reversed(ours)]


async def hand_back(
    account: Account, discovered: Found, planned: Installation, report: Report, *, wait_s: float
) -> None:
    """Return to the Karpenter that was taken over: it stands by first. Interrupted at any step, it can be repeated."""
    parts = parts_to_hand_back(discovered, planned)
    former = [part for part in parts if isinstance(part, FormerAutoscaler)]
    await remove_parts(account, former, report)
    for deployment in former if wait_s else ():
        await wait_for_deployment(
            account,
            name=deployment.name,
            namespace=deployment.namespace,
            remedy=look_at_pods(deployment.namespace),
            wait_s=wait_s,
            report=report,
        )
    await remove_parts(account, parts[len(former) :], report)
    await _wait_for_pods(account, planned, wait_s)
    await clear_taints(account, report)
    for deployment in former:
        await take(account, deployment.forget())
