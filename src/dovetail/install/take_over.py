"""Taking over from a running Karpenter in place: same ServiceAccount, same lease, same settings, no node replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from dovetail.controllers.inert_settings import REFUSED, WITHOUT_EFFECT
from dovetail.controllers.settings import Settings
from dovetail.install.chart import Chart, Json, Release, chart_directory, merge_values
from dovetail.install.discovery import Found
from dovetail.install.kubernetes_parts import Object, definition_parts, marked
from dovetail.install.plan import FORMER_REPLICAS, Installation, InstallOptions, RefusedError, is_ours, site_of
from dovetail.install.run import Report, available, bring, scale, wait_until
from dovetail.install.steps import Account, Change, StepStatus
from dovetail.language import message

#: Variables that the chart sets itself, and those that say nothing about how Karpenter was set up.
_OWN_VARIABLES = frozenset({"LEADER_ELECTION_NAMESPACE", "METRICS_PORT", "HEALTH_PROBE_PORT", "MEMORY_LIMIT"})


def karpenter_of(discovered: Found) -> Mapping[str, Any]:
    """The Deployment that is taken over, or was."""
    candidates = [obj for obj in discovered.autoscalers if not is_ours(obj)]
    if len(candidates) != 1:
        names = ", ".join(f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in candidates) or "none"
        label = "app.kubernetes.io/name=karpenter"
        raise RefusedError(
            message(
                "--take-over and --hand-back need one Deployment of Karpenter, labelled {label}; there are: {names}",
                label=label,
                names=names,
            )
        )
    return candidates[0]


def values_of(deployment: Mapping[str, Any]) -> Json:
    """The chart's values that say what a running Karpenter's Deployment says."""
    spec = deployment["spec"]["template"]["spec"]
    container = spec["containers"][0]
    names = {name.upper() for name in get_type_hints(Settings)} - _OWN_VARIABLES
    names -= {name.upper() for name in (*WITHOUT_EFFECT, *REFUSED)}
    variables = [
        {"name": row["name"], "value": row["value"]}
        for row in container.get("env") or ()
        if row["name"] in names and row.get("value")
    ]
    values: Json = {
        "serviceAccount": {"create": False, "name": spec.get("serviceAccountName", "default")},
        "controller": {"env": variables},
    }
    for name in ("tolerations", "nodeSelector", "priorityClassName", "imagePullSecrets"):
        if spec.get(name):
            values[name] = spec[name]
    if container.get("resources"):
        values["controller"]["resources"] = container["resources"]
    return values


def plan_take_over(discovered: Found, options: InstallOptions, release_name: str = "dovetail") -> Installation:
    """Our release beside Karpenter's, in its namespace; nothing at AWS changes."""
    deployment = karpenter_of(discovered)
    namespace = deployment["metadata"]["namespace"]
    release = Release(name=release_name, namespace=namespace)
    values = merge_values(options.values, values_of(deployment))
    site = site_of(discovered, InstallOptions(release=release, values=values))
    chart = Chart(chart_directory())
    definitions = Release(name="karpenter-crd", namespace=namespace)
    owner = site.cluster
    parts = definition_parts(definitions, owner)
    parts += [Object(body=marked(obj, release, owner), owner=owner) for obj in chart.objects(release, values)]
    return Installation(
        site=site,
        release=release,
        values=values,
        cloud=(),
        cluster=tuple(parts),
        first_pool=(),
        notes=chart.notes(release, values),
    )


async def take_over(
    account: Account, discovered: Found, planned: Installation, report: Report, *, wait_s: float
) -> int:
    """Ours stands by first; then Karpenter is scaled to 0, gives up the lease, and ours leads."""
    deployment = karpenter_of(discovered)
    metadata = deployment["metadata"]
    changed = await bring(account, planned.cluster, report)
    if wait_s:
        look = available(account, planned.release.name, planned.release.namespace)
        waited = await wait_until(look, wait_s, account.kube.clock)
        if not waited.done:
            raise RefusedError(
                message(
                    "Deployment {namespace}/{release}: {seen} after {wait_s:g} s; Karpenter still runs; see "
                    "kubectl describe pods -n {namespace}, then repeat",
                    namespace=planned.release.namespace,
                    release=planned.release.name,
                    seen=waited.seen,
                    wait_s=wait_s,
                )
            )
    replicas = int(deployment["spec"].get("replicas", 1))
    if replicas:
        title = message(
            "Deployment {namespace}/{name}: scaled from {replicas} to 0",
            namespace=metadata["namespace"],
            name=metadata["name"],
            replicas=replicas,
        )
        report(title, Change(StepStatus.CHANGE))
        await scale(account, metadata["name"], metadata["namespace"], 0, former=replicas)
        changed += 1
    elif FORMER_REPLICAS not in (metadata.get("annotations") or {}):
        raise RefusedError(
            message(
                "Deployment {namespace}/{name} has no replicas; nothing runs there",
                namespace=metadata["namespace"],
                name=metadata["name"],
            )
        )
    return changed
