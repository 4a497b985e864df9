"""Priority: a pod's priority comes from its class, never from the pod."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.registry import Object, RequestContext

_GROUP = "scheduling.k8s.io"


def default_class(ctx: RequestContext) -> Object | None:
    lowest: Object | None = None
    for candidate in ctx.cluster.list(_GROUP, "priorityclasses"):
        if candidate.get("globalDefault") and (lowest is None or candidate["value"] < lowest["value"]):
            lowest = candidate
    return lowest


def admit_pod(pod: Object, ctx: RequestContext) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    if name:
        chosen = ctx.cluster.get(_GROUP, "priorityclasses", None, name)
        if chosen is None:
            raise forbidden(pod, ctx, f"no PriorityClass with name {name} was found")
    else:
        chosen = default_class(ctx)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value: int = chosen.get("value", 0) if chosen else 0
    policy = chosen.get("preemptionPolicy") if chosen else "PreemptLowerPriority"
    if spec.get("priority", value) != value:
        text = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(pod, ctx, text)
    spec["priority"] = value
    if policy is None:
        return
    if spec.get("preemptionPolicy", policy) != policy:
        text = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(pod, ctx, text)
    spec["preemptionPolicy"] = policy


def keep(pod: Object, old: Object) -> None:
    """An update that leaves the priority out means the old one."""
    for field in ("priority", "preemptionPolicy"):
        if field not in pod["spec"] and field in old["spec"]:
            pod["spec"][field] = old["spec"][field]


def review_class(obj: Object, ctx: RequestContext) -> None:
    """Only one class may be the default."""
    if not obj.get("globalDefault"):
        return
    current = default_class(ctx)
    if current is None:
        return
    name = current["metadata"]["name"]
    if ctx.operation == "CREATE" or name != obj["metadata"]["name"]:
        text = f"PriorityClass {name} is already marked as default. Only one default can exist"
        raise forbidden(obj, ctx, text)
