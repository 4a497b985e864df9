"""What every object's metadata must obey, at creation and when it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, quoted, required, too_long

NameRule = Callable[[str], Sequence[str]]
IMMUTABLE = "field is immutable"
ANNOTATIONS_LIMIT = 256 * 1024


def prefix_form(name: str) -> str:
    """A generateName as the name rules see it: a trailing dash stands for what will follow it."""
    return name[:-2] + "a" if len(name) > 1 and name.endswith("-") else name


def labels(values: Mapping[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key in sorted(values):
        errors += [invalid(path, key, text) for text in formats.qualified_name(key)]
        errors += [invalid(path, values[key], text) for text in formats.label_value(values[key])]
    return errors


def annotation_set(values: Mapping[str, str], path: str) -> list[FieldError]:
    errors = []
    total = 0
    for key in sorted(values):
        errors += [invalid(path, key, text) for text in formats.qualified_name(key.lower())]
        total += formats.size(key) + formats.size(values[key])
    if total > ANNOTATIONS_LIMIT:
        errors.append(too_long(path, ANNOTATIONS_LIMIT))
    return errors


def owner_references(references: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for reference in references:
        errors += _owner_reference(reference, path)
        if reference.get("controller"):
            current = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                text = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {current}'
                )
                errors.append(invalid(path, [_in_order(reference) for reference in references], text))
            else:
                controller = current
    return errors


def _owner_reference(reference: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    api_version = reference.get("apiVersion", "")
    if not api_version.rpartition("/")[2]:
        errors.append(invalid(f"{path}.apiVersion", api_version, "version must not be empty"))
    for field in ("kind", "name", "uid"):
        if not reference.get(field):
            errors.append(invalid(f"{path}.{field}", reference.get(field, ""), "must not be empty"))
    if (api_version, reference.get("kind")) == ("v1", "Event"):
        text = "/v1, Kind=Event is disallowed from being an owner"
        errors.append(invalid(path, _in_order(reference), text))
    return errors


_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _in_order(reference: Mapping[str, Any]) -> dict[str, Any]:
    return {field: reference[field] for field in _OWNER if field in reference}


def finalizers(names: Sequence[str], path: str) -> list[FieldError]:
    errors = [invalid(path, name, text) for name in names for text in formats.qualified_name(name)]
    if "orphan" in names and "foregroundDeletion" in names:
        errors.append(invalid(path, list(names), "finalizer orphan and foregroundDeletion cannot be both set"))
    return errors


def managed_fields(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, entry in enumerate(entries):
        field_path = f"{path}[{index}]"
        if entry.get("operation") not in ("Apply", "Update"):
            errors.append(invalid(f"{field_path}.operation", entry.get("operation", ""), "must be `Apply` or `Update`"))
        if entry.get("fieldsType", "FieldsV1") != "FieldsV1":
            errors.append(invalid(f"{field_path}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        errors += manager(entry.get("manager", ""), f"{field_path}.manager")
        if len(entry.get("subresource", "")) > 256:
            errors.append(too_long(f"{field_path}.subresource", 256))
    return errors


def manager(name: str, path: str) -> list[FieldError]:
    """The name of a field manager."""
    if len(name) <= 128 and name.isascii() and name.isprintable():
        return []
    errors = [too_long(path, 128)] if formats.size(name) > 128 else []
    offset = 0
    for rune in name:
        if not rune.isprintable():
            errors.append(invalid(path, name, f"invalid character U+{ord(rune):04X} (at position {offset})"))
        offset += len(rune.encode())
    return errors


def _common(meta: Mapping[str, Any], namespaced: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    namespace = meta.get("namespace", "")
    if namespaced:
        if not namespace:
            errors.append(required(f"{path}.namespace"))
        else:
            errors += [invalid(f"{path}.namespace", namespace, text) for text in formats.label(namespace)]
    elif namespace:
        errors.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    if meta.get("generation", 0) < 0:
        errors.append(invalid(f"{path}.generation", meta["generation"], "must be greater than or equal to 0"))
    return errors + _parts(meta, path)


def _parts(meta: Mapping[str, Any], path: str, ends: bool = True) -> list[FieldError]:
    """What has rules of its own, in the server's order; `ends` asks about finalizers too."""
    errors: list[FieldError] = []
    if "labels" in meta:
        errors += labels(meta["labels"], f"{path}.labels")
    if "annotations" in meta:
        errors += annotation_set(meta["annotations"], f"{path}.annotations")
    if "ownerReferences" in meta:
        errors += owner_references(meta["ownerReferences"], f"{path}.ownerReferences")
    if ends and "finalizers" in meta:
        errors += finalizers(meta["finalizers"], f"{path}.finalizers")
    if "managedFields" in meta:
        errors += managed_fields(meta["managedFields"], f"{path}.managedFields")
    return errors


def check_name(meta: Mapping[str, Any], rule: NameRule, path: str = "metadata") -> list[FieldError]:
    """The name, and the prefix it was made from."""
    errors: list[FieldError] = []
    generate = meta.get("generateName", "")
    if generate:
        plain = rule is formats.path_segment
        texts = formats.path_segment_prefix(generate) if plain else rule(prefix_form(generate))
        errors += [invalid(f"{path}.generateName", generate, text) for text in texts]
    name = meta.get("name", "")
    if not name:
        return [*errors, required(f"{path}.name", "name or generateName is required")]
    texts = rule(name)
    return errors + [invalid(f"{path}.name", name, text) for text in texts] if texts else errors


def check(meta: Mapping[str, Any], namespaced: bool, rule: NameRule, path: str = "metadata") -> list[FieldError]:
    """Metadata of a new object (its name was already made)."""
    return check_name(meta, rule, path) + _common(meta, namespaced, path)


def check_own(meta: Mapping[str, Any], namespaced: bool, rule: NameRule) -> list[FieldError]:
    """Metadata as built-in kinds check it, finalizers included."""
    return check(meta, namespaced, rule) + own_finalizers(meta)


STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def own_finalizers(meta: Mapping[str, Any], path: str = "metadata") -> list[FieldError]:
    """Built-in kinds want finalizers that say whose they are."""
    return [
        invalid(
            f"{path}.finalizers[{index}]", name, "name is neither a standard finalizer name nor is it fully qualified"
        )
        for index, name in enumerate(meta.get("finalizers") or ())
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def check_update(meta: Mapping[str, Any], old: Mapping[str, Any], path: str = "metadata") -> list[FieldError]:
    """What may not change, and the parts that may."""
    errors: list[FieldError] = []
    if old.get("deletionTimestamp"):
        extra = sorted(set(meta.get("finalizers", ())) - set(old.get("finalizers", ())))
        if extra:
            listed = ", ".join(quoted(name) for name in extra)
            text = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            errors.append(forbidden(f"{path}.finalizers", text))
    if meta.get("generation", 0) < old.get("generation", 0):
        errors.append(invalid(f"{path}.generation", meta.get("generation", 0), "must not be decremented"))
    for field in ("name", "namespace", "uid"):
        if meta.get(field, "") != old.get(field, ""):
            errors.append(invalid(f"{path}.{field}", meta.get(field, ""), IMMUTABLE))
    for field in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if meta.get(field) != old.get(field):
            errors.append(invalid(f"{path}.{field}", meta.get(field), IMMUTABLE))
    return errors + _parts(meta, path, ends=False)
