"""The chart: its values, checked by its schema, and the objects it renders, without Helm."""

from __future__ import annotations

import copy
import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dovetail.install.gotemplate import Templates
from dovetail.install.sprig import FUNCTIONS, load_yaml, load_yaml_documents
from dovetail.language import message

Json = dict[str, Any]

#: The order in which Helm creates kinds; what is not listed comes last.
INSTALL_ORDER = (
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "Job",
)


class ValuesError(ValueError):
    """The value's path, what it is, and what it should be."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a release, and the program that installs it."""

    name: str
    namespace: str
    service: str = "Helm"

    # Names as `_helpers.tpl` makes them.

    def deployment_name(self, values: Mapping[str, Any]) -> str:
        return _bounded(str(values.get("fullnameOverride") or self.name))

    def service_account_name(self, values: Mapping[str, Any]) -> str:
        service_account = values.get("serviceAccount") or {}
        made = service_account.get("create", True)
        return str(service_account.get("name") or (self.deployment_name(values) if made else "default"))

    def pod_labels(self, values: Mapping[str, Any]) -> str:
        """The selector of the controller's pods."""
        name = _bounded(str(values.get("nameOverride") or "karpenter"))
        return f"app.kubernetes.io/name={name},app.kubernetes.io/instance={self.name}"


def _bounded(name: str) -> str:
    return name[:63].removesuffix("-")


def chart_directory(name: str = "dovetail") -> Path:
    """The chart's files: beside this module in a wheel, at the top of the tree in a checkout."""
    packaged = Path(__file__).parent / "charts" / name
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "charts" / name


class _Files:
    """`.Files`: what the chart carries beside templates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def Get(self, path: str) -> str:
        file = self._folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def Glob(self, pattern: str) -> dict[str, bytes]:
        files = (path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*") if path.is_file())
        same_depth = (path for path in files if path.count("/") == pattern.count("/"))
        return {path: (self._folder / path).read_bytes() for path in same_depth if fnmatch.fnmatch(path, pattern)}


class Chart:
    """A chart in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metadata: Json = load_yaml((folder / "Chart.yaml").read_text(encoding="utf-8"))
        self.defaults: Json = load_yaml((folder / "values.yaml").read_text(encoding="utf-8"))
        self.schema: Json = json.loads((folder / "values.schema.json").read_text(encoding="utf-8"))
        self._templates = Templates(FUNCTIONS)
        self._names = sorted(path.name for path in (folder / "templates").iterdir())
        for name in self._names:
            self._templates.add(name, (folder / "templates" / name).read_text(encoding="utf-8"))

    def values(self, values: Mapping[str, Any]) -> Json:
        """Given values over the chart's own; raises `ValuesError` where one has a wrong type."""
        merged = merge_values(values, self.defaults)
        problems = list(schema_problems(merged, self.schema, self.schema, ""))
        if problems:
            raise ValuesError("; ".join(problems))
        return merged

    def objects(self, release: Release, values: Mapping[str, Any]) -> list[Json]:
        """What the release consists of, in the order in which it is created."""
        data = self._data(release, values)
        objects: list[Json] = []
        for name in self._names:
            if name.endswith(".yaml"):
                objects += load_yaml_documents(self._templates.render(name, data))
        return sorted(objects, key=_install_order)

    def notes(self, release: Release, values: Mapping[str, Any]) -> str:
        """What is said after the installation."""
        return self._templates.render("NOTES.txt", self._data(release, values)).strip() + "\n"

    def _data(self, release: Release, values: Mapping[str, Any]) -> Json:
        version, app = self.metadata["version"], self.metadata["appVersion"]
        return {
            "Values": self.values(values),
            "Release": {"Name": release.name, "Namespace": release.namespace, "Service": release.service},
            "Chart": {"Name": self.metadata["name"], "Version": str(version), "AppVersion": str(app)},
            "Files": _Files(self.folder),
        }


def _install_order(obj: Mapping[str, Any]) -> tuple[int, str, str]:
    kind = str(obj["kind"])
    rank = INSTALL_ORDER.index(kind) if kind in INSTALL_ORDER else len(INSTALL_ORDER)
    return rank, kind, str(obj["metadata"]["name"])


def merge_values(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Json:
    """Maps are merged, everything else replaces; null removes a default."""
    merged: Json = copy.deepcopy(dict(values))
    for key, value in defaults.items():
        if key not in merged:
            merged[key] = copy.deepcopy(value)
        elif merged[key] is None:
            del merged[key]
        elif isinstance(merged[key], dict) and isinstance(value, dict):
            merged[key] = merge_values(merged[key], value)
    return merged


# -- the schema

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _TYPES[kind])


def schema_problems(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Sequence[str]:
    """What of a value its schema does not allow."""
    if "$ref" in schema:
        return schema_problems(value, root["definitions"][schema["$ref"].rpartition("/")[2]], root, path)
    problems: list[str] = []
    shown = path or "values"
    if "anyOf" in schema and all(schema_problems(value, option, root, path) for option in schema["anyOf"]):
        expected = " or ".join(_expected(option, root) for option in schema["anyOf"])
        return [_unexpected(shown, value, expected)]
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return [_unexpected(shown, value, _expected(schema, root))]
    if "enum" in schema and value not in schema["enum"]:
        problems.append(_unexpected(shown, value, _expected(schema, root)))
    number = value if _is(value, "number") else 0
    if number < schema.get("minimum", number) or number > schema.get("maximum", number):
        problems.append(
            message(
                "{shown}: {value} is not from {minimum} to {maximum}",
                shown=shown,
                value=value,
                minimum=schema.get("minimum"),
                maximum=schema.get("maximum", "any"),
            )
        )
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            problems.append(message("{shown}: is empty", shown=shown))
        if "pattern" in schema and not re.search(schema["pattern"], value):
            problems.append(
                message(
                    "{shown}: {value!r} does not match {pattern}", shown=shown, value=value, pattern=schema["pattern"]
                )
            )
    if isinstance(value, dict):
        problems += _map_problems(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            problems += schema_problems(item, schema["items"], root, f"{path}[{index}]")
    return problems


def _unexpected(shown: str, value: Any, expected: str) -> str:
    return message("{shown}: expected {expected}, got {dumps}", shown=shown, dumps=json.dumps(value), expected=expected)


def _map_problems(value: Json, schema: Mapping[str, Any], root: Mapping[str, Any], path: str) -> list[str]:
    problems = [
        message("{shown}: has no {key}", shown=path, key=key) for key in schema.get("required", ()) if key not in value
    ]
    if len(value) > schema.get("maxProperties", len(value)):
        problems.append(message("{shown}: is not empty", shown=path))
    for key, item in value.items():
        inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
        if isinstance(inner, Mapping):
            problems += schema_problems(item, inner, root, f"{path}.{key}" if path else key)
    return problems


def _expected(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _expected(root["definitions"][schema["$ref"].rpartition("/")[2]], root)
    if "enum" in schema:
        return message("one of ") + ", ".join(json.dumps(choice) for choice in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_expected(option, root) for option in schema["anyOf"])
    kinds = schema.get("type", "anything")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)
