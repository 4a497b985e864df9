"""Answers planned now from the objects: without a history, for other requests, and what it would take."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from dovetail.controllers.explain import Answer, Unknown, refused
from dovetail.controllers.explain.answer import dollars
from dovetail.controllers.history.decisions import Refusal
from dovetail.errors import UserError
from dovetail.language import message, source
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.quantity import QuantityError, parse
from dovetail.model.reasons import REASONS
from dovetail.offline.changes import ManifestChange, find, owner_of, what_it_takes
from dovetail.offline.evaluation import PlanEvaluation

Json = dict[str, Any]

#: What may be asked for beside amounts of resources, and the label that it means.
SELECTORS = {"zone": ZONE, "arch": "kubernetes.io/arch", "capacity-type": CAPACITY_TYPE, "instance-type": INSTANCE_TYPE}
_AMOUNTS = ("cpu", "memory", "ephemeral-storage")


def evaluated(evaluation: PlanEvaluation, key: str, note: str = "") -> Answer:
    """What the planner would do for a pod now. `note` says why it was asked."""
    place, subject = evaluation.placement(key), f"pod/{key}"
    notes = (note,) if note else ()
    if place is None:
        return Answer(subject=subject, line=message("does not wait for a node"), source="evaluated", details=notes)
    why = place.unschedulable
    if why is not None:
        refusal = Refusal(
            pods=(key,),
            count=1,
            code=why.code,
            message=why.message,
            remedy=why.remedy,
            pools=why.pools,
            object=why.object,
        )
        answer = refused(key, refusal, source="evaluated")
        return msgspec.structs.replace(answer, details=(*answer.details, *notes))
    if place.node is not None:
        what = message("it fits node {node} now; kube-scheduler has not bound it yet", node=place.node)
        line = message("pending: {what}", what=what)
        return Answer(subject=subject, line=line, source="evaluated", details=notes, facts={"node": place.node})
    planned = evaluation.new_node(key)
    assert planned is not None
    choice = planned.choice
    what = message(
        "a node would be launched for it: {instance_type} in {zone}, {capacity_type}, {dollars} (NodePool {pool})",
        instance_type=choice.instance_type,
        zone=choice.zone,
        capacity_type=choice.capacity_type,
        dollars=dollars(choice.price),
        pool=planned.pool,
    )
    line = message("pending: {what}", what=what)
    offering = msgspec.to_builtins(choice)
    return Answer(subject=subject, line=line, source="evaluated", details=notes, facts={"offering": offering})


def with_changes(answer: Answer, evaluation: PlanEvaluation, key: str) -> Answer:
    """The answer with the commands that would give the pod a node, each tried in a plan."""
    why = evaluation.refusal(key)
    if why is None or (answer.code and why.code != answer.code):
        return answer
    changes = what_it_takes(evaluation, key)
    if not changes:
        return answer
    commands = tuple(change.command for change in changes if change.command)
    return msgspec.structs.replace(
        answer,
        commands=commands,
        details=(
            *answer.details,
            *(_fix(change, mends=_mends(answer, change)) for change in changes),
        ),
        facts={**answer.facts, "changes": [msgspec.to_builtins(change) for change in changes]},
    )


def _mends(answer: Answer, change: ManifestChange) -> bool:
    """Whether a change is of the object that the answer blames: a NodeClass that is not ready is mended otherwise."""
    pods = change.object.partition("/")[0] not in ("nodepool", "ec2nodeclass")
    return change.object == answer.object or (pods and not answer.object.startswith("ec2nodeclass/"))


def _fix(change: ManifestChange, *, mends: bool) -> str:
    if change.command:
        template = source("fix: {what}: {command}") if mends else source("another way: {what}: {command}")
    else:
        template = (
            source("fix: {what} ({object}, created again)")
            if mends
            else source("another way: {what} ({object}, created again)")
        )
    return message(template, what=change.what, command=change.command, object=change.object)


def without_node(manifests: Sequence[Json], node: str, claim: str) -> list[Json]:
    """The manifests after a node's removal: its pods wait, those of DaemonSets are gone."""
    left: list[Json] = []
    for manifest in manifests:
        kind, metadata, spec = manifest.get("kind"), manifest.get("metadata") or {}, manifest.get("spec") or {}
        if (kind, metadata.get("name")) in (("Node", node), ("NodeClaim", claim)):
            continue
        if kind == "Pod" and spec.get("nodeName") == node:
            owners = metadata.get("ownerReferences") or ()
            ended = (manifest.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if ended or any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners):
                continue
            waiting = {key: value for key, value in spec.items() if key != "nodeName"}
            manifest = {**manifest, "spec": waiting, "status": {"phase": "Pending"}}
        left.append(manifest)
    return left


def with_pods_that_fit_nowhere(answer: Answer, manifests: Sequence[Json], node: str, claim: str) -> Answer:
    """A node that is said to cost little enough, where no other node could take its pods whatever it cost."""
    pods = [
        f"{manifest['metadata'].get('namespace') or 'default'}/{manifest['metadata']['name']}"
        for manifest in manifests
        if manifest.get("kind") == "Pod" and (manifest.get("spec") or {}).get("nodeName") == node
    ]
    evaluation = PlanEvaluation(without_node(manifests, node, claim), whole_cluster=True)
    refusals = {pod: refusal for pod in pods if (refusal := evaluation.refusal(pod)) is not None}
    if not refusals:
        return answer
    first = next(iter(refusals))
    more = message(" and {count} more", count=len(refusals) - 1) if len(refusals) > 1 else ""
    line = message(
        "stays: pod {pod}{more} fits nowhere else: {why} ({code})",
        pod=first,
        more=more,
        why=refusals[first].message,
        code="PODS_WOULD_NOT_FIT",
    )
    return msgspec.structs.replace(
        answer,
        line=line,
        code="PODS_WOULD_NOT_FIT",
        object=f"pod/{first}",
        remedy=REASONS["PODS_WOULD_NOT_FIT"].remedy,
        source="evaluated",
        facts={**answer.facts, "fitsNowhere": {pod: refusal.code for pod, refusal in refusals.items()}},
    )


def takes(evaluation: PlanEvaluation, key: str) -> Answer:
    """What it would take to give a pod a node."""
    answer = evaluated(evaluation, key)
    if evaluation.refusal(key) is None:
        line = message("needs no change: {line}", line=answer.line.removeprefix("pending: "))
        return msgspec.structs.replace(answer, line=line)
    changes = what_it_takes(evaluation, key)
    if not changes:
        line = message("no single change of the pod or a NodePool was found that helps; {line}", line=answer.line)
        return msgspec.structs.replace(answer, line=line)
    template = (
        source("would get a node if you make {count} changes: {changes}")
        if len(changes) > 1
        else source("would get a node if you {changes}")
    )
    line = message(template, count=len(changes), changes="; ".join(change.what for change in changes))
    return msgspec.structs.replace(with_changes(answer, evaluation, key), line=line)


def what_if(evaluation: PlanEvaluation, key: str, resources_text: str) -> Answer:
    """What would happen to a pod that asked for something else."""
    manifests = [copy.deepcopy(manifest) for manifest in evaluation.manifests]
    pod = find(manifests, "Pod", *key.split("/", 1)) or owner_of(manifests, key)
    if pod is None:
        raise Unknown(message("pod/{key} is not there", key=key))
    spec = pod["spec"] if pod["kind"] == "Pod" else pod["spec"]["template"]["spec"]
    spec.pop("nodeName", None)
    pod.pop("status", None)
    for setting in filter(None, resources_text.split(",")):
        _set(spec, setting)
    after = evaluation.changed(manifests)
    answer = evaluated(after, key)
    words = answer.line.removeprefix("pending: ")
    verdict = (
        message("would still wait: {what}", what=words)
        if after.refusal(key) is not None
        else message("would have a node: {what}", what=words)
    )
    line = message("with {asked}: {answer}", asked=resources_text, answer=verdict)
    return msgspec.structs.replace(
        with_changes(answer, after, key), line=line, facts={**answer.facts, "whatIf": resources_text}
    )


def _set(spec: Json, setting: str) -> None:
    name, equals, value = (part.strip() for part in setting.partition("="))
    if not equals or not value:
        raise click.UsageError(
            message("--what-if {setting!r}: write NAME=VALUE, such as cpu=2 or zone=ap-northeast-2a", setting=setting)
        )
    if name in SELECTORS:
        spec.setdefault("nodeSelector", {})[SELECTORS[name]] = value
        return
    if name == "toleration":
        spec["tolerations"] = [*(spec.get("tolerations") or ()), {"key": value, "operator": "Exists"}]
        return
    if name not in _AMOUNTS and "/" not in name:
        names = ", ".join((*_AMOUNTS, *SELECTORS, "toleration"))
        raise click.UsageError(
            message(
                "--what-if {setting!r}: {name} is none of {known}, nor a resource such as nvidia.com/gpu",
                setting=setting,
                name=name,
                known=names,
            )
        )
    try:
        parse(value)
    except QuantityError as problem:
        raise UserError(
            message(
                "--what-if {setting}: {value!r} is not a quantity (such as 500m or 2Gi)", setting=setting, value=value
            )
        ) from problem
    _ask_for(spec.get("containers") or (), name, value)


def _ask_for(containers: Sequence[Json], name: str, value: str) -> None:
    """The pod asks for so much in all: its first container for all of it, the others for none."""
    for number, container in enumerate(containers):
        amounts = container.setdefault("resources", {})
        for field in ("requests", "limits"):
            if field in amounts:
                amounts[field].pop(name, None)
        if number == 0:
            amounts.setdefault("requests", {})[name] = value
            if name not in _AMOUNTS:
                amounts.setdefault("limits", {})[name] = value
