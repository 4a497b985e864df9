"""One run of a restored cluster in virtual time: to rest without a change, or with one. The same bytes every time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.cloud.simulated.config import PriceCurve, SimulatedMarket, Stock
from dovetail.errors import UserError
from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.resources import NODES, Resource
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.scenario.autoscaler import GONE, Autoscaled, AutoscalerRequest
from dovetail.lab.scenario.manifests import Kinds
from dovetail.lab.scenario.schema import ScenarioError
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import ZONE
from dovetail.offline.diff.changes import ProposedChange, applied, differences
from dovetail.offline.diff.cluster import DiffInput, Json, key_of, label_of
from dovetail.offline.diff.prediction import PredictedObjectChange, PredictedRun
from dovetail.studies.setups import DOVETAIL_SETTINGS
from dovetail.studies.what_if import restoration
from dovetail.studies.what_if.cloud import RestoredCloud
from dovetail.studies.what_if.observation import Observation

#: How an instance boots where no other figure is given: all alike, so that a prediction depends on no chance of theirs.
BOOT = SimulatedMarket(boot=(30.0, 30.0), ready=(5.0, 5.0))
#: Seconds between the start of the controllers and the change.
CHANGED_AFTER_S = 5.0
#: A cluster in which nothing happens for so long is at rest: whole sets of nodes are searched again after an hour.
REST_S = 4000.0
#: Between two looks whether it is.
STEP_S = 30.0
#: New instances get addresses far from those of nodes that are there.
LAST_ADDRESS = 20_000
#: So many fields of a changed object are shown.
MAX_FIELDS = 12


class WhatIfInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made of beside its change. `region` is empty where `types` are given by the user."""

    cluster: DiffInput
    types: tuple[InstanceType, ...]
    region: str
    now: datetime
    horizon_s: float
    market: SimulatedMarket = BOOT
    seed: int = 1


def run(setup: WhatIfInput, change: ProposedChange | None) -> PredictedRun:
    """Play it until it is at rest, or its horizon is reached."""
    return run_virtual(_run(setup, change))


async def _run(setup: WhatIfInput, change: ProposedChange | None) -> PredictedRun:
    clock = Clock(asyncio.get_running_loop(), setup.now)
    pace = ReportingDetail(lean=True, heartbeat_seconds=None, grid_seconds=0.5)
    lab = Lab.embedded(_seed(setup), LabParts(pace=pace, quiet=True, event_sink=_discard, faults=False), clock=clock)
    await restoration.define_kinds(lab)
    await asyncio.sleep(2.0)  # a kind is served a moment after it was defined
    restoration.store(lab, setup.cluster.stored, setup.now)
    async with lab:
        played = await _played(lab, setup, change)
    if isinstance(played, UserError):
        raise played
    return played


async def _played(lab: Lab, setup: WhatIfInput, change: ProposedChange | None) -> PredictedRun | UserError:
    """A problem is returned: raised, the group of the lab's tasks would hide it among theirs."""
    request = _asked(setup)
    fleet = Autoscaled(request)
    try:
        await lab.join([restoration.kubelet(node) for node in setup.cluster.of("Node") if restoration.is_ready(node)])
        await restoration.create(lab, setup.cluster)
        lab.add(fleet.run)
        await asyncio.sleep(CHANGED_AFTER_S)
        names = {instance.provider_id: name for name, instance in request.standing.items()}
        observation = Observation(lab, fleet, names)
        start = await observation.state()
        objects = await apply_change(lab, fleet, setup, change) if change is not None else []
        at_rest = await until_rest(lab, observation, setup)
        return await observation.outcome(start, objects, at_rest=at_rest)
    except UserError as problem:
        return problem


def _seed(setup: WhatIfInput) -> int:
    """Depends on the cluster: that of a lab with the same seed would give new objects the UIDs of those restored."""
    identities = sorted(str(item["metadata"]["uid"]) for item in setup.cluster.stored)
    return Chance(setup.seed).child("what if", *identities).root


def _asked(setup: WhatIfInput) -> AutoscalerRequest:
    classes = {item["metadata"]["name"]: item for item in setup.cluster.of("EC2NodeClass")}
    return AutoscalerRequest(
        region=setup.region,
        types=setup.types,
        market=setup.market,
        settings=DOVETAIL_SETTINGS,
        make_cloud=partial(RestoredCloud, region=setup.region, classes=classes),
        standing=restoration.instances(setup.cluster, setup.now),
        last_address=LAST_ADDRESS,
        own_class=False,
    )


def _discard(*event: str) -> None:
    """The events of a run are not kept: its decisions are."""


async def until_rest(lab: Lab, observation: Observation, setup: WhatIfInput) -> bool:
    """Let time pass until nothing happens any more; False if the horizon came first.

    A budget that opens later, or a NodeClaim that still has to go, is waited for.
    """
    end = lab.clock.monotonic() + setup.horizon_s
    while lab.clock.monotonic() < end:
        await asyncio.sleep(STEP_S)
        quiet = lab.clock.monotonic() - observation.last_change
        if quiet >= max(REST_S, await observation.quiet_limit_s()):
            return True
    return False


# -- the change


async def apply_change(
    lab: Lab, fleet: Autoscaled, setup: WhatIfInput, change: ProposedChange
) -> list[PredictedObjectChange]:
    """Do to the lab what the change says; the objects that differ by it."""
    kinds = Kinds(lab.kube)
    cloud = fleet.cloud
    assert isinstance(cloud, RestoredCloud)
    changes: list[PredictedObjectChange] = []
    for key in change.deletions:
        changes.append(await _delete(lab, kinds, setup.cluster, key))
    for item in change.manifests:
        written = await _write(lab, kinds, item)
        if written is not None:
            changes.append(written)
    for replicas in change.replicas:
        resource = await kinds.by_kind(replicas.kind)
        before = await lab.kube.get(resource, replicas.name, replicas.namespace)
        after = await lab.kube.patch(
            resource, replicas.name, {"spec": {"replicas": replicas.count}}, replicas.namespace
        )
        changes += _compared(before, after, replicas.kind)
    cloud.images.update(change.images)
    cloud.market = _market(cloud.market, change, setup.types)
    for zone in change.lost_zones:
        await _lose_zone(lab, cloud, zone)
    if change.images:
        await _resolve_again(lab, kinds, change.images)
    return changes


async def _delete(lab: Lab, kinds: Kinds, cluster: DiffInput, key: tuple[str, str, str]) -> PredictedObjectChange:
    kind, namespace, name = key
    resource = await kinds.by_kind(kind)
    await lab.kube.delete(resource, name, namespace or None, propagation="Background")
    item = cluster.get(kind, namespace, name)
    return PredictedObjectChange(action="-", object=label_of(item) if item is not None else f"{kind} {name}")


async def _write(lab: Lab, kinds: Kinds, item: Json) -> PredictedObjectChange | None:
    """Apply one manifest through the server, which defaults and validates it; None if nothing changes."""
    try:
        resource = await kinds.find(str(item.get("apiVersion") or ""), str(item["kind"]))
    except ScenarioError as problem:
        raise UserError(
            message(
                "{object}: apiVersion: {version} has no {kind}; write the version that the cluster serves",
                object=label_of(item),
                version=item.get("apiVersion") or '""',
                kind=item["kind"],
            )
        ) from problem
    namespace = key_of(item)[1] or None
    metadata = {**(item.get("metadata") or {}), **({"namespace": namespace} if namespace else {})}
    body = {**item, "metadata": metadata}
    try:
        before = await lab.kube.get(resource, metadata["name"], namespace)
    except NotFound:
        before = None
    try:
        if before is None:
            await lab.kube.create(resource, body)
            return PredictedObjectChange(action="+", object=label_of(item))
        after = await lab.kube.update(resource, applied(before, body))
    except ApiError as problem:
        raise UserError(f"{label_of(item)}: {problem.message}") from problem
    return next(iter(_compared(before, after, str(item["kind"]))), None)


def _compared(before: Json, after: Json, kind: str) -> list[PredictedObjectChange]:
    fields = tuple((path, _text(old), _text(new)) for path, old, new in differences(before, after))
    label = label_of({"kind": kind, **after})
    return [PredictedObjectChange(action="~", object=label, fields=fields[:MAX_FIELDS])] if fields else []


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:119]}…"


def _market(market: SimulatedMarket, change: ProposedChange, types: Sequence[InstanceType]) -> SimulatedMarket:
    """Sold-out offerings have no stock, and prices differ by a factor from now on."""
    stock = tuple(
        Stock(instance_type=offering.instance_type, zone=offering.zone, capacity_type=offering.capacity_type)
        for offering in change.sold_out
    ) + tuple(Stock(zone=zone) for zone in change.lost_zones)
    usual = {
        (kind.name, offering.zone, offering.capacity_type): offering.price
        for kind in types
        for offering in kind.offerings
    }
    curves = tuple(
        PriceCurve(
            instance_type=price.instance_type,
            zone=price.zone,
            capacity_type=price.capacity_type,
            steps=((0.0, price.dollars / usual_price),),
        )
        for price in change.prices
        if (usual_price := usual.get((price.instance_type, price.zone, price.capacity_type)))
    )
    return msgspec.structs.replace(market, stock=(*stock, *market.stock), curves=(*market.curves, *curves))


async def _lose_zone(lab: Lab, cloud: RestoredCloud, zone: str) -> None:
    """Every instance of the zone is gone at once; the nodes of those that no NodePool launched are deleted later."""
    for instance in cloud.standing():
        if instance.zone == zone:
            cloud.vanish(instance.provider_id)
    ours = {instance.provider_id for instance in cloud.standing()}
    for node in (await lab.kube.list(NODES)).items:
        labels = node["metadata"].get("labels") or {}
        if labels.get(ZONE) == zone and (node.get("spec") or {}).get("providerID") not in ours:
            lab.fleet.vanish(node["metadata"]["name"])
            lab.add(partial(_forget_node, name=node["metadata"]["name"]))


async def _forget_node(lab: Lab, name: str) -> None:
    await asyncio.sleep(GONE)
    try:
        await lab.kube.delete(NODES, name)
    except NotFound:
        return


async def _resolve_again(lab: Lab, kinds: Kinds, images: Mapping[str, str]) -> None:
    """Annotate the NodeClasses with other images, so that they are resolved, and their nodes compared, at once."""
    resource: Resource = await kinds.by_kind("EC2NodeClass")
    for name, image in images.items():
        try:
            await lab.kube.patch(resource, name, {"metadata": {"annotations": {"dovetail.sh/ami": image}}})
        except NotFound:
            continue
