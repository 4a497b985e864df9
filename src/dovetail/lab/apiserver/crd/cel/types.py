"""Kinds of values in an expression, and which functions take which.

`None` is a kind too: anything, which fits everywhere. Whatever is not known for certain is that.
"""

from __future__ import annotations

import msgspec


class CelType(msgspec.Struct, frozen=True):
    """A type of the language: `list(string)` is "list" with one inner kind."""

    name: str
    inner: tuple[CelType | None, ...] = ()
    #: What describes an object's fields.
    schema: object = None

    def __str__(self) -> str:
        if not self.inner:
            return self.name
        return f"{self.name}({', '.join(shown(kind) for kind in self.inner)})"


Any_ = CelType | None
INT, DOUBLE, BOOL, STRING = CelType("int"), CelType("double"), CelType("bool"), CelType("string")
BYTES, NULL, DURATION, TIMESTAMP = CelType("bytes"), CelType("null"), CelType("duration"), CelType("timestamp")
QUANTITY, URL, IP, CIDR = (
    CelType("kubernetes.Quantity"),
    CelType("kubernetes.URL"),
    CelType("net.IP"),
    CelType("net.CIDR"),
)
_AUTHORIZATION = "kubernetes.authorization."
PATH_CHECK, GROUP_CHECK = CelType(f"{_AUTHORIZATION}PathCheck"), CelType(f"{_AUTHORIZATION}GroupCheck")
RESOURCE_CHECK, DECISION = CelType(f"{_AUTHORIZATION}ResourceCheck"), CelType(f"{_AUTHORIZATION}Decision")
AUTHORIZER = CelType(f"{_AUTHORIZATION}Authorizer")
_NUMBERS = (INT, DOUBLE)
_ORDERED = (BOOL, INT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
#: Nothing is none of these.
_NEVER_NULL = (INT, DOUBLE, BOOL, STRING, BYTES)


def shown(kind: Any_) -> str:
    return "dyn" if kind is None else str(kind)


def list_of(kind: Any_) -> CelType:
    return CelType("list", (kind,))


def map_of(key: Any_, value: Any_) -> CelType:
    return CelType("map", (key, value))


def fits(left: Any_, other: Any_) -> bool:
    """Whether a value of one kind may stand where the other is expected."""
    if left is None or other is None:
        return True
    if NULL in (left, other):
        return left == other or not {left, other} & set(_NEVER_NULL)
    if left.name == other.name and left.inner and len(left.inner) == len(other.inner):
        return all(fits(mine, theirs) for mine, theirs in zip(left.inner, other.inner, strict=True))
    return left == other or (left.name == other.name and left.name in ("object", AUTHORIZER.name))


class Mismatch(Exception):
    """No function of that name takes these kinds."""


def binary(operator: str, left: Any_, right: Any_) -> Any_:
    """The kind of an operation's result."""
    if operator in ("==", "!="):
        if not fits(left, right):
            raise Mismatch
        return BOOL
    if operator == "in":
        return _membership(left, right)
    if operator in ("<", "<=", ">", ">="):
        if left is None or right is None or (left in _NUMBERS and right in _NUMBERS):
            return BOOL
        if left != right or left not in _ORDERED:
            raise Mismatch
        return BOOL
    return _arithmetic(operator, left, right)


def _membership(item: Any_, container: Any_) -> Any_:
    if container is not None and (container.name not in ("list", "map") or not fits(item, container.inner[0])):
        raise Mismatch
    return BOOL


_TIMES = {
    ("+", TIMESTAMP, DURATION): TIMESTAMP,
    ("+", DURATION, TIMESTAMP): TIMESTAMP,
    ("+", DURATION, DURATION): DURATION,
    ("-", TIMESTAMP, TIMESTAMP): DURATION,
    ("-", TIMESTAMP, DURATION): TIMESTAMP,
    ("-", DURATION, DURATION): DURATION,
}


def _arithmetic(operator: str, left: Any_, right: Any_) -> Any_:
    if left is None or right is None:
        return None
    if (operator, left, right) in _TIMES:
        return _TIMES[operator, left, right]
    numbers = (INT,) if operator == "%" else (*_NUMBERS, STRING, BYTES) if operator == "+" else _NUMBERS
    joined = operator == "+" and left.name == right.name == "list"
    if not fits(left, right) or not (left in numbers or joined):
        raise Mismatch
    return left


_ITEM = CelType("<item>")
_TEXTS = list_of(STRING)
_SIZED = (STRING, BYTES, list_of(None), map_of(None, None))
#: By name: the kinds taken, the receiver first, and the kind given. The item stands for whatever is in the list.
Signature = tuple[tuple[Any_, ...], Any_]
METHODS: dict[str, tuple[Signature, ...]] = {
    "size": tuple(((kind,), INT) for kind in _SIZED),
    **dict.fromkeys(("contains", "startsWith", "endsWith", "matches"), (((STRING, STRING), BOOL),)),
    "find": (((STRING, STRING), STRING),),
    "findAll": (((STRING, STRING), _TEXTS), ((STRING, STRING, INT), _TEXTS)),
    "split": (((STRING, STRING), _TEXTS), ((STRING, STRING, INT), _TEXTS)),
    "join": (((_TEXTS,), STRING), ((_TEXTS, STRING), STRING)),
    "replace": (((STRING, STRING, STRING), STRING), ((STRING, STRING, STRING, INT), STRING)),
    "substring": (((STRING, INT), STRING), ((STRING, INT, INT), STRING)),
    "charAt": (((STRING, INT), STRING),),
    **{
        name: (((STRING, STRING), INT), ((STRING, STRING, INT), INT), ((list_of(_ITEM), _ITEM), INT))
        for name in ("indexOf", "lastIndexOf")
    },
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim"), (((STRING,), STRING),)),
    "isSorted": (((list_of(None),), BOOL),),
    **{name: (((list_of(_ITEM),), _ITEM),) for name in ("sum", "min", "max")},
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), (((URL,), STRING),)),
    **dict.fromkeys(("isLessThan", "isGreaterThan"), (((QUANTITY, QUANTITY), BOOL),)),
    "family": (((IP,), INT),),
    "prefixLength": (((CIDR,), INT),),
    "group": (((AUTHORIZER, STRING), GROUP_CHECK),),
    "path": (((AUTHORIZER, STRING), PATH_CHECK),),
    "serviceAccount": (((AUTHORIZER, STRING, STRING), AUTHORIZER),),
    "resource": (((GROUP_CHECK, STRING), RESOURCE_CHECK),),
    **dict.fromkeys(
        ("subresource", "namespace", "name", "fieldSelector", "labelSelector"),
        (((RESOURCE_CHECK, STRING), RESOURCE_CHECK),),
    ),
    "check": (((PATH_CHECK, STRING), DECISION), ((RESOURCE_CHECK, STRING), DECISION)),
    **dict.fromkeys(("allowed", "errored"), (((DECISION,), BOOL),)),
    **dict.fromkeys(("reason", "error"), (((DECISION,), STRING),)),
}
FUNCTIONS: dict[str, tuple[Signature, ...]] = {
    "size": METHODS["size"],
    "matches": METHODS["matches"],
    **dict.fromkeys(("isQuantity", "isURL", "isIP", "isCIDR"), (((STRING,), BOOL),)),
    "quantity": (((STRING,), QUANTITY),),
    "url": (((STRING,), URL),),
    "ip": (((STRING,), IP),),
    "cidr": (((STRING,), CIDR),),
    "int": tuple(((kind,), INT) for kind in (INT, DOUBLE, STRING, TIMESTAMP, DURATION)),
    "double": tuple(((kind,), DOUBLE) for kind in (INT, DOUBLE, STRING)),
    "string": tuple(((kind,), STRING) for kind in (*_ORDERED, QUANTITY, URL, IP, CIDR)),
    "bool": (((BOOL,), BOOL), ((STRING,), BOOL)),
    "duration": (((STRING,), DURATION), ((DURATION,), DURATION)),
    "timestamp": (((STRING,), TIMESTAMP), ((TIMESTAMP,), TIMESTAMP), ((INT,), TIMESTAMP)),
}


def called(signatures: tuple[Signature, ...], given: list[Any_]) -> Any_:
    """The kind a function gives for what it is given."""
    results = []
    for taken, result in signatures:
        if len(taken) != len(given):
            continue
        item = given[0].inner[0] if given and given[0] is not None and given[0].name == "list" else None
        parameters = [_filled(parameter, item) for parameter in taken]
        if all(fits(mine, theirs) for mine, theirs in zip(given, parameters, strict=True)):
            results.append(_filled(result, item))
    if not results:
        raise Mismatch
    return results[0] if all(result == results[0] for result in results) else None


def _filled(kind: Any_, item: Any_) -> Any_:
    if kind == _ITEM:
        return item
    return list_of(item) if kind == list_of(_ITEM) else kind
