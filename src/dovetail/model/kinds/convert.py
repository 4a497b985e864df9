"""Any generation to any other. v1 is the form we work in.

There and back is the identity: what a generation cannot say is remembered in an annotation (`memory`), beside
the annotations that upstream's own webhook writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.model.kinds import convert_v1alpha5, convert_v1beta1
from dovetail.model.kinds.conversion_annotations import (
    annotation,
    copied,
    copy,
    differences,
    put,
    read,
    recall,
    same,
    take,
    with_own_annotations,
    write,
)
from dovetail.model.kinds.notes import Notes
from dovetail.model.kinds.schema import Json
from dovetail.model.labels import AWS_GROUP, GROUP

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ConversionError(ValueError):
    """The object cannot be had in that generation; the message says why."""


class ConversionStep(msgspec.Struct, frozen=True):
    """A kind in an older generation, and the plain steps to v1 and back."""

    group: str
    version: str
    kind: str
    v1_kind: str
    up: Callable[[Json, Notes], Json]
    down: Callable[[Json], Json]


def _then(first: Callable[[Json, Notes], Json], second: Callable[[Json, Notes], Json]) -> Callable[[Json, Notes], Json]:
    return lambda obj, notes: second(first(obj, notes), notes)


def _after(first: Callable[[Json], Json], second: Callable[[Json], Json]) -> Callable[[Json], Json]:
    return lambda obj: second(first(obj))


STEPS = (
    ConversionStep(GROUP, "v1beta1", "NodePool", "NodePool", convert_v1beta1.pool_up, convert_v1beta1.pool_down),
    ConversionStep(GROUP, "v1beta1", "NodeClaim", "NodeClaim", convert_v1beta1.claim_up, convert_v1beta1.claim_down),
    ConversionStep(
        AWS_GROUP, "v1beta1", "EC2NodeClass", "EC2NodeClass", convert_v1beta1.class_up, convert_v1beta1.class_down
    ),
    ConversionStep(
        GROUP,
        "v1alpha5",
        "Provisioner",
        "NodePool",
        _then(convert_v1alpha5.provisioner_up, convert_v1beta1.pool_up),
        _after(convert_v1beta1.pool_down, convert_v1alpha5.provisioner_down),
    ),
    ConversionStep(
        GROUP,
        "v1alpha5",
        "Machine",
        "NodeClaim",
        _then(convert_v1alpha5.machine_up, convert_v1beta1.claim_up),
        _after(convert_v1beta1.claim_down, convert_v1alpha5.machine_down),
    ),
    ConversionStep(
        AWS_GROUP,
        "v1alpha1",
        "AWSNodeTemplate",
        "EC2NodeClass",
        _then(convert_v1alpha5.template_up, convert_v1beta1.class_up),
        _after(convert_v1beta1.class_down, convert_v1alpha5.template_down),
    ),
)
_OLDER = {(f"{step.group}/{step.version}", step.kind): step for step in STEPS}
_DOWN = {(step.v1_kind, step.version): step for step in STEPS}


def generation(obj: Mapping[str, Any]) -> ConversionStep | None:
    """The step that an object of an older generation must take."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    return _OLDER.get((version, kind)) if isinstance(version, str) and isinstance(kind, str) else None


def to_v1(obj: Mapping[str, Any], notes: Notes | None = None) -> Json:
    """The v1 form of an object of any generation; an object that is not ours comes back as it is.

    An inline `provider` of a Provisioner is an object of its own: see `expand`.
    """
    step = generation(obj)
    if step is None:
        return _mended(copied(obj))
    source = copied(obj)
    remembered = read(take(source, annotation("v1")))
    converted = recall(_up(source, step, notes if notes is not None else Notes()), remembered)
    if differences(obj, _down(converted, step)):
        converted = with_own_annotations(converted)
        put(converted, annotation(step.version), write(differences(obj, _down(converted, step))))
    return converted


def from_v1(obj: Mapping[str, Any], version: str) -> Json:
    """The object as that generation would say it: `v1beta1`, `v1alpha5`, `v1alpha1`, with or without the group."""
    short = version.rpartition("/")[2]
    if short == "v1":
        return copied(obj)
    step = _DOWN.get((str(obj.get("kind")), short))
    if step is None:
        raise ConversionError(
            message(
                "{kind} {apiVersion} has no {short} form",
                kind=obj.get("kind"),
                apiVersion=obj.get("apiVersion"),
                short=short,
            )
        )
    source = copied(obj)
    remembered = read(take(source, annotation(step.version)))
    return recall(_down(source, step), remembered)


def _down(source: Json, step: ConversionStep) -> Json:
    """The older form of a v1 object, with what it cannot say of v1 remembered in it."""
    converted = _relabel(step.down(with_own_annotations(source)), f"{step.group}/{step.version}", step.kind)
    if differences(source, _up(converted, step, Notes())):
        converted = with_own_annotations(converted)
        put(
            converted, annotation("v1"), write(differences(source, _up(with_own_annotations(converted), step, Notes())))
        )
    return converted


def _up(source: Json, step: ConversionStep, notes: Notes) -> Json:
    return _relabel(step.up(with_own_annotations(source), notes), f"{step.group}/v1", step.v1_kind)


def _relabel(obj: Json, api_version: str, kind: str) -> Json:
    return {**obj, "apiVersion": api_version, "kind": kind}


def convert(obj: Mapping[str, Any], api_version: str) -> Json:
    """Between two versions of one definition, as a conversion webhook must."""
    short = str(obj.get("apiVersion")).rpartition("/")[2]
    if short == api_version.rpartition("/")[2]:
        return copied(obj)
    return from_v1(to_v1(obj), api_version)


def review(body: Mapping[str, Any]) -> Json:
    """The answer to a ConversionReview."""
    request = body.get("request")
    if not isinstance(request, Mapping):
        raise ConversionError(message("not a ConversionReview: it has no request"))
    desired = str(request.get("desiredAPIVersion"))
    response: Json = {"uid": request.get("uid", ""), "convertedObjects": [], "result": {"status": "Success"}}
    try:
        objects = [_readable(number, obj) for number, obj in enumerate(request.get("objects") or ())]
        response["convertedObjects"] = [_converted(number, obj, desired) for number, obj in enumerate(objects)]
    except ConversionError as error:
        response["result"] = {"status": "Failure", "message": str(error)}
    return {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "response": response}


def _readable(number: int, obj: object) -> Mapping[str, Any]:
    """An object of a review, with the parts that every object has in the form that they must have."""
    if not isinstance(obj, Mapping):
        raise ConversionError(
            message("request.objects[{number}]: is {obj!r}, and must be an object", number=number, obj=obj)
        )
    for field in ("metadata", "spec", "status"):
        if not isinstance(obj.get(field, {}), Mapping):
            name = (obj.get("metadata") or {}).get("name", "") if field != "metadata" else ""
            where = f"request.objects[{number}]{f' ({name})' if name else ''}.{field}"
            raise ConversionError(message("{where}: is {obj!r}, and must be an object", where=where, obj=obj[field]))
    return obj


def _converted(number: int, obj: Mapping[str, Any], desired: str) -> Json:
    try:
        return convert(obj, desired)
    except ConversionError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = (obj.get("metadata") or {}).get("name", "")
        why = message(
            "request.objects[{number}] ({name}): cannot be converted to {desired}: {error}",
            number=number,
            name=name,
            desired=desired,
            error=error,
        )
        raise ConversionError(why) from error


def _mended(obj: Json) -> Json:
    """A v1 object that came through a v1beta1 door without a converter: the server changed its label only.

    What the server pruned on the way is in kubectl's last-applied annotation, where there is one.
    """
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if version not in (f"{GROUP}/v1", f"{AWS_GROUP}/v1") or not _looks_beta(obj):
        return obj
    old = {**obj, "apiVersion": str(version).replace("/v1", "/v1beta1")}
    applied = _applied(obj)
    if applied is not None and applied.get("apiVersion") == old["apiVersion"] and applied.get("kind") == kind:
        old["spec"] = applied.get("spec", obj.get("spec"))
    step = generation(old)
    return obj if step is None else _relabel(step.up(copied(old), Notes()), str(version), str(kind))


def mending(obj: Mapping[str, Any]) -> Json | None:
    """The merge patch that makes a v1 object right which came through a v1beta1 door unconverted; None if it is."""
    mended = _mended(copied(obj))
    if same(mended, obj):
        return None
    return {key: _merge_patch(obj.get(key, {}), mended.get(key, {})) for key in ("metadata", "spec")}


def _merge_patch(old: Any, new: Any) -> Any:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return copy(new)
    patch: Json = dict.fromkeys(key for key in old if key not in new)
    for key, value in new.items():
        if key not in old or not same(old[key], value):
            patch[key] = _merge_patch(old[key], value) if key in old else copy(value)
    return patch


def _looks_beta(obj: Json) -> bool:
    if obj.get("kind") == "NodePool":
        spec = convert_v1beta1.member(obj, "spec")
        reference = convert_v1beta1.member(spec, "template", "spec", "nodeClassRef")
        policy = convert_v1beta1.member(spec, "disruption").get("consolidationPolicy")
        return policy == "WhenUnderutilized" or (bool(reference) and "group" not in reference)
    if obj.get("kind") == "NodeClaim":
        reference = convert_v1beta1.member(obj, "spec", "nodeClassRef")
        return bool(reference) and "group" not in reference
    spec = convert_v1beta1.member(obj, "spec")
    return obj.get("kind") == "EC2NodeClass" and "amiFamily" in spec and not spec.get("amiSelectorTerms")


def _applied(obj: Json) -> Json | None:
    text = convert_v1beta1.member(obj, "metadata", "annotations").get(LAST_APPLIED)
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def expand(obj: Mapping[str, Any], notes: Notes | None = None) -> list[Json]:
    """Everything an object means, in v1: a Provisioner with an inline provider is a pool and a class."""
    objects_ = [to_v1(obj, notes)]
    provider = convert_v1beta1.member(obj, "spec", "provider")
    if obj.get("kind") == "Provisioner" and provider:
        metadata = {"name": convert_v1beta1.member(obj, "metadata").get("name")}
        template = {
            "apiVersion": f"{AWS_GROUP}/v1alpha1",
            "kind": "AWSNodeTemplate",
            "metadata": metadata,
            "spec": provider,
        }
        objects_.append(to_v1(template, notes))
    return objects_


class Collision(msgspec.Struct, frozen=True):
    """Two objects that would be one in v1."""

    kind: str
    name: str
    sources: tuple[str, str]

    @property
    def text(self) -> str:
        first, second = self.sources
        return message(
            '{first} "{name}" and {second} "{name}" are both {kind} "{name}" in v1: rename one of '
            "them, or delete the {second} once its nodes belong to the {first}",
            first=first,
            name=self.name,
            second=second,
            kind=self.kind,
        )


def gather(objects: Iterable[Mapping[str, Any]]) -> tuple[dict[tuple[str, str], Json], list[Collision]]:
    """Objects of all generations as one set of v1 objects, by kind and name; the newest generation wins a name."""
    merged: dict[tuple[str, str], Json] = {}
    origin: dict[tuple[str, str], str] = {}
    collisions = []
    for obj in sorted(objects, key=lambda obj: generation(obj) is not None):
        for converted in expand(obj):
            key = (str(converted.get("kind")), str(convert_v1beta1.member(converted, "metadata").get("name")))
            if key in merged:
                collisions.append(Collision(*key, (origin[key], str(obj.get("kind")))))
            else:
                merged[key], origin[key] = converted, str(obj.get("kind"))
    return merged, collisions
