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
from dovetail.errors import Problem
from dovetail.language import message
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.quantity import QuantityError, parse
from dovetail.offline.changes import Change, find, owner_of, what_it_takes
from dovetail.offline.evaluation import Evaluation

Json = dict[str, Any]

#: What may be asked for beside amounts of resources, and the label that it means.
SELECTORS = {"zone": ZONE, "arch": "kubernetes.io/arch", "capacity-type": CAPACITY_TYPE, "instance-type": INSTANCE_TYPE}
_AMOUNTS = ("cpu", "memory", "ephemeral-storage")


def evaluated(evaluation: Evaluation, key: str, note: str = "") -> Answer:
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
            pools=msgspec.to_builtins(why.pools),
            object=why.object,
        )
        found = refused(key, refusal, source="evaluated")
        return msgspec.structs.replace(found, details=(*found.details, *notes))
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


def with_changes(answer: Answer, evaluation: Evaluation, key: str) -> Answer:
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
            *(_fix(change, message("fix") if _mends(answer, change) else message("another way")) for change in changes),
        ),
        facts={**answer.facts, "changes": [msgspec.to_builtins(change) for change in changes]},
    )


def _mends(answer: Answer, change: Change) -> bool:
    """Whether a change is of the object that the answer blames: a NodeClass that is not ready is mended otherwise."""
    pods = change.object.partition("/")[0] not in ("nodepool", "ec2nodeclass")
    return change.object == answer.object or (pods and not answer.object.startswith("ec2nodeclass/"))


def _fix(change: Change, title: str) -> str:
    how = f": {change.command}" if change.command else message(" ({object}, created again)", object=change.object)
    return f"{title}: {change.what}{how}"


def takes(evaluation: Evaluation, key: str) -> Answer:
    """What it would take to give a pod a node."""
    found = evaluated(evaluation, key)
    if evaluation.refusal(key) is None:
        line = message("needs no change: {line}", line=found.line.removeprefix("pending: "))
        return msgspec.structs.replace(found, line=line)
    changes = what_it_takes(evaluation, key)
    if not changes:
        line = message("no single change of the pod or a NodePool was found that helps; {line}", line=found.line)
        return msgspec.structs.replace(found, line=line)
    several = message("make {count} changes: ", count=len(changes)) if len(changes) > 1 else ""
    line = message(
        "would get a node if you {several}{changes}",
        several=several,
        changes=message("; and ").join(change.what for change in changes),
    )
    return msgspec.structs.replace(with_changes(found, evaluation, key), line=line)


def what_if(evaluation: Evaluation, key: str, asked: str) -> Answer:
    """What would happen to a pod that asked for something else."""
    manifests = [copy.deepcopy(manifest) for manifest in evaluation.manifests]
    pod = find(manifests, "Pod", *key.split("/", 1)) or owner_of(manifests, key)
    if pod is None:
        raise Unknown(message("pod/{key} is not there", key=key))
    spec = pod["spec"] if pod["kind"] == "Pod" else pod["spec"]["template"]["spec"]
    spec.pop("nodeName", None)
    pod.pop("status", None)
    for setting in filter(None, asked.split(",")):
        _set(spec, setting)
    after = evaluation.changed(manifests)
    found = evaluated(after, key)
    words = found.line.removeprefix("pending: ")
    verdict = (
        message("would still wait: {what}", what=words)
        if after.refusal(key) is not None
        else message("would have a node: {what}", what=words)
    )
    line = message("with {asked}: {answer}", asked=asked, answer=verdict)
    return msgspec.structs.replace(with_changes(found, after, key), line=line, facts={**found.facts, "whatIf": asked})


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
        known = ", ".join((*_AMOUNTS, *SELECTORS, "toleration"))
        raise click.UsageError(
            message(
                "--what-if {setting!r}: {name} is none of {known}, nor a resource such as nvidia.com/gpu",
                setting=setting,
                name=name,
                known=known,
            )
        )
    try:
        parse(value)
    except QuantityError as problem:
        raise Problem(
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
