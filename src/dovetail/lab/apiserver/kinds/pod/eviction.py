"""Eviction: a deletion that asks the disruption budgets first."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.gocompat.goprint import plain
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.kinds.pod.binding import success
from dovetail.lab.apiserver.kinds.pod.strategy import set_condition
from dovetail.lab.apiserver.kinds.serverwrites import write_status
from dovetail.lab.apiserver.options import dry_run_errors
from dovetail.lab.apiserver.registry import Object, Reply, RequestContext, RequestRefused
from dovetail.lab.apiserver.status_errors import invalid
from dovetail.model.validation.selectors import match_labels

_TEXT = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(pod: Object | None, body: Object, ctx: RequestContext) -> Reply:
    if (body.get("metadata") or {}).get("name", "") != ctx.name:
        raise RequestRefused(400, "BadRequest", "name in URL does not match name in Eviction object")
    if pod is None:
        raise RequestRefused(404, "NotFound", f'pods "{ctx.name}" not found', {"name": ctx.name, "kind": "pods"})
    options = dict(body.get("deleteOptions") or {})
    _check_dry_run(options.get("dryRun") or [], ctx)
    dry = ctx.dry_run or bool(options.get("dryRun"))
    if dry:
        options["dryRun"] = ["All"]
    if not _free(pod):
        budget = _budget(pod, ctx)
        if budget is not None and not _unready_passes(pod, budget):
            _charge(budget, ctx, dry)
    _mark_and_delete(pod, options, ctx, dry)
    return Reply(body=success(), code=201)


def _check_dry_run(dry_run: list[str], ctx: RequestContext) -> None:
    """The request and the eviction's own options must not contradict each other, and know one word only."""
    if ctx.dry_run and dry_run and dry_run != ["All"]:
        text = f"Non-matching dry-run options in request and content: [All] and {plain(dry_run)}"
        raise RequestRefused(500, "", text)
    errors = dry_run_errors(dry_run)
    if errors:
        raise invalid("meta.k8s.io", "DeleteOptions", "", errors)


def _free(pod: Object) -> bool:
    """Pods that no budget counts."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budget(pod: Object, ctx: RequestContext) -> Object | None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in ctx.cluster.list("policy", "poddisruptionbudgets", ctx.namespace)
        if match_labels((budget.get("spec") or {}).get("selector"), labels)
    ]
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise RequestRefused(500, "", text)
    return budgets[0] if budgets else None


def _unready_passes(pod: Object, budget: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _refused(message: str, retry: int) -> RequestRefused:
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry:
        details["retryAfterSeconds"] = retry
    return RequestRefused(429, "TooManyRequests", _TEXT, details, retry_after=retry or None)


def _charge(budget: Object, ctx: RequestContext, dry: bool) -> None:
    name, status = budget["metadata"]["name"], dict(budget.get("status") or {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", 10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        text = f'poddisruptionbudget.policy "{name}" is forbidden: pdb disruptions allowed is negative'
        raise RequestRefused(403, "Forbidden", text, {"name": name, "group": "policy", "kind": "poddisruptionbudget"})
    if allowed == 0:
        raise _refused(_reason(name, status), 0)
    if dry:
        return
    status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        status["conditions"] = _insufficient(status, budget, ctx)
    status["disruptedPods"] = (status.get("disruptedPods") or {}) | {ctx.name: stamp(ctx.now)}
    write_status("policy", "poddisruptionbudgets", budget, status, ctx)


def _reason(name: str, status: Object) -> str:
    conditions = status.get("conditions") or ()
    off = [c for c in conditions if c.get("type") == "DisruptionAllowed" and c.get("status") == "False"]
    failed: Object = off[0] if off else {}
    message, reason = failed.get("message", ""), failed.get("reason", "")
    text = f"The disruption budget {name}"
    if message and reason == "SyncFailed":
        return f"{text} does not allow evicting pods currently because it failed sync: {message}"
    desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if healthy <= desired:
        return f"{text} needs {desired} healthy pods and has {healthy} currently"
    if message:
        return f"{text} does not allow evicting pods currently ({reason}): {message}"
    return f"{text} does not allow evicting pods currently"


def _insufficient(status: Object, budget: Object, ctx: RequestContext) -> list[Object]:
    """The condition that says no more: its time moves when it turns."""
    entries = [dict(entry) for entry in status.get("conditions") or ()]
    fresh = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": stamp(ctx.now),
        "reason": "InsufficientPods",
        "message": "",
    }
    for index, entry in enumerate(entries):
        if entry.get("type") == "DisruptionAllowed":
            if entry.get("status") == "False":
                fresh["lastTransitionTime"] = entry.get("lastTransitionTime")
            entries[index] = fresh
            return entries
    return [*entries, fresh]


def _mark_and_delete(pod: Object, options: Object, ctx: RequestContext, dry: bool) -> None:
    _preconditions(pod, options.get("preconditions") or {}, ctx)
    if dry:
        return
    status = dict(pod.get("status") or {})
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    set_condition(status, condition, ctx.now)
    ctx.cluster.update("", "pods", {**pod, "status": status})
    if "resourceVersion" in (options.get("preconditions") or {}):
        kept = {key: value for key, value in options["preconditions"].items() if key != "resourceVersion"}
        options["preconditions"] = kept
    ctx.cluster.delete("", "pods", ctx.namespace, ctx.name, options)


def _preconditions(pod: Object, preconditions: Object, ctx: RequestContext) -> None:
    meta = pod["metadata"]
    texts = (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    )
    for field, word, hint in texts:
        given = preconditions.get(field)
        if given and given != meta.get(field):
            text = (
                f"the {word} in the precondition ({given}) does not match the {word} in record ({meta.get(field)}). "
                f"{hint}"
            )
            message = f'Operation cannot be fulfilled on Pod "{ctx.name}": {text}'
            raise RequestRefused(409, "Conflict", message, {"name": ctx.name, "kind": "Pod"})
