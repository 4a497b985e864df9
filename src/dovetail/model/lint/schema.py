"""Fields that do not exist, values of the wrong form: what the API server would refuse, with a way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dovetail.model.kinds.admission import Node, Path, Problem, check, describe, render
from dovetail.model.kinds.schema import QUANTITY, Field
from dovetail.model.labels import WELL_KNOWN
from dovetail.model.lint.findings import Edit, Finding
from dovetail.model.lint.renamed_labels import MOVED
from dovetail.model.lint.subject import Subject
from dovetail.model.lint.suggestions import form, suggestion
from dovetail.model.spelling import listed, nearest

_DAYS = re.compile(r"([0-9]+)d")


def shape(subject: Subject) -> Iterator[Finding]:
    """Every refusal of the API server, in the order of the schema."""
    root = describe(subject.obj)
    if root is None:
        return
    unknown: list[Path] = []
    for problem in check(subject.obj, thorough=True):
        if problem.kind == "unknown":
            unknown.append(problem.path)
            yield _unknown(subject, problem.path, root)
        elif problem.kind == "rule":
            yield _rule(subject, problem)
        elif not _echoes(subject, problem, unknown):
            yield _form(subject, problem, root)


def _echoes(subject: Subject, problem: Problem, unknown: list[Path]) -> bool:
    """Whether another finding says the same: the place is wrong altogether, or the missing field is misnamed."""
    if any(path[: len(problem.path)] == problem.path for path in unknown):
        return True
    old_name = (*problem.path[:-1], "apiVersion")
    return problem.kind == "required" and problem.path[-1] == "group" and subject.get(*old_name) is not None


def _unknown(subject: Subject, path: Path, root: Node) -> Finding:
    name, shown = str(path[-1]), render(path)
    around = _at(root, path[:-1])
    siblings = around.fields if around is not None else {}
    target = MOVED.get((subject.version, subject.kind), {}).get(shown)
    if target is not None:
        text, edit = f"no such field in {subject.version}", _group(subject, path)
        return subject.finding("DV102", path, text, hint=f"it belongs at {target}", edit=edit, key=True)
    present = subject.get(*path[:-1])
    free = [sibling for sibling in siblings if not isinstance(present, dict) or sibling not in present]
    meant = nearest(name, free)
    if meant is not None:
        edit = subject.rename_key(path, meant)
        return subject.finding("DV101", path, "no such field", hint=f"did you mean  {meant} ?", edit=edit, key=True)
    places = [place for place in _places(root, name) if place != shown]
    if places:
        if subject.get(*path) in (None, "", [], {}):
            hint = f"it belongs at {places[0]}; this one says nothing: delete the line"
        else:
            hint = f"it belongs at {places[0]}: look at the indentation"
        return subject.finding(
            "DV102", path, "no such field here", hint=hint, edit=_drop_empty(subject, path), key=True
        )
    meant = nearest(name, _names(root))
    if meant is not None:
        hint = f"did you mean  {meant} ? It belongs at {_places(root, meant)[0]}"
        return subject.finding("DV102", path, "no such field", hint=hint, edit=_drop_empty(subject, path), key=True)
    hint = f"fields here are {listed(sorted(siblings), 12)}" if siblings else "nothing may stand here"
    return subject.finding("DV101", path, "no such field", hint=hint, edit=_drop_empty(subject, path), key=True)


def _group(subject: Subject, path: Path) -> Edit | None:
    """`apiVersion: group/version` of a class reference, written as v1 has it."""
    version = subject.get(*path)
    key, value = (table.get((*subject.at, *path)) for table in (subject.document.keys, subject.document.values))
    if path[-2:] != ("nodeClassRef", "apiVersion") or key is None or value is None or not isinstance(version, str):
        return None
    if "group" in (subject.get(*path[:-1]) or {}) or key.line != value.line:
        return None
    return Edit(key.start, value.end, f"group: {version.partition('/')[0]}")


def _drop_empty(subject: Subject, path: Path) -> Edit | None:
    return subject.drop_line(path) if subject.get(*path) is None else None


def _at(root: Node, path: Path) -> Node | None:
    """What the kind says of a place."""
    node: Node | None = root
    for part in path:
        if node is None:
            return None
        node = node.each if isinstance(part, int) or node.type == "map" else node.fields.get(part)
    return node


def _places(node: Node, name: str, path: tuple[str, ...] = ()) -> list[str]:
    """Where in the kind a field of that name stands, the shallowest first."""
    places = []
    for key, child in node.fields.items():
        if key == name:
            places.append(".".join((*path, key)))
        if key != "status":
            places.extend(_places(child, name, (*path, key)))
    if node.each is not None:
        places.extend(_places(node.each, name, (*path[:-1], f"{path[-1]}[]") if path else path))
    return sorted(places, key=lambda place: (place.count("."), place))


def _names(node: Node) -> set[str]:
    names = {key for key in node.fields if key not in ("status", "apiVersion", "kind")}
    for key, child in node.fields.items():
        names |= _names(child) if key != "status" else set()
    return names | (_names(node.each) if node.each is not None else set())


def _form(subject: Subject, problem: Problem, root: Node) -> Finding:
    path, value = problem.path, subject.get(*problem.path)
    node = _at(root, path)
    if problem.kind == "required":
        parent = render(path[:-1]) or "the object"
        return subject.finding("DV103", path, f"{path[-1]} is required", hint=f"add it under {parent}", key=True)
    if node is None:
        return subject.finding("DV103", path, problem.text)
    if problem.kind == "enum" and isinstance(value, str):
        choices = node.field.enum or ()
        meant = nearest(value, choices, cutoff=0.6)
        edit = subject.rewrite(path, meant) if meant is not None else None
        hint = f"did you mean  {meant} ?" if meant is not None else f"one of {listed(choices, 12)}"
        return subject.finding("DV103", path, f'"{value}" is not one of {listed(choices, 12)}', hint=hint, edit=edit)
    if problem.kind == "type":
        return _typed(subject, problem, node)
    if problem.kind == "pattern" and isinstance(value, str):
        return _patterned(subject, problem, value, node.field)
    text, hint = _bounds(problem, value, node.field)
    return subject.finding("DV103", path, text, hint=hint, key=isinstance(value, dict | list))


def _bounds(problem: Problem, value: Any, field: Field) -> tuple[str, str]:
    """Too little or too much of something."""
    if isinstance(value, int | float):
        low, high = field.minimum, field.maximum
        if low is not None and value < low:
            return f"{value} is too small", f"at least {low}"
        if high is not None and value > high:
            return f"{value} is too large", f"at most {high}"
    most = field.max_items or field.max_properties or field.max_length
    if isinstance(value, dict | list | str) and most is not None and len(value) > most:
        return f"{len(value)} {'characters' if isinstance(value, str) else 'entries'} are too many", f"at most {most}"
    if value in ("", []):
        return "must not be empty", "say something, or leave the field out where it is not required"
    return problem.text, "delete one of the two" if problem.text.startswith("Duplicate") else ""


def _typed(subject: Subject, problem: Problem, node: Node) -> Finding:
    path, value = problem.path, subject.get(*problem.path)
    wanted = problem.text.rpartition("must be of type ")[2].partition(":")[0]
    if wanted == "string" and isinstance(value, int | float):
        span = subject.document.values.get((*subject.at, *path))
        written = subject.document.text[span.start : span.end] if span else str(value)
        if node.pattern is not None and not node.pattern.search(written):
            what, example = form(node.field.pattern or "")
            return subject.finding("DV103", path, f"{written} is no {what}", hint=example)
        edit = subject.rewrite(path, f'"{written}"') if span else None
        return subject.finding("DV103", path, f"{written} must be a string", hint=f'write "{written}"', edit=edit)
    if wanted in ("integer", "int32", "int64") and isinstance(value, str) and value.isascii() and value.isdigit():
        edit = subject.replace(path, value)
        text = f'"{value}" must be a number'
        return subject.finding("DV103", path, text, hint=f"write {value}, without quotes", edit=edit)
    if wanted == "boolean" and isinstance(value, str):
        meant = nearest(value, ("true", "false"), cutoff=0.5) or "true or false"
        return subject.finding("DV103", path, f"{value} is neither true nor false", hint=f"write {meant}")
    if wanted == "array" and isinstance(value, str):
        edit = subject.wrap(path)
        return subject.finding("DV103", path, "must be a list", hint=f'write ["{value}"]', edit=edit, key=True)
    text, hint = _expected(wanted, value, node)
    return subject.finding("DV103", path, text, hint=hint, key=True)


def _expected(wanted: str, value: Any, node: Node) -> tuple[str, str]:
    """What stands there, and what should."""
    if value is None:
        shown = "nothing"
    elif isinstance(value, dict | list):
        shown = "a map" if isinstance(value, dict) else "a list"
    else:
        shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
    if wanted == "array":
        return f"must be a list, and is {shown}", "start each member with a dash"
    if wanted == "object":
        inside = f"fields here are {listed(sorted(node.fields), 12)}" if node.fields else "write lines of  name: value"
        return f"must be a map, and is {shown}", inside
    kind, example = {
        "string": ("text", "write it in quotes" if not isinstance(value, dict | list) else "write a single word"),
        "boolean": ("true or false", "write true or false"),
        "integer,string": ("quantity", form(QUANTITY)[1]),
    }.get(wanted, ("whole number", f"such as {node.field.minimum or 1}"))
    return f"{shown} is no {kind}" if kind != "true or false" else f"{shown} is neither true nor false", example


def _patterned(subject: Subject, problem: Problem, value: str, field: Field) -> Finding:
    path = problem.path
    days = _DAYS.fullmatch(value)
    what, example = form(field.pattern or QUANTITY)
    if days and what.startswith("duration"):
        hours = f"{int(days[1]) * 24}h"
        edit = subject.rewrite(path, hours)
        return subject.finding("DV103", path, f'"{value}": days are no unit here', hint=f"write {hours}", edit=edit)
    if value.lower() == "never" and "Never" in problem.text:
        edit = subject.rewrite(path, "Never")
        return subject.finding("DV103", path, f'"{value}" is no {what}', hint="did you mean  Never ?", edit=edit)
    if what == "schedule":
        text = f'"{value}" has {len(value.split())} fields, and a schedule five'
        return subject.finding("DV103", path, text, hint=example)
    return subject.finding("DV103", path, f'"{value}" is no {what}', hint=example)


def _rule(subject: Subject, problem: Problem) -> Finding:
    path, value = problem.path, subject.get(*problem.path)
    text = problem.text.removeprefix("Invalid value: ")
    if path and path[-1] == "key" and isinstance(value, str):
        meant = nearest(value, WELL_KNOWN, cutoff=0.8)
        edit = subject.rewrite(path, meant) if meant is not None else None
        hint = f"did you mean  {meant} ?" if meant is not None else "labels of that domain are not yours to ask for"
        return subject.finding("DV106", path, text, hint=hint, edit=edit)
    if "no such key: values" in text:
        text = "requirements with operator 'In', 'Gt', 'Lt', 'Gte' or 'Lte' must have values"
    elif " evaluating rule: " in text:
        text = text.partition(" evaluating rule: ")[2]
    return subject.finding("DV106", path, text, hint=suggestion(text), key=True)
