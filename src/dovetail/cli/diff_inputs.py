"""What `dovetail diff` reads: the cluster from an API server or from files, manifests, prices, times."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.cli.cluster_objects import manifests as listed
from dovetail.cli.cluster_session import ClusterSession as Connection
from dovetail.cli.cluster_session import ask
from dovetail.clock import wall
from dovetail.cloud.aws.catalog import load
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.errors import UserError
from dovetail.kube import resources as kinds
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.model import duration
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.offline import snapshot
from dovetail.offline.diff.cluster import flat
from dovetail.offline.objects import Objects, documents
from dovetail.offline.recording import OfferingKey, RecordedPrice, kept, read
from dovetail.offline.region import region_of

Json = dict[str, Any]
#: What a run needs beside what planning reads.
_MORE = (
    kinds.DEPLOYMENTS,
    kinds.REPLICASETS,
    kinds.STATEFULSETS,
    kinds.JOBS,
    kinds.RESOURCEQUOTAS,
    kinds.HPAS,
)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
#: From a kubelet's first word to a Ready node, of the whole boot time.
READY_SHARE = 1 / 7


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster, the moment that they show, and prices that were known then.

    `narrow` leaves of a manifest what the objects have of theirs: a recording leaves fields out.
    """

    objects: list[Json]
    now: datetime
    prices: Mapping[OfferingKey, RecordedPrice] = {}
    narrow: Callable[[Json], Json] = dict


def from_recording(file: str, instant: str | None) -> Input:
    """The cluster as it was at a moment of a recording; by default its last."""
    recording = read(file)
    moment = _moment(instant) if instant is not None else recording.end
    if not recording.start <= moment <= recording.end:
        raise UserError(
            message(
                "--at {value}: the recording is of {start} to {end}",
                value=repr(instant),
                start=recording.start.isoformat(),
                end=recording.end.isoformat(),
            )
        )
    return Input(
        objects=copy.deepcopy(recording.objects_at(moment)),
        now=moment,
        prices=recording.prices_at(moment),
        narrow=kept,
    )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise UserError(
            message("--at {value}: is not a time with its zone, such as 2026-11-17T09:30:00Z", value=repr(text))
        )
    return moment


def from_cluster(kubeconfig: str | None, context: str | None) -> Input:
    """Everything, listed once; nothing is written."""

    async def question(connection: Connection) -> Input:
        return Input(objects=await listed(connection, _MORE), now=connection.now)

    return ask(kubeconfig, context, question)


def from_files(paths: Sequence[str]) -> Input:
    """The moment is the last that the objects name: exported ages stay what they were."""
    objects = list(flat(documents(paths)))
    if not objects:
        raise UserError(message("--cluster-from: the files have no objects; name an export of a cluster"))
    last = max(_instants(objects), default=None)
    return Input(objects=objects, now=last + timedelta(seconds=1) if last else wall())


def _instants(value: Any) -> Iterator[datetime]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name != "renewTime":
                yield from _instants(member)
    elif isinstance(value, list):
        for member in value:
            yield from _instants(member)
    elif isinstance(value, datetime):
        yield value
    elif isinstance(value, str) and _INSTANT.fullmatch(value):
        yield datetime.fromisoformat(value)


def manifests(paths: Sequence[str]) -> list[Json]:
    """The objects of a change; what cannot be read of them is named with object, field and value."""
    manifests = list(flat(documents(paths))) if paths else []
    checked = Objects()
    for item in manifests:
        checked.add(item)
    for problem in (*checked.refused, *(f"{names[0]}: {text}" for text, names in checked.doubtful.items())):
        raise UserError(message("{problem}; the API server would refuse it", problem=problem))
    return manifests


def instance_types(given: Input, catalog: str | None, region: str | None) -> tuple[tuple[InstanceType, ...], str]:
    """The types that can be launched, and the region of the packaged catalogue; empty where a file has them."""
    if catalog:
        return snapshot.catalogue(catalog), ""
    objects = Objects()
    for item in given.objects:
        if item.get("kind") in ("Node", "NodePool", "Provisioner"):
            objects.add(item)
    where = region_of(region, objects)
    types = load(where)
    return tuple(
        _priced(instance_type, where, given.prices) for instance_type in types
    ) if given.prices else types, where


def _priced(kind: InstanceType, region: str, prices: Mapping[OfferingKey, RecordedPrice]) -> InstanceType:
    """A type at the prices that were recorded; what was not recorded costs what the catalogue says."""

    def priced(offering: Offering) -> Offering:
        price = prices.get(OfferingKey(region, kind.name, offering.zone, offering.capacity_type))
        if price is None:
            return offering
        return msgspec.structs.replace(offering, price=price.dollars, price_source=price.source, available=True)

    return msgspec.structs.replace(kind, offerings=tuple(map(priced, kind.offerings)))


def price_lines(file: str | None) -> tuple[str, ...]:
    """The lines of a price file that say something."""
    if file is None:
        return ()
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        why = system_error(problem) if isinstance(problem, OSError) else message("not UTF-8 text")
        raise UserError(message("--price-file {file}: {why}; name a file of prices", file=file, why=why)) from problem
    return tuple(text for line in lines if (text := line.partition("#")[0].strip()))


def seconds(option: str, text: str) -> float:
    try:
        seconds = duration.parse(text).total_seconds()
    except (duration.DurationError, OverflowError):
        seconds = 0.0
    if seconds <= 0:
        raise UserError(
            message("{option} {value}: is not a time such as 90s, 30m or 24h", option=option, value=repr(text))
        )
    return seconds


def market(boot_s: float) -> SimulatedMarket:
    """Instances that take so long from launch to Ready."""
    ready = boot_s * READY_SHARE
    return SimulatedMarket(boot=(boot_s - ready, boot_s - ready), ready=(ready, ready))
