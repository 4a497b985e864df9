"""What a scenario names beside itself: instance types, a region, gates, a market, files.

All of it is looked up before anything is played, so that a slip costs no simulated day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from dovetail.cloud.simulated.config import MarketError, read
from dovetail.controllers.settings import GATES
from dovetail.lab.instances import UnknownType, size_of
from dovetail.lab.scenario.manifests import load
from dovetail.lab.scenario.schema import AutoscalerPart, NodesPart, Scenario, ScenarioError
from dovetail.language import message


def check(scenario: Scenario, folder: Path, where: str) -> None:
    """Raise a ScenarioError with the file `where`, the field and what is wrong about it."""
    for field, pool in _pools(scenario):
        try:
            size_of(pool.type)
        except UnknownType as error:
            raise ScenarioError(f"{where}: {field}.type: {error}") from error
    applied = ((f"steps[{number}].apply", step.apply) for number, step in enumerate(scenario.steps))
    given = ((f"manifests[{number}]", manifest) for number, manifest in enumerate(scenario.manifests))
    for field, source in (*given, *applied):
        if isinstance(source, str):
            try:
                load(source, folder)
            except ScenarioError as error:
                raise ScenarioError(f"{where}: {field}: {error}") from error
    if scenario.autoscaler is not None:
        _check_autoscaler(scenario.autoscaler, where)
        _check_market("autoscaler.market", scenario.autoscaler.market, where)
    if scenario.node_groups is not None:
        _check_flags(scenario.node_groups.flags, where)
    for number, step in enumerate(scenario.steps):
        _check_market(f"steps[{number}].market", step.market or {}, where)


def _pools(scenario: Scenario) -> Iterable[tuple[str, NodesPart]]:
    for number, pool in enumerate(scenario.cluster.pools):
        yield f"cluster.pools[{number}]", pool
    for number, step in enumerate(scenario.steps):
        if step.join is not None:
            yield f"steps[{number}].join", step.join


def _check_flags(flags: Sequence[str], where: str) -> None:
    from dovetail.autoscalers.go_flags import FlagError
    from dovetail.lab.scenario.node_groups import program_flags  # a scenario without groups need not load it

    try:
        program_flags(flags)
    except FlagError as problem:
        raise ScenarioError(f"{where}: nodeGroups.flags: {problem}") from problem


def _check_autoscaler(part: AutoscalerPart, where: str) -> None:
    from dovetail.cloud.aws import catalog  # a scenario without an autoscaler need not load it

    try:
        types = set(chain.from_iterable(catalog.region(part.region).types.values()))
    except catalog.UnknownRegion as error:
        raise ScenarioError(f"{where}: autoscaler.region: {error}") from error
    families = {name.partition(".")[0] for name in types}
    for field, names, existing, there in (
        ("families", part.families, families, message("m5 and c5 are")),
        ("reserved", part.reserved, types, "m5.large is"),
        ("gates", part.gates, set(GATES), ", ".join(GATES) + " are"),
    ):
        for name in names:
            if name not in existing:
                raise ScenarioError(
                    message(
                        "{where}: autoscaler.{field}: {name!r} is not there; {there}",
                        where=where,
                        field=field,
                        name=name,
                        there=there,
                    )
                )


def _check_market(field: str, market: dict[str, Any], where: str) -> None:
    try:
        read(yaml.safe_dump(market))
    except MarketError as error:
        raise ScenarioError(f"{where}: {field}: {error}") from error
