"""Go's text templates, as far as a Helm chart uses them: parsing and evaluation.

`dovetail install` renders the chart's own templates with this, so that the chart stays the only source of the
installed objects and no `helm` is needed. What a template may call is handed in (`dovetail.install.sprig`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

Functions = Mapping[str, Callable[..., Any]]


class TemplateError(ValueError):
    """What is wrong, with the template and the line."""


# -- syntax tree


class Text(msgspec.Struct, frozen=True):
    text: str


class Literal(msgspec.Struct, frozen=True):
    value: Any


class Chain(msgspec.Struct, frozen=True):
    """A value and the fields read from it: `.a.b`, `$x.a`, `(f x).a`."""

    base: Any  # None for the dot, a variable's name, or a Pipeline
    fields: tuple[str, ...]


class Name(msgspec.Struct, frozen=True):
    """A function."""

    name: str


class Pipeline(msgspec.Struct, frozen=True):
    commands: tuple[tuple[Any, ...], ...]
    variable: str = ""
    declares: bool = False


class Output(msgspec.Struct, frozen=True):
    pipeline: Pipeline
    line: int


class Branch(msgspec.Struct, frozen=True):
    """`if` and `with`."""

    kind: str
    condition: Pipeline
    body: tuple[Any, ...]
    otherwise: tuple[Any, ...]
    line: int


class Loop(msgspec.Struct, frozen=True):
    variables: tuple[str, ...]
    over: Pipeline
    body: tuple[Any, ...]
    otherwise: tuple[Any, ...]
    line: int


# -- reading

_ACTION = re.compile(
    r"""\{\{(-(?=\s))?\s*(/\*.*?\*/|(?:`[^`]*`|"(?:\\.|[^"\\])*"|[^`"}]|\}(?!\}))*?)\s*((?<=\s)-)?\}\}""", re.DOTALL
)
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\.|[^"\\])*")|(?P<raw>`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)|(?P<declare>:=)|(?P<assign>=)
    |(?P<pipe>\|)|(?P<open>\()|(?P<close>\)(?P<after>(?:\.[A-Za-z_]\w*)*))|(?P<comma>,)
    |(?P<variable>\$\w*(?:\.[A-Za-z_]\w*)*)|(?P<field>\.(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?)|(?P<name>[A-Za-z_]\w*))""",
    re.VERBOSE,
)


class _Action(msgspec.Struct, frozen=True):
    text: str
    line: int


def _pieces(source: str) -> Iterator[Text | _Action]:
    """Text and actions, with the blanks removed that `{{-` and `-}}` remove."""
    position, trim = 0, False
    for action in _ACTION.finditer(source):
        text = source[position : action.start()]
        if trim:
            text = text.lstrip(" \t\r\n")
        if action[1]:
            text = text.rstrip(" \t\r\n")
        if text:
            yield Text(text)
        if not action[2].startswith("/*"):
            yield _Action(action[2].strip(), source.count("\n", 0, action.start()) + 1)
        position, trim = action.end(), bool(action[3])
    rest = source[position:]
    yield Text(rest.lstrip(" \t\r\n") if trim else rest)


class _Parser:
    def __init__(self, name: str, source: str) -> None:
        self._name = name
        self._pieces = list(_pieces(source))
        self._at = 0
        self.definitions: dict[str, tuple[Any, ...]] = {}

    def parse(self) -> tuple[Any, ...]:
        body, end = self._body()
        if end:
            raise TemplateError(f"{self._name}: unexpected {{{{ {end} }}}}")
        return body

    def _body(self) -> tuple[tuple[Any, ...], str]:
        """Nodes up to `end` or `else`, and which of them it was."""
        nodes: list[Any] = []
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if isinstance(piece, Text):
                nodes.append(piece)
                continue
            word, _, rest = piece.text.partition(" ")
            if word in ("end", "else"):
                return tuple(nodes), piece.text
            if word == "define":
                body, end = self._body()
                self._must_end(end, piece)
                self.definitions[rest.strip().strip('"')] = body
            elif word in ("if", "with"):
                nodes.append(self._branch(word, rest, piece.line))
            elif word == "range":
                nodes.append(self._loop(rest, piece))
            else:
                nodes.append(Output(self._pipeline(piece.text, piece.line), piece.line))
        return tuple(nodes), ""

    def _must_end(self, end: str, piece: _Action) -> None:
        if end != "end":
            raise TemplateError(f"{self._name}:{piece.line}: {{{{ {piece.text} }}}} has no end")

    def _branch(self, kind: str, condition: str, line: int) -> Branch:
        read = self._pipeline(condition, line)
        body, end = self._body()
        otherwise: tuple[Any, ...] = ()
        if end.startswith("else if "):
            otherwise = (self._branch("if", end.removeprefix("else if "), line),)
        elif end == "else":
            otherwise, end = self._body()
        if not end:
            raise TemplateError(f"{self._name}:{line}: {{{{ {kind} {condition} }}}} has no end")
        return Branch(kind, read, body, otherwise, line)

    def _loop(self, rest: str, piece: _Action) -> Loop:
        variables: tuple[str, ...] = ()
        head = re.match(r"\s*(\$\w+)(?:\s*,\s*(\$\w+))?\s*:=", rest)
        if head:
            variables = tuple(name for name in head.groups() if name)
            rest = rest[head.end() :]
        over = self._pipeline(rest, piece.line)
        body, end = self._body()
        otherwise: tuple[Any, ...] = ()
        if end == "else":
            otherwise, end = self._body()
        self._must_end(end, piece)
        return Loop(variables, over, body, otherwise, piece.line)

    # -- pipelines

    def _pipeline(self, text: str, line: int) -> Pipeline:
        tokens: list[tuple[str, str]] = []
        position = 0
        text = text.strip()
        while position < len(text):
            token = _TOKEN.match(text, position)
            if not token or token.lastgroup is None:
                raise TemplateError(f"{self._name}:{line}: cannot read {text[position:]!r}")
            kind = "close" if token["close"] else token.lastgroup
            value = token["after"] if token["close"] else token[kind]
            tokens.append((kind, value or ""))
            position = token.end()
        pipeline, left = self._commands(tokens, 0, line)
        if left != len(tokens):
            raise TemplateError(f"{self._name}:{line}: cannot read {text!r}")
        return pipeline

    def _commands(self, tokens: Sequence[tuple[str, str]], position: int, line: int) -> tuple[Pipeline, int]:
        variable, declares = "", False
        if (
            position + 1 < len(tokens)
            and tokens[position][0] == "variable"
            and tokens[position + 1][0] in ("declare", "assign")
        ):
            variable, declares = tokens[position][1], tokens[position + 1][0] == "declare"
            position += 2
        commands: list[tuple[Any, ...]] = []
        command: list[Any] = []
        while position < len(tokens) and tokens[position][0] != "close":
            kind, value = tokens[position]
            position += 1
            if kind == "pipe":
                commands.append(tuple(command))
                command = []
            elif kind == "open":
                inner, position = self._commands(tokens, position, line)
                if position >= len(tokens):
                    raise TemplateError(f"{self._name}:{line}: a parenthesis is not closed")
                command.append(Chain(inner, _fields(tokens[position][1])))
                position += 1
            else:
                command.append(_operand(kind, value))
        commands.append(tuple(command))
        return Pipeline(tuple(commands), variable, declares), position


def _fields(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _operand(kind: str, value: str) -> Any:
    if kind == "string":
        return Literal(msgspec.json.decode(value))
    if kind == "raw":
        return Literal(value[1:-1])
    if kind == "number":
        return Literal(float(value) if "." in value else int(value))
    if kind == "field":
        return Chain(None, _fields(value))
    if kind == "variable":
        head, _, rest = value.partition(".")
        return Chain(head, _fields(rest))
    constants = {"true": True, "false": False, "nil": None}
    return Literal(constants[value]) if value in constants else Name(value)


def parse(name: str, source: str) -> tuple[tuple[Any, ...], dict[str, tuple[Any, ...]]]:
    """A template's nodes, and the templates it defines."""
    parser = _Parser(name, source)
    return parser.parse(), parser.definitions


# -- evaluating


class _Scope:
    """Variables of one block; a block inside sees and assigns those around it."""

    def __init__(self, around: _Scope | None = None) -> None:
        self._around = around
        self._values: dict[str, Any] = {}

    def declare(self, name: str, value: Any) -> None:
        self._values[name] = value

    def holder(self, name: str) -> dict[str, Any]:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values
            scope = scope._around
        raise TemplateError(f"undefined variable {name}")


def truth(value: Any) -> bool:
    """As templates see it: nil, false, zero and what is empty are false."""
    return bool(value) if value is None or isinstance(value, bool | int | float | str | list | dict | tuple) else True


class Templates:
    """Parsed templates that may include each other."""

    def __init__(self, functions: Functions) -> None:
        self._functions: dict[str, Callable[..., Any]] = {
            **functions,
            "include": self.include,
            "tpl": self._render_text,
        }
        self._named: dict[str, tuple[Any, ...]] = {}
        self._bodies: dict[str, tuple[Any, ...]] = {}

    def add(self, name: str, source: str) -> None:
        body, definitions = parse(name, source)
        self._bodies[name] = body
        self._named.update(definitions)

    def render(self, name: str, data: Any) -> str:
        """The text of an added template."""
        try:
            return self._run(self._bodies[name], data)
        except TemplateError as problem:
            raise TemplateError(f"{name}: {problem}") from problem

    def include(self, name: str, data: Any) -> str:
        if name not in self._named:
            raise TemplateError(f"no template {name!r}")
        return self._run(self._named[name], data)

    def _render_text(self, text: str, data: Any) -> str:
        body, definitions = parse("tpl", text)
        self._named.update(definitions)
        return self._run(body, data)

    def _run(self, body: tuple[Any, ...], data: Any) -> str:
        scope = _Scope()
        scope.declare("$", data)
        out: list[str] = []
        self._nodes(body, data, scope, out)
        return "".join(out)

    def _nodes(self, nodes: tuple[Any, ...], dot: Any, scope: _Scope, out: list[str]) -> None:
        for node in nodes:
            if isinstance(node, Text):
                out.append(node.text)
                continue
            try:
                self._node(node, dot, scope, out)
            except TemplateError:
                raise
            except (TypeError, ValueError, AttributeError, KeyError) as problem:
                raise TemplateError(f"line {node.line}: {problem}") from problem

    def _node(self, node: Any, dot: Any, scope: _Scope, out: list[str]) -> None:
        if isinstance(node, Output):
            value = self._value(node.pipeline, dot, scope)
            if not node.pipeline.variable:
                out.append(text_of(value))
        elif isinstance(node, Branch):
            value = self._value(node.condition, dot, scope)
            inner = _Scope(scope)
            if truth(value):
                self._nodes(node.body, value if node.kind == "with" else dot, inner, out)
            else:
                self._nodes(node.otherwise, dot, inner, out)
        elif isinstance(node, Loop):
            self._loop(node, dot, scope, out)

    def _loop(self, node: Loop, dot: Any, scope: _Scope, out: list[str]) -> None:
        over = self._value(node.over, dot, scope)
        pairs = sorted(over.items()) if isinstance(over, Mapping) else list(enumerate(over or ()))
        if not pairs:
            self._nodes(node.otherwise, dot, _Scope(scope), out)
        for key, value in pairs:
            inner = _Scope(scope)
            if len(node.variables) == 2:
                inner.declare(node.variables[0], key)
            if node.variables:
                inner.declare(node.variables[-1], value)
            self._nodes(node.body, value, inner, out)

    def _value(self, pipeline: Pipeline, dot: Any, scope: _Scope) -> Any:
        value: Any = None
        for index, command in enumerate(pipeline.commands):
            value = self._command(command, dot, scope, [value] if index else [])
        if pipeline.variable:
            holder = scope._values if pipeline.declares else scope.holder(pipeline.variable)
            holder[pipeline.variable] = value
        return value

    def _command(self, command: tuple[Any, ...], dot: Any, scope: _Scope, piped: list[Any]) -> Any:
        head, *rest = command
        if isinstance(head, Name):
            if head.name in ("and", "or"):
                return self._connective(head.name, rest, dot, scope, piped)
            if head.name not in self._functions:
                raise TemplateError(f"no function {head.name!r}")
            arguments = [self._operand(part, dot, scope) for part in rest]
            return self._functions[head.name](*arguments, *piped)
        value = self._operand(head, dot, scope)
        if rest or piped or callable(value):
            return value(*[self._operand(part, dot, scope) for part in rest], *piped)
        return value

    def _connective(self, name: str, rest: list[Any], dot: Any, scope: _Scope, piped: list[Any]) -> Any:
        value: Any = None
        for part in rest:
            value = self._operand(part, dot, scope)
            if truth(value) == (name == "or"):
                return value
        return piped[0] if piped else value

    def _operand(self, part: Any, dot: Any, scope: _Scope) -> Any:
        if isinstance(part, Literal):
            return part.value
        if isinstance(part, Name):
            return self._command((part,), dot, scope, [])
        assert isinstance(part, Chain)
        if part.base is None:
            value = dot
        elif isinstance(part.base, str):
            value = scope.holder(part.base)[part.base]
        else:
            value = self._value(part.base, dot, scope)
        for field in part.fields:
            value = _field(value, field)
        return value


def _field(value: Any, field: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(field)
    if value is None or isinstance(value, bool | int | float | str | list):
        raise TemplateError(f"no field {field!r} in {value!r}")
    return getattr(value, field)


def text_of(value: Any) -> str:
    """As Go prints a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if value != int(value) or abs(value) >= 1e6 else str(int(value))
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{text_of(item)}" for key, item in sorted(value.items())) + "]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(text_of(item) for item in value) + "]"
    return str(value)
