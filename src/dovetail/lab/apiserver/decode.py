"""Bodies: from the bytes of a request to an object of the expected kind, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dovetail.lab.apiserver import json_yaml, status_errors
from dovetail.lab.apiserver.canonicalize import go_value, normalise
from dovetail.lab.apiserver.pruning import prune
from dovetail.lab.apiserver.registry import Schema
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.model.validation.field_errors import invalid, quoted

Json = dict[str, Any]

ACCEPTED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
ACCEPTED_CUSTOM = ("application/json", "application/yaml")
PROTOBUF = "application/vnd.kubernetes.protobuf"
PEEK = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


class Expected(msgspec.Struct, frozen=True):
    """What the body of a request should be."""

    group: str
    version: str
    kind: str
    schema: Schema
    custom: bool = False
    go_type: str = ""
    #: The schema of another version of a custom resource.
    other: Callable[[str], Schema | None] = lambda version: None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower() or "application/json"


#: How much of a body an error shows, and how it shows none.
_SHOWN = 30
EMPTY = "<empty>"


def _hex_or_text(body: bytes) -> str:
    """A body as the real server quotes it in an error: text that starts like an object, else hexadecimal."""
    if not body:
        return EMPTY
    cut = " ..." if len(body) > _SHOWN else ""
    if body[:1] == b"{":
        return body[:_SHOWN].decode("utf-8", "replace") + cut
    return body[:_SHOWN].hex() + cut


def decode(body: bytes, content_type: str, expected: Expected, validation: str, warn: Callable[[str], None]) -> Json:
    """The object in normal form. Unknown and duplicate fields are refused, warned about or ignored as asked."""
    media = media_type(content_type)
    if media == PROTOBUF and not expected.custom:
        return _from_protobuf(body, expected)
    if media not in ACCEPTED_CUSTOM:
        raise status_errors.unsupported_media(ACCEPTED_CUSTOM if expected.custom else ACCEPTED)
    try:
        value, repeated = (json_yaml.parse_yaml if media == "application/yaml" else json_yaml.parse_json)(body)
    except json_yaml.SyntaxProblem as problem:
        prefix = "" if media == "application/yaml" else "couldn't get version/kind; json parse error: "
        raise _unrecognized(expected, f"{prefix}{problem} ({_hex_or_text(body)})") from problem
    if value is None:
        value = {}
    if not isinstance(value, dict):
        text = f"json: cannot unmarshal {go_value(value)} into Go value of type {PEEK}"
        raise _unrecognized(expected, f"couldn't get version/kind; json parse error: {text} ({_hex_or_text(body)})")
    if expected.custom:
        _check_kind_is_set(value, expected, body)
        obj = to_object(value, repeated, _as_declared(value, expected), validation, warn)
        _check_custom_identity(value, expected)
        return obj
    check_identity(value, expected, body)
    return to_object(value, repeated, expected, validation, warn)


#: Still taken from clients of before 1.22, and meaning the same.
_OLD_EVICTION = ("Eviction", "policy/v1beta1")


def _unrecognized(expected: Expected, text: str) -> StatusError:
    return status_errors.bad_request(f"the object provided is unrecognized (must be of type {expected.kind}): {text}")


def check_identity(value: Json, expected: Expected, body: bytes) -> None:
    """kind and apiVersion: the URL decides for built-ins, custom resources must say them."""
    if expected.custom:
        _check_kind_is_set(value, expected, body)
        _check_custom_identity(value, expected)
        return
    _check_identity_is_text(value, expected, body)
    kind = value.get("kind") or expected.kind
    api_version = value.get("apiVersion") or expected.api_version
    if (kind, api_version) == _OLD_EVICTION and kind == expected.kind:
        return
    if api_version != expected.api_version or kind != expected.kind:
        raise _mismatch(kind, api_version, expected)


def _check_identity_is_text(value: Json, expected: Expected, body: bytes) -> None:
    for name, item in value.items():
        if name in ("kind", "apiVersion") and item is not None and not isinstance(item, str):
            text = f"json: cannot unmarshal {go_value(item)} into Go struct field .{name} of type string"
            raise _unrecognized(expected, f"couldn't get version/kind; json parse error: {text} ({_hex_or_text(body)})")
    version = value.get("apiVersion") or ""
    if version.count("/") > 1:
        raise _unrecognized(expected, f"unexpected GroupVersion string: {version} ({_hex_or_text(body)})")


def _check_kind_is_set(value: Json, expected: Expected, body: bytes) -> None:
    _check_identity_is_text(value, expected, body)
    if not value.get("kind"):
        shown = body.decode("utf-8", "replace")
        raise _unrecognized(expected, f"Object 'Kind' is missing in '{shown}' ({_hex_or_text(body)})")


def _as_declared(value: Json, expected: Expected) -> Expected:
    """How a custom resource is read by what it says to be: another kind as it is, an unknown version as empty."""
    group, _, version = (value.get("apiVersion") or "").rpartition("/")
    if (group, version, value["kind"]) == (expected.group, expected.version, expected.kind):
        return expected
    fields = {name: field for name, field in expected.schema.fields.items() if name == "metadata"}
    if (group, value["kind"]) != (expected.group, expected.kind):
        return msgspec.structs.replace(expected, schema=Schema("object", fields=fields, preserve_unknown=True))
    return msgspec.structs.replace(expected, schema=expected.other(version) or Schema("object", fields=fields))


def _check_custom_identity(value: Json, expected: Expected) -> None:
    kind, api_version = value["kind"], value.get("apiVersion") or ""
    if api_version != expected.api_version:
        expected_version = expected.api_version
        text = (
            f"the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        )
        raise status_errors.bad_request(text)
    if kind != expected.kind:
        metadata = value.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise status_errors.invalid(expected.group, kind, name, [invalid("kind", kind, f"must be {expected.kind}")])


def _mismatch(kind: str, api_version: str, expected: Expected) -> StatusError:
    version = api_version.rpartition("/")[2]
    if kind == expected.kind and kind in _RETIRED.get(api_version, ()):
        expected_version = expected.api_version
        return status_errors.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        )
    start = f"{kind} in version {quoted(version)} cannot be handled as a {expected.kind}: "
    if (api_version != expected.api_version and kind == expected.kind) or not _known(kind, api_version):
        return status_errors.bad_request(
            f"{start}no kind {quoted(kind)} is registered for version {quoted(api_version)} "
            'in scheme "pkg/runtime/scheme.go:111"'
        )
    internal = expected.go_type or f"{expected.group.partition('.')[0] or 'core'}.{expected.kind}"
    return status_errors.bad_request(f"{start}converting ({version}.{kind}) to ({internal}): unknown conversion")


#: Versions that are not served any more and still known by name.
_RETIRED = {
    "extensions/v1beta1": ("Deployment", "DaemonSet", "ReplicaSet", "Ingress", "NetworkPolicy"),
    "apps/v1beta1": ("Deployment", "StatefulSet", "ControllerRevision"),
    "apps/v1beta2": ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "ControllerRevision"),
    "apps/v1": ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "ControllerRevision"),
    "batch/v1beta1": ("CronJob",),
    "autoscaling/v1": ("HorizontalPodAutoscaler",),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "policy/v1beta1": ("PodDisruptionBudget",),
    "networking.k8s.io/v1beta1": ("Ingress", "IngressClass"),
    "events.k8s.io/v1beta1": ("Event",),
    "events.k8s.io/v1": ("Event",),
    "v1": ("Event",),
    "discovery.k8s.io/v1beta1": ("EndpointSlice",),
    "storage.k8s.io/v1beta1": ("StorageClass", "CSIDriver", "CSINode", "VolumeAttachment"),
    "scheduling.k8s.io/v1beta1": ("PriorityClass",),
    "coordination.k8s.io/v1beta1": ("Lease",),
    "rbac.authorization.k8s.io/v1beta1": ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    "node.k8s.io/v1beta1": ("RuntimeClass",),
}


#: Kinds that belong to no resource.
_COMMON = frozenset(
    (
        *("List", "Status", "WatchEvent", "APIGroup", "APIResourceList", "CreateOptions", "DeleteOptions"),
        *("GetOptions", "ListOptions", "PatchOptions", "UpdateOptions"),
    )
)


def _known(kind: str, api_version: str) -> bool:
    """Whether the server has a kind of that name, served or not."""
    from dovetail.lab.apiserver.kinds.types import resources

    if kind in _COMMON or kind in _RETIRED.get(api_version, ()):
        return True
    group, _, version = api_version.rpartition("/")
    item_kind = kind.removesuffix("List")
    return any((row["group"], row["version"], row["kind"]) == (group, version, item_kind) for row in resources())


def to_object(
    value: Json,
    repeated: list[str],
    expected: Expected,
    validation: str,
    warn: Callable[[str], None],
    patch: Sequence[str] = (),
    by_name: bool = False,
    applied: bool = False,
) -> Json:
    """A document to an object in normal form. `patch` are complaints about the patch it was made by, which come first;
    `by_name` puts those about the document in the order of their names. `applied` keeps nulls of custom resources."""
    if expected.custom:
        obj, error, unknown = prune(expected.schema, value, applied)
        complaints = _merged(sorted(unknown, key=_metadata_first), repeated)
    else:
        obj, reading = normalise(expected.schema, value)
        error = reading.error
        complaints = _merged(sorted(reading.unknown) if by_name else reading.unknown, repeated)
    if error is not None:
        raise _cannot(expected, error, value)
    complaints = [*patch, *complaints]
    if complaints and validation != "Ignore":
        if validation == "Strict":
            raise _cannot(expected, "strict decoding error: " + ", ".join(complaints), value)
        for complaint in complaints:
            warn(complaint)
    return {"kind": expected.kind, "apiVersion": expected.api_version, **_without_identity(obj)}


def _merged(unknown: list[str], repeated: list[str]) -> list[str]:
    """YAML's duplicates come before the decoder's findings; JSON's are the decoder's own."""
    if repeated and repeated[0].startswith("line "):
        return repeated + unknown
    return unknown + repeated


def _without_identity(obj: Json) -> Json:
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def _metadata_first(complaint: str) -> tuple[bool, str]:
    return not complaint.startswith('unknown field "metadata.'), complaint


def _cannot(expected: Expected, error: str, declared: Json) -> StatusError:
    kind = declared.get("kind") or expected.kind
    version = (declared.get("apiVersion") or ("" if expected.custom else expected.version)).rpartition("/")[2]
    return status_errors.bad_request(
        f"{kind} in version {quoted(version)} cannot be handled as a {expected.kind}: {error}"
    )


def _from_protobuf(body: bytes, expected: Expected) -> Json:
    from dovetail.lab.apiserver import protobuf

    if body == protobuf.MAGIC:
        raise _unrecognized(expected, f"empty body ({_hex_or_text(body)})")
    try:
        api_version, kind, value = protobuf.read(body, expected.schema)
    except protobuf.ProtobufProblem as problem:
        raise _unrecognized(expected, f"{problem} ({_hex_or_text(body)})") from problem
    if (kind, api_version) != (expected.kind, expected.api_version):
        raise _mismatch(kind, api_version, expected)
    obj, reading = normalise(expected.schema, value)
    if reading.error is not None:
        raise _cannot(expected, reading.error, {})
    return {"kind": expected.kind, "apiVersion": expected.api_version, **_without_identity(obj)}
