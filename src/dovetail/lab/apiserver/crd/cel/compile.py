"""From a tree to a closure: every node becomes a function of the variables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from dovetail.lab.apiserver.crd.cel import functions
from dovetail.lab.apiserver.crd.cel.cost import EXCEEDED, METER, PER_CALL_LIMIT, CostLimitExceeded
from dovetail.lab.apiserver.crd.cel.errors import CelError, CelSyntaxError, no_key, no_overload
from dovetail.lab.apiserver.crd.cel.field_names import field_name
from dovetail.lab.apiserver.crd.cel.macros import MACROS
from dovetail.lab.apiserver.crd.cel.parser import Node, parse
from dovetail.lab.apiserver.crd.cel.values import NONE, Fields, Message, Optional, ordered, same

Env = Mapping[str, Any]
Code = Callable[[Env], Any]
_INT64 = 2**63


class Program:
    """A compiled expression. `names` are the variables it reads."""

    __slots__ = ("code", "names", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.names: set[str] = set()
        self.code = Compiler(self.names).code(parse(source))

    def __call__(self, env: Env) -> Any:
        """The value. A variable that is an expression of its own has a limit of its own."""
        before, METER.left = METER.left, PER_CALL_LIMIT
        try:
            return self.code(env)
        except CostLimitExceeded:
            raise CelError(EXCEEDED) from None
        finally:
            METER.left = before


@lru_cache(maxsize=4096)
def compile_expression(source: str) -> Program:
    return Program(source)


class Compiler:
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def code(self, node: Node) -> Code:
        kind = node[0]
        method: Callable[..., Code] = getattr(self, "_" + kind.replace("?", "_optional"))
        return method(*node[1:])

    def _const(self, value: Any, place: int = 0) -> Code:
        return lambda env: value

    def _name(self, name: str, place: int = 0) -> Code:
        if name in functions.TYPES:
            kind = functions.TYPES[name]
            return lambda env: env.get(name, kind)
        self.names.add(name)

        def read(env: Env) -> Any:
            try:
                return env[name]
            except KeyError:
                raise CelError(f"undeclared reference to '{name}' (in container '')") from None

        return read

    def _select(self, target: Node, name: str, place: int = 0) -> Code:
        code, field = self.code(target), field_name(name)

        def select(env: Env) -> Any:
            value = code(env)
            if type(value) is dict:
                try:
                    return value[field]
                except KeyError:
                    raise no_key(field) from None
            if isinstance(value, Optional):
                return _through(value, field)
            if isinstance(value, Fields):
                return value.field(field)
            raise no_overload()

        return select

    def _select_optional(self, target: Node, name: str, place: int = 0) -> Code:
        code, field = self.code(target), field_name(name)
        return lambda env: _through(_lift(code(env)), field)

    def _index(self, target: Node, index: Node, place: int = 0) -> Code:
        code, index_code = self.code(target), self.code(index)

        def get(env: Env) -> Any:
            value, key = code(env), index_code(env)
            if isinstance(value, Optional):
                return _through(value, key)
            if isinstance(value, dict):
                if key in value:
                    return value[key]
                raise no_key(key)
            if isinstance(value, list) and isinstance(key, int | float) and not isinstance(key, bool):
                if 0 <= key < len(value):
                    return value[int(key)]
                raise CelError(f"index out of bounds: {key}")
            raise no_overload()

        return get

    def _index_optional(self, target: Node, index: Node, place: int = 0) -> Code:
        code, index_code = self.code(target), self.code(index)
        return lambda env: _through(_lift(code(env)), index_code(env))

    def _list(self, items: list[Node]) -> Code:
        if all(item[0] == "const" for item in items):
            constant = [item[1] for item in items]
            return lambda env: constant
        codes = [(item[0] == "optional", self.code(item[1] if item[0] == "optional" else item)) for item in items]

        def build(env: Env) -> list[Any]:
            out = []
            for optional, code in codes:
                value = code(env)
                if not optional:
                    out.append(value)
                elif value.present:
                    out.append(value.value)
            return out

        return build

    def _map(self, entries: list[tuple[Node, Node]]) -> Code:
        codes = [(self.code(key), self.code(value)) for key, value in entries]
        return lambda env: {key(env): value(env) for key, value in codes}

    def _message(self, type_name: str, fields: list[tuple[str, bool, Node]], place: int = 0) -> Code:
        codes = [(field_name(name), optional, self.code(value)) for name, optional, value in fields]

        def build(env: Env) -> Message:
            made: dict[str, Any] = {}
            for name, optional, code in codes:
                value = code(env)
                if not optional:
                    made[name] = value
                elif value.present:
                    made[name] = value.value
            return Message(type_name, made)

        return build

    def _not(self, inner: Node, place: int = 0) -> Code:
        code = self.code(inner)

        def negate(env: Env) -> bool:
            value = code(env)
            if value is True:
                return False
            if value is False:
                return True
            raise no_overload()

        return negate

    def _negate(self, inner: Node, place: int = 0) -> Code:
        code = self.code(inner)
        return lambda env: -code(env)

    def _if(self, condition: Node, yes: Node, no: Node, place: int = 0) -> Code:
        test, then, other = self.code(condition), self.code(yes), self.code(no)

        def choose(env: Env) -> Any:
            value = test(env)
            if value is True:
                return then(env)
            if value is False:
                return other(env)
            raise no_overload()

        return choose

    def _and(self, left: Node, right: Node) -> Code:
        return self._logic(left, right, False)

    def _or(self, left: Node, right: Node) -> Code:
        return self._logic(left, right, True)

    def _logic(self, left: Node, right: Node, decides: bool) -> Code:
        """One side that decides is enough, even if the other fails."""
        first, second = self.code(left), self.code(right)

        def logic(env: Env) -> bool:
            try:
                value = first(env)
            except CelError:
                if second(env) is decides:
                    return bool(decides)
                raise
            if value is decides:
                return bool(decides)
            if value is not (not decides):
                raise no_overload()
            value = second(env)
            if value is True or value is False:
                return bool(value)
            raise no_overload()

        return logic

    def _binary(self, operation: str, place: int, left: Node, right: Node) -> Code:
        first, second = self.code(left), self.code(right)
        if operation == "==":
            return lambda env: same(first(env), second(env))
        if operation == "!=":
            return lambda env: not same(first(env), second(env))
        if operation == "in":
            return lambda env: _within(first(env), second(env))
        if operation in _COMPARE:
            compare = _COMPARE[operation]

            def relation(env: Env) -> bool:
                a, b = first(env), second(env)
                if not ordered(a, b):
                    raise no_overload()
                return bool(compare(a, b))

            return relation
        arithmetic = _ARITHMETIC[operation]
        return lambda env: arithmetic(first(env), second(env))

    def _optional(self, inner: Node) -> Code:
        return self.code(inner)

    def _call(self, name: str, target: Node | None, arguments: list[Node], place: int = 0) -> Code:
        macro = MACROS.get(name)
        if macro is not None:
            made = macro(self, target, arguments)
            if made is not None:
                return made
        if target is not None and target[0] == "name":
            qualified = f"{target[1]}.{name}"
            if qualified in functions.GLOBALS:
                return self._apply(functions.GLOBALS[qualified], arguments)
        if target is None:
            if name not in functions.GLOBALS:
                raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", place)
            return self._apply(functions.GLOBALS[name], arguments)
        if name not in functions.METHODS:
            raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", place)
        return self._apply(functions.METHODS[name], [target, *arguments])

    def _apply(self, function: Callable[..., Any], arguments: list[Node]) -> Code:
        codes = [self.code(argument) for argument in arguments]

        def call(env: Env) -> Any:
            values = [code(env) for code in codes]
            try:
                return function(*values)
            except (TypeError, AttributeError, ValueError) as error:
                raise no_overload() from error

        return call


def _lift(value: Any) -> Optional:
    return value if isinstance(value, Optional) else Optional(value)


def _through(value: Optional, key: Any) -> Optional:
    inner = value.value
    if not value.present:
        return NONE
    if isinstance(inner, dict):
        return Optional(inner[key]) if key in inner else NONE
    if isinstance(inner, Fields):
        return Optional(inner.field(key)) if inner.has(key) else NONE
    if isinstance(inner, list):
        return Optional(inner[key]) if 0 <= key < len(inner) else NONE
    raise no_overload()


def _within(item: Any, container: Any) -> bool:
    if isinstance(container, dict):
        return item in container
    if isinstance(container, list):
        if type(item) is str:
            return item in container
        return any(same(member, item) for member in container)
    raise no_overload()


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _checked(value: Any) -> Any:
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise CelError("integer overflow")
    return value


def _add(a: Any, b: Any) -> Any:
    both = (str, bytes, list)
    if type(a) is type(b) and (isinstance(a, both) or _number(a) or isinstance(a, timedelta)):
        return _checked(a + b)
    if isinstance(a, datetime | timedelta) and isinstance(b, datetime | timedelta):
        return a + b if isinstance(a, datetime) else b + a  # type: ignore[operator]
    raise no_overload()


def _subtract(a: Any, b: Any) -> Any:
    if (type(a) is type(b) and (_number(a) or isinstance(a, datetime | timedelta))) or isinstance(a, datetime):
        return _checked(a - b)
    raise no_overload()


def _multiply(a: Any, b: Any) -> Any:
    if type(a) is type(b) and _number(a):
        return _checked(a * b)
    raise no_overload()


def _divide(a: Any, b: Any) -> Any:
    if type(a) is not type(b) or not _number(a):
        raise no_overload()
    if isinstance(a, float):
        return a / b if b else float("inf") if a > 0 else float("-inf")
    if b == 0:
        raise CelError("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: Any, b: Any) -> Any:
    if type(a) is not int or type(b) is not int:
        raise no_overload()
    if b == 0:
        raise CelError("modulus by zero")
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC = {"+": _add, "-": _subtract, "*": _multiply, "/": _divide, "%": _remainder}
