"""The market a simulated cloud sells on: what can be had, how slowly, how surely, and at which price.

Everything that can go wrong with a cloud provider is a number here, so that a test or a scenario states its
weather in one value. The defaults are a perfect provider.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.language import message
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem


class Some(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Some of the offerings; a field left at `*` matches any."""

    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"

    def covers(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        return all(
            mine in ("*", theirs)
            for mine, theirs in (
                (self.instance_type, instance_type),
                (self.zone, zone),
                (self.capacity_type, capacity_type),
            )
        )


class Stock(Some, frozen=True, kw_only=True):
    """How many instances of some offerings exist."""

    instances: int = 0


class PriceCurve(Some, frozen=True, kw_only=True):
    """A price over time: from `after` seconds on, the catalogue's price times `factor`."""

    steps: tuple[tuple[float, float], ...] = ()

    def factor(self, age: float) -> float:
        answer = 1.0
        for after, factor in self.steps:
            if age < after:
                break
            answer = factor
        return answer


class SimulatedMarket(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Delays are (least, most) in seconds; rates are probabilities of a call, interruptions are per instance-hour."""

    boot: tuple[float, float] = (0.0, 0.0)
    ready: tuple[float, float] = (0.0, 0.0)
    latency: tuple[float, float] = (0.0, 0.0)
    shutdown: float = 0.0
    launches_per_second: float | None = None
    launch_burst: int = 100
    error_rate: float = 0.0
    never_joins: float = 0.0
    stock: tuple[Stock, ...] = ()
    curves: tuple[PriceCurve, ...] = ()
    interruptions_per_hour: float = 0.0
    notice: float = 120.0
    unavailable_for: float = 180.0

    def between(self, chance: Chance, span: tuple[float, float]) -> float:
        return span[0] if span[0] == span[1] else chance.uniform(*span)


class MarketError(ValueError):
    """What is wrong with a market, and where."""


def read(text: bytes | str) -> SimulatedMarket:
    """A market from YAML or JSON; unknown fields are errors. Raises MarketError."""
    import yaml

    try:
        return msgspec.convert(_with_todays_keys(yaml_document.load(text) or {}), SimulatedMarket)
    except RecursionError as problem:
        raise MarketError(message("nested too deeply to be a market")) from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise MarketError(message("not YAML: {problem}", problem=yaml_problem(problem))) from problem
    except msgspec.ValidationError as problem:
        what, _, where = str(problem).partition(" - at ")
        field = where.strip("`").removeprefix("$").removeprefix(".")
        names = ", ".join(field_info.encode_name for field_info in msgspec.structs.fields(SimulatedMarket))
        raise MarketError(
            message("{field}: {what}; there are {known}", field=field or message("a market"), what=what, known=names)
        ) from problem


def _with_todays_keys(document: Any) -> Any:
    """A stock entry may still say `machines`, the former name of `instances`."""
    if not isinstance(document, dict) or not isinstance(document.get("stock"), list):
        return document
    return {**document, "stock": [_with_instances(entry) for entry in document["stock"]]}


def _with_instances(entry: Any) -> Any:
    if not isinstance(entry, dict) or "machines" not in entry or "instances" in entry:
        return entry
    return {"instances" if key == "machines" else key: value for key, value in entry.items()}
