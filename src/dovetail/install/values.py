"""Values as Helm takes them: files, and `--set a.b=c,d={x,y}` with its escapes and types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from dovetail.install.chart import Json, ValuesError, merge_values
from dovetail.install.sprig import load_yaml
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.model.formats import yaml_problem

#: The largest and the deepest values file: a chart's values are some hundred, and objects ten deep.
MAX_VALUES, MAX_DEPTH = 100_000, 100
_PART = re.compile(r"(?:\\.|[^\\,={}])+")


def read_values(files: list[Path], sets: list[str]) -> Json:
    """Later files over earlier ones, `--set` over all."""
    values: Json = {}
    for file in files:
        try:
            document = load_yaml(file.read_text(encoding="utf-8")) or {}
        except OSError as problem:
            raise ValuesError(
                message("{file}: cannot be read: {system_error}", file=file, system_error=system_error(problem))
            ) from problem
        except RecursionError as problem:
            raise ValuesError(message("{file}: nested too deeply to be values of a chart", file=file)) from problem
        except (yaml.YAMLError, ValueError) as problem:
            raise ValuesError(
                message("{file}: is not YAML: {yaml_problem}", file=file, yaml_problem=yaml_problem(problem))
            ) from problem
        if not isinstance(document, dict):
            raise ValuesError(message("{file}: is not a map of values", file=file))
        _check_size(file, document)
        values = merge_values(document, values)
    for text in sets:
        set_value(values, text)
    return values


def _check_size(file: Path, document: Any) -> None:
    """Refuse what would be too much with its aliases written out, or nested too deeply to be walked through."""
    count, waiting = 0, [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count > MAX_VALUES:
            raise ValuesError(
                message(
                    "{file}: more than {max_values:,} values; a YAML alias repeats others, or itself",
                    file=file,
                    max_values=MAX_VALUES,
                )
            )
        if depth > MAX_DEPTH:
            raise ValuesError(
                message("{file}: nested too deeply to be values of a chart; a YAML alias may repeat itself", file=file)
            )
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting.extend((item, depth + 1) for item in inner)


def set_value(values: Json, text: str) -> None:
    """`a.b=1,c[0]=x,d={x,y}` into `values`. A backslash takes the next character as it is."""
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if not match or text[match.end() : match.end() + 1] != "=":
            raise ValuesError(message("--set {text}: expected key=value", text=text))
        path = _path(match[0])
        position = match.end() + 1
        if text[position : position + 1] == "{":
            end = text.find("}", position)
            if end < 0:
                raise ValuesError(message("--set {text}: a brace is not closed", text=text))
            value: Any = [_typed(part) for part in _split(text[position + 1 : end], ",") if part]
            position = end + 1
        else:
            item = re.compile(r"(?:\\.|[^\\,])*").match(text, position)
            assert item is not None
            value, position = _typed(item[0]), item.end()
        _put(values, path, value, text)
        if text[position : position + 1] == ",":
            position += 1


def _split(text: str, mark: str) -> list[str]:
    """At every mark without a backslash before it."""
    return re.split(rf"(?<!\\){re.escape(mark)}", text)


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _path(text: str) -> list[str | int]:
    path: list[str | int] = []
    for part in _split(text, "."):
        name, *indices = re.split(r"\[(\d+)\]", part)
        if name:
            path.append(_plain(name))
        path += [int(index) for index in indices if index]
    return path


def _typed(text: str) -> Any:
    constants = {"true": True, "false": False, "null": None}
    if text in constants:
        return constants[text]
    if re.fullmatch(r"-?(0|[1-9]\d*)", text):
        return int(text)
    return _plain(text)


def _put(values: Any, path: list[str | int], value: Any, text: str) -> None:
    inner = values
    for step, following in zip(path, [*path[1:], None], strict=True):
        fresh: Any = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(step, int):
            if not isinstance(inner, list) or step > len(inner):
                raise ValuesError(message("--set {text}: no element {step}", text=text, step=step))
            if step == len(inner):
                inner.append(fresh)
            elif following is None:
                inner[step] = value
        elif not isinstance(inner, dict):
            raise ValuesError(message("--set {text}: {step!r} of something that is no map", text=text, step=step))
        elif following is None or not isinstance(inner.get(step), type(fresh)):
            inner[step] = fresh
        inner = inner[step]
