"""What a definition must obey before it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from dovetail.lab.apiserver.crd.structural import Structural
from dovetail.lab.apiserver.crd.structural_validation import check_schema, reachable
from dovetail.lab.apiserver.kinds.admission_webhooks import check_client, check_review_versions
from dovetail.lab.apiserver.registry import Object
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported

Json = Mapping[str, Any]
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_LEFT_BEHIND = (
    "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions"
)
_SIMPLE = "must be a simple json path starting with ."


def check_definition(obj: Object, new: bool = True) -> list[FieldError]:
    spec = obj["spec"]
    errors: list[FieldError] = []
    names, group = spec.get("names") or {}, spec.get("group", "")
    name = obj["metadata"].get("name", "")
    if new and name and name != f"{names.get('plural', '')}.{group}":
        errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        errors.append(required("spec.group"))
    else:
        texts = formats.subdomain(group) or ([] if "." in group else ["should be a domain with at least one dot"])
        errors += [invalid("spec.group", group, text) for text in texts]
    if new:
        errors += _approval(group, obj["metadata"].get("annotations") or {})
    scope = spec.get("scope", "")
    if scope not in ("Cluster", "Namespaced"):
        errors.append(unsupported("spec.scope", scope, ("Cluster", "Namespaced")) if scope else required("spec.scope"))
    versions = spec.get("versions") or []
    alone = len(versions) == 1
    errors += _versions(versions) + ([] if alone else _contents(versions, alone))
    errors += _names(names) + (_contents(versions, alone) if alone else [])
    errors += _conversion(spec.get("conversion") or {})
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.append(invalid("spec.preserveUnknownFields", True, text))
    if not (obj["status"].get("storedVersions")):
        errors.append(invalid("status.storedVersions", None, "must have at least one stored version"))
    else:
        errors += _stored(obj, versions)
    return errors


_APPROVED = "api-approved.kubernetes.io"
_APPROVAL = f'protected groups must have approval annotation "{_APPROVED}"'
_ENHANCEMENT = "see https://github.com/kubernetes/enhancements/pull/1111"


def _approval(group: str, annotations: Json) -> list[FieldError]:
    """The project's own groups are for definitions that it has agreed to."""
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return []
    field_path, given = f"metadata.annotations[{_APPROVED}]", annotations.get(_APPROVED, "")
    if not given:
        return [required(field_path, f"{_APPROVAL}, {_ENHANCEMENT}")]
    parts = urlsplit(given)
    if given.startswith("unapproved") or (parts.scheme and parts.netloc):
        return []
    text = f'{_APPROVAL} with either a URL or a reason starting with "unapproved", {_ENHANCEMENT}'
    return [invalid(field_path, given, text)]


def _conversion(conversion: Json) -> list[FieldError]:
    strategy, hook = conversion.get("strategy", ""), conversion.get("webhook") or {}
    reviews = "spec.conversion.conversionReviewVersions"
    if strategy not in ("None", "Webhook"):
        return [unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))]
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        client = [forbidden("spec.conversion.webhookClientConfig", text)] if hook.get("clientConfig") else []
        return client + ([forbidden(reviews, text)] if hook.get("conversionReviewVersions") else [])
    path, client_config = "spec.conversion.webhookClientConfig", hook.get("clientConfig")
    if client_config is None:
        errors = [required(path, "required when strategy is set to Webhook")]
    else:
        errors = check_client(client_config, path, swapped=True)
    versions = hook.get("conversionReviewVersions") or []
    return [*errors, *(check_review_versions(versions, reviews) if versions else [required(reviews)])]


def _stored(obj: Object, versions: list[Json]) -> list[FieldError]:
    names = {version["name"] for version in versions}
    return [
        invalid(f"status.storedVersions[{index}]", name, _LEFT_BEHIND.format(name))
        for index, name in enumerate(obj["status"]["storedVersions"])
        if name not in names
    ]


def _names(names: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field, "")
        if not value and field in ("plural", "kind", "singular", "listKind"):
            errors.append(required(f"spec.names.{field}"))
        else:
            mixed = field in ("kind", "listKind")
            words = "may have mixed case, but should otherwise match: " if mixed else ""
            texts = formats.label_1035(value.lower() if mixed else value)
            errors += [invalid(f"spec.names.{field}", value, f"{words}{text}") for text in texts]
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        errors.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    for field in ("shortNames", "categories"):
        for index, word in enumerate(names.get(field) or ()):
            errors += [invalid(f"spec.names.{field}[{index}]", word, text) for text in formats.label_1035(word)]
    return errors


def _internal_version(version: Json) -> dict[str, Any]:
    return {
        "Name": version.get("name", ""),
        "Served": bool(version.get("served")),
        "Storage": bool(version.get("storage")),
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": None,
        "Subresources": None,
        "AdditionalPrinterColumns": None,
        "SelectableFields": None,
    }


def _versions(versions: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        field_path, name = f"spec.versions[{index}]", version.get("name", "")
        errors += [invalid(f"{field_path}.name", name, text) for text in formats.label_1035(name)]
        if version.get("deprecationWarning") is not None and not version.get("deprecated"):
            text = "can only be set for deprecated versions"
            errors.append(invalid(f"{field_path}.deprecationWarning", version["deprecationWarning"], text))
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            errors.append(required(f"{field_path}.schema.openAPIV3Schema"))
        if name in seen:
            errors.append(
                invalid("spec.versions", [_internal_version(v) for v in versions], "must contain unique version names")
            )
        seen.add(name)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        shown = [_internal_version(version) for version in versions]
        errors.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    return errors


def _contents(versions: list[Json], alone: bool) -> list[FieldError]:
    """Errors in the versions; those of a lone version are reported at the definition's own path."""
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        field_path = "spec" if alone else f"spec.versions[{index}]"
        if alone:
            name = version.get("name", "")
            errors += [invalid("spec.version", name, text) for text in formats.label_1035(name)]
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None:
            place = "spec.validation" if alone else f"{field_path}.schema"
            errors += check_schema(schema, f"{place}.openAPIV3Schema")
            errors += _selectable(version.get("selectableFields") or (), Structural(schema), field_path)
        errors += _subresources(version.get("subresources") or {}, field_path)
        errors += _columns(version.get("additionalPrinterColumns") or (), field_path)
    return errors


def _subresources(subresources: Json, field_path: str) -> list[FieldError]:
    scale = subresources.get("scale")
    if scale is None:
        return []
    errors: list[FieldError] = []
    place = f"{field_path}.subresources.scale"
    for field, under in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        path = scale.get(field, "")
        if not path:
            errors.append(required(f"{place}.{field}"))
        elif not path.startswith("."):
            errors.append(invalid(f"{place}.{field}", path, _SIMPLE))
        elif not path.startswith(under):
            word = under.removesuffix(".")
            errors.append(invalid(f"{place}.{field}", path, f"should be a json path under {word}"))
    selector = scale.get("labelSelectorPath") or ".spec."
    if not selector.startswith("."):
        errors.append(invalid(f"{place}.labelSelectorPath", selector, _SIMPLE))
    elif not selector.startswith((".spec.", ".status.")):
        text = "should be a json path under either .spec or .status"
        errors.append(invalid(f"{place}.labelSelectorPath", selector, text))
    return errors


def _selectable(fields: Any, schema: Structural, field_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, field in enumerate(fields):
        path = field.get("jsonPath", "")
        place = f"{field_path}.selectableFields[{index}].jsonPath"
        if not path:
            errors.append(required(place))
        elif path[0] not in "[.":
            errors.append(invalid(place, path, f"is an invalid path: expected [ or . but got: {path}"))
        elif not reachable(schema, path):
            errors.append(invalid(place, path, "is an invalid path: does not refer to a valid field"))
    return errors


def _columns(columns: Any, field_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, column in enumerate(columns):
        place = f"{field_path}.additionalPrinterColumns[{index}]"
        if not column.get("name"):
            errors.append(required(f"{place}.name"))
        kind = column.get("type", "")
        if not kind:
            errors.append(required(f"{place}.type", f"must be one of {','.join(_COLUMN_TYPES)}"))
        elif kind not in _COLUMN_TYPES:
            errors.append(invalid(f"{place}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
        path = column.get("jsonPath", "")
        if not path:
            errors.append(required(f"{place}.JSONPath"))
        elif not path.startswith("."):
            errors.append(invalid(f"{place}.JSONPath", path, _SIMPLE))
    return errors
