"""What an object costs a quota: how much it takes under every name a quota can have, and whether the quota is for it.

Admission charges by it and the quota controller counts by it, so the two always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.pod.qos import qos_class
from dovetail.model.quantity import Quantity
from dovetail.model.selector import LabelSelectorRequirement
from dovetail.model.validation.resources import amount

Object = Mapping[str, Any]
Amounts = dict[str, Quantity]

#: Kinds that may be counted without `count/`.
COUNTED = frozenset(
    ["pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"]
)
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_ONE = amount("1")
_OF_CLASS = ".storageclass.storage.k8s.io/"


def charges(qualified: str, obj: Object) -> Amounts:
    """What the object takes. `qualified` is its kind as in `deployments.apps`."""
    taken = {f"count/{qualified}": _ONE}
    if qualified == "pods":
        return taken if _ended(obj) else taken | pod_charges(obj["spec"])
    if qualified in COUNTED:
        taken[qualified] = _ONE
    if qualified == "services":
        return taken | _service(obj["spec"])
    if qualified == "persistentvolumeclaims":
        return taken | _claim(obj["spec"])
    return taken


def covers(quota: Object, qualified: str, obj: Object) -> bool:
    """Whether every scope of the quota takes in the object."""
    spec = quota.get("spec", {})
    named = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(qualified == "pods" and _in_scope(scope, obj["spec"]) for scope in (*named, *selected))


def container_charges(container: Object) -> Amounts:
    given = container.get("resources") or {}
    return _compute(_amounts(given.get("requests")), _amounts(given.get("limits")))


def pod_charges(spec: Object) -> Amounts:
    """What a pod takes while it runs."""
    return {"pods": _ONE} | _compute(_of_pod(spec, "requests"), _of_pod(spec, "limits"))


def _ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    amounts: Amounts = {}
    for name, quantity in requests.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            amounts[name] = quantity
        amounts[f"requests.{name}"] = quantity
    return amounts | {f"limits.{name}": limits[name] for name in _NATIVE if name in limits}


def _of_pod(spec: Object, part: str) -> Amounts:
    """Containers and sidecars together, or the hungriest moment before they run; the pod's own word wins."""
    beside: Amounts = {}
    before: Amounts = {}
    for container in spec.get("initContainers") or ():
        mine = _amounts((container.get("resources") or {}).get(part))
        if container.get("restartPolicy") == "Always":
            beside = _sum(beside, mine)
            before = _most(before, beside)
        else:
            before = _most(before, _sum(beside, mine))
    together = beside
    for container in spec.get("containers") or ():
        together = _sum(together, _amounts((container.get("resources") or {}).get(part)))
    total = _most(together, before) | _amounts((spec.get("resources") or {}).get(part))
    extra = _amounts(spec.get("overhead"))
    return _sum(total, extra if part == "requests" else {name: extra[name] for name in extra if name in total})


def _amounts(given: Mapping[str, Any] | None) -> Amounts:
    return {name: amount(text) for name, text in (given or {}).items()}


def _merged(first: Amounts, other: Amounts, by: Callable[[Quantity, Quantity], Quantity]) -> Amounts:
    return {
        name: by(first[name], other[name]) if name in first and name in other else (first | other)[name]
        for name in first | other
    }


def _sum(first: Amounts, other: Amounts) -> Amounts:
    return _merged(first, other, lambda left, right: left + right)


def _most(first: Amounts, other: Amounts) -> Amounts:
    return _merged(first, other, max)


def _service(spec: Object) -> Amounts:
    kind = spec.get("type")
    ports = len(spec.get("ports") or ())
    balanced = kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
    return {
        "services.loadbalancers": amount(str(int(kind == "LoadBalancer"))),
        "services.nodeports": amount(str(ports if kind == "NodePort" or balanced else 0)),
    }


def _claim(spec: Object) -> Amounts:
    amounts: Amounts = {}
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage:
        amounts["requests.storage"] = amount(storage)
    of_class = spec.get("storageClassName")
    if of_class:
        mine = {"persistentvolumeclaims": _ONE} | amounts
        amounts |= {f"{of_class}{_OF_CLASS}{name}": taken for name, taken in mine.items()}
    return amounts


def _in_scope(scope: Object, spec: Object) -> bool:
    name = scope["scopeName"]
    if name in ("Terminating", "NotTerminating"):
        return bool((spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating"))
    if name in ("BestEffort", "NotBestEffort"):
        return bool((qos_class(spec) == "BestEffort") == (name == "BestEffort"))
    if name == "CrossNamespacePodAffinity":
        return _reaches_out(spec.get("affinity") or {})
    given = spec.get("priorityClassName")
    requirement = LabelSelectorRequirement(
        key=name, operator=scope["operator"], values=tuple(scope.get("values") or ())
    )
    return requirement.matches({name: given} if given else {})


def _reaches_out(affinity: Object) -> bool:
    """Whether the pod looks at pods of other namespaces."""
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms: Sequence[Object] = [
            *(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
            *(
                preference["podAffinityTerm"]
                for preference in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
            ),
        ]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
