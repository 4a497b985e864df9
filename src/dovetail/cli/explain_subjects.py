"""What `dovetail explain` is asked about: the object, the evidence that its answer needs, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click
import msgspec

from dovetail.autoscalers.vpa.api import VPAS
from dovetail.cli import cluster_objects
from dovetail.cli.cluster_session import Cluster
from dovetail.cli.explain_evaluation import evaluated, takes, what_if, with_changes
from dovetail.cluster.state_node import launch_price
from dovetail.controllers import explain
from dovetail.controllers.explain import Answer, Event, Unknown, placement
from dovetail.controllers.explain.namespaces import share_text, shares_of
from dovetail.controllers.history.decisions import Decision
from dovetail.kube import resources as kinds
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.language import message, source
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, REGION, ZONE
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.spelling import nearest
from dovetail.offline.evaluation import Evaluation

#: The kinds, by the names that kubectl takes for them; the first of each is what the answer says.
NAMES: dict[str, tuple[str, ...]] = {
    "pod": ("pod", "pods", "po"),
    "node": ("node", "nodes", "no"),
    "nodeclaim": ("nodeclaim", "nodeclaims"),
    "machine": ("machine", "machines"),
    "nodepool": ("nodepool", "nodepools"),
    "provisioner": ("provisioner", "provisioners"),
    "ec2nodeclass": ("ec2nodeclass", "ec2nodeclasses", "ec2nc", "ec2ncs", "nodeclass"),
    "awsnodetemplate": ("awsnodetemplate", "awsnodetemplates"),
    "hpa": ("hpa", "horizontalpodautoscaler", "horizontalpodautoscalers"),
    "vpa": ("vpa", "verticalpodautoscaler", "verticalpodautoscalers"),
    "nodegroup": ("nodegroup", "nodegroups", "ng"),
    "deployment": ("deployment", "deployments", "deploy"),
    "statefulset": ("statefulset", "statefulsets", "sts"),
    "replicaset": ("replicaset", "replicasets", "rs"),
    "daemonset": ("daemonset", "daemonsets", "ds"),
    "job": ("job", "jobs"),
    "pdb": ("pdb", "poddisruptionbudget", "poddisruptionbudgets"),
    "namespace": ("namespace", "namespaces", "ns"),
}
KINDS = {name: kind for kind, names in NAMES.items() for name in names}
NAMESPACED = frozenset({"pod", "hpa", "vpa", "deployment", "statefulset", "replicaset", "daemonset", "job", "pdb"})
#: The older kinds are explained by what they became.
_BECAME = {"machine": "nodeclaim", "provisioner": "nodepool", "awsnodetemplate": "ec2nodeclass"}
_WORKLOADS = {
    "deployment": kinds.DEPLOYMENTS,
    "statefulset": kinds.STATEFULSETS,
    "replicaset": kinds.REPLICASETS,
    "daemonset": kinds.DAEMONSETS,
    "job": kinds.JOBS,
}
#: Owners of pods, read for a plan beside what it needs: the object to change is the workload.
_OWNERS = (kinds.DEPLOYMENTS, kinds.REPLICASETS, kinds.STATEFULSETS, kinds.JOBS)


class Subject(NamedTuple):
    """`name` is namespace/name for what lives in a namespace."""

    kind: str
    name: str


class Question(NamedTuple):
    """What is asked about a subject, beside why."""

    why: str = ""
    what_if: str | None = None
    at: datetime | None = None
    verbose: bool = False


def subject_of(words: Sequence[str], namespace: str) -> Subject:
    """`pod/NAME`, `pod NAME`, `pod/NAMESPACE/NAME`, with any of kubectl's names for the kind."""
    text = "/".join(words)
    kind, _, name = text.partition("/")
    known = KINDS.get(kind.lower().partition(".")[0])
    if known is None:
        meant = nearest(kind.lower(), KINDS)
        hint = message("; did you mean {meant}?", meant=meant) if meant else ""
        raise click.UsageError(
            message("{kind!r} cannot be explained{hint}; kinds: {names}", kind=kind, hint=hint, names=", ".join(NAMES))
        )
    if not name or name.endswith("/"):
        raise click.UsageError(message("{text!r}: name the object, as in {known}/NAME", text=text, known=known))
    if known in NAMESPACED and "/" not in name:
        name = f"{namespace}/{name}"
    return Subject(known, name)


async def answer(cluster: Cluster, subject: Subject, question: Question, history_namespace: str | None) -> Answer:
    """The answer now; the cluster state is read."""
    decisions = await _decisions(cluster, history_namespace)
    found = await _answer(cluster, subject, question, decisions)
    named = f"{subject.kind}/{subject.name}"
    if subject.kind in _BECAME:
        found = msgspec.structs.replace(found, subject=named)
    silent = await cluster.no_autoscaler() if question.at is None else ""
    return msgspec.structs.replace(found, line=f"{found.line}; {silent}") if silent else found


async def _decisions(cluster: Cluster, namespace: str | None) -> list[Decision]:
    try:
        return await cluster.decisions(namespace)
    except Forbidden:  # then the objects and the events have to do
        return []


async def _answer(cluster: Cluster, subject: Subject, question: Question, decisions: list[Decision]) -> Answer:
    state, now = cluster.cluster_state, cluster.now
    kind, name = _BECAME.get(subject.kind, subject.kind), subject.name
    if question.at is not None:
        return explain.past(decisions, kind, name, question.at, now)
    if kind in _WORKLOADS:
        return await _workload(cluster, subject, question, decisions)
    if kind == "namespace":
        return explain.namespace(state, name, _prices(cluster))
    if kind == "pdb":
        return explain.pdb(state, name, now)
    events = await _events(cluster, subject)
    match kind:
        case "pod":
            return await _pod(cluster, name, question, decisions, events)
        case "node" | "nodeclaim":
            if kind == "node" and (of_group := await _group_node(cluster, name)) is not None:
                return of_group
            ask = explain.node if kind == "node" else explain.claim
            return _with_placement(cluster, decisions, ask(state, decisions, name, now, events), question)
        case "nodepool":
            return explain.nodepool(state, decisions, name, now, events)
        case "ec2nodeclass":
            return explain.nodeclass(state, decisions, name, now, events)
        case "hpa":
            vpas = await _others(cluster, VPAS, name)
            return explain.hpa(await _get(cluster, kinds.HPAS, name), events, vpas)
        case "vpa":
            return await _vpa(cluster, name, events)
        case _:
            return await _nodegroup(cluster, name)


def _prices(cluster: Cluster) -> Callable[[Node], float | None]:
    """The price of a node: at its launch, else by its type, zone and capacity type in the packaged catalogue."""
    from dovetail.cloud.aws import catalog

    known: dict[str, dict[str, InstanceType]] = {}

    def price(node: Node) -> float | None:
        claim = cluster.cluster_state.claim_for(node)
        launched = launch_price(claim) if claim is not None else None
        labels = node.metadata.labels
        region = labels.get(REGION, "")
        if launched is not None or region not in catalog.regions():
            return launched
        if region not in known:
            known[region] = {kind.name: kind for kind in catalog.load(region)}
        kind = known[region].get(labels.get(INSTANCE_TYPE, ""))
        sold = labels.get(CAPACITY_TYPE) or labels.get("eks.amazonaws.com/capacityType", "on-demand")
        wanted = (labels.get(ZONE), sold.lower().replace("_", "-"))
        offerings = kind.offerings if kind is not None else ()
        return next((each.price for each in offerings if (each.zone, each.capacity_type) == wanted), None)

    return price


async def _events(cluster: Cluster, subject: Subject) -> list[Event]:
    """The events that may be read: of the object's namespace, or of all for what lives in none."""
    namespace = subject.name.partition("/")[0] if subject.kind in NAMESPACED else None
    spaces = [namespace, "default"] if namespace not in (None, "default") else [namespace]
    found: list[Event] = []
    for space in spaces:
        try:
            found += explain.events_of((await cluster.kube.list(kinds.CORE_EVENTS, space)).items)
        except KubeError:
            continue
    return found


async def _get(cluster: Cluster, resource: kinds.Resource, name: str) -> dict[str, Any]:
    namespace, _, last = name.rpartition("/")
    try:
        found: dict[str, Any] = await cluster.kube.get(resource, last, namespace or None)
    except NotFound as problem:
        try:
            there = [
                str(each["metadata"]["name"]) for each in (await cluster.kube.list(resource, namespace or None)).items
            ]
        except NotFound:
            raise Unknown(message("the cluster does not know {resource}", resource=resource.name)) from problem
        where = message(" in namespace {namespace}", namespace=namespace) if namespace else ""
        text = message(
            "{resource_kind}/{name} is not in the cluster; there are{where}: ",
            resource_kind=resource.kind.lower(),
            name=name,
            where=where,
        )
        raise Unknown(text + (", ".join(sorted(there)[:10]) or message("none"))) from problem
    return found


# -- pods


async def _pod(
    cluster: Cluster, key: str, question: Question, decisions: list[Decision], events: list[Event]
) -> Answer:
    state = cluster.cluster_state
    if question.what_if is not None:
        if state.pods.store.get(key) is None:
            return explain.pod(state, decisions, key, cluster.now, events)  # says which pods there are
        evaluation = await _evaluation(cluster)
        return what_if(evaluation, key, question.what_if) if question.what_if else takes(evaluation, key)
    found = explain.pod(state, decisions, key, cluster.now, events)
    pod = state.pods.store.get(key)
    if pod is not None and pod.spec.node_name:
        return _with_placement(cluster, decisions, _with_cost(cluster, found, pod), question)
    waits = found.source in ("none", "history") and bool(found.code or found.source == "none")
    if waits and (found.source == "none" or question.verbose):
        evaluation = await _evaluation(cluster)
        if found.source == "none" and evaluation.placement(key) is not None:
            note = message("evaluated now from the cluster's objects: no decision about this pod is recorded")
            found = msgspec.structs.replace(evaluated(evaluation, key, note), deep=found.deep)
        found = with_changes(found, evaluation, key) if question.verbose else found
    return found


def _with_cost(cluster: Cluster, found: Answer, pod: Pod) -> Answer:
    """A running pod with its share of what its node costs."""
    share = shares_of(cluster.cluster_state, [pod], _prices(cluster)).get(pod.spec.node_name)
    if share is None or pod.finished:
        return found
    facts = {**found.facts, "cost": msgspec.to_builtins(share)}
    return msgspec.structs.replace(found, details=(*found.details, f"cost: {share_text(share)}"), facts=facts)


async def _evaluation(cluster: Cluster) -> Evaluation:
    return Evaluation(await cluster_objects.manifests(cluster, _OWNERS), whole_cluster=True)


def _with_placement(cluster: Cluster, decisions: list[Decision], found: Answer, question: Question) -> Answer:
    """Why this node, for a node or a pod that has one."""
    state = cluster.cluster_state
    kind, _, name = found.subject.partition("/")
    pod = state.pods.store.get(name) if kind == "pod" else None
    claimed = state.claims.store.get(name) if kind == "nodeclaim" else None
    node = (
        state.nodes.store.get(pod.spec.node_name if pod is not None else name)
        if claimed is None
        else state.node_for(claimed)
    )
    claim = state.claim_for(node) if node is not None else None
    if node is None or claim is None:
        if question.why:
            text = message("has no node yet") if node is None else message("is not of a NodePool: no decision chose it")
            return msgspec.structs.replace(found, line=f"why {question.why}: {found.subject} {text}")
        return found
    asked = (question.why,) if question.why else placement.QUESTIONS
    answers = {each: placement.why(each, state, decisions, node, claim) for each in asked}
    facts = {**found.facts, "why": answers}
    if question.why:
        first, *more = answers[question.why]
        return msgspec.structs.replace(
            found, line=message(_TITLES[question.why]) + first, details=tuple(more), deep=(), facts=facts
        )
    texts = [
        f"{message(_TITLES[each])}{text}" for each in asked for text in answers[each][: 1 if each == "cheaper" else 3]
    ]
    return msgspec.structs.replace(found, details=(*found.details, *texts), facts=facts)


_TITLES = {"cheaper": source("why not cheaper? "), "spot": source("why not spot? "), "zone": source("why this zone? ")}


# -- workloads and autoscalers


async def _workload(cluster: Cluster, subject: Subject, question: Question, decisions: list[Decision]) -> Answer:
    state, resource = cluster.cluster_state, _WORKLOADS[subject.kind]
    obj = await _get(cluster, resource, subject.name)
    namespace, _, name = subject.name.partition("/")
    events = await _events(cluster, subject)
    replicasets: list[dict[str, Any]] = []
    if subject.kind == "deployment":
        replicasets = (await cluster.kube.list(kinds.REPLICASETS, namespace)).items
    pods = explain.pods_of(state, resource.kind, namespace, name, replicasets)
    plan: list[Evaluation] = []
    waiting = [pod for pod in pods if not pod.spec.node_name and not pod.finished]
    if waiting and (question.verbose or any(_unplanned(cluster, decisions, pod, events) for pod in waiting)):
        plan.append(await _evaluation(cluster))

    def explained(pod: Pod) -> Answer:
        found = explain.pod(state, decisions, pod.metadata.key, cluster.now, events)
        if found.source == "none" and plan and plan[0].placement(pod.metadata.key) is not None:
            return evaluated(plan[0], pod.metadata.key)
        return found

    found = explain.workload(
        resource.kind, subject.name, _wanted(subject.kind, obj), pods, explained, _conditions(obj), events
    )
    refused = next((pod.metadata.key for pod in waiting if plan and plan[0].refusal(pod.metadata.key)), "")
    return with_changes(found, plan[0], refused) if refused and question.verbose else found


def _unplanned(cluster: Cluster, decisions: list[Decision], pod: Pod, events: list[Event]) -> bool:
    return explain.pod(cluster.cluster_state, decisions, pod.metadata.key, cluster.now, events).source == "none"


def _conditions(obj: dict[str, Any]) -> list[dict[str, Any]]:
    return list((obj.get("status") or {}).get("conditions") or ())


def _wanted(kind: str, obj: dict[str, Any]) -> int | None:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if kind == "daemonset":
        return int(status.get("desiredNumberScheduled") or 0)
    if kind == "job":
        return None
    return int(spec.get("replicas", 1))


async def _vpa(cluster: Cluster, name: str, events: list[Event]) -> Answer:
    obj = await _get(cluster, VPAS, name)
    target = (obj.get("spec") or {}).get("targetRef") or {}
    namespace = name.partition("/")[0]
    resource = _WORKLOADS.get(str(target.get("kind", "")).lower())
    pods: int | None = None
    if resource is not None:
        replicasets = (await cluster.kube.list(kinds.REPLICASETS, namespace)).items
        pods = len(
            explain.pods_of(cluster.cluster_state, resource.kind, namespace, str(target.get("name")), replicasets)
        )
    return explain.vpa(obj, pods, events=events, hpas=await _others(cluster, kinds.HPAS, name))


async def _others(cluster: Cluster, resource: kinds.Resource, name: str) -> list[dict[str, Any]]:
    """The autoscalers of the other kind in the namespace of one; none where they cannot be read."""
    try:
        listing = await cluster.kube.list(resource, name.partition("/")[0])
    except (Forbidden, NotFound):
        return []
    return [{"kind": resource.kind, **item} for item in listing.items]


async def _nodegroup(cluster: Cluster, name: str) -> Answer:
    import yaml

    from dovetail.controllers.history.store import NAMESPACE

    try:
        data = await _group_status(cluster)
    except NotFound as problem:
        text = message(
            "no Cluster Autoscaler has written {namespace}/{status_config_map}: is one running?",
            namespace=NAMESPACE,
            status_config_map=explain.STATUS_CONFIG_MAP,
        )
        raise Unknown(text) from problem
    status = yaml.safe_load(data.get("status") or "") or {}
    events = explain.events_of((await cluster.kube.list(kinds.CORE_EVENTS)).items)
    return explain.nodegroup(status if isinstance(status, dict) else {}, name, events, _explanations(data))


async def _group_status(cluster: Cluster) -> dict[str, str]:
    """What a Cluster Autoscaler has written. Raises NotFound."""
    from dovetail.controllers.history.store import NAMESPACE

    found: dict[str, Any] = await cluster.kube.get(kinds.CONFIGMAPS, explain.STATUS_CONFIG_MAP, NAMESPACE)
    return dict(found.get("data") or {})


def _explanations(data: dict[str, str]) -> dict[str, Any]:
    """Only Dovetail's Cluster Autoscaler writes them."""
    try:
        found = msgspec.json.decode(data.get("explanations") or "{}")
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


async def _group_node(cluster: Cluster, name: str) -> Answer | None:
    """What a Cluster Autoscaler says of a node that has no NodeClaim."""
    node = cluster.cluster_state.nodes.store.get(name)
    if node is None or cluster.cluster_state.claim_for(node) is not None:
        return None
    try:
        return explain.group_node(_explanations(await _group_status(cluster)), name)
    except KubeError:
        return None
