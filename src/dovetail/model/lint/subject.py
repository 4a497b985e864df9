"""An object under the eye of lint: where it stands, what it is in v1, and how a finding about it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dovetail.model.kinds import EC2NodeClass, NodeOverlay, NodePool
from dovetail.model.kinds.admission import Path, render
from dovetail.model.kinds.common import Term
from dovetail.model.kinds.convert import to_v1
from dovetail.model.lint.findings import Edit, LintFinding
from dovetail.model.lint.source import Document, Span
from dovetail.model.meta import view

T = TypeVar("T")

#: Where each kind keeps its requirements.
REQUIREMENTS: Mapping[str, Path] = {
    "NodePool": ("spec", "template", "spec", "requirements"),
    "NodeClaim": ("spec", "requirements"),
    "NodeOverlay": ("spec", "requirements"),
    "Provisioner": ("spec", "requirements"),
    "Machine": ("spec", "requirements"),
}


class LintSubject(msgspec.Struct):
    """One of our objects in a document. `at` is its place there: not the top if it is an item of a List."""

    document: Document
    obj: dict[str, Any]
    at: Path = ()

    @property
    def kind(self) -> str:
        return str(self.obj.get("kind"))

    @property
    def version(self) -> str:
        return str(self.obj.get("apiVersion"))

    @property
    def name(self) -> str:
        metadata = self.obj.get("metadata")
        name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
        return str(name) if name is not None else ""

    @property
    def title(self) -> str:
        return f'{self.kind} "{self.name}"'

    @property
    def terms_at(self) -> Path:
        return REQUIREMENTS.get(self.kind, ())

    @property
    def terms(self) -> list[tuple[int, Term]]:
        """The requirements as written, those that can be read, with their place in the list."""
        entries = self.get(*self.terms_at)
        read = []
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            term = readable(entry, Term)
            if term is not None and term.key:
                read.append((index, term))
        return read

    def pool(self) -> NodePool | None:
        """What the object means as a pool, if it can be read as one."""
        return readable(to_v1(self.obj), NodePool) if self.kind in ("NodePool", "Provisioner") else None

    def node_class(self) -> EC2NodeClass | None:
        if self.kind not in ("EC2NodeClass", "AWSNodeTemplate"):
            return None
        return readable(to_v1(self.obj), EC2NodeClass)

    def overlay(self) -> NodeOverlay | None:
        return readable(self.obj, NodeOverlay) if self.kind == "NodeOverlay" else None

    def get(self, *path: str | int) -> Any:
        value_: Any = self.obj
        for part in path:
            try:
                value_ = value_[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value_

    def place(self, path: Path, *, key: bool = False) -> Span:
        return self.document.place((*self.at, *path), key=key)

    def finding(
        self, code: str, path: Path, message: str, *, hint: str = "", edit: Edit | None = None, key: bool = False
    ) -> LintFinding:
        span = self.place(path, key=key)
        return LintFinding(
            code=code,
            message=message,
            file=self.document.file,
            line=span.line,
            column=span.column,
            subject=self.title,
            path=render(path),
            hint=hint,
            edit=edit,
        )

    def rename_key(self, path: Path, new: str) -> Edit | None:
        """An edit of a field's name."""
        span = self.document.keys.get((*self.at, *path))
        return None if span is None else Edit(span.start, span.end, new)

    def rewrite(self, path: Path, new: str) -> Edit | None:
        """An edit of a plain value that stands on one line, in the quotes it has."""
        span = self.document.values.get((*self.at, *path))
        if span is None:
            return None
        old = self.document.text[span.start : span.end]
        if "\n" in old or old[:1] in ("&", "*", "!", "|", ">", "{", "["):
            return None
        quote = old[:1] if old[:1] in ("'", '"') else ""
        return Edit(span.start, span.end, f"{quote}{new}{quote}")

    def replace(self, path: Path, new: str) -> Edit | None:
        """An edit of a value together with its quotes."""
        edit = self.rewrite(path, new)
        return None if edit is None else Edit(edit.start, edit.end, new)

    def wrap(self, path: Path) -> Edit | None:
        """An edit that makes a list of a single plain value."""
        edit = self.rewrite(path, "")
        if edit is None:
            return None
        return Edit(edit.start, edit.end, f"[{self.document.text[edit.start : edit.end]}]")

    def drop_line(self, path: Path) -> Edit | None:
        """An edit that removes a field which says nothing and has its line to itself."""
        span = self.document.keys.get((*self.at, *path))
        text = self.document.text
        if span is None:
            return None
        start = text.rfind("\n", 0, span.start) + 1
        end = text.find("\n", span.end)
        end = len(text) if end < 0 else end + 1
        alone = text[start : span.start].strip() == "" and text[span.end : end].strip() in (":", ": null", ": ~")
        return Edit(start, end, "") if alone else None


def readable(obj: Any, kind: type[T]) -> T | None:
    """A view, or nothing where the object has not the shape: another finding says so."""
    try:
        return view(obj, kind)
    except (msgspec.ValidationError, TypeError):
        return None
