"""ResourceQuota: what a namespace may hold, by the budgets whose status a controller filled in."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.kinds.admission.refusal import forbidden
from dovetail.lab.apiserver.kinds.pod.resources import amount
from dovetail.lab.apiserver.kinds.serverwrites import write_status
from dovetail.lab.apiserver.registry import Context, Object

_COUNTED = frozenset(
    ["pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"]
)


def review(obj: Object | None, old: Object | None, ctx: Context) -> None:
    if obj is None or ctx.operation != "CREATE" or ctx.subresource or not ctx.namespace:
        return
    quotas = [q for q in ctx.cluster.list("", "resourcequotas", ctx.namespace) if q.get("status", {}).get("hard")]
    if not quotas:
        return
    usage = _usage(obj, ctx)
    changed = []
    for quota in quotas:
        charged = _charge(quota, usage, obj, ctx)
        if charged:
            changed.append((quota, charged))
    if ctx.dry_run:
        return
    for quota, used in changed:
        status = quota["status"] | {"used": quota["status"].get("used", {}) | used}
        write_status("", "resourcequotas", quota, status, ctx)


def _charge(quota: Object, usage: dict[str, str], obj: Object, ctx: Context) -> dict[str, str]:
    hard, used = quota["status"]["hard"], quota["status"].get("used", {})
    asked = {name: text for name, text in usage.items() if name in hard and text != "0"}
    name = quota["metadata"]["name"]
    if ctx.resource.kind == "Pod":
        missing = sorted(n for n in hard if n.startswith(("requests.", "limits.")) and n in _COMPUTE and n not in usage)
        missing += sorted(n for n in hard if n in ("cpu", "memory") and n not in usage)
        if missing:
            raise forbidden(obj, ctx, f"failed quota: {name}: must specify {_per_container(missing, obj)}")
    totals = {key: str(amount(used.get(key, "0")) + amount(text)) for key, text in asked.items()}
    over = sorted(key for key, text in totals.items() if amount(text) > amount(hard[key]))
    if over:
        text = (
            f"exceeded quota: {name}, requested: {_shown(asked, over)}, used: {_shown(used, over)}, "
            f"limited: {_shown(hard, over)}"
        )
        raise forbidden(obj, ctx, text)
    return totals


_COMPUTE = frozenset(["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"])


def _per_container(missing: list[str], pod: Object) -> str:
    names = ",".join(sorted(container.get("name", "") for container in pod["spec"].get("containers") or ()))
    return "; ".join(f"{name} for: {names}" for name in missing)


def _shown(amounts: dict[str, str], names: list[str]) -> str:
    return ",".join(f"{name}={amounts.get(name, '0')}" for name in names)


def _usage(obj: Object, ctx: Context) -> dict[str, str]:
    resource = ctx.resource
    usage = {f"count/{resource.qualified}": "1"}
    if resource.group == "" and resource.plural in _COUNTED:
        usage[resource.plural] = "1"
    if resource.kind == "Pod":
        totals: dict[str, Any] = {}
        for container in obj["spec"].get("containers") or ():
            for part in ("requests", "limits"):
                for name, text in container.get("resources", {}).get(part, {}).items():
                    keys = [f"{part}.{name}"] + ([name] if part == "requests" else [])
                    for key in keys:
                        totals[key] = totals[key] + amount(text) if key in totals else amount(text)
        usage |= {name: str(total) for name, total in totals.items()}
    if resource.kind == "Service":
        kind = obj["spec"].get("type")
        ports = len(obj["spec"].get("ports") or ())
        balanced = kind == "LoadBalancer" and obj["spec"].get("allocateLoadBalancerNodePorts", True)
        usage["services.loadbalancers"] = "1" if kind == "LoadBalancer" else "0"
        usage["services.nodeports"] = str(ports if kind == "NodePort" or balanced else 0)
    if resource.kind == "PersistentVolumeClaim":
        storage = obj["spec"].get("resources", {}).get("requests", {}).get("storage")
        if storage:
            usage["requests.storage"] = storage
    return usage
