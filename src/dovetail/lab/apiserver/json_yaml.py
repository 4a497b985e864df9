"""Documents: bytes to plain values, remembering what a strict reader would complain about.

JSON is read fast; only when the text does not come back byte for byte is it read again, slowly, to find duplicate
keys. YAML is version 1.1 as Kubernetes reads it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import yaml

from dovetail.lab.apiserver.gocompat import gojson

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class SyntaxProblem(ValueError):
    """The bytes are no document."""


def parse_json(body: bytes) -> tuple[Any, list[str]]:
    """The value, and `duplicate field "a.b"` for every key given twice."""
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _lenient(body)
    if _encode(value) == body:
        return value, []
    return value, _duplicates(body)


def _lenient(body: bytes) -> Any:
    """What msgspec refuses and Go reads: huge numbers, broken surrogates. Otherwise Go's complaint."""
    problem = gojson.problem(body)
    if problem:
        raise SyntaxProblem(problem)
    try:
        return _with_replacements(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise SyntaxProblem(str(error)) from error


def _with_replacements(value: Any) -> Any:
    """Halves of a surrogate pair as Go reads them: U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_with_replacements(item) for item in value]
    if isinstance(value, dict):
        return {_with_replacements(name): _with_replacements(item) for name, item in value.items()}
    return value


class _Pairs(list[tuple[str, Any]]):
    """An object with its keys as they came."""


def _duplicates(body: bytes) -> list[str]:
    if body.count(b'"') < 4:
        return []
    try:
        document = json.loads(body.decode("utf-8", "replace"), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    duplicates: list[str] = []
    _search(document, "", duplicates)
    return duplicates


def _search(node: Any, path: str, duplicates: list[str]) -> None:
    if isinstance(node, _Pairs):
        seen: set[str] = set()
        for key, value in node:
            where = f"{path}.{key}" if path else key
            if key in seen:
                duplicates.append(f'duplicate field "{where}"')
            seen.add(key)
            _search(value, where, duplicates)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            _search(item, f"{path}[{index}]", duplicates)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as Go reads it: `y` is true, dates are text, no base sixty."""

    duplicates: list[str]


_Loader.yaml_implicit_resolvers = {}
_BOOL = re.compile(r"^(?:y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE|n|N|no|No|NO|off|Off|OFF|false|False|FALSE)$")
_TRUE = frozenset(("y", "yes", "on", "true"))
_INT = re.compile(r"^[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("yYnNtTfFoO"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"), ["<"])


def _construct_bool(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in _TRUE


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith(("0b", "0x", "0o")):
        return sign * int(digits, 0)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    out: dict[str, Any] = {}
    for key_node, value_node in node.value:
        given = loader.construct_object(key_node, deep=True)
        key = _key(given)
        if key in out:
            shown = f'"{key}"' if isinstance(given, str) else key
            loader.duplicates.append(f"line {key_node.start_mark.line + 1}: key {shown} already set in map")
        out[key] = loader.construct_object(value_node, deep=True)
    return out


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The first document's value, and a complaint for every key given twice."""
    if body.lstrip()[:1] == b"{":
        try:
            return parse_json(body)
        except SyntaxProblem:
            pass  # not JSON: YAML's flow style looks the same at the start
    try:
        loader = _Loader(body.decode("utf-8", "replace"))
        loader.duplicates = []
        value = loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SyntaxProblem(_yaml_problem(error)) from error
    return value, loader.duplicates


_GO_WORDS = {
    "expected the node content": "did not find expected node content",
    "could not find expected ':'": "could not find expected ':'",
    "expected <block end>": "did not find expected key",
    "mapping values are not allowed": "mapping values are not allowed in this context",
    "expected ',' or '}'": "did not find expected ',' or '}'",
    "expected ',' or ']'": "did not find expected ',' or ']'",
}


def _kind_of(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    return next((start for start in _GO_WORDS if problem.startswith(start)), problem)


def _yaml_problem(error: Exception) -> str:
    """Go counts lines from one in the scanner and from nought in the parser, where the end begins a line of its own."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line
        cut = "<stream end>" in (error.problem or "") and error.problem_mark.column > 0
        if cut or isinstance(error, yaml.scanner.ScannerError):
            line += 1
        return f"yaml: line {line or 1}: {_GO_WORDS.get(_kind_of(error), error.problem)}"
    return f"yaml: {error}"
