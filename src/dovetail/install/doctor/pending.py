"""Pods that no NodePool can ever serve, and budgets that hold every node (part of D10)."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dovetail.install.doctor.addresses import requirements
from dovetail.install.doctor.collect import REFUSAL_TEXT, REFUSALS
from dovetail.install.doctor.controller import controllers, dns_deployments
from dovetail.install.doctor.daemon_sets import pod_requests, tolerated
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    condition,
    event_time,
    failure,
    moment,
    name_of,
    warning,
)
from dovetail.install.doctor.system_pods import pods_of
from dovetail.install.plan import general_node_pool
from dovetail.kube.resources import (
    EC2NODECLASSES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
)
from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.model import labels, quantity, wellknown
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.adopt import PROVISIONER_ANNOTATION
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.reasons import REASONS

#: More causes than these are not listed: the first ones have to be mended anyway.
MAX_CAUSES = 5
#: Codes of refusals that hold whatever else is wrong.
OF_THE_POD = frozenset(
    (
        *("AFFINITY", "ANTI_AFFINITY", "LIMIT_REACHED", "NO_TYPE_MATCHES", "SPREAD", "UNKNOWN_LABEL"),
        *("UNTOLERATED_TAINT", "VOLUME_CLASS", "VOLUME_MISSING", "VOLUME_ZONE"),
    )
)
#: Resources of limits that each instance takes from.
LIMITED = ("cpu", "memory", "nodes")
ZONES = (labels.ZONE, "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone")


def check_pending(facts: Facts, offered: InstanceCatalog | None) -> Iterator[Fault]:
    pools = facts.items(NODEPOOLS.name)
    pods = unschedulable(facts)
    blocked: list[Fault] = []
    if pools and pods:
        blocked = list(_key_faults(facts, pools, pods)) + list(_volume_faults(facts, pools, pods))
        if offered is not None and len({fault.object for fault in blocked}) < len(pods):
            blocked += _limit_faults(pools, offered, pods)
        yield from blocked
    if pods and not blocked:
        yield from _refusal_faults(facts, pods)
    if pools:
        yield from _budget_faults(facts)


def unschedulable(facts: Facts) -> list[Json]:
    """Pods for which the scheduler has no node; those of DaemonSets, controllers and DNS have checks of their own."""
    reported = {
        name_of(pod)
        for deployment in (*controllers(facts), *dns_deployments(facts))
        for pod in pods_of(facts, deployment)
    }
    rows = []
    for pod in facts.items(PODS.name):
        scheduled = condition(pod, "PodScheduled") or {}
        owners = [owner.get("kind") for owner in pod["metadata"].get("ownerReferences") or ()]
        waits = scheduled.get("reason") == "Unschedulable" and scheduled.get("status") == "False"
        if waits and "DaemonSet" not in owners and not pod["metadata"].get("deletionTimestamp"):
            rows.append(pod)
    return [pod for pod in rows if name_of(pod) not in reported]


# What the controller says of them


def _refusal_faults(facts: Facts, pods: Sequence[Json]) -> Iterator[Fault]:
    """Each cause once, with the first of its pods; not what passes by itself, nor where a node is on its way."""
    refusals = {
        (str(about.get("namespace")), str(about.get("name"))): (event, str(event["message"]))
        for event in sorted(facts.items(REFUSALS), key=event_time)
        if (about := event.get("involvedObject"))
    }
    starting = (row for row in facts.items(NODECLAIMS.name) if not _is_initialised(row))
    launched = max((str(row["metadata"].get("creationTimestamp")) for row in starting), default="")
    waiting: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        metadata = pod["metadata"]
        event, text = refusals.get((metadata.get("namespace", ""), metadata["name"]), (None, ""))
        code = re.search(r"\(([A-Z_]+)\)$", text)
        passes = code is not None and code[1] in REASONS and REASONS[code[1]].kind == "wait"
        if event is not None and not passes and not _is_earlier(event_time(event), launched):
            waiting[text.removeprefix(REFUSAL_TEXT)].append(pod)
    for text, held in list(waiting.items())[:MAX_CAUSES]:
        more = message(" and {count} more", count=len(held) - 1) if len(held) > 1 else ""
        yield failure(
            f"pod/{name_of(held[0])}",
            message("no NodePool serves it{more}: {text}", more=more, text=recognized(text)),
            _refusal_remedy(facts, held[0], text),
            symptom=not _is_of_the_pod(text),
        )


def _is_of_the_pod(text: str) -> bool:
    """Whether the pod, its volumes or a limit is the cause: no fault of the account or the controller leads to it."""
    code = re.search(r"\(([A-Z_]+)\)$", text)
    return code is not None and code[1] in OF_THE_POD and " of 0 offerings" not in text


def _is_initialised(claim: Json) -> bool:
    return (condition(claim, "Initialized") or {}).get("status") == "True"


def _refusal_remedy(facts: Facts, pod: Json, text: str) -> str:
    """A NodePool where there is none; no taint where no pod tolerates it; else what explain finds by trying."""
    pools, classes = facts.items(NODEPOOLS.name), facts.items(EC2NODECLASSES.name)
    if not pools and len(classes) == 1:
        body = json.dumps(general_node_pool("amd64", classes[0]["metadata"]["name"]), separators=(",", ":"))
        return f"echo '{body}' | kubectl apply -f -"
    if text.endswith("(UNTOLERATED_TAINT)") and len(pools) == 1:
        for index, taint in enumerate(pools[0]["spec"]["template"]["spec"].get("taints") or ()):
            if not any(_tolerates(other, taint) for other in facts.items(PODS.name)):
                patch = f'[{{"op":"remove","path":"/spec/template/spec/taints/{index}"}}]'
                return f"kubectl patch nodepool {pools[0]['metadata']['name']} --type=json -p '{patch}'"
    return f"dovetail explain pod/{name_of(pod)} -v"


def _tolerates(pod: Json, taint: Json) -> bool:
    """Whether it asks for nodes with this taint; a pod of a DaemonSet goes to every node."""
    owners = [owner.get("kind") for owner in pod["metadata"].get("ownerReferences") or ()]
    named = [row for row in pod["spec"].get("tolerations") or () if row.get("key")]
    return "DaemonSet" not in owners and tolerated(taint, named)


def _is_earlier(first: str, second: str) -> bool:
    before, after = moment(first), moment(second)
    return before is not None and after is not None and before < after


# Labels that no NodePool declares


def _key_faults(facts: Facts, pools: Sequence[Json], pods: Sequence[Json]) -> Iterator[Fault]:
    declared = set(labels.WELL_KNOWN) | {labels.HOSTNAME} | set(labels.ALIASES)
    for pool in pools:
        template = pool["spec"]["template"]
        declared |= set((template.get("metadata") or {}).get("labels") or {})
        declared |= {row["key"] for row in template["spec"].get("requirements") or ()}
        reference = template["spec"].get("nodeClassRef") or {}
        declared.add(wellknown.node_class_label(str(reference.get("group")), str(reference.get("kind"))))
        if PROVISIONER_ANNOTATION in (pool["metadata"].get("annotations") or {}):
            declared.add(labels.PROVISIONER_NAME)
    for node in facts.items(NODES.name):
        declared |= set(node["metadata"].get("labels") or {})
    reported: set[str] = set()
    for pod in pods:
        unknown = {key: value for key, value in _selected(pod).items() if key not in declared}
        for key, value in unknown.items():
            if key in reported:
                continue
            reported.add(key)
            pool = pools[0]["metadata"]["name"]
            patch = f'{{"spec":{{"template":{{"metadata":{{"labels":{{"{key}":"{value}"}}}}}}}}}}'
            yield failure(
                f"pod/{name_of(pod)}",
                message(
                    "it asks for nodes with the label {key}{value}, which no NodePool declares and no node has",
                    key=key,
                    value=f"={value}" if value else "",
                ),
                f"kubectl patch nodepool {pool} --type=merge -p '{patch}'",
            )


def _selected(pod: Json) -> dict[str, str]:
    """The labels that a node must have for the pod; alternatives are left out."""
    node_labels = {str(key): str(value) for key, value in (pod["spec"].get("nodeSelector") or {}).items()}
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms: Sequence[Json] = required.get("nodeSelectorTerms") or ()
    if len(terms) == 1:
        for row in terms[0].get("matchExpressions") or ():
            if row.get("operator") in ("In", "Exists"):
                values = [str(value) for value in row.get("values") or ()]
                node_labels.setdefault(str(row["key"]), values[0] if values else "")
    return node_labels


# Volumes in zones that no NodePool may use


def _volume_faults(facts: Facts, pools: Sequence[Json], pods: Sequence[Json]) -> Iterator[Fault]:
    volumes = {row["metadata"]["name"]: row for row in facts.items(PERSISTENTVOLUMES.name)}
    claims = {name_of(row): row for row in facts.items(PERSISTENTVOLUMECLAIMS.name)}
    for pod in pods:
        for mounted in pod["spec"].get("volumes") or ():
            name = f"{pod['metadata'].get('namespace')}/{mounted['persistentVolumeClaim']['claimName']}"
            volume = volumes.get(str(((claims.get(name) or {}).get("spec") or {}).get("volumeName")))
            zones = _zones(volume) if volume is not None else ()
            if zones and not any(_allows_zone(pool, zone) for pool in pools for zone in zones):
                yield failure(
                    f"pod/{name_of(pod)}",
                    message(
                        "its volume {claimName} is in {zones}, and no NodePool allows {zone} {zones}",
                        claimName=mounted["persistentVolumeClaim"]["claimName"],
                        zones=", ".join(zones),
                        zone=labels.ZONE,
                    ),
                    message(
                        "kubectl edit nodepool {name}  # add {zones} to {zone}",
                        name=pools[0]["metadata"]["name"],
                        zones=zones[0],
                        zone=labels.ZONE,
                    ),
                )


def _zones(volume: Json) -> tuple[str, ...]:
    terms = (((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
    rows = [row for term in terms or () for row in term.get("matchExpressions") or () if row.get("key") in ZONES]
    return tuple(str(value) for row in rows if row.get("operator") == "In" for value in row.get("values") or ())


def _allows_zone(pool: Json, zone: str) -> bool:
    for row in pool["spec"]["template"]["spec"].get("requirements") or ():
        if row.get("key") in ZONES:
            listed = zone in (row.get("values") or ())
            if (row.get("operator"), listed) in (("In", False), ("NotIn", True)):
                return False
    return True


# Limits with no room for one more instance


def _limit_faults(pools: Sequence[Json], offered: InstanceCatalog, pods: Sequence[Json]) -> Iterator[Fault]:
    """Limits without room for any instance; the remedy leaves room for one that holds the largest of the pods."""
    largest = {name: max(pod_requests(pod).get(name, 0) for pod in pods) for name in ("cpu", "memory")}
    exhausted = [(pool, cause) for pool in pools if (cause := _exhausted(pool, offered))]
    make = failure if len(exhausted) == len(pools) else warning
    for pool, (resource, used, types) in exhausted:
        name = pool["metadata"]["name"]
        smallest = min(types, key=lambda kind: _taken(kind, resource))
        fitting = [kind for kind in types if _holds(kind, largest)] or types
        raised, taken, more = (
            quantity.format_resources({resource: amount})[resource]
            for amount in (used + min(_taken(kind, resource) for kind in fitting), used, _taken(smallest, resource))
        )
        yield make(
            f"nodepool/{name}",
            message(
                "spec.limits.{resource} is {limit} and {taken} are in use: the smallest instance it may "
                "launch, {smallest}, needs {more} more, and pods wait",
                resource=resource,
                limit=pool["spec"]["limits"][resource],
                taken=taken,
                smallest=smallest.name,
                more=more,
            ),
            f'kubectl patch nodepool {name} --type=merge -p \'{{"spec":{{"limits":{{"{resource}":"{raised}"}}}}}}\'',
        )


def _exhausted(pool: Json, offered: InstanceCatalog) -> tuple[str, int, list[InstanceType]] | None:
    """The first resource of which a NodePool's limit leaves too little, how much is in use, and what it may launch."""
    limits = quantity.resources(pool["spec"].get("limits") or {})
    in_use = quantity.resources((pool.get("status") or {}).get("resources") or {})
    types = list(offered.meeting(requirements(pool["spec"]["template"]["spec"].get("requirements") or ())))
    for resource in LIMITED:
        used = in_use.get(resource, 0)
        if (
            resource in limits
            and types
            and used
            and used + min(_taken(kind, resource) for kind in types) > limits[resource]
        ):
            return resource, used, types
    return None


def _taken(kind: InstanceType, resource: str) -> int:
    """What an instance takes from a limit."""
    return 1 if resource == "nodes" else kind.capacity.get(resource, 0)


def _holds(kind: InstanceType, requests: Mapping[str, int]) -> bool:
    """Whether an instance has more than these requests: the rest is for the system and its agents."""
    return all(kind.capacity.get(name, 0) > amount for name, amount in requests.items())


# Disruption budgets of pods


def _budget_faults(facts: Facts) -> Iterator[Fault]:
    by_namespace: dict[str, list[Json]] = defaultdict(list)
    for budget in facts.items(PDBS.name):
        by_namespace[budget["metadata"]["namespace"]].append(budget)
        spec, status = budget.get("spec") or {}, budget.get("status") or {}
        never = str(spec.get("maxUnavailable")) in ("0", "0%") or str(spec.get("minAvailable")) == "100%"
        pods = int(status.get("expectedPods", 1))
        if pods and (never or int(status.get("desiredHealthy", 0)) >= pods):
            field = "maxUnavailable" if "maxUnavailable" in spec else "minAvailable"
            name, namespace = budget["metadata"]["name"], budget["metadata"]["namespace"]
            yield warning(
                f"poddisruptionbudget/{namespace}/{name}",
                message(
                    "spec.{field} is {spec}: no pod of it may be evicted, so its nodes are never "
                    "consolidated, replaced or drained",
                    field=field,
                    spec=spec[field],
                )
                if never
                else message(
                    "spec.{field} is {spec}, and it selects {count} pods: none of them may be evicted, so their nodes "
                    "are never consolidated, replaced or drained",
                    field=field,
                    spec=spec.get(field),
                    count=pods,
                ),
                f"kubectl patch pdb {name} -n {namespace} --type=merge -p"
                ' \'{"spec":{"maxUnavailable":1,"minAvailable":null}}\'',
            )
    shared = {namespace: budgets for namespace, budgets in by_namespace.items() if len(budgets) > 1}
    if shared:
        yield from _shared_faults(facts, shared)


def _shared_faults(facts: Facts, budgets: Mapping[str, Sequence[Json]]) -> Iterator[Fault]:
    """A pod under two budgets is never evicted: the API server refuses to choose."""
    reported: set[tuple[str, ...]] = set()
    for pod in facts.items(PODS.name):
        candidates = budgets.get(pod["metadata"].get("namespace", ""))
        if not candidates:
            continue
        held = [budget for budget in candidates if _selects(budget, pod["metadata"].get("labels") or {})]
        names = tuple(budget["metadata"]["name"] for budget in held)
        if len(held) > 1 and names not in reported:
            reported.add(names)
            namespace = pod["metadata"]["namespace"]
            yield warning(
                f"pod/{name_of(pod)}",
                message(
                    "the PodDisruptionBudgets {names} both select it: the API server refuses every eviction",
                    names=", ".join(names),
                ),
                f"kubectl delete pdb {names[1]} -n {namespace}",
            )


def _selects(budget: Json, pod_labels: Mapping[str, str]) -> bool:
    selector = (budget.get("spec") or {}).get("selector") or {}
    if selector.get("matchExpressions") or not selector.get("matchLabels"):
        return False
    match_labels: Mapping[str, str] = selector["matchLabels"]
    return match_labels.items() <= pod_labels.items()
