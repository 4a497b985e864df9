"""What `dovetail plan` reads: manifests as people keep them, or a cluster's objects, by kind.

What is wrong is said with object, field and value; what is not looked at is noted and left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from math import inf
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.errors import UserError
from dovetail.language import message, source
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem
from dovetail.model.kinds.admission import check
from dovetail.model.kinds.convert import ConversionError, expand
from dovetail.model.kinds.crds import struct_of
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.meta import without_nulls
from dovetail.model.nodes import Namespace, Node, PriorityClass
from dovetail.model.pods import Pod
from dovetail.model.quantity import QuantityError, parse
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.model.workloads import DaemonSet, Deployment, Job, PodDisruptionBudget, ReplicaSet, StatefulSet
from dovetail.offline.manifests import texts
from dovetail.offline.pod_validation import validation_errors

T = TypeVar("T")
Json = dict[str, Any]

_OURS = frozenset(
    {
        "NodePool",
        "Provisioner",
        "NodeClaim",
        "Machine",
        "EC2NodeClass",
        "AWSNodeTemplate",
        "NodeOverlay",
        "KWOKNodeClass",
    }
)
_KINDS: dict[str, type[Any]] = {
    "Pod": Pod,
    "Node": Node,
    "NodePool": NodePool,
    "NodeClaim": NodeClaim,
    "NodeOverlay": NodeOverlay,
    "Deployment": Deployment,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
    "Job": Job,
    "DaemonSet": DaemonSet,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "CSINode": CSINode,
    "PriorityClass": PriorityClass,
    "Namespace": Namespace,
    "PodDisruptionBudget": PodDisruptionBudget,
}
#: What lives in no namespace; anything else that names none lives in the default one.
_CLUSTERED = frozenset(
    {
        "Node",
        "NodePool",
        "NodeClaim",
        "NodeOverlay",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "PriorityClass",
        "Namespace",
    }
)
_SILENT = frozenset({"KWOKNodeClass"})
_POOL, _CLASS = source("NodePool is in karpenter.sh/v1"), source("EC2NodeClass is in karpenter.k8s.aws/v1")
#: What people write by hand and a plan depends on, and where it is.
_CHECKED = {"NodePool": _POOL, "Provisioner": _POOL, "EC2NodeClass": _CLASS, "AWSNodeTemplate": _CLASS}
#: Where amounts stand that planning reads, beside those of containers.
_AMOUNTS = {
    "NodePool": ("spec.limits",),
    "Node": ("status.capacity", "status.allocatable"),
    "NodeClaim": ("spec.resources.requests", "status.capacity", "status.allocatable"),
}
#: Where pods are described.
_PODS = {"Pod": "spec"} | dict.fromkeys(
    ("Deployment", "ReplicaSet", "StatefulSet", "Job", "DaemonSet"), "spec.template.spec"
)
#: How many of them there are to be.
_COUNTS = ("replicas", "parallelism", "completions")
#: More values than any input has, with every alias written out: a list of 100,000 pods has a tenth of them.
_MOST_WRITTEN = 100_000_000
#: msgspec's names of what it expected.
_WORDS = {
    "int": source("a whole number"),
    "float": source("a number"),
    "str": "text",
    "bool": source("true or false"),
    "object": source("a mapping"),
    "array": source("a list"),
    "datetime": source("a time"),
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
    "object": dict,
    "array": list,
}
_EXPECTED = re.compile(r"Expected `(\w+)")


class Objects:
    """The objects of the input by kind."""

    def __init__(self, kept: Collection[str] = ()) -> None:
        self._kept = kept
        self.others: list[Json] = []
        """Objects of the kinds to keep that planning does not look at."""
        self._by_kind: dict[str, dict[tuple[str, str], Any]] = {}
        self.node_classes: dict[str, Json] = {}
        """EC2NodeClasses by name."""
        self.refused: list[str] = []
        """What the API server would not take of pools, and planning can do with."""
        self.doubtful: dict[str, list[str]] = {}
        """What it would not take of pods: what is wrong, and where."""
        self.ignored: dict[str, int] = {}
        self.twice: list[str] = []
        """What came more than once: the last counts, as when manifests are applied one after the other."""
        self.budgeted: set[str] = set()
        """NodePools that say how many of their nodes may go at once."""
        self.counted: set[str] = set()
        """PodDisruptionBudgets that say how many pods may go now."""

    def add(self, source: object) -> None:
        if not isinstance(source, dict):
            raise UserError(
                message(
                    "{shown} is not an object; every document is a mapping with apiVersion and kind",
                    shown=_shown(source),
                )
            )
        kind = source.get("kind")
        if not isinstance(kind, str):
            raise UserError(
                message("an object ({name}) has no kind; every document needs apiVersion and kind", name=_name(source))
            )
        version = source.get("apiVersion")
        if not isinstance(version, str | None):
            raise UserError(
                message("{named}: apiVersion: {shown} is not text", named=_named(source), shown=_shown(version))
            )
        if kind.endswith("List") and "items" in source:
            items = source["items"] or []
            if not isinstance(items, list):
                raise UserError(message("{kind}: items: {shown} is not a list", kind=kind, shown=_shown(items)))
            for item in items:
                typed = kind != "List" and isinstance(item, dict)
                self.add({"kind": kind.removesuffix("List"), **item} if typed else item)
            return
        if kind in _CHECKED and "apiVersion" in source:
            self.refused += _check(source)
        for item in _current(kind, source):
            self._add_one(item)

    def _add_one(self, source: Json) -> None:
        kind = source["kind"]
        if kind in self._kept:
            self.others.append(source)
        if kind not in _KINDS:
            if kind == "EC2NodeClass":
                self.node_classes[_name(source)] = source
            elif kind not in _SILENT:
                self.ignored[kind] = self.ignored.get(kind, 0) + 1
            return
        try:
            converted = msgspec.convert(without_nulls(source), _KINDS[kind], strict=False)
        except msgspec.ValidationError as problem:
            raise UserError(f"{_named(source)}: {_mistyped(str(problem), source)}") from problem
        for where, amounts in _amounts(source):
            _check_amounts(source, where, amounts)
        _check_counts(source)
        for objection in (
            validation_errors(_named(source), _at(source, _PODS[kind]), _PODS[kind]) if kind in _PODS else ()
        ):
            if not converted.metadata.uid:  # what a server has stored it has not refused
                self.doubtful.setdefault(objection, []).append(_named(source))
        self._keep(kind, converted, source)

    def _keep(self, kind: str, converted: Any, source: Json) -> None:
        same, name = self._by_kind.setdefault(kind, {}), converted.metadata.name
        namespace = converted.metadata.namespace or "default"
        prefix = _at(source, "metadata").get("generateName")
        if not name and prefix:
            name = next(candidate for index in count() if (namespace, candidate := f"{prefix}{index}") not in same)
        if not name:
            raise UserError(message("{kind} without a name; every object needs metadata.name", kind=kind))
        if same.pop((namespace, name), None) is not None:
            self.twice.append(_named(source))
        home = "" if kind in _CLUSTERED else namespace
        if kind == "NodePool" and "budgets" in _at(source, "spec.disruption"):
            self.budgeted.add(name)
        if kind == "PodDisruptionBudget" and "disruptionsAllowed" in _at(source, "status"):
            self.counted.add(f"{home}/{name}")
        same[namespace, name] = replace(converted, metadata=replace(converted.metadata, name=name, namespace=home))

    def of(self, kind: type[T]) -> list[T]:
        return list(self._by_kind.get(kind.__name__, {}).values())


def _current(kind: str, source: Json) -> list[Json]:
    """An object of ours in the newest generation, others as they are."""
    if kind not in _OURS:
        return [source]
    try:
        return list(expand(source))
    except ConversionError as problem:
        raise UserError(f"{_named(source)}: {problem}") from problem


def _check(source: Json) -> list[str]:
    """A pool or class that the API server would not take, or take for another, launches what was not meant."""
    if struct_of(source["apiVersion"], source["kind"]) is None:
        raise UserError(
            message(
                "{named}: apiVersion: {shown} has no {kind}; {checked}",
                named=_named(source),
                shown=_shown(source["apiVersion"]),
                kind=source["kind"],
                checked=_CHECKED[source["kind"]],
            )
        )
    problems = check(source)
    for problem in problems:
        if problem.kind in ("type", "enum"):
            raise UserError(
                message("{named}: {problem}; dovetail lint says more", named=_named(source), problem=problem)
            )
    return [f"{_named(source)}: {problem}" for problem in problems if problem.kind == "rule"]


def _name(source: Json) -> str:
    metadata = source.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name or ", ".join(map(str, list(source)[:3])))


def _named(source: Json) -> str:
    return f'{source.get("kind")} "{_name(source)}"'


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _mistyped(problem: str, source: Json) -> str:
    """msgspec's words in ours, with the value."""
    what, _, where = problem.partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".")
    match = _EXPECTED.match(what)
    value: Any = source
    try:
        for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field):
            value = value[int(number) if number else name]
        if field.endswith("[...]") and match:  # some value of a mapping
            name, value = next(item for item in value.items() if not isinstance(item[1], _TYPES[match[1]]))
            field = f"{field.removesuffix('[...]')}.{name}"
    except (KeyError, IndexError, TypeError, AttributeError, StopIteration):
        return f"{field}: {what}"
    return (
        message("{field}: {shown} is not {words}", field=field, shown=_shown(value), words=_WORDS[match[1]])
        if match
        else f"{field}: {what}"
    )


def _amounts(source: Json) -> Iterator[tuple[str, Json]]:
    """Every mapping of amounts in an object, with the field it stands in."""
    kind = source["kind"]
    for where in _AMOUNTS.get(kind, ()):
        yield where, _at(source, where)
    pods = _PODS.get(kind)
    if pods is None:
        return
    for where in (f"{pods}.overhead", f"{pods}.resources.requests", f"{pods}.resources.limits"):
        yield where, _at(source, where)
    for group in ("initContainers", "containers"):
        for number, container in enumerate(_at(source, pods).get(group) or ()):
            for field in ("resources.requests", "resources.limits"):
                yield f"{pods}.{group}[{number}].{field}", _at(container, field)


def _at(source: Json, where: str) -> Json:
    place: Any = source
    for key in where.split("."):
        place = place.get(key) or {}
    inner: Json = place
    return inner


def _check_amounts(source: Json, where: str, amounts: Json) -> None:
    for name, amount in amounts.items():
        if amount is None:
            continue  # as if it were not there
        try:
            negative = parse(str(amount)).nano < 0
        except QuantityError as problem:
            text = message(
                '{where}.{name}: "{amount}" is not a quantity (such as 500m or 2Gi)',
                where=where,
                name=name,
                amount=amount,
            )
            raise UserError(f"{_named(source)}: {text}") from problem
        if negative and source["kind"] in _PODS:
            raise UserError(
                message(
                    "{named}: {where}.{name}: {amount} is below zero; ask for 0 or more",
                    named=_named(source),
                    where=where,
                    name=name,
                    amount=amount,
                )
            )


def _check_counts(source: Json) -> None:
    spec = _at(source, "spec") if source["kind"] in _PODS else {}
    for field in _COUNTS:
        if isinstance(spec.get(field), int) and spec[field] < 0:
            raise UserError(
                message(
                    "{named}: spec.{field}: {spec} is below zero; 0 means none",
                    named=_named(source),
                    field=field,
                    spec=spec[field],
                )
            )


def read(paths: Iterable[str], kept: Collection[str] = ()) -> Objects:
    """Every object in files, folders, or `-` for the standard input; of the kinds `kept` also as it is written."""
    objects = Objects(kept)
    for name, text in list(texts(paths)):
        with _named_file(name):
            for document in _documents(text):
                for item in document if isinstance(document, list) else [document]:
                    objects.add(item)
    return objects


def documents(paths: Iterable[str]) -> list[Any]:
    """Every document in files, folders, or `-` for the standard input, as it is written."""
    values: list[Any] = []
    for name, text in list(texts(paths)):
        with _named_file(name):
            values += _documents(text)
    return values


@contextmanager
def _named_file(name: str) -> Iterator[None]:
    """Name the file in errors of what it holds."""
    try:
        yield
    except UserError as problem:
        raise UserError(f"{name}: {problem.message}") from problem
    except RecursionError as problem:
        raise UserError(message("{name}: nested too deeply to be a manifest", name=name)) from problem


def _documents(text: str) -> list[Any]:
    import yaml

    if text.lstrip().startswith(("{", "[")):
        with suppress(json.JSONDecodeError):  # then it is YAML in its short form
            return list(_in_a_row(text))
    from dovetail.offline.strict_yaml import StrictLoader

    try:
        documents = [document for document in yaml_document.load_all(text, StrictLoader) if document is not None]
    except yaml_document.NestedTooDeeply:
        raise
    except yaml.YAMLError as problem:
        raise UserError(message("not YAML: {problem}", problem=yaml_problem(problem))) from problem
    if _written(documents, {}) > _MOST_WRITTEN:
        raise UserError(message("aliases make it endless, or nearly so; write out what they stand for"))
    return documents


def _written(value: Any, sizes: dict[int, float]) -> float:
    """How many values there are once every alias is written out: no end of them where one is part of itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = inf
        members = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_written(member, sizes) for member in members)
    return sizes[id(value)]


def _mapping(pairs: list[tuple[str, Any]]) -> Json:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(message('"{twice}" is given twice in one object; keep one of them', twice=twice))
    return mapping


def _in_a_row(text: str) -> Iterator[Any]:
    """JSON documents one after the other, as several answers of kubectl come."""
    decoder, position = json.JSONDecoder(object_pairs_hook=_mapping), 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        document, position = decoder.raw_decode(text, position)
        yield document
