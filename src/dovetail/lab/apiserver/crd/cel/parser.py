"""From text to a tree. Nodes are small tuples: (kind, …), most of them with the place they stand at."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from dovetail.lab.apiserver.crd.cel.errors import CelSyntaxError

Node = tuple[Any, ...]
_QUOTED = (
    r"(?:[rR][bB]?|[bB][rR]?)?"
    r"(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
)
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+|//[^\n]*)
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<int>0x[0-9a-fA-F]+u?|\d+u?)
  | (?P<string>{_QUOTED})
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]+`)
  | (?P<op>\|\||&&|<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.X | re.S,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_RELATIONS = ("<", "<=", ">", ">=", "==", "!=", "in")


def unescape(text: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xXuU":
            return chr(int(code[1:], 16))
        if code[0].isdigit():
            return chr(int(code, 8))
        return _ESCAPES.get(code, code)

    return re.sub(
        r"\\([xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", unescaped, text, flags=re.S
    )


def _literal(token: str) -> Any:
    prefix = token[: min(i for i in (token.find("'"), token.find('"')) if i >= 0)].lower()
    body = token[len(prefix) :]
    quote = 3 if body[:3] in ('"""', "'''") else 1
    text = body[quote:-quote]
    if "r" not in prefix:
        text = unescape(text)
    return text.encode() if "b" in prefix else text


class Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.places: list[int] = []
        self.tokens = self._scan(text)
        self.at = 0

    def _scan(self, text: str) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise CelSyntaxError(f"Syntax error: token recognition error at: '{text[position]}'", position)
            if match.lastgroup != "space":
                tokens.append((str(match.lastgroup), match[0]))
                self.places.append(position)
            position = match.end()
        self.places.append(position)
        return [*tokens, ("end", "<EOF>")]

    def parse(self) -> Node:
        node = self.expression()
        if self.tokens[self.at][0] != "end":
            raise self._unexpected()
        return node

    def _unexpected(self, expecting: str = "") -> CelSyntaxError:
        text = f"Syntax error: mismatched input '{self.tokens[self.at][1]}'"
        return CelSyntaxError(f"{text} expecting {expecting}" if expecting else text, self.places[self.at])

    def _is(self, text: str) -> bool:
        kind, value = self.tokens[self.at]
        return value == text and kind in ("op", "ident")

    def _take(self, text: str) -> bool:
        if self._is(text):
            self.at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected()

    def expression(self) -> Node:
        condition = self._or()
        place = self.places[self.at]
        if not self._take("?"):
            return condition
        yes = self._or()
        self._expect(":")
        return ("if", condition, yes, self.expression(), place)

    def _or(self) -> Node:
        node = self._and()
        while self._take("||"):
            node = ("or", node, self._and())
        return node

    def _and(self) -> Node:
        node = self._relation()
        while self._take("&&"):
            node = ("and", node, self._relation())
        return node

    def _relation(self) -> Node:
        node = self._sum()
        while any(self._is(op) for op in _RELATIONS):
            node = ("binary", *self._operator(), node, self._sum())
        return node

    def _sum(self) -> Node:
        node = self._product()
        while self._is("+") or self._is("-"):
            node = ("binary", *self._operator(), node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while self._is("*") or self._is("/") or self._is("%"):
            node = ("binary", *self._operator(), node, self._unary())
        return node

    def _operator(self) -> tuple[str, int]:
        """An operator and its place."""
        self.at += 1
        return self.tokens[self.at - 1][1], self.places[self.at - 1]

    def _unary(self) -> Node:
        place = self.places[self.at]
        if self._take("!"):
            return ("not", self._unary(), place)
        if self._take("-"):
            inner = self._unary()
            if inner[0] == "const" and type(inner[1]) in (int, float):
                return ("const", -inner[1], place)
            return ("negate", inner, place)
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            place = self.places[self.at]
            if self._take("."):
                optional = self._take("?")
                name = self._identifier()
                called = self.places[self.at]
                if self._take("("):
                    node = ("call", name, node, self._arguments(")"), called)
                else:
                    node = ("select?" if optional else "select", node, name, place)
            elif self._take("["):
                optional = self._take("?")
                index = self.expression()
                self._expect("]")
                node = ("index?" if optional else "index", node, index, place)
            elif self._is("{") and (type_name := _dotted(node)):
                self.at += 1
                node = ("message", type_name, self._fields(), place)
            else:
                return node

    def _fields(self) -> list[tuple[str, bool, Node]]:
        """The fields of a message: each its name, whether it is optional, and its value."""
        fields: list[tuple[str, bool, Node]] = []
        while not self._take("}"):
            if fields:
                self._expect(",")
                if self._take("}"):
                    break
            optional = self._take("?")
            name = self._identifier()
            self._expect(":")
            fields.append((name, optional, self.expression()))
        return fields

    def _identifier(self) -> str:
        kind, value = self.tokens[self.at]
        if kind != "ident":
            raise self._unexpected()
        self.at += 1
        return value.strip("`")

    def _arguments(self, end: str) -> list[Node]:
        arguments: list[Node] = []
        while not self._take(end):
            if arguments:
                self._expect(",")
                if self._take(end):
                    break
            arguments.append(("optional", self.expression()) if self._take("?") else self.expression())
        return arguments

    def _primary(self) -> Node:
        kind, value = self.tokens[self.at]
        place = self.places[self.at]
        if kind in ("int", "float", "string"):
            self.at += 1
            if kind == "int":
                return ("const", int(value.rstrip("u"), 16 if value.startswith("0x") else 10), place)
            return ("const", float(value) if kind == "float" else _literal(value), place)
        if self._take("("):
            node = self.expression()
            self._expect(")")
            return node
        if self._take("["):
            return ("list", self._arguments("]"))
        if self._take("{"):
            return self._map()
        self._take(".")
        place = self.places[self.at]
        if self.tokens[self.at][0] != "ident":
            raise self._unexpected(_OPERAND)
        name = self._identifier()
        called = self.places[self.at]
        if name in ("true", "false", "null"):
            return ("const", {"true": True, "false": False, "null": None}[name], place)
        if self._take("("):
            return ("call", name, None, self._arguments(")"), called)
        return ("name", name, place)

    def _map(self) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._take("}"):
            if entries:
                self._expect(",")
                if self._take("}"):
                    break
            self._take("?")
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
        return ("map", entries)


def _dotted(node: Node) -> str:
    """The name that a chain of selections spells; "" if it is more than that."""
    if node[0] == "name":
        return str(node[1])
    if node[0] == "select" and (head := _dotted(node[1])):
        return f"{head}.{node[2]}"
    return ""


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    return Parser(text).parse()


def place_of(node: Node) -> int:
    """Where a node stands: a call at its bracket, a selection at its dot, an operator at itself."""
    if node[0] == "binary":
        return int(node[2])
    if node[0] in ("and", "or"):
        return place_of(node[1])
    return node[-1] if isinstance(node[-1], int) else 0
