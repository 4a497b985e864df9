"""Taking over from a running Karpenter in place: same ServiceAccount, same lease, same settings, no node replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from dovetail.controllers.inert_settings import REFUSED, WITHOUT_EFFECT
from dovetail.controllers.settings import Settings
from dovetail.install.chart import Chart, Json, Release, chart_directory, merge_values
from dovetail.install.discovery import Found
from dovetail.install.kubernetes_parts import Object, definition_parts, marked
from dovetail.install.plan import FORMER_REPLICAS, Installation, InstallOptions, RefusedError, is_ours, site_of
from dovetail.install.run import Report, apply_parts, wait_for_deployment
from dovetail.install.steps import ABSENT, EXISTS, Account, Change, StepStatus, Write
from dovetail.kube.resources import DEPLOYMENTS
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


class FormerAutoscaler(msgspec.Struct, frozen=True, kw_only=True):
    """Karpenter's Deployment: scaled down when ours is ready, and up again when it is handed back to."""

    name: str
    namespace: str

    @property
    def title(self) -> str:
        return f"Deployment {self.namespace}/{self.name}"

    async def read(self, account: Account) -> Any:
        return await account.kube.get(DEPLOYMENTS, self.name, self.namespace)

    def change(self, there: Any) -> Change:
        replicas = int(there["spec"].get("replicas", 1))
        if not replicas:
            return EXISTS
        why = message("scaled from {replicas} to 0", replicas=replicas)
        return Change(StepStatus.CHANGE, (self._scaled(0, replicas),), why=why)

    def removal(self, there: Any) -> Change:
        """Its annotation stays until ours is gone, so that an interrupted return goes on."""
        former = former_replicas(there)
        if former is None:
            return ABSENT
        why = message("scaled to {replicas}", replicas=former)
        return Change(StepStatus.CHANGE, (self._scaled(former, former),), why=why)

    def forget(self) -> Write:
        """The last step of the return. Its replicas stay as they are by then: `removal` has set them."""
        return self._patch({"metadata": {"annotations": {FORMER_REPLICAS: None}}})

    def _scaled(self, replicas: int, former: int) -> Write:
        annotations = {FORMER_REPLICAS: str(former)}
        return self._patch({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}})

    def _patch(self, body: Json) -> Write:
        return Write(verb="patch", resource=DEPLOYMENTS, name=self.name, namespace=self.namespace, body=body)


def former_replicas(deployment: Mapping[str, Any]) -> int | None:
    """How many replicas a Deployment had before it was taken over; None if it was not."""
    text = (deployment["metadata"].get("annotations") or {}).get(FORMER_REPLICAS)
    return None if text is None else int(text)


def plan_take_over(discovered: Found, options: InstallOptions, release_name: str = "dovetail") -> Installation:
    """Our release beside Karpenter's, in its namespace; nothing at AWS changes."""
    deployment = karpenter_of(discovered)
    namespace = deployment["metadata"]["namespace"]
    if not deployment["spec"].get("replicas", 1) and former_replicas(deployment) is None:
        raise RefusedError(
            message(
                "Deployment {namespace}/{name} has no replicas; nothing runs there",
                namespace=namespace,
                name=deployment["metadata"]["name"],
            )
        )
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
        first_pool=(FormerAutoscaler(name=str(deployment["metadata"]["name"]), namespace=namespace),),
        notes=chart.notes(release, values),
    )


async def take_over(account: Account, planned: Installation, report: Report, *, wait_s: float) -> int:
    """Ours stands by first; then Karpenter is scaled to 0, gives up the lease, and ours leads."""
    changed = await apply_parts(account, planned.cluster, report)
    if wait_s:
        release = planned.release
        remedy = message(
            "Karpenter still runs; see kubectl describe pods -n {namespace}, then repeat the command",
            namespace=release.namespace,
        )
        await wait_for_deployment(
            account, name=release.name, namespace=release.namespace, remedy=remedy, wait_s=wait_s, report=report
        )
    return changed + await apply_parts(account, planned.first_pool, report)
