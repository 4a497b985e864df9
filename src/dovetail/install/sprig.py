"""The functions that templates of the chart call, as Helm and its function library define them."""

from __future__ import annotations

import base64
import copy
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from dovetail.install.gotemplate import TemplateError, text_of, truth
from dovetail.model import yaml_document


class _Loader(yaml.CSafeLoader):
    """YAML as Helm reads it: no dates, no numbers in base sixty."""


_PLAIN = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if tag not in _PLAIN]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9]\d*|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"),
    list("-+.0123456789"),
)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def load_yaml(text: str) -> Any:
    return yaml_document.load(text, _Loader)


def load_yaml_documents(text: str) -> list[Any]:
    return [document for document in yaml_document.load_all(text, _Loader) if document]


def dump_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, default_flow_style=False, width=10**6)).removesuffix("\n")


def _to_yaml(value: Any) -> str:
    return dump_yaml(value).removesuffix("\n...")


def _default(fallback: Any, value: Any = None) -> Any:
    return value if truth(value) else fallback


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if truth(value)), None)


def _quote(*values: Any) -> str:
    return " ".join(json.dumps(text_of(value), ensure_ascii=False) for value in values if value is not None)


def _indent(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _to_string(value: Any) -> str:
    return "<nil>" if value is None else text_of(value)


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "map": (dict,),
    "slice": (list,),
    "bool": (bool,),
    "int": (int,),
    "float64": (float,),
}


def _kind_is(kind: str, value: Any) -> bool:
    if kind == "invalid":
        return value is None
    if isinstance(value, bool) and kind != "bool":
        return False
    return isinstance(value, _KINDS[kind])


def _printf(form: str, *values: Any) -> str:
    left = list(values)

    def put(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        value = left.pop(0)
        return json.dumps(text_of(value)) if match[0] == "%q" else text_of(value)

    return re.sub(r"%[svdq%]", put, form)


def _dict(*parts: Any) -> dict[str, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _set(target: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    target[key] = value
    return target


def _dig(*parts: Any) -> Any:
    *path, fallback, value = parts
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return fallback
        value = value[step]
    return value


def _merged(target: dict[str, Any], sources: tuple[Any, ...], overwrite: bool) -> dict[str, Any]:
    for source in sources:
        for key, value in (source or {}).items():
            there = target.get(key)
            if isinstance(there, dict) and isinstance(value, dict):
                _merged(there, (value,), overwrite)
            elif (overwrite and truth(value)) or not truth(there):
                target[key] = copy.deepcopy(value)
    return target


def _equal(first: Any, *others: Any) -> bool:
    return any(first == other and isinstance(first, bool) == isinstance(other, bool) for other in others)


def _fail(message: str) -> str:
    raise TemplateError(message)


def _required(message: str, value: Any) -> Any:
    return value if value not in (None, "") else _fail(message)


def _concat(*lists: Any) -> list[Any]:
    return [item for part in lists for item in part]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "append": lambda items, item: [*items, item],
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "base": posixpath.basename,
    "coalesce": _coalesce,
    "concat": _concat,
    "contains": lambda part, text: part in text,
    "deepCopy": copy.deepcopy,
    "default": _default,
    "dict": _dict,
    "dig": _dig,
    "empty": lambda value: not truth(value),
    "eq": _equal,
    "fail": _fail,
    "fromJson": json.loads,
    "fromYaml": lambda text: load_yaml(text) or {},
    "get": lambda target, key: target.get(key, ""),
    "gt": lambda a, b: a > b,
    "has": lambda item, items: item in items,
    "hasKey": lambda target, key: key in target,
    "hasPrefix": lambda part, text: text.startswith(part),
    "hasSuffix": lambda part, text: text.endswith(part),
    "indent": _indent,
    "int": lambda value: int(float(value or 0)),
    "join": lambda glue, items: glue.join(text_of(item) for item in items),
    "kindIs": _kind_is,
    "keys": lambda target: sorted(target),
    "len": len,
    "list": lambda *items: list(items),
    "lower": str.lower,
    "lt": lambda a, b: a < b,
    "merge": lambda target, *sources: _merged(target, sources, overwrite=False),
    "mergeOverwrite": lambda target, *sources: _merged(target, sources, overwrite=True),
    "ne": lambda a, b: not _equal(a, b),
    "nindent": lambda width, text: "\n" + _indent(width, text),
    "not": lambda value: not truth(value),
    "omit": lambda target, *keys: {key: value for key, value in target.items() if key not in keys},
    "printf": _printf,
    "quote": _quote,
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "set": _set,
    "splitList": lambda glue, text: text.split(glue),
    "squote": lambda value: f"'{text_of(value)}'",
    "ternary": lambda yes, no, test: yes if test else no,
    "title": lambda text: re.sub(r"\b[a-z]", lambda match: match[0].upper(), text),
    "toJson": lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")),
    "toString": _to_string,
    "toYaml": _to_yaml,
    "trim": str.strip,
    "trimPrefix": lambda part, text: text.removeprefix(part),
    "trimSuffix": lambda part, text: text.removesuffix(part),
    "trunc": lambda width, text: text[:width],
    "upper": str.upper,
}
