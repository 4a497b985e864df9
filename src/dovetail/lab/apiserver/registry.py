"""The interface between the server's machinery and the meaning of kinds.

The machinery (routing, store, watch, patches, apply, tables) knows no kind; a kind knows no HTTP. Objects are plain
dicts in the storage version, in the form Go would print: zero values of `omitempty` fields absent, the others present,
quantities and times canonical. A hook may change the dict it is given; nothing changes one that was committed.

The order of a write, which error texts depend on:

create: decode by `schema` → `default` → `to_storage` → metadata (name, uid, creationTimestamp) → `admit` →
        `prepare_create` → `validate_create` (422) → `review` → `warnings` → commit → `committed`.
update: decode → `default` → `to_storage` → old generation kept → `admit` → `prepare_update` → metadata kept
        (uid, creationTimestamp, deletionTimestamp) → `validate_update` → `review` → `warnings` → commit if changed →
        `committed`.
delete: `admit` (operation DELETE) → `grace` → finalizers → commit → `committed`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from dovetail.chance import Chance
from dovetail.model.validation.field_errors import FieldError

Object = dict[str, Any]
ValueKind = Literal[
    "object",
    "array",
    "map",
    "string",
    "integer",
    "number",
    "boolean",
    "quantity",
    "intorstring",
    "time",
    "microtime",
    "duration",
    "bytes",
    "any",  # RawExtension, JSON, FieldsV1: kept as it came
]


class Schema(msgspec.Struct, eq=False):
    """One type. Named structs are shared, and may contain themselves; arrays and maps belong to their field.

    `name` is the Go type as messages print it ("v1.PodSpec", "int32", "[]v1.Container", "intstr.IntOrString"),
    `struct` the bare name for "Go struct field PodSpec.spec.x".
    """

    kind: ValueKind
    name: str = ""
    struct: str = ""
    definition: str = ""  # the OpenAPI definition, "io.k8s.api.core.v1.PodSpec"
    fields: dict[str, GoField] = {}
    items: Schema | None = None
    list_type: str = ""  # atomic | set | map
    list_keys: tuple[str, ...] = ()
    map_type: str = ""  # granular | atomic
    embedded: tuple[tuple[int, Schema], ...] = ()  # structs inlined in JSON, nested in protobuf: (number, struct)
    bits: int = 0  # integers: 32 or 64
    # CustomResources only
    preserve_unknown: bool = False
    embedded_resource: bool = False
    custom: Any = None  # crd.structural.Structural

    def __repr__(self) -> str:
        return f"Schema({self.kind} {self.name})"


class GoField(msgspec.Struct, eq=False):
    """A field of a struct, as Go declares it.

    `omitempty` false means the field is printed even when empty; `pointer` that a zero value differs from absence.
    """

    name: str
    schema: Schema
    go_name: str = ""
    pointer: bool = False
    omitempty: bool = True
    omitzero: bool = False
    required: bool = False
    number: int = 0  # protobuf
    patch_strategy: tuple[str, ...] = ()  # merge, replace, retainKeys
    merge_key: str = ""
    owner: str = ""  # the Go struct that declares it (inlined structs), "" for the struct itself
    default: Any = None  # what the published schema says; keys of list items take it under apply
    enum: tuple[str, ...] = ()


class RequestRefused(Exception):
    """A hook refuses the request with this Status: `code`, `reason`, `message`, `details` (None: an empty object)."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after


class StoredObjects(Protocol):
    """The stored objects as hooks see them, in storage versions. Writes go through the store, not through hooks."""

    def get(self, group: str, plural: str, namespace: str | None, name: str) -> Object | None: ...

    def list(self, group: str, plural: str, namespace: str | None = None) -> Iterable[Object]: ...

    def create(self, group: str, plural: str, obj: Object) -> Object: ...

    def update(self, group: str, plural: str, obj: Object, manager: str = "") -> Object:
        """Store a new state (no-op if equal); `manager` owns the changed fields in managedFields, "" leaves them."""
        ...

    def reread(self, group: str, plural: str) -> None:
        """Read the stored objects again by a schema that changed."""
        ...

    def granted_roles(self, user: str, namespace: str) -> Iterable[str]:
        """ClusterRoles that a user has in a namespace without a binding: by the access policies of a cloud."""
        ...

    def delete(self, group: str, plural: str, namespace: str | None, name: str, options: Object) -> Object:
        """Delete as a request with these DeleteOptions would; the object's last state, or the Status."""
        ...


#: Where logs come from: a function from (pod, container, query options) to text, or to pieces of text as they are
#: written where the options say `follow`; None where there are none.
LogSource = Callable[[Object, str, Object], bytes | AsyncIterator[bytes] | None]


class RequestContext(msgspec.Struct, kw_only=True):
    """One request, for hooks."""

    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    resource: ResourceType
    namespace: str | None
    name: str
    now: datetime
    chance: Chance
    cluster: StoredObjects
    registry: Registry
    subresource: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    options: Object = {}
    manager: str = ""
    #: A write as its request sees it, the new state and the old one, where that is not how they are stored.
    seen: tuple[Object, Object] | None = None
    #: A write through a view (scale) as mutating admission sees it: the view after and before.
    views: tuple[Object, Object] | None = None
    identify: Callable[[str], Object | None] = lambda token: None  # the user behind a bearer token
    #: Accepts a token of a service account: token, namespace, account, expiry.
    issue: Callable[[str, str, Object, datetime], None] = lambda token, namespace, account, until: None
    logs: LogSource = lambda pod, container, options: None
    warn: Callable[[str], None] = lambda text: None
    defer: Callable[[Callable[[], None]], None] = lambda action: None  # run after the response was made


class Reply(msgspec.Struct, kw_only=True):
    """What a subresource answers: a body and a code; `text` or `stream` instead of `body` for logs."""

    body: Object | None = None
    code: int = 200
    text: bytes | None = None
    stream: AsyncIterator[bytes] | None = None


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """`status` and its like are another path to the same object (no `view`, no `act`): updates arrive at the strategy
    with the subresource's name. `view`/`merge` show the object as another kind (scale). `act` is a verb of its own
    (eviction, binding, token): POST calls it with the object and the body. `complete` fills in the body between
    mutating and validating admission. `tracked` bodies tell webhooks who sent their fields."""

    name: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""
    schema: Schema | None = None
    view: Callable[[Object, ResourceType], Object] | None = None
    merge: Callable[[Object, Object, ResourceType], Object] | None = None
    act: Callable[[Object | None, Object, RequestContext], Reply] | None = None
    complete: Callable[[Object | None, Object, RequestContext], None] | None = None
    tracked: bool = False


class Converter(Protocol):
    """Objects of one version of a custom resource in another; `prepare` gets many at once."""

    def __call__(self, obj: Object, version: str) -> Object: ...

    def prepare(self, objects: Iterable[Object], version: str) -> None: ...


class RestStrategy:
    """What a kind means. The defaults here are those of a kind that means nothing in particular."""

    unconditional_update = True  # PUT without resourceVersion
    create_on_update = False  # PUT creates a missing one
    returns_deleted = False  # DELETE answers with the object
    generation = False  # the server counts spec changes in metadata.generation
    has_status_subresource = False  # `status` is written through its own subresource only
    status_keeps: Sequence[str] = ()  # what of its metadata such a write leaves as it was
    renamed_only = False  # versions differ in what their schemas keep; converting changes the version's name alone

    def default(self, obj: Object) -> None:
        """Fill in defaults, in the request's version."""

    def to_storage(self, obj: Object, version: str) -> Object:
        return obj

    def from_storage(self, obj: Object, version: str) -> Object:
        return obj

    def prepare(self, objects: Iterable[Object], version: str) -> None:
        """Said before many stored objects are shown in a version: their conversion may need answers from outside."""

    def is_current(self, obj: Object) -> bool:
        """Whether a stored object is in the version in which objects are stored now."""
        return True

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        """Admission plugins: may change `obj`, may raise Refusal."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Reset what a client may not set at creation; start `generation`."""

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        """Put back what this subresource (`ctx.subresource`) may not change; count `generation`."""

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return []

    def validate_update(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return []

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        """Validating admission: after validation, may raise Refusal, changes nothing (quota)."""

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        """Texts of Warning headers."""
        return []

    def selectable(self, obj: Object) -> Mapping[str, str]:
        """Field selector values besides metadata.name and metadata.namespace; the keys are the allowed labels."""
        return {}

    def selectable_fields(self) -> frozenset[str]:
        """The field labels that may be asked for, besides metadata.name and metadata.namespace."""
        return frozenset()

    def unknown_selector(self, label: str) -> str:
        """The 400 message for a field selector this kind does not know."""
        return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'

    def grace(self, obj: Object, requested: int | None) -> int | None:
        """Seconds of graceful deletion; None where the kind is deleted at once."""
        return None

    def delete_finalizers(self, obj: Object, options: Object) -> Sequence[str] | None:
        """The default propagation policy's finalizers; None leaves the object's own."""
        return None

    def terminate(self, obj: Object, ctx: RequestContext) -> Object | None:
        """For kinds whose deletion waits for something else (namespaces, definitions): the state to keep instead of
        deleting; None to delete as usual."""
        return None

    def committed(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        """After the write: obj None is a deletion, old None a creation. `ctx.defer` what should follow the response."""

    def answer(self, obj: Object, ctx: RequestContext) -> Object:
        """For kinds that are not stored (reviews): the response to a create."""
        return obj


class CustomResourceColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A printer column of a custom resource."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0
    value: Callable[[Object], Any] | None = None  # the compiled JSONPath


class ResourceType(msgspec.Struct, eq=False, kw_only=True):
    """One resource in one served version."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    schema: Schema
    strategy: RestStrategy
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = {}
    storage: tuple[str, str] = ("", "")  # group and version that the store keeps (events: core/v1)
    storage_plural: str = ""
    stored: bool = True
    custom: bool = False
    columns: tuple[CustomResourceColumn, ...] = ()
    deprecation: str = ""  # a Warning header for every request
    storage_hash: str = ""
    definition: Object | None = None  # the CRD of a custom resource

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as NotFound and Conflict print it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind with its group, as Invalid prints it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class Registry:
    """Every served resource type. Custom ones come and go; a discovery cache compares `generation`."""

    def __init__(self, types: Iterable[ResourceType] = ()) -> None:
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        self._stored: dict[tuple[str, str], ResourceType] = {}
        self._equivalents: dict[tuple[str, str], list[ResourceType]] = {}
        self._listeners: list[Callable[[], None]] = []
        #: Conversions between versions by the definition's name: (object, wanted version) -> object.
        self.converters: dict[str, Callable[[Object, str], Object]] = {}
        #: Makes the converter of a definition whose strategy is Webhook.
        self.webhook_converter: Callable[[Object], Converter] | None = None
        self.generation = 0
        for resource in types:
            self._types[resource.group, resource.version, resource.plural] = resource

    def lookup(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ResourceType | None:
        return next((t for t in self._types.values() if (t.group, t.version, t.kind) == (group, version, kind)), None)

    def stored(self, group: str, plural: str) -> ResourceType | None:
        """The type in which the store keeps a resource."""
        stored = self._stored.get((group, plural))
        if stored is None:
            candidates = [t for t in self._types.values() if (t.group, t.plural) == (group, plural)]
            kept = [t for t in candidates if t.storage == (t.group, t.version)]
            if not candidates:
                return None
            stored = self._stored[group, plural] = (kept or candidates)[0]
        return stored

    def equivalents(self, resource: ResourceType) -> Sequence[ResourceType]:
        """Every served version of what the store keeps in one place, the resource itself included."""
        if not self._equivalents:
            for item in self._types.values():
                if item.stored:
                    key = (item.storage[0], item.storage_plural or item.plural)
                    self._equivalents.setdefault(key, []).append(item)
        return self._equivalents.get((resource.storage[0], resource.storage_plural or resource.plural), [])

    def all(self) -> list[ResourceType]:
        return list(self._types.values())

    def versions(self, group: str) -> list[str]:
        return list(dict.fromkeys(t.version for t in self._types.values() if t.group == group))

    def replace_custom(self, group: str, plural: str, types: Iterable[ResourceType]) -> None:
        """The served versions of one CRD, anew; an empty iterable takes the resource away."""
        self._stored.clear()
        self._equivalents.clear()
        for key in [k for k, t in self._types.items() if t.custom and (t.group, t.plural) == (group, plural)]:
            del self._types[key]
        for resource in types:
            self._types[resource.group, resource.version, resource.plural] = resource
        self.generation += 1
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
