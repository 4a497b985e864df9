"""Query options: parsed and checked as objects of their own, refused as such."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver import status_errors
from dovetail.model.validation import field_errors
from dovetail.model.validation.field_errors import FieldError

_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_FALSE = frozenset(("false", "0"))


class WriteOptions(msgspec.Struct, frozen=True):
    dry_run: bool = False
    manager: str = ""
    validation: str = ""
    force: bool | None = None


class ListOptions(msgspec.Struct, frozen=True):
    labels: str = ""
    fields: str = ""
    watch: bool = False
    bookmarks: bool = False
    version: str = ""
    match: str = ""
    timeout: int | None = None
    limit: int = 0
    token: str = ""
    initial: bool | None = None


def flag(text: str | None) -> bool | None:
    """A boolean parameter: anything but `false` and `0` is true, also nothing."""
    return None if text is None else text.lower() not in _FALSE


def write_options(request: Request, kind: str, apply: bool = False) -> WriteOptions:
    """Create-, Update- or PatchOptions of the query."""
    if not request.query:
        options = WriteOptions()
    else:
        options = WriteOptions(
            dry_run=bool(request.parameter("dryRun")),
            manager=request.parameter("fieldManager") or "",
            validation=request.parameter("fieldValidation") or "",
            force=flag(request.parameter("force")),
        )
    errors: list[FieldError] = []
    if kind == "PatchOptions":
        if apply and not options.manager:
            errors.append(field_errors.required("fieldManager", "is required for apply patch"))
        if not apply and options.force is not None:
            errors.append(field_errors.forbidden("force", "may not be specified for non-apply patch"))
    errors += _manager_errors(options.manager)
    errors += dry_run_errors([value for key, value in request.query if key == "dryRun"])
    if options.validation not in _VALIDATIONS:
        errors.append(field_errors.unsupported("fieldValidation", options.validation, _VALIDATIONS))
    if errors:
        raise status_errors.invalid("meta.k8s.io", kind, "", errors)
    return options


def _manager_errors(manager: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(manager.encode()) > 128:
        errors.append(field_errors.too_long("fieldManager", 128))
    for index, rune in enumerate(manager):
        if not rune.isprintable():
            detail = f"invalid character U+{ord(rune):04X} (at position {index})"
            errors.append(field_errors.invalid("fieldManager", manager, detail))
    return errors


def dry_run_errors(values: list[str]) -> list[FieldError]:
    if any(value != "All" for value in values):
        return [field_errors.unsupported("dryRun", values, ("All",))]
    return []


def list_options(request: Request) -> ListOptions:
    if not request.query:
        return ListOptions()
    get = request.parameter
    options = ListOptions(
        labels=get("labelSelector") or "",
        fields=get("fieldSelector") or "",
        watch=bool(flag(get("watch"))),
        bookmarks=bool(flag(get("allowWatchBookmarks"))),
        version=get("resourceVersion") or "",
        match=get("resourceVersionMatch") or "",
        timeout=integer(get("timeoutSeconds")),
        limit=integer(get("limit")) or 0,
        token=get("continue") or "",
        initial=flag(get("sendInitialEvents")),
    )
    if options.match or options.initial is not None or (options.watch and options.token):
        _check_match(options)
    return options


def integer(text: str | None) -> int | None:
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not text.lstrip("+-").isdigit() or not text.isascii():
        raise status_errors.bad_request(f"strconv.ParseInt: parsing {field_errors.quoted(text)}: invalid syntax")
    if not -(1 << 63) <= value < 1 << 63:
        raise status_errors.bad_request(f"strconv.ParseInt: parsing {field_errors.quoted(text)}: value out of range")
    return value


def _check_match(options: ListOptions) -> None:
    errors = _watch_match(options) if options.watch else _list_match(options)
    if errors:
        raise status_errors.invalid("meta.k8s.io", "ListOptions", "", errors)


def _watch_match(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = "resourceVersionMatch"
    if options.initial is not None:
        if options.match != "NotOlderThan":
            errors.append(
                field_errors.forbidden(match, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
            )
            if options.match:
                errors.append(field_errors.unsupported(match, options.match, ("NotOlderThan",)))
        return errors
    if options.match:
        errors.append(
            field_errors.forbidden(
                match, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
        )
        if options.match != "NotOlderThan":
            errors.append(field_errors.unsupported(match, options.match, ("NotOlderThan",)))
    if options.token:
        errors.append(field_errors.forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
    return errors


def _list_match(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = "resourceVersionMatch"
    if options.match:
        if not options.version:
            errors.append(
                field_errors.forbidden(match, "resourceVersionMatch is forbidden unless resourceVersion is provided")
            )
        if options.token:
            errors.append(field_errors.forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
        if options.match not in ("Exact", "NotOlderThan"):
            errors.append(field_errors.unsupported(match, options.match, ("Exact", "NotOlderThan", "")))
        if options.match == "Exact" and options.version == "0":
            detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(field_errors.forbidden(match, detail))
    if options.initial is not None:
        errors.append(field_errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def delete_options(body: dict[str, Any] | None, request: Request) -> dict[str, Any]:
    """DeleteOptions of the body, or of the query where there is no body."""
    if body is not None:
        options = body
    else:
        options = {}
        grace = integer(request.parameter("gracePeriodSeconds"))
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if request.parameter("propagationPolicy"):
            options["propagationPolicy"] = request.parameter("propagationPolicy")
        orphan = flag(request.parameter("orphanDependents"))
        if orphan is not None:
            options["orphanDependents"] = orphan
        dry = [value for key, value in request.query if key == "dryRun"]
        if dry:
            options["dryRun"] = dry
    return options
