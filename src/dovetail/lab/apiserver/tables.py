"""Tables: what `kubectl get` prints, made by the server.

Each kind has its columns in `columns`; other kinds show name and age, custom resources what their definition says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.negotiation import ResponseForm
from dovetail.lab.apiserver.printers import pods
from dovetail.lab.apiserver.printers.cells import ColumnHeader, age
from dovetail.lab.apiserver.printers.layout import DEFAULT
from dovetail.lab.apiserver.printers.registry import layout_of
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.model.validation.field_errors import invalid

Json = dict[str, Any]


class TableOptions(msgspec.Struct, frozen=True):
    include: str = "Metadata"

    @classmethod
    def of(cls, request: Request) -> TableOptions:
        include = request.parameter("includeObject") or "Metadata"
        if include not in ("Metadata", "Object", "None"):
            problem = invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
            raise status_errors.bad_request(f"Unable to convert to Table as requested: {problem}")
        return cls(include)


def of_objects(
    call: RequestCall,
    objects: list[Json],
    metadata: Json,
    form: ResponseForm,
    options: TableOptions,
    watch: bool = False,
) -> Json:
    headers, cells = layout(call.resource, call)
    now = call.server.clock.now()
    if call.resource.plural == "flowschemas":  # the one kind that is shown in the order of its effect
        objects = sorted(objects, key=lambda obj: (obj["spec"].get("matchingPrecedence", 0), obj["metadata"]["name"]))
    rows = [{"cells": cells(obj, now), "object": _object(obj, options, form)} for obj in objects]
    if call.resource.plural == "pods" and not call.resource.group:
        for row, obj in zip(rows, objects, strict=True):
            finished = pods.conditions(obj)
            if finished:
                row["conditions"] = finished
    if not metadata and len(objects) == 1:
        metadata = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return _table(headers, rows or (None if headers is DEFAULT[0] else []), metadata, form)


def of_pods(call: RequestCall, texts: Iterable[bytes], metadata: Json, form: ResponseForm, whole: bool) -> Json:
    """Pods come by the ten thousand: of a stored text only what the cells show is decoded, the metadata stay text.

    A list answered as `whole` leaves out managedFields: it is most of the text, and shown nowhere.
    """
    now = call.server.clock.now()
    decode: Callable[[bytes], Any] = _decode_unmanaged if whole else _decode_metadata
    rows = []
    for text in texts:
        pod = pods.decode_shown(text)
        partial = _partial(decode(text).metadata, form)
        row: Json = {"cells": pods.cells(pod, now), "object": partial}
        finished = pods.conditions(pod)
        if finished:
            row["conditions"] = finished
        rows.append(row)
    return _table(pods.HEADERS, rows, metadata, form)


def _table(headers: Sequence[ColumnHeader], rows: list[Json] | None, metadata: Json, form: ResponseForm) -> Json:
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": metadata,
        "columnDefinitions": [header.definition() for header in headers],
        "rows": rows,
    }


class _Metadata(msgspec.Struct):
    """An object of which only the metadata matter, and those as they are written."""

    metadata: msgspec.Raw


#: What metadata hold beside their managers.
_DESCRIBED = (
    *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers"),
)
_Described = msgspec.defstruct(
    "_Described",
    [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in _DESCRIBED],
    omit_defaults=True,
)


_decode_metadata = msgspec.json.Decoder(_Metadata).decode
_decode_unmanaged = msgspec.json.Decoder(msgspec.defstruct("_Unmanaged", [("metadata", _Described)])).decode


def bookmark(call: RequestCall, obj: Json, form: ResponseForm, header: bool, shown: bool) -> Json:
    """A bookmark among tables: one row with the cells of an empty object."""
    headers, cells = layout(call.resource, call)
    empty = {"metadata": {"name": ""}, "apiVersion": call.resource.api_version}
    partial = _partial(obj["metadata"], form) if shown else None
    row = {"cells": cells(empty, call.server.clock.now()), "object": partial}
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
        "columnDefinitions": [header.definition() for header in headers] if header else None,
        "rows": [row],
    }


def _object(obj: Json, options: TableOptions, form: ResponseForm) -> Json | None:
    if options.include == "None":
        return None
    if options.include == "Object":
        return obj
    return _partial(_metadata(obj["metadata"]), form)


def _partial(metadata: Json | msgspec.Raw | msgspec.Struct, form: ResponseForm) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{form.version}", "metadata": metadata}


#: Lives in a field of its own inside the real server, and is not among the annotations there.
_INNER = "deprecated.daemonset.template.generation"


def _metadata(metadata: Json) -> Json:
    annotations = metadata.get("annotations")
    if not annotations or _INNER not in annotations:
        return metadata
    left = {name: item for name, item in annotations.items() if name != _INNER}
    rest = {name: item for name, item in metadata.items() if name != "annotations"}
    return {**rest, "annotations": left} if left else rest


Cells = Callable[[Json, datetime], list[Any]]


def layout(resource: ResourceType, call: RequestCall) -> tuple[tuple[ColumnHeader, ...], Cells]:
    if call.subresource_type is not None and call.subresource_type.view is not None:
        layout = layout_of("autoscaling", "scales")
    elif resource.custom:
        return _custom(resource)
    else:
        layout = layout_of(resource.group, resource.plural)
    return layout or DEFAULT


def _custom(resource: ResourceType) -> tuple[tuple[ColumnHeader, ...], Cells]:
    chosen = resource.columns
    headers = [ColumnHeader("Name", format="name")]
    headers += [
        ColumnHeader(column.name, column.type, column.format, column.priority, column.description) for column in chosen
    ]

    def cells(obj: Json, now: datetime) -> list[Any]:
        row: list[Any] = [obj["metadata"]["name"]]
        for column in chosen:
            value = column.value(obj) if column.value is not None else None
            row.append(age(value, now) if column.type == "date" and isinstance(value, str) else value)
        return row

    if not chosen:
        return (ColumnHeader("Name", format="name"), ColumnHeader("Age", "date")), lambda obj, now: [
            obj["metadata"]["name"],
            age(obj["metadata"].get("creationTimestamp"), now),
        ]
    return tuple(headers), cells
