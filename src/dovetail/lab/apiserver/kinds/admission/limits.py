"""LimitRanger: a namespace's defaults and bounds for what containers, pods and claims ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model.validation.resources import amount

Amounts = Mapping[str, str]


def _ranges(ctx: RequestContext) -> list[Object]:
    return list(ctx.cluster.list("", "limitranges", ctx.namespace))


def apply(pod: Object, ctx: RequestContext) -> None:
    """Fill in what the namespace's ranges say containers ask for by default."""
    for limit_range in _ranges(ctx):
        limits: dict[str, str] = {}
        requests: dict[str, str] = {}
        for item in limit_range["spec"].get("limits") or ():
            if item.get("type") == "Container":
                requests |= item.get("defaultRequest", {})
                limits |= item.get("default", {})
        notes: list[str] = []
        for group, word in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(group) or ():
                notes += _merge(container, limits, requests, word)
        if notes:
            annotations = dict(pod["metadata"].get("annotations", {}))
            annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + "; ".join(notes)
            pod["metadata"]["annotations"] = annotations


def _merge(container: Object, limits: Amounts, requests: Amounts, word: str) -> list[str]:
    resources = container.setdefault("resources", {})
    notes = []
    for part, defaults, name in (("requests", requests, "request"), ("limits", limits, "limit")):
        own = resources.get(part, {})
        missing = sorted(key for key in defaults if key not in own)
        if missing:
            resources[part] = own | {key: defaults[key] for key in missing}
            notes.append(f"{', '.join(missing)} {name} for {word} {container.get('name', '')}")
    return notes


def review_pod(pod: Object, ctx: RequestContext) -> None:
    if ctx.operation != "CREATE" and ctx.subresource != "resize":
        return
    for limit_range in _ranges(ctx):
        violations: list[str] = []
        for item in limit_range["spec"].get("limits") or ():
            if item.get("type") == "Container":
                for group in ("containers", "initContainers"):
                    for container in pod["spec"].get(group) or ():
                        resources = container.get("resources", {})
                        violations += _bounds(item, resources.get("requests", {}), resources.get("limits", {}))
            elif item.get("type") == "Pod":
                violations += _bounds(item, _total(pod, "requests"), _total(pod, "limits"))
        if violations:
            raise forbidden(pod, ctx, _aggregate(violations))


def review_claim(claim: Object, ctx: RequestContext) -> None:
    for limit_range in _ranges(ctx):
        violations: list[str] = []
        for item in limit_range["spec"].get("limits") or ():
            if item.get("type") == "PersistentVolumeClaim":
                requests = claim["spec"].get("resources", {}).get("requests", {})
                violations += _minimum(item, requests, {})
                for name, most in sorted(item.get("max", {}).items()):
                    violations += _maximum_request(item["type"], name, most, requests)
        if violations:
            raise forbidden(claim, ctx, _aggregate(violations))


def _aggregate(texts: list[str]) -> str:
    unique = list(dict.fromkeys(texts))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _total(pod: Object, part: str) -> dict[str, str]:
    totals: dict[str, Any] = {}
    for container in pod["spec"].get("containers") or ():
        for name, text in container.get("resources", {}).get(part, {}).items():
            totals[name] = totals[name] + amount(text) if name in totals else amount(text)
    for container in pod["spec"].get("initContainers") or ():
        for name, text in container.get("resources", {}).get(part, {}).items():
            if container.get("restartPolicy") == "Always":
                totals[name] = totals[name] + amount(text) if name in totals else amount(text)
            elif name not in totals or totals[name] < amount(text):
                totals[name] = amount(text)
    return {name: str(total) for name, total in totals.items()}


def _bounds(item: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _minimum(item, requests, limits)
    kind = item["type"]
    for name, most in sorted(item.get("max", {}).items()):
        usage = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{usage}.  No limit is specified"
        elif amount(limits[name]) > amount(most):
            yield f"{usage}, but limit is {limits[name]}"
        elif name in requests and amount(requests[name]) > amount(most):
            yield f"{usage}, but request is {requests[name]}"
    for name, ratio in sorted(item.get("maxLimitRequestRatio", {}).items()):
        usage = f"{name} max limit to request ratio per {kind} is {ratio}"
        request, limit = amount(requests.get(name, "0")).milli, amount(limits.get(name, "0")).milli
        if not request:
            yield f"{usage}, but no request is specified or request is 0"
        elif not limit:
            yield f"{usage}, but no limit is specified or limit is 0"
        elif limit / request * 1000 > amount(ratio).milli:
            yield f"{usage}, but provided ratio is {limit / request:f}"


def _minimum(item: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in sorted(item.get("min", {}).items()):
        usage = f"minimum {name} usage per {item['type']} is {least}"
        if name not in requests:
            yield f"{usage}.  No request is specified"
        elif amount(requests[name]) < amount(least):
            yield f"{usage}, but request is {requests[name]}"
        elif name in limits and amount(limits[name]) < amount(least):
            yield f"{usage}, but limit is {limits[name]}"


def _maximum_request(kind: str, name: str, most: str, requests: Amounts) -> Iterator[str]:
    usage = f"maximum {name} usage per {kind} is {most}"
    if name not in requests:
        yield f"{usage}.  No request is specified"
    elif amount(requests[name]) > amount(most):
        yield f"{usage}, but request is {requests[name]}"
