"""Cluster Autoscaler on a cluster with node groups: its role at IAM, its service account and its Deployment.

Parts and steps are those of `dovetail install`. A service account or role of the same name that was there before, as
`eksctl create iamserviceaccount` leaves it, is used as it is and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.autoscalers.node_groups.manifests import CONFIG_MAPS, NAME, manifests
from dovetail.controllers.history.store import GROUP_DECISIONS
from dovetail.install import iam
from dovetail.install.aws_parts import IamRole, OidcProvider, PodIdentityAssociation
from dovetail.install.discovery import Found
from dovetail.install.iam import OWNER_TAG, Site, bounded_name
from dovetail.install.kubernetes_parts import Object
from dovetail.install.plan import ROLE_ANNOTATION, RefusedError, annotated
from dovetail.install.run import Report, apply_parts, look_at_pods, remove_parts, wait_for_deployment
from dovetail.install.steps import Account, InstallPart
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS, DEPLOYMENTS, LEASES
from dovetail.language import message


class AutoscalerInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """The parts in order."""

    namespace: str
    cloud: tuple[InstallPart, ...]
    cluster: tuple[InstallPart, ...]


async def deployment(account: Account, namespace: str) -> dict[str, Any] | None:
    """The Deployment of this name, ours or not."""
    try:
        there: dict[str, Any] = await account.kube.get(DEPLOYMENTS, NAME, namespace, type=dict)
    except NotFound:
        return None
    return there


def plan(
    discovered: Found, there: Mapping[str, Any] | None, namespace: str, image: str, tag: str, *, removing: bool = False
) -> AutoscalerInstallation:
    """Pure. Raises `RefusedError` where a Cluster Autoscaler that is not ours runs."""
    if there is not None and not removing and OWNER_TAG not in (there["metadata"].get("annotations") or {}):
        raise RefusedError(
            message(
                "Deployment {namespace}/{name} was not made by dovetail; delete it first: kubectl delete "
                "deployment {name} -n {namespace}",
                namespace=namespace,
                name=NAME,
            )
        )
    irsa = discovered.issuer_registered or not discovered.pod_identity_agent
    site = Site(
        cluster=discovered.cluster,
        region=discovered.region,
        account=discovered.account,
        partition=discovered.partition,
        namespace=namespace,
        service_account=NAME,
        issuer=discovered.issuer if irsa else "",
    )
    role = bounded_name(f"ClusterAutoscalerRole-{discovered.cluster}")
    bodies = manifests(discovered.cluster, image, tag, namespace, discovered.region)
    if site.issuer:
        account = next(body for body in bodies if body["kind"] == "ServiceAccount")
        account["metadata"] = {**account["metadata"], "annotations": {ROLE_ANNOTATION: site.role_arn(role)}}
    owner = discovered.cluster
    return AutoscalerInstallation(
        namespace=namespace,
        cloud=tuple(_cloud_parts(discovered, site, role, removing=removing)),
        cluster=tuple(Object(body=annotated(body, owner), owner=owner, keep=True) for body in bodies),
    )


def _cloud_parts(discovered: Found, site: Site, role: str, *, removing: bool) -> list[InstallPart]:
    owner, parts = site.cluster, list[InstallPart]()
    arn = f"arn:{site.partition}:iam::{site.account}:oidc-provider/{site.issuer}"
    if site.issuer and not (removing and discovered.autoscalers):  # Dovetail's own role needs the provider as well
        parts.append(OidcProvider(arn=arn, issuer=site.issuer, owner=owner))
    policies = {"ClusterAutoscaler": iam.cluster_autoscaler_policy(site)}
    parts.append(IamRole(name=role, owner=owner, trust=iam.controller_trust(site), inline=policies))
    if not site.issuer:
        parts.append(
            PodIdentityAssociation(
                cluster=site.cluster,
                namespace=site.namespace,
                service_account=site.service_account,
                role_arn=site.role_arn(role),
                owner=owner,
            )
        )
    return parts


async def install(account: Account, planned: AutoscalerInstallation, report: Report, *, wait_s: float) -> int:
    """How many parts changed. `wait_s` bounds the wait for the pod; 0 does not wait."""
    changed = await apply_parts(account, planned.cloud, report)
    changed += await apply_parts(account, planned.cluster, report)
    if wait_s:
        await wait_for_deployment(
            account,
            name=NAME,
            namespace=planned.namespace,
            remedy=look_at_pods(planned.namespace, app=NAME),
            wait_s=wait_s,
            report=report,
        )
    return changed


async def uninstall(account: Account, planned: AutoscalerInstallation, report: Report) -> int:
    """Interrupted at any step, it can be repeated. The nodes stay: they belong to their groups."""
    changed = await remove_parts(account, tuple(reversed(planned.cluster)), report)
    if changed:
        for resource, name in ((LEASES, NAME), (CONFIGMAPS, CONFIG_MAPS[0]), (CONFIGMAPS, GROUP_DECISIONS)):
            try:
                await account.kube.delete(resource, name, planned.namespace)
            except NotFound:
                continue
    return changed + await remove_parts(account, tuple(reversed(planned.cloud)), report)
