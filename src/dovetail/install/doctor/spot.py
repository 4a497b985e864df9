"""Spot instances (D08): the role that EC2 needs, and the way of an interruption notice to the controller."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from dovetail.install.doctor.access import interruption_queue, listed, policy_document
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
from dovetail.kube.resources import DAEMONSETS, NODECLAIMS, NODEPOOLS
from dovetail.language import message

EVENTS = "events.amazonaws.com"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
#: What else reaches the controller by the queue.
OTHER_NOTICES = (
    "EC2 Instance Rebalance Recommendation",
    "EC2 Instance State-change Notification",
    "AWS Health Event",
)
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
            return row.get("operator") == "In" and "spot" in (row.get("values") or ())
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
    if not _events_admitted(policy_document(attributes.get("Policy") or "{}"), str(attributes.get("QueueArn", ""))):
        yield failure(
            f"queue/{queue}",
            message(
                "its policy does not let events.amazonaws.com send messages, so no interruption reaches the controller"
            ),
            f"aws sqs set-queue-attributes --queue-url {attributes.get('QueueUrl', 'QUEUE_URL')} --attributes"
            f" {shlex.quote(_events_may_send(attributes.get('QueueArn', '')))} --region {facts.region}",
            safe="QueueUrl" in attributes,
        )
    key = attributes.get("KmsMasterKeyId")
    if key and "alias/aws/" not in key:
        policy = policy_document(facts.read(f"policy of key {key}") or "{}")
        if "events.amazonaws.com" not in json.dumps(policy):
            yield failure(
                f"queue/{queue}",
                message(
                    "its key {key} has a policy without events.amazonaws.com: EventBridge cannot encrypt "
                    "messages, so no interruption reaches the controller",
                    key=key,
                ),
                f"aws sqs set-queue-attributes --queue-url {attributes.get('QueueUrl', 'QUEUE_URL')} --attributes"
                f' \'{{"KmsMasterKeyId":"","SqsManagedSseEnabled":"true"}}\' --region {facts.region}',
            )
    rules = facts.items(f"rules of {queue}")
    patterns = " ".join(str(rule.get("EventPattern")) for rule in rules if _is_enabled(rule))
    missing = [notice for notice in (INTERRUPTION, *OTHER_NOTICES) if notice not in patterns]
    if missing:
        yield warning(
            f"queue/{queue}",
            message(
                "no EventBridge rule that is enabled sends {missing} to it: the controller does not see them",
                missing=", ".join(missing),
            ),
            " && ".join(_deliver(facts, rules, notice, attributes.get("QueueArn", "QUEUE_ARN")) for notice in missing),
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


def _events_admitted(policy: Json, queue_arn: str) -> bool:
    """Whether EventBridge may send: allowed by a statement, and denied by none without conditions."""
    about = [row for row in listed(policy.get("Statement")) if _is_sending(row, queue_arn)]
    denied = any(row.get("Effect") == "Deny" and not row.get("Condition") for row in about)
    return not denied and any(row.get("Effect", "Allow") == "Allow" for row in about)


def _is_sending(statement: Json, queue_arn: str) -> bool:
    """Whether a statement is of EventBridge and of messages to this queue; what it does not state is not compared."""
    principal = statement.get("Principal", "*")
    services = listed(principal.get("Service")) if isinstance(principal, Mapping) else []
    everyone = principal == "*" or (isinstance(principal, Mapping) and "*" in listed(principal.get("AWS")))
    return (
        (everyone or any(str(service) in (EVENTS, "*") for service in services))
        and _matches("sqs:SendMessage", listed(statement.get("Action", "*")))
        and _matches(queue_arn, listed(statement.get("Resource", "*")))
    )


def _matches(text: str, patterns: Sequence[Any]) -> bool:
    return any(fnmatchcase(text.lower(), str(pattern).lower()) for pattern in patterns)


def _is_enabled(rule: Json) -> bool:
    return bool(rule.get("State", "ENABLED") == "ENABLED")


def _deliver(facts: Facts, rules: Sequence[Json], notice: str, queue_arn: str) -> str:
    """The command by which a notice reaches the queue: its rule enabled, or a rule for it."""
    disabled = [rule for rule in rules if not _is_enabled(rule) and notice in str(rule.get("EventPattern"))]
    if disabled:
        return f"aws events enable-rule --name {disabled[0]['Name']} --region {facts.region}"
    source = "aws.health" if notice == "AWS Health Event" else "aws.ec2"
    pattern = json.dumps({"source": [source], "detail-type": [notice]}, separators=(",", ":"))
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
