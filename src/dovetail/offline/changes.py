"""Changes that would give a pod a node: as a patch of one object, as the command that makes it, and tried.

A change is proposed from what the funnel of the pool to blame says, applied to the manifests, and planned again. What
does not help is not proposed. Where one change is not enough, the next is sought from there.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from dovetail.model.lint.requirements import meant_key
from dovetail.model.quantity import format_resources, resources
from dovetail.model.spelling import nearest
from dovetail.offline.evaluation import PlanEvaluation
from dovetail.planner.plan import Exclusion, Funnel, Unschedulable

Json = dict[str, Any]

#: So many changes one after the other are tried, and so many proposals for each.
MAX_STEPS, MAX_PROPOSALS = 3, 6
#: Proposals are made for the pool to blame and for others that the pod may use: one of them may be mended by a patch.
MAX_POOLS = 3
_TEMPLATED = ("Deployment", "StatefulSet", "ReplicaSet", "Job", "DaemonSet")


class ManifestChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`patch` is a merge patch of the object; of a workload's list of containers by their names, as kubectl patches."""

    object: str
    what: str
    patch: Json
    command: str


class _Case:
    """A pod without a node, the object that its spec is changed in, and the pool to blame."""

    def __init__(self, evaluation: PlanEvaluation, key: str, why: Unschedulable, pool: str) -> None:
        self.evaluation, self.key, self.why = evaluation, key, why
        self.pool_name = pool
        self.funnel: Funnel | None = why.pools.get(self.pool_name)
        self.exclusion = self.funnel.exclusion if self.funnel is not None else Exclusion()
        self.pool = find(evaluation.manifests, "NodePool", "", self.pool_name)
        self.owner = owner_of(evaluation.manifests, key)
        self.spec: Json = pod_spec(self.owner) if self.owner is not None else {}

    def of_pod(self, what: str, spec: Json) -> Iterator[ManifestChange]:
        if self.owner is not None:
            yield _change(self.owner, what, spec if self.owner["kind"] == "Pod" else {"template": {"spec": spec}})

    def of_pool(self, what: str, spec: Json) -> Iterator[ManifestChange]:
        if self.pool is not None:
            yield _change(self.pool, what, spec)

    @property
    def requirements(self) -> list[Json]:
        template = ((self.pool or {}).get("spec") or {}).get("template") or {}
        return copy.deepcopy((template.get("spec") or {}).get("requirements") or [])

    def require(self, what: str, requirements: list[Json]) -> Iterator[ManifestChange]:
        return self.of_pool(what, {"template": {"spec": {"requirements": requirements}}})


def _change(manifest: Json, what: str, spec: Json) -> ManifestChange:
    kind, metadata = str(manifest["kind"]), manifest["metadata"]
    namespace, name = metadata.get("namespace"), metadata["name"]
    patch = {"spec": spec}
    how = "--type merge " if kind in ("NodePool", "EC2NodeClass") else ""
    where = (
        f"-n {namespace} " if namespace and namespace != "default" and kind not in ("NodePool", "EC2NodeClass") else ""
    )
    command = f"kubectl patch {kind.lower()} {name} {where}{how}-p {shlex.quote(json.dumps(patch))}"
    if kind == "Pod":
        command = ""  # most of a pod's spec cannot be changed: it has to be created again
    path = name if kind in ("NodePool", "EC2NodeClass") else f"{namespace or 'default'}/{name}"
    return ManifestChange(object=f"{kind.lower()}/{path}", what=what, patch=patch, command=command)


def find(manifests: Sequence[Json], kind: str, namespace: str, name: str) -> Json | None:
    for manifest in manifests:
        metadata = manifest.get("metadata") or {}
        if manifest.get("kind") == kind and metadata.get("name") == name and _within(metadata, namespace):
            return manifest
    return None


def _within(metadata: Json, namespace: str) -> bool:
    return not namespace or (metadata.get("namespace") or "default") == namespace


def owner_of(manifests: Sequence[Json], key: str) -> Json | None:
    """The object whose pod spec is to be changed for a pod: its workload, or the pod itself."""
    namespace, _, name = key.partition("/")
    pod = find(manifests, "Pod", namespace, name)
    if pod is None:
        for kind in _TEMPLATED:
            for manifest in manifests:
                metadata = manifest.get("metadata") or {}
                mine = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}-"
                if manifest.get("kind") == kind and key.startswith(mine):
                    return manifest
        return None
    top = pod
    for _ in range(2):  # a pod's ReplicaSet, and its Deployment
        owners = (top.get("metadata") or {}).get("ownerReferences") or ()
        owner = next((owner for owner in owners if owner.get("controller")), None)
        above = find(manifests, owner["kind"], namespace, owner["name"]) if owner else None
        if above is None or above["kind"] not in _TEMPLATED:
            break
        top = above
    return top


def pod_spec(manifest: Json) -> Json:
    spec: Json = manifest.get("spec") or {}
    if manifest.get("kind") != "Pod":
        spec = (spec.get("template") or {}).get("spec") or {}
    return copy.deepcopy(spec)


def applied(manifests: Sequence[Json], changes: Sequence[ManifestChange]) -> list[Json]:
    """The manifests after the changes. Pods of a changed workload are what it would make of its template."""
    changed = [copy.deepcopy(manifest) for manifest in manifests]
    for change in changes:
        kind, _, path = change.object.partition("/")
        namespace, _, name = path.rpartition("/")
        for manifest in changed:
            metadata = manifest.get("metadata") or {}
            named = str(manifest.get("kind", "")).lower() == kind and metadata.get("name") == name
            if named and _within(metadata, namespace):
                _merge(manifest, change.patch)
                _spread_to_pods(changed, manifest, change.patch)
    return changed


def _spread_to_pods(manifests: list[Json], owner: Json, patch: Json) -> None:
    """The pods of a workload get the change too, as if they were created again."""
    template = ((patch.get("spec") or {}).get("template") or {}).get("spec")
    if template is None or owner["kind"] not in _TEMPLATED:
        return
    names = {owner["metadata"]["name"]}
    namespace = owner["metadata"].get("namespace") or "default"
    for manifest in manifests:
        if manifest.get("kind") == "ReplicaSet" and _owned(manifest, names, namespace):
            names.add(manifest["metadata"]["name"])
    for manifest in manifests:
        waits = manifest.get("kind") == "Pod" and not (manifest.get("spec") or {}).get("nodeName")
        if waits and _owned(manifest, names, namespace):
            _merge(manifest, {"spec": template})


def _owned(manifest: Json, names: set[str], namespace: str) -> bool:
    metadata = manifest.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    return (metadata.get("namespace") or "default") == namespace and any(owner.get("name") in names for owner in owners)


def _merge(target: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif key == "containers" and isinstance(target.get(key), list):
            for container in value:
                mine = next((own for own in target[key] if own.get("name") == container.get("name")), None)
                if mine is not None:
                    _merge(mine, container)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


# -- proposals by reason


def _tolerations(case: _Case) -> Iterator[ManifestChange]:
    template = ((case.pool or {}).get("spec") or {}).get("template") or {}
    taints = (template.get("spec") or {}).get("taints") or ()
    refused = case.exclusion.taints
    needed = [
        taint for taint in taints if taint.get("key", "") in refused and taint.get("effect") != "PreferNoSchedule"
    ]
    added = [
        {
            "key": taint["key"],
            "operator": "Equal" if taint.get("value") else "Exists",
            "effect": taint["effect"],
            **({"value": taint["value"]} if taint.get("value") else {}),
        }
        for taint in needed
    ]
    if added:
        keys = ", ".join(str(toleration["key"]) for toleration in added)
        yield from case.of_pod(
            message("tolerate the taint {keys}", keys=keys),
            {"tolerations": [*case.spec.get("tolerations", ()), *added]},
        )


def _selector(case: _Case) -> Iterator[tuple[str, str]]:
    """The labels of the pod's nodeSelector that the cause names."""
    for key, value in (case.spec.get("nodeSelector") or {}).items():
        if key in case.exclusion.labels or case.funnel is None:
            yield key, str(value)


def _meant_label(case: _Case) -> Iterator[ManifestChange]:
    """Correct a misspelt key or value of the nodeSelector."""
    meant = case.exclusion.meant
    for key, value in _selector(case):
        if meant and case.exclusion.unknown_label:
            yield from case.of_pod(
                message("select {meant} instead of {key}", meant=meant, key=key),
                {"nodeSelector": {key: None, meant: value}},
            )
        elif meant:
            yield from case.of_pod(
                message("select {key}={meant} instead of {value}", key=key, meant=meant, value=value),
                {"nodeSelector": {key: meant}},
            )


def _declare_label(case: _Case) -> Iterator[ManifestChange]:
    for key, value in _selector(case):
        if key not in WELL_KNOWN and not key.startswith(("karpenter.sh/", "kubernetes.io/", "node.kubernetes.io/")):
            metadata = {"template": {"metadata": {"labels": {key: value}}}}
            yield from case.of_pool(
                message(
                    "give the nodes of NodePool {pool_name} the label {key}={value}",
                    pool_name=case.pool_name,
                    key=key,
                    value=value,
                ),
                metadata,
            )


def _drop_selector(case: _Case) -> Iterator[ManifestChange]:
    for key, value in _selector(case):
        yield from case.of_pod(
            message("drop {key}={value} from the nodeSelector", key=key, value=value), {"nodeSelector": {key: None}}
        )
    affinity = case.spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = copy.deepcopy(required.get("nodeSelectorTerms") or [])
    for term in terms:
        kept = [
            expression
            for expression in term.get("matchExpressions") or ()
            if expression.get("key") not in case.exclusion.labels
        ]
        if len(kept) < len(term.get("matchExpressions") or ()):
            dropped = [expression["key"] for expression in term["matchExpressions"] if expression not in kept]
            term["matchExpressions"] = kept
            whole = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            empty = not any(term.get("matchExpressions") or term.get("matchFields") for term in terms)
            spec = {"affinity": {"nodeAffinity": None if empty else whole}}
            yield from case.of_pod(message("drop {dropped} from the node affinity", dropped=", ".join(dropped)), spec)


def _widen(case: _Case) -> Iterator[ManifestChange]:
    """Let the requirements that forbid the nearest miss allow it."""
    forbidding = case.exclusion.forbidding
    if case.funnel is None or case.funnel.nearest is None or not forbidding:
        return
    choice = case.funnel.nearest
    kind = next(
        (
            instance_type
            for pool in case.evaluation.snapshot.pools
            for instance_type in pool.types
            if instance_type.name == choice.instance_type
        ),
        None,
    )
    values: dict[str, str] = {
        ZONE: choice.zone,
        CAPACITY_TYPE: choice.capacity_type,
        INSTANCE_TYPE: choice.instance_type,
    }
    changed, words = case.requirements, []
    for need in changed:
        key = str(need.get("key"))
        label = kind.labels.get(key, ()) if kind is not None else ()
        value = values.get(key) or (label[0] if label else "")
        if (key, need.get("operator")) not in forbidding or not value:
            continue
        if need["operator"] == "In" and value not in need.get("values", ()):
            need["values"] = [*need.get("values", ()), value]
        elif need["operator"] == "NotIn":
            need["values"] = [name for name in need.get("values", ()) if name != value]
        elif need["operator"] in ("Gt", "Lt", "Gte", "Lte"):
            step = {"Gt": -1, "Lt": 1, "Gte": 0, "Lte": 0}[need["operator"]]
            need["values"] = [str(int(value) + step)]
        words.append(f"{key} {value}")
    kept = [need for need in changed if not (need.get("operator") == "NotIn" and not need.get("values"))]
    if words:
        yield from case.require(
            message("let NodePool {pool_name} use {words}", pool_name=case.pool_name, words=" and ".join(words)), kept
        )


def _own_requirement(case: _Case) -> Iterator[ManifestChange]:
    """Correct the requirement of a pool that leaves nothing."""
    for index, need in enumerate(case.requirements):
        if (need.get("key"), need.get("operator")) not in case.exclusion.own_requirements:
            continue
        values = [str(value) for value in need.get("values") or ()]
        key = meant_key(values) if need.get("key") == INSTANCE_TYPE and values else None
        changed = case.requirements
        if key is not None:
            changed[index]["key"] = key
            yield from case.require(
                message("write the key {key} instead of {instance_type}", key=key, instance_type=INSTANCE_TYPE), changed
            )
            continue
        there = {
            value for pool in case.evaluation.snapshot.pools for value in _values(pool.types, str(need.get("key")))
        }
        meant = [nearest(value, there) or value for value in values]
        if meant != values:
            changed[index]["values"] = meant
            yield from case.require(
                message("write {meant} instead of {values}", meant=", ".join(meant), values=", ".join(values)), changed
            )
        changed = case.requirements
        del changed[index]
        yield from case.require(
            message(
                "drop the requirement {key} of NodePool {pool_name}", key=need.get("key"), pool_name=case.pool_name
            ),
            changed,
        )


def _values(types: Sequence[Any], key: str) -> Iterator[str]:
    for kind in types:
        if key == INSTANCE_TYPE:
            yield kind.name
        elif key in (ZONE, CAPACITY_TYPE):
            yield from (offering.zone if key == ZONE else offering.capacity_type for offering in kind.offerings)
        else:
            yield from kind.labels.get(key, ())


def _ask_less(case: _Case) -> Iterator[ManifestChange]:
    """Ask for as much as the nearest miss has: from the largest container."""
    name, most = case.exclusion.resource, case.exclusion.available
    containers = case.spec.get("containers") or ()
    if most is None or not containers:
        return
    total = sum(_amount(container, name) for container in containers)
    largest = max(containers, key=lambda container: _amount(container, name))
    less = _amount(largest, name) - (total - most)
    if less <= 0:
        return
    text = format_resources({name: less})[name]
    limits = (largest.get("resources") or {}).get("limits") or {}
    lowered: Json = {"requests": {name: text}}
    if (name in limits and resources({name: limits[name]})[name] < less) or name not in ("cpu", "memory"):
        lowered["limits"] = {name: text}
    change = {"containers": [{"name": largest.get("name"), "resources": lowered}]}
    yield from case.of_pod(message("ask for {name} {text}", name=name, text=text), change)


def _amount(container: Json, name: str) -> int:
    stated = container.get("resources") or {}
    amount = (stated.get("requests") or {}).get(name, (stated.get("limits") or {}).get(name))
    return resources({name: amount})[name] if amount is not None else 0


def _raise_limit(case: _Case) -> Iterator[ManifestChange]:
    """Raise the limit by what the nearest miss needs."""
    funnel = case.funnel
    limits = ((case.pool or {}).get("spec") or {}).get("limits") or {}
    if funnel is None or funnel.nearest is None:
        return
    name, left = case.exclusion.limit, case.exclusion.limit_left
    if name not in limits:
        return
    kind = next(
        (
            instance_type
            for pool in case.evaluation.snapshot.pools
            for instance_type in pool.types
            if instance_type.name == funnel.nearest.instance_type
        ),
        None,
    )
    needed = 1 if name == "nodes" else (kind.capacity.get(name, 0) if kind is not None else 0)
    used = resources({name: limits[name]})[name] - left
    raised = format_resources({name: used + needed})[name]
    yield from case.of_pool(
        message("raise limits.{name} to {raised}", name=name, raised=raised), {"limits": {name: raised}}
    )


def _lower_min_values(case: _Case) -> Iterator[ManifestChange]:
    changed, lowered = case.requirements, []
    there = case.exclusion.min_values
    for need in changed:
        if need.get("minValues") and (need.get("key") in there or case.funnel is None):
            if there.get(str(need.get("key"))):
                need["minValues"] = there[str(need.get("key"))]
            else:
                need.pop("minValues")
            lowered.append(str(need.get("key")))
    if lowered:
        yield from case.require(message("lower minValues of {lowered}", lowered=", ".join(lowered)), changed)


def _prefer_spread(case: _Case) -> Iterator[ManifestChange]:
    constraints = copy.deepcopy(case.spec.get("topologySpreadConstraints") or [])
    hard = [
        constraint
        for constraint in constraints
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    for constraint in hard:
        constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        constraint.pop("minDomains", None)
    if hard:
        what = message("make the topology spread a preference (whenUnsatisfiable: ScheduleAnyway)")
        yield from case.of_pod(what, {"topologySpreadConstraints": constraints})


def _prefer(kind: str) -> Callable[[_Case], Iterator[ManifestChange]]:
    def proposed(case: _Case) -> Iterator[ManifestChange]:
        rules = ((case.spec.get("affinity") or {}).get(kind)) or {}
        required = rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        if required:
            kept = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or []
            weighted = [*kept, *({"weight": 100, "podAffinityTerm": term} for term in required)]
            changed = {
                "requiredDuringSchedulingIgnoredDuringExecution": None,
                "preferredDuringSchedulingIgnoredDuringExecution": weighted,
            }
            name = "anti-affinity" if "Anti" in kind else "affinity"
            yield from case.of_pod(
                message("make the pod {name} a preference", name=name), {"affinity": {kind: changed}}
            )

    return proposed


def _name_class(case: _Case) -> Iterator[ManifestChange]:
    """A NodeClass that was misspelt."""
    meant = case.exclusion.meant
    if meant:
        reference = {"template": {"spec": {"nodeClassRef": {"name": meant}}}}
        yield from case.of_pool(
            message("let NodePool {pool_name} use the EC2NodeClass {meant}", pool_name=case.pool_name, meant=meant),
            reference,
        )


def _no_host_ports(case: _Case) -> Iterator[ManifestChange]:
    changed = [
        {
            "name": container.get("name"),
            "ports": [{k: v for k, v in port.items() if k != "hostPort"} for port in container["ports"]],
        }
        for container in case.spec.get("containers") or ()
        if any(port.get("hostPort") for port in container.get("ports") or ())
    ]
    if changed:
        yield from case.of_pod(message("use no host port"), {"containers": changed})


_PROPOSALS: Mapping[str, tuple[Callable[[_Case], Iterator[ManifestChange]], ...]] = {
    "UNTOLERATED_TAINT": (_tolerations,),
    "UNKNOWN_LABEL": (_meant_label, _declare_label, _drop_selector, _prefer_spread, _prefer("podAffinity")),
    "NO_TYPE_MATCHES": (_own_requirement, _meant_label, _widen, _declare_label, _drop_selector),
    "VOLUME_ZONE": (_widen, _drop_selector),
    "NO_TYPE_FITS": (_widen, _ask_less),
    "LIMIT_REACHED": (_raise_limit,),
    "MIN_VALUES": (_lower_min_values,),
    "SPREAD": (_prefer_spread,),
    "AFFINITY": (_prefer("podAffinity"),),
    "ANTI_AFFINITY": (_prefer("podAntiAffinity"),),
    "HOST_PORT_TAKEN": (_no_host_ports,),
    "BAD_NODECLASS": (_name_class,),
    "VOLUME_LIMIT": (_widen,),
}


def proposals(evaluation: PlanEvaluation, key: str, why: Unschedulable) -> list[ManifestChange]:
    """Changes that the cause suggests, untried."""
    changes: list[ManifestChange] = []
    blamed = next(iter(why.pools), "")
    usable = [name for name, funnel in why.pools.items() if funnel.suits and name != blamed]
    for name in (blamed, *usable[: MAX_POOLS - 1]):
        case = _Case(evaluation, key, why, name)
        code = case.funnel.code if case.funnel is not None and name != blamed else why.code
        changes += [change for make in _PROPOSALS.get(code, ()) for change in make(case)][:MAX_PROPOSALS]
    return changes


def what_it_takes(evaluation: PlanEvaluation, key: str) -> tuple[ManifestChange, ...]:
    """The fewest changes found that give a pod a node, each tried; none if nothing was found."""
    why = evaluation.refusal(key)
    if why is None:
        return ()
    return _search(evaluation, key, why, MAX_STEPS)


def _search(evaluation: PlanEvaluation, key: str, why: Unschedulable, steps: int) -> tuple[ManifestChange, ...]:
    tried = []
    for change in proposals(evaluation, key, why):
        after = evaluation.changed(applied(evaluation.manifests, [change]))
        left = after.refusal(key)
        if left is None and after.placement(key) is not None:
            return (change,)
        if left is not None and _words(left) != _words(why):
            tried.append((change, after, left))
    for change, after, left in tried if steps > 1 else ():
        more = _search(after, key, left, steps - 1)
        if more:
            return _last_of_each((change, *more))
    return ()


def _words(why: Unschedulable) -> tuple[str, ...]:
    return (why.message, *(f"{name}: {funnel.emptied_by}" for name, funnel in why.pools.items()))


def _last_of_each(changes: tuple[ManifestChange, ...]) -> tuple[ManifestChange, ...]:
    """Of several changes of one field the last: a limit that was raised twice is raised once, further."""
    kept = {(change.object, json.dumps(_fields(change.patch))): change for change in changes}
    return tuple(kept.values())


def _fields(patch: Any) -> Any:
    """The fields that a patch sets; those of a list of containers by their names, as they are merged."""
    if isinstance(patch, dict):
        return {key: _fields(value) for key, value in sorted(patch.items())}
    if isinstance(patch, list) and all(isinstance(item, dict) and "name" in item for item in patch):
        return {item["name"]: _fields({key: item[key] for key in item if key != "name"}) for item in patch}
    return None
