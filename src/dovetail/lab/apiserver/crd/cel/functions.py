"""The functions of the language and of Kubernetes' libraries, by name: each takes its receiver first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from dovetail.lab.apiserver.crd.cel import values
from dovetail.lab.apiserver.crd.cel.errors import CelError, no_overload
from dovetail.lab.apiserver.crd.cel.values import Optional, Type, Url, need, ordered, same
from dovetail.model import quantity as quantities
from dovetail.model.quantity import Quantity

Function = Callable[..., Any]
_INT64 = 2**63


@lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise CelError(f"error parsing regexp: {error}") from error


def size(value: Any) -> int:
    return len(need(value, str, bytes, list, dict))


def to_int(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]+", value) or not -_INT64 <= int(value) < _INT64:
            raise CelError("type conversion error from 'string' to 'int'")
        return int(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, timedelta):
        return int(value.total_seconds() * 1e9)
    number = int(need(value, int, float))
    if not -_INT64 <= number < _INT64:
        raise CelError("integer overflow")
    return number


def to_double(value: Any) -> float:
    try:
        return float(need(value, int, float, str))
    except ValueError as error:
        raise CelError("type conversion error from 'string' to 'double'") from error


def to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Url):
        return value.text
    if isinstance(value, values.Cidr):
        return str(value.interface)
    if isinstance(value, list | dict) or value is None:
        raise no_overload()
    return str(value)


def to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "TRUE", "True", "t", "1"):
        return True
    if value in ("false", "FALSE", "False", "f", "0"):
        return False
    raise no_overload()


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    need(text, str)
    if limit == 0:
        return []
    if separator == "":
        return list(text) if limit < 0 else [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def find(text: str, expression: str) -> str:
    match = pattern(expression).search(need(text, str))
    return match[0] if match else ""


def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    matches = [match[0] for match in pattern(expression).finditer(need(text, str))]
    return matches if limit < 0 else matches[:limit]


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return need(text, str).replace(old, new, limit)  # type: ignore[no-any-return]


def substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(need(text, str)) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise CelError(f"index out of range: {start if start > len(text) or start < 0 else stop}")
    return text[start:stop]


def index_of(value: Any, item: Any, start: int = 0) -> int:
    if isinstance(value, str):
        return value.find(item, start)
    return next((index for index, candidate in enumerate(value) if same(candidate, item)), -1)


def last_index_of(value: Any, item: Any) -> int:
    if isinstance(value, str):
        return value.rfind(item)
    return next((index for index in range(len(value) - 1, -1, -1) if same(value[index], item)), -1)


def is_sorted(items: list[Any]) -> bool:
    for left, right in itertools.pairwise(items):
        if not ordered(left, right):
            raise no_overload()
        if left > right:
            return False
    return True


def _extreme(choose: Function, word: str) -> Function:
    def pick(items: list[Any]) -> Any:
        if not need(items, list):
            raise CelError(f"{word} called on empty list")
        return choose(items)

    return pick


def total(items: list[Any]) -> Any:
    if items and isinstance(items[0], timedelta):
        return sum(items, timedelta())
    return sum(items)


def quantity(text: Any) -> Quantity:
    try:
        return quantities.parse(need(text, str))
    except quantities.QuantityError as error:
        raise CelError(f"quantities must match the regular expression: {error}") from error


def is_quantity(text: Any) -> bool:
    try:
        quantities.parse(text)
    except quantities.QuantityError:
        return False
    return True


def _as_quantity(value: Any) -> Quantity:
    return value if isinstance(value, Quantity) else quantities.parse(str(value))


def compare(left: Quantity, right: Quantity) -> int:
    return (left > right) - (left < right)


def is_url(text: str) -> bool:
    try:
        Url(text)
    except (CelError, ValueError):
        return False
    return True


def is_ip(text: str) -> bool:
    try:
        values.address(text)
    except CelError:
        return False
    return True


def is_cidr(text: str) -> bool:
    try:
        values.Cidr(text)
    except CelError:
        return False
    return True


def contains_ip(cidr: values.Cidr, other: Any) -> bool:
    address = values.address(other) if isinstance(other, str) else other
    return address in cidr.interface.network


def contains_cidr(cidr: values.Cidr, other: Any) -> bool:
    network_of_other = values.Cidr(other) if isinstance(other, str) else other
    network, inner = cidr.interface.network, network_of_other.interface.network
    return inner.version == network.version and bool(inner.subnet_of(network))  # type: ignore[arg-type]


def format_text(template: str, arguments: list[Any]) -> str:
    remaining = iter(arguments)

    def formatted(match: re.Match[str]) -> str:
        verb = match[0][-1]
        if verb == "%":
            return "%"
        try:
            value = next(remaining)
        except StopIteration:
            raise CelError("index out of range") from None
        if verb == "d":
            return str(need(value, int))
        if verb in "fe":
            digits = match[1] or "6"
            return f"{value:.{digits}{verb}}"
        if verb in "xXob":
            return format(value, verb) if isinstance(value, int) else str(value).encode().hex()
        return shown(value)

    return re.sub(r"%(?:\.(\d+))?[sdfexXob%]", formatted, template)


def shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in sorted(value.items())) + "}"
    return "null" if value is None else to_string(value)


def _get_or(value: Optional, other: Any) -> Any:
    return value.value if need(value, Optional).present else other


def _value_of(value: Optional) -> Any:
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _includes(items: list[Any], item: Any) -> bool:
    return any(same(candidate, item) for candidate in items)


def _time(part: str) -> Function:
    def get(value: datetime, zone: str | None = None) -> int:
        moment = need(value, datetime).astimezone(UTC)
        return _PARTS[part](moment)

    return get


_PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda t: t.year,
    "month": lambda t: t.month - 1,
    "date": lambda t: t.day,
    "day": lambda t: t.day - 1,
    "weekday": lambda t: (t.weekday() + 1) % 7,
    "hours": lambda t: t.hour,
    "minutes": lambda t: t.minute,
    "seconds": lambda t: t.second,
}


def _amount(unit: float, part: str) -> Function:
    def get(value: Any) -> int:
        return int(value.total_seconds() / unit) if isinstance(value, timedelta) else int(_PARTS[part](value))

    return get


GLOBALS: dict[str, Function] = {
    "size": size,
    "int": to_int,
    "uint": to_int,
    "double": to_double,
    "string": to_string,
    "bytes": lambda value: value.encode() if isinstance(value, str) else value,
    "bool": to_bool,
    "dyn": lambda value: value,
    "type": values.type_of,
    "duration": lambda value: value if isinstance(value, timedelta) else values.parse_duration(value),
    "timestamp": lambda value: value if isinstance(value, datetime) else values.parse_timestamp(value),
    "matches": lambda text, expression: pattern(expression).search(need(text, str)) is not None,
    "quantity": quantity,
    "isQuantity": is_quantity,
    "url": lambda text: Url(need(text, str)),
    "isURL": is_url,
    "ip": lambda text: values.address(need(text, str)),
    "isIP": is_ip,
    "cidr": lambda text: values.Cidr(need(text, str)),
    "isCIDR": is_cidr,
    "optional.of": lambda value: Optional(value),
    "optional.none": lambda: values.NONE,
    "optional.ofNonZeroValue": lambda value: Optional(value) if value else values.NONE,
    "sets.contains": lambda left, right: all(_includes(left, item) for item in right),
    "sets.equivalent": lambda a, b: all(_includes(a, i) for i in b) and all(_includes(b, i) for i in a),
    "sets.intersects": lambda left, right: any(_includes(left, item) for item in right),
    "math.greatest": lambda *items: max(items[0] if len(items) == 1 and isinstance(items[0], list) else items),
    "math.least": lambda *items: min(items[0] if len(items) == 1 and isinstance(items[0], list) else items),
    "math.abs": abs,
}
METHODS: dict[str, Function] = {
    "size": size,
    "contains": lambda text, part: need(part, str) in need(text, str),
    "startsWith": lambda text, part: need(text, str).startswith(need(part, str)),
    "endsWith": lambda text, part: need(text, str).endswith(need(part, str)),
    "matches": GLOBALS["matches"],
    "find": find,
    "findAll": find_all,
    "split": split,
    "join": lambda items, separator="": separator.join(items),
    "replace": replace,
    "substring": substring,
    "charAt": lambda text, index: text[index : index + 1],
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "lowerAscii": lambda text: need(text, str).lower(),
    "upperAscii": lambda text: need(text, str).upper(),
    "trim": lambda text: need(text, str).strip(),
    "reverse": lambda value: value[::-1],
    "format": format_text,
    "isSorted": is_sorted,
    "sum": total,
    "min": _extreme(min, "min"),
    "max": _extreme(max, "max"),
    "orValue": _get_or,
    "or": lambda value, other: value if value.present else other,
    "hasValue": lambda value: need(value, Optional).present,
    "value": _value_of,
    "sign": lambda q: compare(q, quantities.parse("0")),
    "isInteger": lambda q: q.milli % 1000 == 0,
    "asInteger": lambda q: q.whole,
    "asApproximateFloat": lambda q: q.milli / 1000,
    "add": lambda q, other: q + _as_quantity(other),
    "sub": lambda q, other: q - _as_quantity(other),
    "isLessThan": lambda q, other: q < other,
    "isGreaterThan": lambda q, other: q > other,
    "compareTo": compare,
    "getScheme": lambda url: url.parts.scheme,
    "getHost": lambda url: url.parts.netloc.rpartition("@")[2],
    "getHostname": lambda url: url.parts.hostname or "",
    "getPort": lambda url: str(url.parts.port or ""),
    "getEscapedPath": lambda url: url.parts.path,
    "family": lambda ip: ip.version,
    "isUnspecified": lambda ip: ip.is_unspecified,
    "isLoopback": lambda ip: ip.is_loopback,
    "isLinkLocalMulticast": lambda ip: ip.is_multicast and ip.is_link_local,
    "isLinkLocalUnicast": lambda ip: ip.is_link_local,
    "isGlobalUnicast": lambda ip: not (ip.is_multicast or ip.is_loopback or ip.is_unspecified),
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "ip": lambda cidr: cidr.interface.ip,
    "masked": lambda cidr: values.Cidr(str(cidr.interface.network)),
    "prefixLength": lambda cidr: cidr.interface.network.prefixlen,
    "getFullYear": _time("year"),
    "getMonth": _time("month"),
    "getDate": _time("date"),
    "getDayOfMonth": _time("day"),
    "getDayOfWeek": _time("weekday"),
    "getHours": _amount(3600, "hours"),
    "getMinutes": _amount(60, "minutes"),
    "getSeconds": _amount(1, "seconds"),
    "getMilliseconds": lambda value: int(value.total_seconds() * 1000),
}


def _member(name: str, otherwise: Function | None) -> Function:
    def call(value: Any, *arguments: Any) -> Any:
        if isinstance(value, values.Members):
            return value.call(name, arguments)
        if otherwise is None:
            raise no_overload()
        return otherwise(value, *arguments)

    return call


#: Methods of the authorizer and of what it gives.
for _name in (
    *("group", "resource", "subresource", "namespace", "name", "path", "serviceAccount", "check"),
    *("allowed", "reason", "errored", "error", "fieldSelector", "labelSelector"),
):
    METHODS[_name] = _member(_name, METHODS.get(_name))
GLOBALS["jsonpatch.escapeKey"] = lambda key: need(key, str).replace("~", "~0").replace("/", "~1")
TYPES = {name: Type(name) for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type")}
