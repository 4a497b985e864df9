"""What a container uses: CPU and memory over time, by annotation, by what its script does, or by its image.

CPU is in milli-CPU, memory in bytes. Requests from one workload to another are a closed loop: a generator that
waits for its answer before it sleeps asks only as fast as it is served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

import msgspec

from dovetail.lab.kubelet.container_model import PREFIX, short_name
from dovetail.lab.kubelet.views import ContainerSpec
from dovetail.model.quantity import QuantityError, milli, whole

MIB = 1024**2
DAY = 86400.0
#: Seconds that a container lives whose start alone takes more memory than it may have.
KILLED_AT_ONCE = 0.5


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A container's appetite. `curve` is (second of the day, milli-CPU), straight lines between.

    `rate` is requests a second, `rate_curve` a thousandth of one over the day.
    """

    cpu: float = 1.0
    memory: int = 10 * MIB
    growth: float = 0.0
    curve: tuple[tuple[float, float], ...] = ()
    seconds_per_request: float = 0.0
    asks: str = ""
    pause: float = 0.0
    rate: float = 0.0
    rate_curve: tuple[tuple[float, float], ...] = ()

    def cpu_at(self, now: datetime) -> float:
        return self.cpu if not self.curve else on_curve(self.curve, _second_of_day(now))

    def rate_at(self, now: datetime) -> float:
        """Requests a second."""
        return on_curve(self.rate_curve, _second_of_day(now)) / 1000.0 if self.rate_curve else self.rate

    def memory_at(self, age: float) -> int:
        return int(self.memory + self.growth * max(0.0, age))


#: Images whose appetite tutorials rely on.
_IMAGES: Mapping[str, Load] = {
    "pause": Load(cpu=0.0, memory=320 * 1024),
    "hpa-example": Load(cpu=1.0, memory=12 * MIB, seconds_per_request=0.0172),
    "nginx": Load(cpu=0.0, memory=3 * MIB),
    "busybox": Load(cpu=0.0, memory=400 * 1024),
    "redis": Load(cpu=2.0, memory=4 * MIB),
    "ubuntu-slim": Load(cpu=0.0, memory=MIB),
    "metrics-server": Load(cpu=4.0, memory=20 * MIB),
}
_URL = re.compile(r"(?:wget|curl)\b.*?https?://([A-Za-z0-9.-]+)")
_SLEEP = re.compile(r"\bsleep\s+([0-9.]+)s?")
_BUSY = re.compile(r"timeout\s+(?:-t\s*)?([0-9.]+)s?\s+(?:yes|dd|md5sum|sha256sum)")


#: Models by the identity of a container and of its pod's annotations, which the entry keeps alive; up to so many.
_MODELS: dict[tuple[int, int], tuple[Load, ContainerSpec, Mapping[str, str]]] = {}
_MAX_MODELS = 50_000


def load_of(container: ContainerSpec, annotations: Mapping[str, str]) -> Load:
    """Annotations win over the script, the script over the image."""
    key = (id(container), id(annotations))
    kept = _MODELS.get(key)
    if kept is None:
        if len(_MODELS) >= _MAX_MODELS:
            _MODELS.clear()
        model = _annotated(_by_script(container), container.name, annotations)
        kept = _MODELS[key] = (model, container, annotations)
    return kept[0]


def oom_after(container: ContainerSpec, annotations: Mapping[str, str]) -> float | None:
    """Seconds until a container has used up its memory limit; None if it never does."""
    limit = container.resources.get("limits", {}).get("memory")
    if limit is None:
        return None
    model = load_of(container, annotations)
    room = _bytes(limit) - model.memory
    if room < 0:
        return KILLED_AT_ONCE
    return room / model.growth if model.growth > 0 else None


def _by_script(container: ContainerSpec) -> Load:
    return _reading(short_name(container.image), " ".join((*container.command, *container.args)))


@lru_cache(maxsize=4096)
def _reading(image: str, script: str) -> Load:
    base = _IMAGES.get(image, Load())
    url = _URL.search(script)
    pauses = [float(text) for text in _SLEEP.findall(script)]
    pause = sum(pauses)
    if url is not None and re.search(r"\bwhile\b|\bwatch\b|\buntil\b", script):
        return msgspec.structs.replace(base, cpu=5.0, asks=url[1], pause=pause)
    busy = [float(text) for text in _BUSY.findall(script)]
    if busy:
        return msgspec.structs.replace(base, cpu=1000.0 * sum(busy) / (sum(busy) + pause))
    if re.search(r"while\s+(true|:)\s*;\s*do\s*(:|true)?\s*;?\s*done", script) or "yes >" in script:
        return msgspec.structs.replace(base, cpu=1000.0)
    return base


def _annotated(model: Load, container: str, annotations: Mapping[str, str]) -> Load:
    changes: dict[str, object] = {}

    def read(name: str) -> str | None:
        return annotations.get(f"{PREFIX}{name}.{container}", annotations.get(f"{PREFIX}{name}"))

    if (text := read("cpu")) is not None:
        changes |= {"cpu": float(_milli(text)), "curve": ()}
    if (text := read("cpu-curve")) is not None:
        changes["curve"] = parse_curve(text)
    if (text := read("memory")) is not None:
        base, _, growth = text.partition("+")
        changes["memory"] = _bytes(base)
        changes["growth"] = _growth(growth)
    if (text := read("cpu-per-request")) is not None:
        changes["seconds_per_request"] = _milli(text) / 1000
    if (text := read("asks")) is not None:
        changes["asks"] = text
    if (text := read("requests-per-second")) is not None:
        if "=" in text:
            changes["rate_curve"] = parse_curve(text)
        elif _number(text):
            changes["rate"] = float(text)
    return msgspec.structs.replace(model, **changes) if changes else model


def parse_curve(text: str) -> tuple[tuple[float, float], ...]:
    """`0h=100m,8h=400m,20h30m=150m` → points of a day."""
    points = []
    for part in filter(None, text.replace(" ", "").split(",")):
        when, _, much = part.partition("=")
        match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?", when)
        if match is not None and much:
            points.append((int(match[1] or 0) * 3600.0 + int(match[2] or 0) * 60.0, float(_milli(much))))
    return tuple(sorted(points))


def on_curve(curve: tuple[tuple[float, float], ...], second: float) -> float:
    """The value at a second of the day; the last point leads round to the first."""
    if not curve:
        return 0.0
    first, last = curve[0], curve[-1]
    before, after = (last[0] - DAY, last[1]), first
    for point in (*curve, (first[0] + DAY, first[1])):
        after = point
        if point[0] > second:
            break
        before = point
    span = after[0] - before[0]
    if span <= 0:
        return before[1]
    return before[1] + (after[1] - before[1]) * (second - before[0]) / span


def request_rate(model: Load, seconds_per_request: float, now: datetime) -> float:
    """The requests a second that one generator makes."""
    if model.rate or model.rate_curve:
        return model.rate_at(now)
    whole_turn = model.pause + seconds_per_request
    return 1.0 / whole_turn if whole_turn > 0 else 0.0


def metric_at(text: str, now: datetime) -> float:
    """The value of a metric that an annotation gives: a number, or points of a day."""
    return on_curve(parse_curve(text), _second_of_day(now)) / 1000.0 if "=" in text else _milli(text) / 1000.0


def _second_of_day(now: datetime) -> float:
    return now.hour * 3600.0 + now.minute * 60.0 + now.second


def _milli(text: str) -> int:
    try:
        return milli(text)
    except QuantityError:
        return 0


def _bytes(text: str) -> int:
    try:
        return whole(text)
    except QuantityError:
        return 0


def _growth(text: str) -> float:
    """`1Mi/m` → bytes a second."""
    amount, _, unit = text.partition("/")
    return _bytes(amount) / {"s": 1.0, "m": 60.0, "h": 3600.0}.get(unit or "s", 1.0) if amount else 0.0


def _number(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None
