"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration: defaults and validation."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from dovetail.lab.apiserver.kinds.admission_rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    REINVOCATION_POLICIES,
    check_choice,
    check_conditions,
    check_rule,
)
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.kinds.pod.defaults import fill
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, unsupported
from dovetail.model.validation.selectors import label_selector

REVIEW_VERSIONS = ("v1", "v1beta1")
NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_URL_FORM = "; desired format: https://host[/path]"


class WebhookStrategy(KindStrategy):
    """Mutating and validating webhook configurations."""

    rechecks_all = True
    rechecks_change = False
    owned_finalizers = False
    generation = True
    generation_fields = ("webhooks",)

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or ():
            fill(webhook, {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10})
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            if obj.get("kind") == "MutatingWebhookConfiguration":
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")
            service = (webhook.get("clientConfig") or {}).get("service")
            if service is not None:
                service.setdefault("port", 443)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return _check(obj, None)

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return _check(obj, old)


def _check(obj: Object, old: Object | None) -> list[FieldError]:
    """What is wrong with a configuration; what an old one already had wrong is let through."""
    errors: list[FieldError] = []
    before = None if old is None else old.get("webhooks") or []
    names: set[str] = set()
    unchanged = before is not None and [item.get("matchConditions") for item in before] == [
        item.get("matchConditions") for item in obj.get("webhooks") or ()
    ]
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        errors += _webhook(webhook, before, path)
        if not unchanged:
            errors += check_conditions(webhook.get("matchConditions") or (), f"{path}.matchConditions")
        errors += _versions(webhook.get("admissionReviewVersions") or [], before, f"{path}.admissionReviewVersions")
        name = webhook.get("name")
        if name and name in names and (before is None or len({item["name"] for item in before}) == len(before)):
            errors.append(duplicate(f"{path}.name", name))
        names.add(name or "")
    return errors


def _webhook(webhook: Object, before: Sequence[Object] | None, path: str) -> list[FieldError]:
    errors = _name(webhook.get("name", ""), f"{path}.name")
    for index, rule in enumerate(webhook.get("rules") or ()):
        errors += check_rule(rule, f"{path}.rules[{index}]")
    errors += check_choice(webhook, "failurePolicy", path, FAILURE_POLICIES)
    errors += check_choice(webhook, "matchPolicy", path, MATCH_POLICIES)
    pure = before is None or all(item.get("sideEffects") in NO_SIDE_EFFECTS for item in before)
    allowed = NO_SIDE_EFFECTS if pure else SIDE_EFFECTS
    effects = webhook.get("sideEffects")
    if effects is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}"))
    elif effects not in allowed:
        errors.append(unsupported(f"{path}.sideEffects", effects, allowed))
    timeout = webhook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", timeout, text))
    errors += label_selector(webhook.get("namespaceSelector"), f"{path}.namespaceSelector")
    errors += label_selector(webhook.get("objectSelector"), f"{path}.objectSelector")
    errors += check_choice(webhook, "reinvocationPolicy", path, REINVOCATION_POLICIES)
    return errors + check_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig", swapped=True)


def _name(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    problems = formats.subdomain(name)
    if problems:
        return [invalid(path, name, ",".join(problems))]
    if len(name.split(".")) < 3:
        return [invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _versions(versions: Sequence[str], before: Sequence[Object] | None, path: str) -> list[FieldError]:
    if not versions:
        return [required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")]
    strict = before is None or all(
        set(REVIEW_VERSIONS) & set(item.get("admissionReviewVersions") or REVIEW_VERSIONS) for item in before
    )
    return check_review_versions(versions, path, strict=strict)


def check_review_versions(versions: Sequence[str], path: str, *, strict: bool = True) -> list[FieldError]:
    """The versions of reviews that a webhook reads; `strict` wants one of them to be known."""
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
            continue
        errors += [invalid(f"{path}[{index}]", version, text) for text in formats.label_1035(version)]
    if strict and not set(REVIEW_VERSIONS) & set(versions):
        errors.append(invalid(path, list(versions), f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))
    return errors


def check_client(client: Object, path: str, *, swapped: bool = False) -> list[FieldError]:
    """A clientConfig. The real server mixes up a Service's name and namespace for webhooks of admission: `swapped`."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if url is not None:
        return _url(url, f"{path}.url")
    assert service is not None
    return _service(service, f"{path}.service", swapped)


def _url(url: str, path: str) -> list[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_URL_FORM}")]
    errors: list[FieldError] = []
    if parts.scheme != "https":
        errors.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}"))
    user, at_sign, host = parts.netloc.rpartition("@")
    if not host:
        errors.append(invalid(path, host, f"host must be specified{_URL_FORM}"))
    if at_sign:
        errors.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return errors


def _service(service: Object, path: str, swapped: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("name", "namespace"):
        source = {"name": "namespace", "namespace": "name"}[field] if swapped else field
        if not service.get(source):
            errors.append(required(f"{path}.{field}"))
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        errors.append(invalid(f"{path}.port", port, text))
    return errors + _path(service.get("path"), f"{path}.path")


def _path(given: str | None, path: str) -> list[FieldError]:
    if given in (None, "", "/"):
        return []
    assert given is not None
    if given == "//":
        return [invalid(path, given, "segment[0] may not be empty")]
    errors: list[FieldError] = []
    if not given.startswith("/"):
        errors.append(invalid(path, given, "must start with a '/'"))
    for index, step in enumerate(given[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid(path, given, f"segment[{index}] may not be empty"))
            continue
        errors += [invalid(path, given, f"segment[{index}]: {text}") for text in formats.subdomain(step)]
    return errors
