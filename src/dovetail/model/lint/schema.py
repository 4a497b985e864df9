"""Fields that do not exist, values of the wrong form: what the API server would refuse, with a way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.model.kinds.admission import Path, SchemaNode, SchemaProblem, check, describe, render
from dovetail.model.kinds.nodepool import BUDGET_SCHEDULE
from dovetail.model.kinds.schema import QUANTITY, Field
from dovetail.model.labels import WELL_KNOWN
from dovetail.model.lint.findings import Edit, LintFinding
from dovetail.model.lint.renamed_labels import MOVED
from dovetail.model.lint.subject import LintSubject
from dovetail.model.lint.suggestions import form, is_duration, suggestion
from dovetail.model.spelling import listed, nearest

_DAYS = re.compile(r"([0-9]+)d")


def shape(subject: LintSubject) -> Iterator[LintFinding]:
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
        elif not _is_repeated(subject, problem, unknown):
            yield _form(subject, problem, root)


def _is_repeated(subject: LintSubject, problem: SchemaProblem, unknown: list[Path]) -> bool:
    """Whether another finding says the same: the place is wrong altogether, or the missing field is misnamed."""
    if any(path[: len(problem.path)] == problem.path for path in unknown):
        return True
    old_name = (*problem.path[:-1], "apiVersion")
    return problem.kind == "required" and problem.path[-1] == "group" and subject.get(*old_name) is not None


def _unknown(subject: LintSubject, path: Path, root: SchemaNode) -> LintFinding:
    name, shown = str(path[-1]), render(path)
    around = _at(root, path[:-1])
    siblings = around.fields if around is not None else {}
    target = MOVED.get((subject.version, subject.kind), {}).get(shown)
    if target is not None:
        text, edit = message("no such field in {version}", version=subject.version), _group(subject, path)
        return subject.finding(
            "DV102", path, text, hint=message("it belongs at {target}", target=target), edit=edit, key=True
        )
    present = subject.get(*path[:-1])
    free = [sibling for sibling in siblings if not isinstance(present, dict) or sibling not in present]
    meant = nearest(name, free)
    if meant is not None:
        edit = subject.rename_key(path, meant)
        return subject.finding(
            "DV101",
            path,
            message("no such field"),
            hint=message("did you mean  {meant} ?", meant=meant),
            edit=edit,
            key=True,
        )
    places = [place for place in _places(root, name) if place != shown]
    if places:
        if subject.get(*path) in (None, "", [], {}):
            hint = message("it belongs at {places}; this one says nothing: delete the line", places=places[0])
        else:
            hint = message("it belongs at {places}: look at the indentation", places=places[0])
        return subject.finding(
            "DV102", path, message("no such field here"), hint=hint, edit=_drop_empty(subject, path), key=True
        )
    meant = nearest(name, _names(root))
    if meant is not None:
        hint = message("did you mean  {meant} ? It belongs at {places}", meant=meant, places=_places(root, meant)[0])
        return subject.finding(
            "DV102", path, message("no such field"), hint=hint, edit=_drop_empty(subject, path), key=True
        )
    hint = (
        message("fields here are {listed}", listed=listed(sorted(siblings), 12))
        if siblings
        else message("nothing may stand here")
    )
    return subject.finding(
        "DV101", path, message("no such field"), hint=hint, edit=_drop_empty(subject, path), key=True
    )


def _group(subject: LintSubject, path: Path) -> Edit | None:
    """`apiVersion: group/version` of a class reference, written as v1 has it."""
    version = subject.get(*path)
    key, value = (table.get((*subject.at, *path)) for table in (subject.document.keys, subject.document.values))
    if path[-2:] != ("nodeClassRef", "apiVersion") or key is None or value is None or not isinstance(version, str):
        return None
    if "group" in (subject.get(*path[:-1]) or {}) or key.line != value.line:
        return None
    return Edit(key.start, value.end, f"group: {version.partition('/')[0]}")


def _drop_empty(subject: LintSubject, path: Path) -> Edit | None:
    return subject.drop_line(path) if subject.get(*path) is None else None


def _at(root: SchemaNode, path: Path) -> SchemaNode | None:
    """What the kind says of a place."""
    node: SchemaNode | None = root
    for part in path:
        if node is None:
            return None
        node = node.each if isinstance(part, int) or node.type == "map" else node.fields.get(part)
    return node


def _places(node: SchemaNode, name: str, path: tuple[str, ...] = ()) -> list[str]:
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


def _names(node: SchemaNode) -> set[str]:
    names = {key for key in node.fields if key not in ("status", "apiVersion", "kind")}
    for key, child in node.fields.items():
        names |= _names(child) if key != "status" else set()
    return names | (_names(node.each) if node.each is not None else set())


def _form(subject: LintSubject, problem: SchemaProblem, root: SchemaNode) -> LintFinding:
    path, value = problem.path, subject.get(*problem.path)
    node = _at(root, path)
    if problem.kind == "required":
        parent = render(path[:-1]) or message("the object")
        return subject.finding(
            "DV103",
            path,
            message("{path} is required", path=path[-1]),
            hint=message("add it under {parent}", parent=parent),
            key=True,
        )
    if node is None:
        return subject.finding("DV103", path, problem.text)
    if problem.kind == "enum" and isinstance(value, str):
        choices = node.field.enum or ()
        meant = nearest(value, choices, cutoff=0.6)
        edit = subject.rewrite(path, meant) if meant is not None else None
        hint = (
            message("did you mean  {meant} ?", meant=meant)
            if meant is not None
            else message("one of {listed}", listed=listed(choices, 12))
        )
        return subject.finding(
            "DV103",
            path,
            message('"{value}" is not one of {listed}', value=value, listed=listed(choices, 12)),
            hint=hint,
            edit=edit,
        )
    if problem.kind == "type":
        return _typed(subject, problem, node)
    if problem.kind == "pattern" and isinstance(value, str):
        return _patterned(subject, problem, value, node.field)
    text, hint = _bounds(problem, value, node.field)
    return subject.finding("DV103", path, text, hint=hint, key=isinstance(value, dict | list))


def _bounds(problem: SchemaProblem, value: Any, field: Field) -> tuple[str, str]:
    """Too little or too much of something."""
    if isinstance(value, int | float):
        low, high = field.minimum, field.maximum
        if low is not None and value < low:
            return message("{value} is too small", value=value), message("at least {low}", low=low)
        if high is not None and value > high:
            return message("{value} is too large", value=value), message("at most {high}", high=high)
    most = field.max_items or field.max_properties or field.max_length
    if isinstance(value, dict | list | str) and most is not None and len(value) > most:
        return (
            message("{count} characters are too many", count=len(value))
            if isinstance(value, str)
            else message("{count} entries are too many", count=len(value))
        ), message("at most {most}", most=most)
    if value in ("", []):
        return message("must not be empty"), message("say something, or leave the field out where it is not required")
    return recognized(problem.text), message("delete one of the two") if problem.text.startswith("Duplicate") else ""


def _typed(subject: LintSubject, problem: SchemaProblem, node: SchemaNode) -> LintFinding:
    path, value = problem.path, subject.get(*problem.path)
    expected_type = problem.text.rpartition("must be of type ")[2].partition(":")[0]
    if expected_type == "string" and isinstance(value, int | float):
        span = subject.document.values.get((*subject.at, *path))
        written = subject.document.text[span.start : span.end] if span else str(value)
        if node.pattern is not None and not node.pattern.search(written):
            what, example = form(node.field.pattern or "")
            return subject.finding(
                "DV103", path, message("{written} is no {what}", written=written, what=what), hint=example
            )
        edit = subject.rewrite(path, f'"{written}"') if span else None
        return subject.finding(
            "DV103",
            path,
            message("{written} must be a string", written=written),
            hint=message("write {text}", text=f'"{written}"'),
            edit=edit,
        )
    if (
        expected_type in ("integer", "int32", "int64")
        and isinstance(value, str)
        and value.isascii()
        and value.isdigit()
    ):
        edit = subject.replace(path, value)
        text = message('"{value}" must be a number', value=value)
        return subject.finding(
            "DV103", path, text, hint=message("write {value}, without quotes", value=value), edit=edit
        )
    if expected_type == "boolean" and isinstance(value, str):
        meant = nearest(value, ("true", "false"), cutoff=0.5) or message("true or false")
        return subject.finding(
            "DV103",
            path,
            message("{value} is neither true nor false", value=value),
            hint=message("write {text}", text=meant),
        )
    if expected_type == "array" and isinstance(value, str):
        edit = subject.wrap(path)
        return subject.finding(
            "DV103",
            path,
            message("must be a list"),
            hint=message("write {text}", text=f'["{value}"]'),
            edit=edit,
            key=True,
        )
    text, hint = _expected(expected_type, value, node)
    return subject.finding("DV103", path, text, hint=hint, key=True)


def _expected(expected_type: str, value: Any, node: SchemaNode) -> tuple[str, str]:
    """What stands there, and what should."""
    if value is None:
        shown = message("nothing")
    elif isinstance(value, dict | list):
        shown = message("a map") if isinstance(value, dict) else message("a list")
    else:
        shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
    if expected_type == "array":
        return message("must be a list, and is {shown}", shown=shown), message("start each member with a dash")
    if expected_type == "object":
        inside = (
            message("fields here are {listed}", listed=listed(sorted(node.fields), 12))
            if node.fields
            else message("write lines of  name: value")
        )
        return message("must be a map, and is {shown}", shown=shown), inside
    if expected_type == "boolean":
        return message("{value} is neither true nor false", value=shown), message("write true or false")
    kind, example = {
        "string": (
            message("text"),
            message("write it in quotes") if not isinstance(value, dict | list) else message("write a single word"),
        ),
        "integer,string": form(QUANTITY),
    }.get(expected_type, (message("whole number"), message("such as {minimum}", minimum=node.field.minimum or 1)))
    return message("{shown} is no {kind}", shown=shown, kind=kind), example


def _patterned(subject: LintSubject, problem: SchemaProblem, value: str, field: Field) -> LintFinding:
    path = problem.path
    days = _DAYS.fullmatch(value)
    what, example = form(field.pattern or QUANTITY)
    if days and is_duration(field.pattern or ""):
        hours = f"{int(days[1]) * 24}h"
        edit = subject.rewrite(path, hours)
        return subject.finding(
            "DV103",
            path,
            message('"{value}": days are no unit here', value=value),
            hint=message("write {text}", text=hours),
            edit=edit,
        )
    if value.lower() == "never" and "Never" in problem.text:
        edit = subject.rewrite(path, "Never")
        return subject.finding(
            "DV103",
            path,
            message('"{value}" is no {what}', value=value, what=what),
            hint=message("did you mean  Never ?"),
            edit=edit,
        )
    if field.pattern == BUDGET_SCHEDULE:
        text = message('"{value}" has {count} fields, and a schedule five', value=value, count=len(value.split()))
        return subject.finding("DV103", path, text, hint=example)
    return subject.finding("DV103", path, message('"{value}" is no {what}', value=value, what=what), hint=example)


def _rule(subject: LintSubject, problem: SchemaProblem) -> LintFinding:
    path, value = problem.path, subject.get(*problem.path)
    text = problem.text.removeprefix("Invalid value: ")
    if path and path[-1] == "key" and isinstance(value, str):
        meant = nearest(value, WELL_KNOWN, cutoff=0.8)
        edit = subject.rewrite(path, meant) if meant is not None else None
        hint = (
            message("did you mean  {meant} ?", meant=meant)
            if meant is not None
            else message("labels of that domain are not yours to ask for")
        )
        return subject.finding("DV106", path, recognized(text), hint=hint, edit=edit)
    if "no such key: values" in text:
        text = message("requirements with operator 'In', 'Gt', 'Lt', 'Gte' or 'Lte' must have values")
    elif " evaluating rule: " in text:
        text = text.partition(" evaluating rule: ")[2]
    return subject.finding("DV106", path, recognized(text), hint=suggestion(text), key=True)
