"""Macros: what looks like a call and binds variables instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from dovetail.lab.apiserver.crd.cel.cost import METER, element_cost
from dovetail.lab.apiserver.crd.cel.errors import CelError, CelSyntaxError, no_overload
from dovetail.lab.apiserver.crd.cel.field_names import field_name
from dovetail.lab.apiserver.crd.cel.parser import Node, place_of
from dovetail.lab.apiserver.crd.cel.values import NONE, Fields, Optional

#: What a loop costs for each element beside its body, measured with the real evaluator.
_OVERHEAD = {"all": 3, "exists": 4, "exists_one": 0, "filter": 13, "map": 12}
Env = Mapping[str, Any]
Code = Callable[[Env], Any]


class MacroCompiler(Protocol):
    """What turns the parts of a macro into code."""

    names: set[str]

    def code(self, node: Node) -> Code: ...


Macro = Callable[[MacroCompiler, Node | None, list[Node]], Code | None]


def _variable(node: Node) -> str:
    if node[0] != "name":
        raise CelSyntaxError("argument must be a simple name")
    return str(node[1])


def _elements(value: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of (key or index, value)."""
    if isinstance(value, dict):
        return iter(value.items())
    if isinstance(value, list):
        return iter(enumerate(value))
    raise no_overload()


class _Loop:
    """A comprehension: the range, its variables, and the environments they make."""

    def __init__(self, compiler: MacroCompiler, target: Node, names: list[Node], *bodies: Node, overhead: int) -> None:
        self.range = compiler.code(target)
        self._cost = element_cost(bodies, overhead)
        self.names = [_variable(name) for name in names]
        bound_names = set(compiler.names)
        self.bodies = [compiler.code(body) for body in bodies]
        for name in self.names:
            if name not in bound_names:
                compiler.names.discard(name)

    def environments(self, env: Env) -> Iterator[tuple[Any, dict[str, Any]]]:
        value, cost, spend = self.range(env), self._cost, METER.spend
        scope = dict(env)
        if len(self.names) == 2:
            first, second = self.names
            for key, item in _elements(value):
                spend(cost)
                scope[first], scope[second] = key, item
                yield item, scope
            return
        name = self.names[0]
        if not isinstance(value, list | dict):
            raise no_overload()
        for item in value:
            spend(cost)
            scope[name] = item
            yield item, scope


def _quantifier(decides: bool) -> Macro:
    """all (one false decides) and exists (one true decides)."""
    overhead = _OVERHEAD["exists" if decides else "all"]

    def build(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
        if target is None or len(arguments) not in (2, 3):
            return None
        loop = _Loop(compiler, target, arguments[:-1], arguments[-1], overhead=overhead)
        body = loop.bodies[0]

        def run(env: Env) -> bool:
            failure: CelError | None = None
            for _, scope in loop.environments(env):
                try:
                    value = body(scope)
                except CelError as error:
                    failure = failure or error
                    continue
                if value is decides:
                    return bool(decides)
            if failure is not None:
                raise failure
            return not decides

        return run

    return build


def _exists_one(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
    if target is None or len(arguments) not in (2, 3):
        return None
    loop = _Loop(compiler, target, arguments[:-1], arguments[-1], overhead=_OVERHEAD["exists_one"])
    body = loop.bodies[0]
    return lambda env: sum(body(scope) is True for _, scope in loop.environments(env)) == 1


def _filter(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
    if target is None or len(arguments) != 2:
        return None
    loop = _Loop(compiler, target, arguments[:1], arguments[1], overhead=_OVERHEAD["filter"])
    body = loop.bodies[0]
    return lambda env: [item for item, scope in loop.environments(env) if body(scope) is True]


def _map(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
    if target is None or len(arguments) not in (2, 3):
        return None
    loop = _Loop(compiler, target, arguments[:1], *arguments[1:], overhead=_OVERHEAD["map"])
    body = loop.bodies[-1]
    if len(arguments) == 2:
        return lambda env: [body(scope) for _, scope in loop.environments(env)]
    test = loop.bodies[0]
    return lambda env: [body(scope) for _, scope in loop.environments(env) if test(scope) is True]


def _has(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
    if target is not None:
        return None
    if len(arguments) != 1 or arguments[0][0] != "select":
        raise CelSyntaxError("invalid argument to has() macro", place_of(arguments[0]) if arguments else 0)
    _, inner, name, _ = arguments[0]
    code, field = compiler.code(inner), field_name(name)

    def has(env: Env) -> bool:
        value = code(env)
        if isinstance(value, dict):
            return field in value
        if isinstance(value, Optional):
            return value.present and field in value.value
        if isinstance(value, Fields):
            return value.has(field)
        raise no_overload()

    return has


def _bind(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
    if target is None or target[:2] != ("name", "cel") or len(arguments) != 3:
        return None
    name, value = _variable(arguments[0]), compiler.code(arguments[1])
    was_bound = name in compiler.names
    body = compiler.code(arguments[2])
    if not was_bound:
        compiler.names.discard(name)
    return lambda env: body({**env, name: value(env)})


def _opt_map(flat: bool) -> Macro:
    def build(compiler: MacroCompiler, target: Node | None, arguments: list[Node]) -> Code | None:
        if target is None or len(arguments) != 2:
            return None
        code, name = compiler.code(target), _variable(arguments[0])
        body = compiler.code(arguments[1])
        compiler.names.discard(name)

        def run(env: Env) -> Any:
            value = code(env)
            if not value.present:
                return NONE
            result = body({**env, name: value.value})
            return result if flat else Optional(result)

        return run

    return build


MACROS: dict[str, Macro] = {
    "has": _has,
    "all": _quantifier(False),
    "exists": _quantifier(True),
    "exists_one": _exists_one,
    "existsOne": _exists_one,
    "filter": _filter,
    "map": _map,
    "bind": _bind,
    "optMap": _opt_map(flat=False),
    "optFlatMap": _opt_map(flat=True),
}
