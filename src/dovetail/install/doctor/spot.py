"""Spot instances (D08): the role that EC2 needs, and the way of an interruption notice to the controller."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from dovetail.install.doctor.access import interruption_queue
from dovetail.install.doctor.aws_answers import INTERRUPTION, SPOT_ROLE
from dovetail.install.doctor.controller import controller
from dovetail.install.doctor.controller_policy import denials
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    NotAvailable,
    State,
    environment,
    failure,
    false_conditions,
    name_of,
    warning,
)
from dovetail.install.doctor.permissions import SPOT_ROLE_CREATION
from dovetail.install.doctor.principals import listed, policy_document, service_is_allowed
from dovetail.kube.resources import DAEMONSETS, NODECLAIMS, NODEPOOLS
from dovetail.language import message

EVENTS = "events.amazonaws.com"
HEALTH = "AWS Health Event"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
#: What else reaches the controller by the queue.
OTHER_NOTICES = (
    "EC2 Instance Rebalance Recommendation",
    "EC2 Instance State-change Notification",
    HEALTH,
)
#: What EventBridge does with a queue, and with the key that encrypts its messages.
SEND, KEY_USE = "sqs:SendMessage", ("kms:Decrypt", "kms:GenerateDataKey")
#: How alike names are, from 0 to 1, of which one may be the other misspelt.
SIMILAR_NAME = 0.8
#: A message that has waited longer is read by no controller.
MAX_MESSAGE_AGE_S = 120


def check_spot(facts: Facts) -> Iterator[Fault]:
    pools = [pool["metadata"]["name"] for pool in facts.items(NODEPOOLS.name) if _allows_spot(pool)]
    if pools:
        yield from _spot_role_faults(facts, pools)
        for daemon_set in facts.items(DAEMONSETS.name):
            if daemon_set["metadata"]["name"] == "aws-node-termination-handler" and _handler_runs(daemon_set):
                yield warning(
                    f"daemonset/{name_of(daemon_set)}",
                    message("it drains interrupted nodes, as the controller does: both react to the same interruption"),
                    f"kubectl delete daemonset aws-node-termination-handler -n {daemon_set['metadata']['namespace']}",
                )
    yield from _queue_faults(facts, pools)


def _handler_runs(daemon_set: Json) -> bool:
    return bool((daemon_set.get("status") or {}).get("desiredNumberScheduled"))


def _allows_spot(pool: Json) -> bool:
    """Whether its requirements name spot instances."""
    for row in pool["spec"]["template"]["spec"].get("requirements") or ():
        if row.get("key") == CAPACITY_TYPE:
            named = "spot" in (row.get("values") or ())
            return named if row.get("operator") == "In" else row.get("operator") == "NotIn" and not named
    return False


def _spot_role_faults(facts: Facts, pools: list[str]) -> Iterator[Fault]:
    remedy = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    for claim in facts.items(NODECLAIMS.name):
        for row in false_conditions(claim):
            if "ServiceLinkedRole" in str(row.get("message")):
                yield failure(
                    f"nodeclaim/{claim['metadata']['name']}",
                    message("condition {type} is False: {message}", type=row["type"], message=row["message"]),
                    remedy,
                    safe=True,
                )
                return
    if facts.read(f"role {SPOT_ROLE}") is not None:
        return
    answer = facts.answers.get("denied to the controller")
    denials_known = answer is not None and answer.state is State.READ
    denied = denials_known and bool(denials(facts, SPOT_ROLE_CREATION))
    cause = message("it does not exist and NodePool {pools} allows spot instances", pools=pools[0])
    if denied:
        yield failure(
            f"role/{SPOT_ROLE}",
            message("{cause}; the controller may not create it, so every launch of a spot instance fails", cause=cause),
            remedy,
            safe=True,
        )
    elif not denials_known:
        yield warning(
            f"role/{SPOT_ROLE}",
            message(
                "{cause}: the first spot launch in this account fails unless the controller may create it", cause=cause
            ),
            remedy,
            safe=True,
        )


def _queue_faults(facts: Facts, pools: list[str]) -> Iterator[Fault]:
    queue = interruption_queue(facts)
    deployment = controller(facts)
    subject = f"deployment/{name_of(deployment)}"
    set_queue = (
        f"kubectl set env deployment/{deployment['metadata']['name']} -n {deployment['metadata']['namespace']}"
        f" INTERRUPTION_QUEUE={facts.cluster or 'QUEUE_NAME'}"
    )
    if not queue:
        if "CLUSTER_NAME" not in environment(deployment):
            raise NotAvailable(
                message(
                    "Deployment {name_of} has no settings among its variables, so whether it reads a queue "
                    "is not known",
                    name_of=name_of(deployment),
                )
            )
        if pools:
            yield warning(
                subject,
                message(
                    "INTERRUPTION_QUEUE is not set and NodePool {pools} allows spot instances: interrupted "
                    "nodes are not drained",
                    pools=pools[0],
                ),
                set_queue,
            )
        return
    if queue.startswith(("arn:", "https:", "http:")):
        name = queue.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
        yield failure(
            subject,
            message("INTERRUPTION_QUEUE is {queue!r}: the name of the queue is expected", queue=queue),
            set_queue.rpartition("=")[0] + f"={name}",
            safe=True,
        )
        return
    attributes = facts.read(f"queue {queue}")
    if attributes is None:
        meant = _meant_queue(facts, queue)
        cause = message(
            "INTERRUPTION_QUEUE is {queue!r}, and SQS has no such queue in {region}", queue=queue, region=facts.region
        )
        yield failure(
            subject,
            message("{cause}; there is {meant!r}", cause=cause, meant=meant) if meant else cause,
            set_queue.rpartition("=")[0] + f"={meant}"
            if meant
            else f"aws sqs create-queue --queue-name {queue}{_first_attributes(facts, queue)} --region {facts.region}",
        )
        return
    yield from _delivery_faults(facts, queue, attributes)


def _meant_queue(facts: Facts, queue: str) -> str:
    """The queue that exists and was meant: the cluster's by name, one of a similar name, or the only one with rules."""
    answer = facts.answers.get("queues")
    rows = {str(row["name"]): bool(row["fed"]) for row in (answer.data if answer is not None else None) or ()}
    if facts.cluster in rows:
        return facts.cluster
    fed = [name for name, is_fed in rows.items() if is_fed]
    similar = get_close_matches(queue, fed, 1) or get_close_matches(queue, rows, 1, SIMILAR_NAME)
    return (similar or (fed if len(fed) == 1 else [""]))[0]


def _delivery_faults(facts: Facts, queue: str, attributes: Json) -> Iterator[Fault]:
    """EventBridge may write, by rules that exist; the queue's key lets it; messages are read."""
    arn = str(attributes.get("QueueArn", ""))
    policy = policy_document(attributes.get("Policy") or "{}")
    rules = facts.items(f"rules of {queue}")
    admitted = [rule for rule in rules if _may_send(policy, arn, rule)]
    if not (admitted if rules else _may_send(policy, arn, {})):
        yield failure(
            f"queue/{queue}",
            message(
                "its policy does not let events.amazonaws.com send messages, so no interruption reaches the controller"
            ),
            f"aws sqs set-queue-attributes --queue-url {attributes.get('QueueUrl', 'QUEUE_URL')} --attributes"
            f" {shlex.quote(_events_may_send(arn))} --region {facts.region}",
            safe="QueueUrl" in attributes,
        )
        admitted = list(rules)
    yield from _queue_key_faults(facts, queue, attributes)
    missing = [notice for notice in (INTERRUPTION, *OTHER_NOTICES) if not _is_sent(admitted, notice, arn)]
    if missing:
        yield warning(
            f"queue/{queue}",
            message(
                "no EventBridge rule that is enabled sends {missing} to it: the controller does not see them",
                missing=", ".join(missing),
            ),
            " && ".join(_deliver(facts, rules, notice, arn or "QUEUE_ARN") for notice in missing),
        )
    answer = facts.answers.get(f"age of {queue}")
    age = answer.data if answer is not None and answer.state is State.READ else None
    if age is not None and age > MAX_MESSAGE_AGE_S:
        deployment = controller(facts)
        yield failure(
            f"queue/{queue}",
            message("its oldest message waits for {age:.0f} s: no controller reads it", age=age),
            f"kubectl logs -n {deployment['metadata']['namespace']} deployment/{deployment['metadata']['name']}"
            " --tail=50",
            symptom=True,
        )


def _queue_key_faults(facts: Facts, queue: str, attributes: Json) -> Iterator[Fault]:
    """EventBridge encrypts each message with the queue's key; AWS's own key for queues is not open to it."""
    key = attributes.get("KmsMasterKeyId")
    if not key:
        return
    described = facts.answers.get(f"key {key}")
    state = str(((described.data if described is not None else None) or {}).get("KeyState") or "Enabled")
    cause = ""
    if "alias/aws/" in key:
        cause = message("its key {key} is AWS's own, whose policy admits no other service", key=key)
    elif state != "Enabled":
        cause = message("its key {key} is {state}", key=key, state=state)
    else:
        statements = listed(policy_document(facts.read(f"policy of key {key}") or "{}").get("Statement"))
        denied = [action for action in KEY_USE if not service_is_allowed(statements, EVENTS, action, None, {})]
        if denied:
            cause = message(
                "its key {key} has a policy that does not let {service} use {actions}",
                key=key,
                service=EVENTS,
                actions=", ".join(denied),
            )
    if cause:
        yield failure(
            f"queue/{queue}",
            message(
                "{cause}: EventBridge cannot encrypt messages, so no interruption reaches the controller", cause=cause
            ),
            f"aws sqs set-queue-attributes --queue-url {attributes.get('QueueUrl', 'QUEUE_URL')} --attributes"
            f' \'{{"KmsMasterKeyId":"","SqsManagedSseEnabled":"true"}}\' --region {facts.region}',
        )


def _may_send(policy: Json, queue_arn: str, rule: Json) -> bool:
    """Whether EventBridge may send messages of a rule to the queue; a Resource that is not stated is not compared."""
    context = {"aws:SecureTransport": "true"}
    parts = queue_arn.split(":")
    if len(parts) > 4:
        context["aws:SourceAccount"] = parts[4]
    if rule.get("Arn"):
        context["aws:SourceArn"] = str(rule["Arn"])
    return service_is_allowed(listed(policy.get("Statement")), EVENTS, SEND, queue_arn or None, context)


def _is_sent(rules: Sequence[Json], notice: str, queue_arn: str) -> bool:
    return any(_is_enabled(rule) and _is_of(rule, notice, queue_arn) for rule in rules)


def _is_of(rule: Json, notice: str, queue_arn: str) -> bool:
    """Whether a rule's pattern admits a notice; what the pattern says of a notice's detail is not judged."""
    try:
        pattern = json.loads(rule.get("EventPattern") or "null")
    except ValueError:
        return False
    if not isinstance(pattern, Mapping):
        return False
    event = {"source": _source(notice), "detail-type": notice}
    parts = queue_arn.split(":")
    if len(parts) > 4:
        event |= {"region": parts[3], "account": parts[4]}
    return all(_admits(pattern[key], value) for key, value in event.items() if key in pattern)


def _admits(patterns: Any, value: str) -> bool:
    """Whether one of an event pattern's matchers admits a value; those that are not known here are taken to."""
    for pattern in listed(patterns):
        if not isinstance(pattern, Mapping):
            admitted = pattern == value
        elif "prefix" in pattern and isinstance(pattern["prefix"], str):
            admitted = value.startswith(pattern["prefix"])
        elif "suffix" in pattern and isinstance(pattern["suffix"], str):
            admitted = value.endswith(pattern["suffix"])
        elif "equals-ignore-case" in pattern:
            admitted = value.lower() == str(pattern["equals-ignore-case"]).lower()
        elif "wildcard" in pattern:
            admitted = any(fnmatchcase(value, str(text)) for text in listed(pattern["wildcard"]))
        elif "anything-but" in pattern and not isinstance(pattern["anything-but"], Mapping):
            admitted = value not in listed(pattern["anything-but"])
        else:
            admitted = True
        if admitted:
            return True
    return False


def _source(notice: str) -> str:
    return "aws.health" if notice == HEALTH else "aws.ec2"


def _is_enabled(rule: Json) -> bool:
    return bool(rule.get("State", "ENABLED") == "ENABLED")


def _deliver(facts: Facts, rules: Sequence[Json], notice: str, queue_arn: str) -> str:
    """The command by which a notice reaches the queue: its rule enabled, or a rule for it."""
    disabled = [rule for rule in rules if not _is_enabled(rule) and _is_of(rule, notice, queue_arn)]
    if disabled:
        return f"aws events enable-rule --name {disabled[0]['Name']} --region {facts.region}"
    pattern = json.dumps({"source": [_source(notice)], "detail-type": [notice]}, separators=(",", ":"))
    name = f"{facts.cluster}-{notice.replace(' ', '')}"[:64]
    return (
        f"aws events put-rule --name {name} --event-pattern '{pattern}' --region {facts.region} && aws events"
        f" put-targets --rule {name} --targets Id=InterruptionQueue,Arn={queue_arn} --region {facts.region}"
    )


def _first_attributes(facts: Facts, queue: str) -> str:
    """The policy of a new queue, where the account is known: without it the queue stays empty."""
    described = facts.answers.get("eks:DescribeCluster")
    parts = str(((described.data if described is not None else None) or {}).get("arn") or "").split(":")
    if len(parts) < 6:
        return ""
    return f" --attributes {shlex.quote(_events_may_send(f'arn:{parts[1]}:sqs:{parts[3]}:{parts[4]}:{queue}'))}"


def _events_may_send(queue_arn: str) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
    }
    return json.dumps({"Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})})
