"""YAML with places: every value of a document knows where it stands in the text.

It reads whatever YAML is, as Kubernetes would: timestamps are words, merge keys merge, a key given twice is
noticed. It never raises; what cannot be read is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.model.kinds.admission import Path
from dovetail.model.lint.findings import LintFinding

_DEPTH = 60
#: YAML's own kinds of values.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "binary", "value", "merge", "set")
)
_NODES = 200_000


class Span(msgspec.Struct, frozen=True):
    line: int
    column: int
    start: int
    end: int


class Document(msgspec.Struct):
    """One document of a file: its value, and where keys and values stand."""

    file: str
    value: Any
    keys: dict[Path, Span]
    values: dict[Path, Span]
    text: str

    def place(self, path: Path, *, key: bool = False) -> Span:
        """Where a field stands, or the nearest thing around it."""
        while True:
            for table in (self.keys, self.values) if key else (self.values, self.keys):
                if path in table:
                    return table[path]
            if not path:
                return Span(1, 1, 0, 0)
            path, key = path[:-1], True


class SourceFile(msgspec.Struct, frozen=True):
    """A file: its name as it will be shown, and its text."""

    name: str
    text: str


class _Loader(yaml.SafeLoader):
    """Times stay words, as in Kubernetes."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(source: SourceFile) -> tuple[list[Document], list[LintFinding]]:
    """The documents of a file up to the first that cannot be read, and what was wrong on the way."""
    documents: list[Document] = []
    findings: list[LintFinding] = []
    text = source.text.removeprefix("\ufeff")
    try:
        for node in _nodes(text):
            reader = _Reader(source.name, text)
            value = reader.value(node, (), frozenset())
            documents.append(Document(source.name, value, reader.keys, reader.values, text))
            findings.extend(reader.findings)
            if value is not None and not isinstance(value, dict):
                findings.append(_no_manifest(source.name, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        text = error.problem or error.context or ""
        findings.append(LintFinding(code="DV001", message=_not_yaml(text), file=source.name, line=line, column=column))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        findings.append(LintFinding(code="DV001", message=_not_yaml(text), file=source.name, line=1, column=1))
    return documents, findings


def _not_yaml(problem: str) -> str:
    return message("not YAML: {problem}", problem=recognized(problem) or message("cannot be read"))


def _no_manifest(file: str, node: yaml.Node) -> LintFinding:
    kind = message("a list") if isinstance(node, yaml.SequenceNode) else message("a single value")
    return LintFinding(
        code="DV004",
        message=message("not a manifest: {kind} where an object with apiVersion and kind is expected", kind=kind),
        file=file,
        line=node.start_mark.line + 1,
        column=node.start_mark.column + 1,
        hint=message("divide objects by a line of ---"),
    )


def _nodes(text: str) -> Iterator[yaml.Node]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    finally:
        loader.dispose()


class _Reader:
    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.keys: dict[Path, Span] = {}
        self.values: dict[Path, Span] = {}
        self.findings: list[LintFinding] = []
        self._constructor = yaml.constructor.SafeConstructor()
        self._left = _NODES

    def value(self, node: yaml.Node, path: Path, above: frozenset[int]) -> Any:
        """The plain value of a node. An alias to something around itself is cut."""
        self._left -= 1
        if id(node) in above or len(path) > _DEPTH or self._left < 0:
            return None
        self.values.setdefault(path, _span(node))
        if node.tag not in _TAGS:
            self._tagged(node)
        above = above | {id(node)}
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(member, (*path, index), above) for index, member in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: frozenset[int]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        members: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                for base in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    inner = self.value(base, path, above) if isinstance(base, yaml.MappingNode) else None
                    merged = {**(inner if isinstance(inner, dict) else {}), **merged}
                continue
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node.tag)
            if key in members:
                self._twice(key, key_node, (*path, key))
                self._forget((*path, key))
            self.keys[(*path, key)] = _span(key_node)
            members[key] = self.value(value_node, (*path, key), above)
        return {**merged, **members}

    def _forget(self, path: Path) -> None:
        for table in (self.keys, self.values):
            for path_ in [path_ for path_ in table if path_[: len(path)] == path]:
                del table[path_]

    def _twice(self, key: str, node: yaml.Node, path: Path) -> None:
        first = self.keys[path].line
        span = _span(node)
        self.findings.append(
            LintFinding(
                code="DV002",
                message=message('"{key}" is given twice; the first is on line {first}', key=key, first=first),
                file=self.file,
                line=span.line,
                column=span.column,
                hint=message("keep one of them"),
            )
        )

    def _tagged(self, node: yaml.Node) -> None:
        span = _span(node)
        self.findings.append(
            LintFinding(
                code="DV004",
                message=message("not a manifest: the tag {tag} means nothing in Kubernetes", tag=node.tag),
                file=self.file,
                line=span.line,
                column=span.column,
                hint=message("write the value without a tag"),
            )
        )

    def _scalar(self, node: yaml.Node) -> Any:
        tag = node.tag.rpartition(":")[2]
        if tag not in ("int", "float", "bool", "null"):
            return node.value
        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError, KeyError, IndexError):
            return node.value  # !!int "x": a word after all


def _span(node: yaml.Node) -> Span:
    mark = node.start_mark
    return Span(mark.line + 1, mark.column + 1, mark.index, node.end_mark.index)
