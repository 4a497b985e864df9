"""managedFields: the manager of each field, updated by every write.

A manager is a name, an operation, a subresource and, for updates, a version. An update takes what it changes from
other managers; beyond ten updaters the oldest share one entry. Tracking stays off for an object whose entries were
cleared, until the next apply.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.apiserver import canonicalize, fieldpath, structured_merge, typed_validation
from dovetail.lab.apiserver.fieldpath import Node, Path
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.registry import Registry, ResourceType, Subresource

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode
MAX_UPDATERS = 10
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
_META = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
)
#: Identity and bookkeeping, which no manager owns.
_UNOWNED_FIELDS: Node = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {fieldpath.SELF: {}, **{f"f:{name}": {} for name in _META}},
}


class Manager(msgspec.Struct, frozen=True):
    """Who owns. Appliers are the same in every version."""

    name: str
    operation: str
    version: str = ""
    subresource: str = ""

    def shown(self) -> str:
        """As a conflict names it."""
        from dovetail.model.validation.field_errors import quoted

        text = quoted(self.name)
        if self.subresource:
            text += f" with subresource {quoted(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == "Update" else text


class Owned(msgspec.Struct):
    """What a manager owns, in which version it is written down, and since when."""

    fields: Node
    version: str
    time: str | None = None


Managers = dict[Manager, Owned]


def read(entries: list[Json] | None, stored: bool = False) -> Managers | None:
    """The managers of an object; None if the entries make no sense. Stored sets were looked at when they came."""
    managers: Managers = {}
    for entry in entries or []:
        operation = entry.get("operation", "")
        version = entry.get("apiVersion", "")
        fields = entry.get("fieldsV1") or {}
        sound = operation in ("Apply", "Update") and version and entry.get("fieldsType") == "FieldsV1"
        if not sound or not (stored or fieldpath.valid(fields)):
            return None
        applier = operation == "Apply"
        manager = Manager(entry.get("manager", ""), operation, "" if applier else version, entry.get("subresource", ""))
        managers[manager] = Owned(fields, version, entry.get("time"))
    return managers


def write(managers: Managers) -> list[Json]:
    entries: list[Json] = []
    for manager, owned in managers.items():
        entry: Json = {"manager": manager.name, "operation": manager.operation, "apiVersion": owned.version}
        if owned.time is not None:
            entry["time"] = owned.time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = owned.fields
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    entries.sort(
        key=lambda entry: (
            entry["operation"],
            entry.get("time", ""),
            entry["manager"],
            entry["apiVersion"],
            entry.get("subresource", ""),
        )
    )
    return entries


def put(obj: Json, managers: Managers) -> None:
    if managers:
        obj["metadata"]["managedFields"] = write(managers)
    else:
        obj["metadata"].pop("managedFields", None)


def is_reset(entries: Any) -> bool:
    """An empty list, or a list of one empty entry, clears everything."""
    if not isinstance(entries, list):
        return False
    return not entries or (len(entries) == 1 and not any(entries[0].values()))


def ignored(resource: ResourceType, subresource: str) -> tuple[Path, ...]:
    """The fields a subresource discards; no manager can come to own them through it."""
    if subresource == "status":
        if resource.custom:
            return (("f:metadata",), ("f:spec",))
        if resource.plural == "pods":
            return (
                ("f:spec",),
                ("f:metadata", "f:deletionTimestamp"),
                ("f:metadata", "f:ownerReferences"),
            )
        return (("f:spec",), *(("f:metadata", f"f:{name}") for name in resource.strategy.status_keeps))
    if subresource in ("resize", "ephemeralcontainers"):
        return ()  # what such a write puts back is still counted as written
    return (("f:status",),) if "status" in resource.subresources else ()


def strip(fields: Node) -> Node:
    return fieldpath.difference(fields, _UNOWNED_FIELDS)


class Unreadable(Exception):
    """An object does not fit a version its fields are owned in: all ownership is dropped."""


class Versions:
    """The change of an object, in whichever version a manager wrote its fields down."""

    def __init__(
        self, resource: ResourceType, registry: Registry | None, old: Json, new: Json, subresource: str
    ) -> None:
        self.resource = resource
        self.registry = registry
        self.old = old
        self.new = new
        self.ignored = ignored(resource, subresource)
        own = structured_merge.compare(resource.schema, old, new).without(self.ignored)
        self._changes: dict[str, structured_merge.FieldChanges | None] = {resource.api_version: own}

    def change(self, version: str) -> structured_merge.FieldChanges | None:
        """None if the version is not served any more, or is another group's: its managers are forgotten."""
        if version not in self._changes:
            self._changes[version] = self._converted(version)
        return self._changes[version]

    def _converted(self, version: str) -> structured_merge.FieldChanges | None:
        group, _, short = version.rpartition("/")
        other = self.registry.lookup(group, short, self.resource.plural) if self.registry is not None else None
        if other is None or group != self.resource.group:
            return None
        old, new = (convert(version, self.resource, other) for version in (self.old, self.new))
        if other.custom:
            problems = typed_validation.problems(other.schema, old) or typed_validation.problems(other.schema, new)
            if problems:
                raise Unreadable(typed_validation.message(problems))
        return structured_merge.compare(other.schema, old, new).without(self.ignored)


def convert(obj: Json, resource: ResourceType, other: ResourceType) -> Json:
    """An object in another version of its resource."""
    copy: Json = msgspec.json.decode(msgspec.json.encode(obj))
    if resource.strategy.renamed_only:
        return {**copy, "apiVersion": other.api_version}
    stored = copy
    if resource.storage != (resource.group, resource.version):
        stored = resource.strategy.to_storage(copy, resource.version)
    if other.storage != (other.group, other.version):
        stored = other.strategy.from_storage(stored, other.version)
    return {**stored, "kind": other.kind, "apiVersion": other.api_version}


def take(managers: Managers, versions: Versions, keep: Manager | None) -> Managers:
    """Every manager but `keep` loses the fields that changed or went."""
    out: Managers = {}
    for manager, owned in managers.items():
        if manager == keep:
            out[manager] = owned
            continue
        change = versions.change(owned.version)
        if change is None:
            continue
        fields = owned.fields
        for gone in (change.modified, change.added, change.removed):
            if gone:
                fields = fieldpath.difference(fields, gone)
        if fields:
            out[manager] = Owned(fields, owned.version, owned.time)
    return out


def _cap(managers: Managers) -> Managers:
    updaters = [manager for manager in managers if manager.operation == "Update"]
    if len(updaters) <= MAX_UPDATERS:
        return managers
    updaters.sort(
        key=lambda updater: (managers[updater].time or "", updater.name, updater.version, updater.subresource)
    )
    out = dict(managers)
    count = len(updaters)
    first: dict[str, Manager] = {}
    for manager in updaters:
        if count <= MAX_UPDATERS:
            break
        owned = out[manager]
        bucket = Manager(ANCIENT, "Update", owned.version)
        if owned.version not in first:
            first[owned.version] = manager
            continue
        if bucket not in out:
            out[bucket] = out.pop(first[owned.version])
        out[bucket] = Owned(fieldpath.union(owned.fields, out[bucket].fields), owned.version, owned.time)
        del out[manager]
        count -= 1
    return out


def _live_or_new(old: Json | None, new: Json, subresource: str) -> Managers:
    """The managers to go on from: those of the request if it brings sound ones, else the stored ones."""
    kept = old["metadata"].get("managedFields") if old is not None else None
    stored = read(kept, stored=True) or {}
    if subresource:
        return stored
    given = new["metadata"].get("managedFields")
    if is_reset(given):
        return {}
    if given == kept:
        return stored
    managers = read(given)
    return managers or stored


def track_create(resource: ResourceType, obj: Json, manager: str, now: datetime) -> None:
    """The creator owns everything it sent, defaults included."""
    given = obj["metadata"].pop("managedFields", None)
    if is_reset(given):
        return
    managers = read(given) or {}
    fields = _created_fields(resource, obj)
    if fields:
        own = Manager(manager, "Update", resource.api_version)
        managers = {**managers, own: Owned(fields, resource.api_version, stamp(now))}
    put(obj, managers)


def track_body(subresource: Subresource, body: Json, manager: str, now: datetime) -> None:
    """The sender of a body that is not stored owns all of it."""
    body["metadata"].pop("managedFields", None)
    assert subresource.schema is not None
    change = structured_merge.compare(subresource.schema, canonicalize.zero(subresource.schema), body)
    fields = strip(fieldpath.union(change.modified, change.added))
    version = f"{subresource.group}/{subresource.version}".removeprefix("/")
    if fields:
        put(body, {Manager(manager, "Update", version, subresource.name): Owned(fields, version, stamp(now))})


#: What creators came to own lately, by everything of the object that decides it: the pods of an owner are all alike.
_created: OrderedDict[tuple[int, bytes], tuple[ResourceType, Node]] = OrderedDict()
_CREATED_LIMIT = 256


def _created_fields(resource: ResourceType, obj: Json) -> Node:
    """What the creator of an object owns; the set is shared."""
    metadata = {name: item for name, item in obj["metadata"].items() if name not in _META}
    key = (id(resource), _encode({**obj, "metadata": metadata}))
    cached = _created.get(key)
    if cached is not None and cached[0] is resource:
        _created.move_to_end(key)
        return cached[1]
    change = structured_merge.compare(resource.schema, zero_of(resource), obj).without(ignored(resource, ""))
    fields = strip(fieldpath.union(change.modified, change.added))
    _created[key] = (resource, fields)
    if len(_created) > _CREATED_LIMIT:
        _created.popitem(last=False)
    return fields


_zeros: dict[int, tuple[ResourceType, Json]] = {}


def zero_of(resource: ResourceType) -> Json:
    """An empty object of the kind, to be read and not changed."""
    zero = _zeros.get(id(resource))
    if zero is None or zero[0] is not resource:
        empty = {"kind": resource.kind, "apiVersion": resource.api_version}
        zero = _zeros[id(resource)] = (resource, empty if resource.custom else canonicalize.zero(resource.schema))
    return zero[1]


def track_update(
    resource: ResourceType,
    old: Json,
    obj: Json,
    manager: str,
    subresource: str,
    now: datetime,
    registry: Registry | None = None,
) -> None:
    """The updater owns what it changed; others lose it. Nothing changes where nothing is tracked."""
    managers = _live_or_new(old, obj, subresource)
    obj["metadata"].pop("managedFields", None)
    if not managers:
        return
    before = {**old, "metadata": {k: v for k, v in old["metadata"].items() if k != "managedFields"}}
    own = Manager(manager, "Update", resource.api_version, subresource)
    try:
        put(obj, updated(resource, registry, managers, before, obj, own, now))
    except Unreadable:
        obj["metadata"].pop("managedFields", None)


def updated(
    resource: ResourceType,
    registry: Registry | None,
    managers: Managers,
    old: Json,
    new: Json,
    own: Manager,
    now: datetime,
) -> Managers:
    versions = Versions(resource, registry, old, new, own.subresource)
    change = versions.change(resource.api_version)
    assert change is not None
    managers = take(managers, versions, None)
    fields = strip(change.touched())
    if fields:
        previous = managers.get(own)
        if previous is not None:
            fields = fieldpath.union(fields, previous.fields)
        managers[own] = Owned(fields, resource.api_version, stamp(now))
    return _cap(managers)


def equal_but_for_times(first: Json, other: Json) -> bool:
    """Whether two objects are the same apart from when their fields were written."""
    mine, theirs = first["metadata"], other["metadata"]
    if mine.keys() != theirs.keys() or first.keys() != other.keys():
        return False
    if any(first[name] != other[name] for name in first if name != "metadata"):
        return False
    if any(mine[name] != theirs[name] for name in mine if name != "managedFields"):
        return False
    left, right = mine.get("managedFields"), theirs.get("managedFields")
    if left == right:
        return True
    return _without_times(left) == _without_times(right)


def _without_times(entries: Any) -> list[Json]:
    return [{name: item for name, item in entry.items() if name != "time"} for entry in entries or []]
