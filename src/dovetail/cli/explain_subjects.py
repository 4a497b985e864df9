"""What `dovetail explain` is asked about: the object, the evidence that its answer needs, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click
import msgspec

from dovetail.autoscalers.vpa.api import VPAS
from dovetail.cli import cluster_objects
from dovetail.cli.cluster_session import ClusterSession
from dovetail.cli.explain_evaluation import evaluated, takes, what_if, with_changes, with_pods_that_fit_nowhere
from dovetail.cluster.state_node import launch_price
from dovetail.controllers import explain
from dovetail.controllers.explain import Answer, Event, Unknown, placement
from dovetail.controllers.explain.namespaces import share_text, shares_of
from dovetail.controllers.explain.pods import waiting_for
from dovetail.controllers.history.decisions import Decision
from dovetail.kube import resources as kinds
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.language import message, source
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, REGION, ZONE
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.spelling import nearest
from dovetail.offline.evaluation import PlanEvaluation

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


class ExplainSubject(NamedTuple):
    """`name` is namespace/name for what lives in a namespace."""

    kind: str
    name: str


class ExplainOptions(NamedTuple):
    """What is asked about a subject, beside why."""

    why: str = ""
    what_if: str | None = None
    at: datetime | None = None
    verbose: bool = False


def subject_of(words: Sequence[str], namespace: str) -> ExplainSubject:
    """`pod/NAME`, `pod NAME`, `pod/NAMESPACE/NAME`, with any of kubectl's names for the kind."""
    text = "/".join(words)
    kind, _, name = text.partition("/")
    known_kind = KINDS.get(kind.lower().partition(".")[0])
    if known_kind is None:
        meant = nearest(kind.lower(), KINDS)
        hint = message("; did you mean {meant}?", meant=meant) if meant else ""
        raise click.UsageError(
            message("{kind!r} cannot be explained{hint}; kinds: {names}", kind=kind, hint=hint, names=", ".join(NAMES))
        )
    if not name or name.endswith("/"):
        raise click.UsageError(message("{text!r}: name the object, as in {known}/NAME", text=text, known=known_kind))
    if known_kind in NAMESPACED and "/" not in name:
        name = f"{namespace}/{name}"
    return ExplainSubject(known_kind, name)


async def answer(
    cluster: ClusterSession, subject: ExplainSubject, question: ExplainOptions, history_namespace: str | None
) -> Answer:
    """The answer now; the cluster state is read."""
    decisions = await _decisions(cluster, history_namespace)
    answer = await _answer(cluster, subject, question, decisions)
    named = f"{subject.kind}/{subject.name}"
    if subject.kind in _BECAME:
        answer = msgspec.structs.replace(answer, subject=named)
    silent = await cluster.no_autoscaler() if question.at is None else ""
    return explain.without_autoscaler(answer, silent) if silent else answer


async def _decisions(cluster: ClusterSession, namespace: str | None) -> list[Decision]:
    try:
        return await cluster.decisions(namespace)
    except Forbidden:  # then the objects and the events have to do
        return []


async def _answer(
    cluster: ClusterSession, subject: ExplainSubject, question: ExplainOptions, decisions: list[Decision]
) -> Answer:
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
            answer = await _tried(cluster, kind, name, ask(state, decisions, name, now, events))
            return _with_placement(cluster, decisions, answer, question)
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


def _prices(cluster: ClusterSession) -> Callable[[Node], float | None]:
    """The price of a node: at its launch, else by its type, zone and capacity type in the packaged catalogue."""
    from dovetail.cloud.aws import catalog

    types_by_region: dict[str, dict[str, InstanceType]] = {}

    def price(node: Node) -> float | None:
        claim = cluster.cluster_state.claim_for(node)
        launched = launch_price(claim) if claim is not None else None
        labels = node.metadata.labels
        region = labels.get(REGION, "")
        if launched is not None or region not in catalog.regions():
            return launched
        if region not in types_by_region:
            types_by_region[region] = {kind.name: kind for kind in catalog.load(region)}
        kind = types_by_region[region].get(labels.get(INSTANCE_TYPE, ""))
        sold = labels.get(CAPACITY_TYPE) or labels.get("eks.amazonaws.com/capacityType", "on-demand")
        zone_and_capacity_type = (labels.get(ZONE), sold.lower().replace("_", "-"))
        offerings = kind.offerings if kind is not None else ()
        return next(
            (
                offering.price
                for offering in offerings
                if (offering.zone, offering.capacity_type) == zone_and_capacity_type
            ),
            None,
        )

    return price


async def _events(cluster: ClusterSession, subject: ExplainSubject) -> list[Event]:
    """The events that may be read: of the object's namespace, or of all for what lives in none."""
    namespace = subject.name.partition("/")[0] if subject.kind in NAMESPACED else None
    spaces = [namespace, "default"] if namespace not in (None, "default") else [namespace]
    all_events: list[Event] = []
    for space in spaces:
        try:
            all_events += explain.events_of((await cluster.kube.list(kinds.CORE_EVENTS, space)).items)
        except KubeError:
            continue
    return all_events


async def _get(cluster: ClusterSession, resource: kinds.Resource, name: str) -> dict[str, Any]:
    namespace, _, last = name.rpartition("/")
    try:
        obj: dict[str, Any] = await cluster.kube.get(resource, last, namespace or None)
    except NotFound as problem:
        try:
            there = [
                str(item["metadata"]["name"]) for item in (await cluster.kube.list(resource, namespace or None)).items
            ]
        except NotFound:
            raise Unknown(message("the cluster does not know {resource}", resource=resource.name)) from problem
        where = message(" in namespace {namespace}", namespace=namespace) if namespace else ""
        text = message(
            "{resource_kind}/{name} is not in the cluster; there are{where}: {names}",
            resource_kind=resource.kind.lower(),
            name=name,
            where=where,
            names=", ".join(sorted(there)[:10]) or message("none"),
        )
        raise Unknown(text) from problem
    return obj


# -- pods


async def _pod(
    cluster: ClusterSession, key: str, question: ExplainOptions, decisions: list[Decision], events: list[Event]
) -> Answer:
    state = cluster.cluster_state
    if question.what_if is not None:
        if state.pods.store.get(key) is None:
            return explain.pod(state, decisions, key, cluster.now, events)  # says which pods there are
        evaluation = await _evaluation(cluster)
        return what_if(evaluation, key, question.what_if) if question.what_if else takes(evaluation, key)
    answer = explain.pod(state, decisions, key, cluster.now, events)
    pod = state.pods.store.get(key)
    if pod is not None and pod.spec.node_name:
        return _with_placement(cluster, decisions, _with_cost(cluster, answer, pod), question)
    waits = answer.source in ("none", "history") and bool(answer.code or answer.source == "none")
    if waits and (answer.source == "none" or question.verbose):
        evaluation = await _evaluation(cluster)
        if answer.source == "none" and evaluation.placement(key) is not None:
            note = message("evaluated now from the cluster's objects: no decision about this pod is recorded")
            answer = msgspec.structs.replace(evaluated(evaluation, key, note), deep=answer.deep)
            starting = _starting_claim(cluster, str(answer.facts.get("node", "")))
            if starting is not None and pod is not None:
                return waiting_for(state, decisions, (), pod, starting, cluster.now, events)
        answer = with_changes(answer, evaluation, key) if question.verbose else answer
    return answer


def _starting_claim(cluster: ClusterSession, name: str) -> NodeClaim | None:
    """The NodeClaim of a node that pods are planned onto and that is not initialised."""
    node = cluster.cluster_state.nodes.store.get(name)
    claim = cluster.cluster_state.claim_for(node) if node is not None else None
    return claim if claim is not None and not claim.is_true("Initialized") else None


def _with_cost(cluster: ClusterSession, answer: Answer, pod: Pod) -> Answer:
    """A running pod with its share of what its node costs."""
    share = shares_of(cluster.cluster_state, [pod], _prices(cluster)).get(pod.spec.node_name)
    if share is None or pod.finished:
        return answer
    facts = {**answer.facts, "cost": msgspec.to_builtins(share)}
    return msgspec.structs.replace(
        answer, details=(*answer.details, message("cost: {share}", share=share_text(share))), facts=facts
    )


async def _evaluation(cluster: ClusterSession) -> PlanEvaluation:
    return PlanEvaluation(await cluster_objects.manifests(cluster, _OWNERS), whole_cluster=True)


async def _tried(cluster: ClusterSession, kind: str, name: str, answer: Answer) -> Answer:
    """Consolidation compares the whole fleet with a fresh one first, and does not ask whether these pods can move."""
    state = cluster.cluster_state
    claim = state.claims.store.get(name) if kind == "nodeclaim" else None
    node = state.node_for(claim) if claim is not None else state.nodes.store.get(name)
    claim = claim or (state.claim_for(node) if node is not None else None)
    if answer.code != "NEAR_BEST" or node is None or claim is None:
        return answer
    objects = await cluster_objects.manifests(cluster, _OWNERS)
    return with_pods_that_fit_nowhere(answer, objects, node.metadata.name, claim.name)


def _with_placement(
    cluster: ClusterSession, decisions: list[Decision], answer: Answer, question: ExplainOptions
) -> Answer:
    """Why this node, for a node or a pod that has one."""
    state = cluster.cluster_state
    kind, _, name = answer.subject.partition("/")
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
            template = (
                source("why {question}: it has no node yet")
                if node is None
                else source("why {question}: it is not of a NodePool, no decision chose it")
            )
            return msgspec.structs.replace(answer, line=message(template, question=question.why))
        return answer
    questions = (question.why,) if question.why else placement.QUESTIONS
    answers = {topic: placement.why(topic, state, decisions, node, claim) for topic in questions}
    facts = {**answer.facts, "why": answers}
    if question.why:
        first, *more = answers[question.why]
        return msgspec.structs.replace(
            answer, line=message(_TITLES[question.why], answer=first), details=tuple(more), deep=(), facts=facts
        )
    texts = [
        message(_TITLES[topic], answer=text)
        for topic in questions
        for text in answers[topic][: 1 if topic == "cheaper" else 3]
    ]
    return msgspec.structs.replace(answer, details=(*answer.details, *texts), facts=facts)


_TITLES = {
    "cheaper": source("why not cheaper? {answer}"),
    "spot": source("why not spot? {answer}"),
    "zone": source("why this zone? {answer}"),
}


# -- workloads and autoscalers


async def _workload(
    cluster: ClusterSession, subject: ExplainSubject, question: ExplainOptions, decisions: list[Decision]
) -> Answer:
    state, resource = cluster.cluster_state, _WORKLOADS[subject.kind]
    obj = await _get(cluster, resource, subject.name)
    namespace, _, name = subject.name.partition("/")
    events = await _events(cluster, subject)
    replicasets: list[dict[str, Any]] = []
    if subject.kind == "deployment":
        replicasets = (await cluster.kube.list(kinds.REPLICASETS, namespace)).items
    pods = explain.pods_of(state, resource.kind, namespace, name, replicasets)
    plan: list[PlanEvaluation] = []
    waiting = [pod for pod in pods if not pod.spec.node_name and not pod.finished]
    if waiting and (question.verbose or any(_unplanned(cluster, decisions, pod, events) for pod in waiting)):
        plan.append(await _evaluation(cluster))

    def explained(pod: Pod) -> Answer:
        answer = explain.pod(state, decisions, pod.metadata.key, cluster.now, events)
        if answer.source == "none" and plan and plan[0].placement(pod.metadata.key) is not None:
            return evaluated(plan[0], pod.metadata.key)
        return answer

    answer = explain.workload(
        resource.kind, subject.name, _wanted(subject.kind, obj), pods, explained, _conditions(obj), events
    )
    refused = next((pod.metadata.key for pod in waiting if plan and plan[0].refusal(pod.metadata.key)), "")
    return with_changes(answer, plan[0], refused) if refused and question.verbose else answer


def _unplanned(cluster: ClusterSession, decisions: list[Decision], pod: Pod, events: list[Event]) -> bool:
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


async def _vpa(cluster: ClusterSession, name: str, events: list[Event]) -> Answer:
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


async def _others(cluster: ClusterSession, resource: kinds.Resource, name: str) -> list[dict[str, Any]]:
    """The autoscalers of the other kind in the namespace of one; none where they cannot be read."""
    try:
        listing = await cluster.kube.list(resource, name.partition("/")[0])
    except (Forbidden, NotFound):
        return []
    return [{"kind": resource.kind, **item} for item in listing.items]


async def _nodegroup(cluster: ClusterSession, name: str) -> Answer:
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
    events = explain.events_of((await cluster.kube.list(kinds.CORE_EVENTS)).items)
    labels = {node.metadata.name: node.metadata.labels for node in cluster.cluster_state.nodes.store}
    return explain.group_answer(data, name, labels, events)


async def _group_status(cluster: ClusterSession) -> dict[str, str]:
    """What a Cluster Autoscaler has written. Raises NotFound."""
    from dovetail.controllers.history.store import NAMESPACE

    config_map: dict[str, Any] = await cluster.kube.get(kinds.CONFIGMAPS, explain.STATUS_CONFIG_MAP, NAMESPACE)
    return dict(config_map.get("data") or {})


async def _group_node(cluster: ClusterSession, name: str) -> Answer | None:
    """What a Cluster Autoscaler says of a node that has no NodeClaim."""
    node = cluster.cluster_state.nodes.store.get(name)
    if node is None or cluster.cluster_state.claim_for(node) is not None:
        return None
    try:
        return explain.group_node(explain.explanations_of(await _group_status(cluster)), name)
    except KubeError:
        return None
