"""ResourceQuota: what a namespace may hold, by the budgets whose status a controller filled in."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.kinds.admission.quota_usage import Amounts, charges, container_charges, covers
from dovetail.lab.apiserver.kinds.serverwrites import write_status
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model.validation.resources import amount

#: Kinds that may come to cost more than they did.
_GROWING = frozenset(["services", "persistentvolumeclaims"])
#: What every container must set where a quota limits it.
_REQUIRED_PER_CONTAINER = ("cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory")


def review(obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
    kind = ctx.resource.qualified
    is_resize = kind == "pods" and ctx.subresource == "resize"
    if obj is None or (ctx.subresource and not is_resize) or not ctx.namespace:
        return
    if not is_resize and ctx.operation != "CREATE" and (ctx.operation != "UPDATE" or kind not in _GROWING):
        return
    quotas = [q for q in ctx.cluster.list("", "resourcequotas", ctx.namespace) if q.get("status", {}).get("hard")]
    quotas = [quota for quota in quotas if covers(quota, kind, obj)]
    if not quotas:
        return
    amounts = _growth(charges(kind, obj), charges(kind, old) if old is not None and ctx.operation == "UPDATE" else {})
    changed = [(quota, charged) for quota in quotas if (charged := _charge(quota, amounts, obj, ctx))]
    if ctx.dry_run:
        return
    for quota, used in changed:
        status = quota["status"] | {"used": quota["status"].get("used", {}) | used}
        write_status("", "resourcequotas", quota, status, ctx)


def _growth(now: Amounts, before: Amounts) -> Amounts:
    """What is asked for beyond what was there."""
    grown = {name: taken - before[name] if name in before else taken for name, taken in now.items()}
    return {name: taken for name, taken in grown.items() if taken > amount("0")}


def _charge(quota: Object, amounts: Amounts, obj: Object, ctx: RequestContext) -> dict[str, str]:
    hard, used = quota["status"]["hard"], quota["status"].get("used", {})
    name = quota["metadata"]["name"]
    if ctx.resource.kind == "Pod":
        unset = _unset(obj["spec"], [name for name in _REQUIRED_PER_CONTAINER if name in hard])
        if unset:
            raise forbidden(obj, ctx, f"failed quota: {name}: must specify {unset}")
    requested = {key: str(taken) for key, taken in amounts.items() if key in hard}
    totals = {key: str(amount(used.get(key, "0")) + amounts[key]) for key in requested}
    over = sorted(key for key, text in totals.items() if amount(text) > amount(hard[key]))
    if over:
        text = (
            f"exceeded quota: {name}, requested: {_shown(requested, over)}, used: {_shown(used, over)}, "
            f"limited: {_shown(hard, over)}"
        )
        raise forbidden(obj, ctx, text)
    return totals


def _unset(spec: Object, names: list[str]) -> str:
    """Which containers leave out what a quota limits; none need set it where the pod itself does."""
    if spec.get("resources"):
        return ""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    charged = {container.get("name", ""): container_charges(container) for container in containers}
    containers_without = {
        name: sorted(container for container, amounts in charged.items() if name not in amounts) for name in names
    }
    return "; ".join(
        f"{name} for: {','.join(containers)}" for name, containers in containers_without.items() if containers
    )


def _shown(amounts: Mapping[str, str], names: list[str]) -> str:
    return ",".join(f"{name}={amounts.get(name, '0')}" for name in names)
