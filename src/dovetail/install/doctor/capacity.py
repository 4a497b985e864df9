"""NodePools and the nodes they make: what they can never do, always do, or do beside another controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from dovetail.cloud.aws import catalog
from dovetail.install.doctor.access import AUTH_REASONS, interruption_queue, policy_document
from dovetail.install.doctor.aws_answers import SPOT_ROLE
from dovetail.install.doctor.controller import controller, controllers
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    NotAvailable,
    condition,
    environment,
    failure,
    false_conditions,
    moment,
    name_of,
    warning,
)
from dovetail.kube.resources import DAEMONSETS, DEPLOYMENTS, EC2NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.model import quantity
from dovetail.model.lint import Source, lint
from dovetail.model.lint.catalog import InstanceCatalog

CAPACITY_TYPE = "karpenter.sh/capacity-type"
INTERRUPTION = "EC2 Spot Instance Interruption Warning"
#: A node that takes longer to initialise waits for something that does not arrive.
INITIALISATION_LIMIT = timedelta(minutes=10)
PENDING_LIMIT = timedelta(minutes=5)
#: By so much may the predicted allocatable exceed the real one.
MAX_ALLOCATABLE_EXCESS = 0.005
MAX_MEMORY_EXCESS_BYTES = 50 * 2**20
#: What lint finds in a NodePool that can launch nothing.
IMPOSSIBLE_CODES = frozenset(("DV104", "DV105", "DV108", "DV201", "DV202"))
#: Conditions of an EC2NodeClass that other checks report.
REPORTED_ELSEWHERE = frozenset(("SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady"))


# D08: spot instances


def check_spot(facts: Facts) -> Iterator[Fault]:
    pools = [pool["metadata"]["name"] for pool in facts.items(NODEPOOLS.name) if _allows_spot(pool)]
    if pools:
        yield from _spot_role_faults(facts, pools)
        for daemon_set in facts.items(DAEMONSETS.name):
            if daemon_set["metadata"]["name"] == "aws-node-termination-handler" and _handler_overlaps(daemon_set):
                yield warning(
                    f"daemonset/{name_of(daemon_set)}",
                    "it drains interrupted nodes, as the controller does: both react to the same interruption",
                    f"kubectl delete daemonset aws-node-termination-handler -n {daemon_set['metadata']['namespace']}",
                )
    yield from _queue_faults(facts, pools)


def _handler_overlaps(daemon_set: Json) -> bool:
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
                    f"condition {row['type']} is False: {row['message']}",
                    remedy,
                )
                return
    labels = [claim["metadata"].get("labels") or {} for claim in facts.items(NODECLAIMS.name)]
    if facts.read(f"role {SPOT_ROLE}") is None and not any(row.get(CAPACITY_TYPE) == "spot" for row in labels):
        yield warning(
            f"role/{SPOT_ROLE}",
            f"it does not exist and NodePool {pools[0]} allows spot instances: the first spot launch in this account"
            " fails unless the controller may create it",
            remedy,
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
                f"Deployment {name_of(deployment)} has no settings among its variables, so whether it reads a queue is"
                " not known"
            )
        if pools:
            yield warning(
                subject,
                f"INTERRUPTION_QUEUE is not set and NodePool {pools[0]} allows spot instances: interrupted nodes are"
                " not drained",
                set_queue,
            )
        return
    if queue.startswith(("arn:", "https:", "http:")):
        name = queue.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
        yield failure(
            subject,
            f"INTERRUPTION_QUEUE is {queue!r}: the name of the queue is expected",
            set_queue.rpartition("=")[0] + f"={name}",
        )
        return
    attributes = facts.read(f"queue {queue}")
    if attributes is None:
        yield failure(
            subject,
            f"INTERRUPTION_QUEUE is {queue!r}, and SQS has no such queue in {facts.region}",
            f"aws sqs create-queue --queue-name {queue} --region {facts.region}",
        )
        return
    policy = policy_document(attributes.get("Policy") or "{}")
    if "events.amazonaws.com" not in json.dumps(policy):
        yield failure(
            f"queue/{queue}",
            "its policy does not let events.amazonaws.com send messages, so no interruption reaches the controller",
            f"aws sqs set-queue-attributes --queue-url $(aws sqs get-queue-url --queue-name {queue} --query QueueUrl"
            f" --output text) --attributes '{_events_may_send(attributes.get('QueueArn', ''))}'",
        )
    patterns = " ".join(str(rule.get("EventPattern")) for rule in facts.items(f"rules of {queue}"))
    if INTERRUPTION not in patterns:
        yield warning(
            f"queue/{queue}",
            f'no EventBridge rule sends "{INTERRUPTION}" to it, so spot interruptions are not seen',
            f"dovetail iam --cluster {facts.cluster}",
        )


def _events_may_send(queue_arn: str) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
    }
    return json.dumps({"Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})})


# D10: NodePools that can launch nothing


def check_node_pools(facts: Facts) -> Iterator[Fault]:
    pools = facts.items(NODEPOOLS.name)
    region = facts.region if facts.region in catalog.regions() else ""
    instances = InstanceCatalog(region, catalog.load(region)) if region and pools else None
    for pool in pools:
        name = pool["metadata"]["name"]
        bare = {**pool, "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
        bare.pop("status", None)
        for finding in lint([Source(name, json.dumps(bare))], facts.time, instances):
            if finding.code in IMPOSSIBLE_CODES:
                make = warning if finding.code == "DV202" and _is_paused(pool) else failure
                yield make(
                    f"nodepool/{name}",
                    f"{finding.path}: {finding.message} ({finding.code})",
                    f"kubectl edit nodepool {name}" + (f"  # {finding.hint}" if finding.hint else ""),
                )
        if not pool["spec"].get("limits"):
            yield warning(
                f"nodepool/{name}",
                "spec.limits is not set: a runaway workload launches instances without end",
                f'kubectl patch nodepool {name} --type=merge -p \'{{"spec":{{"limits":{{"cpu":"1000"}}}}}}\'',
            )


def _is_paused(pool: Json) -> bool:
    """A limit of 0 is how a NodePool is switched off."""
    return any(not quantity.parse(amount) for amount in pool["spec"]["limits"].values())


# D11: predicted and real allocatable


def check_allocatable(facts: Facts) -> Iterator[Fault]:
    nodes = {node["metadata"]["name"]: node for node in facts.items(NODES.name)}
    types: set[str] = set()
    running = controllers(facts)
    deployment = (
        f"{running[0]['metadata']['name']} -n {running[0]['metadata']['namespace']}" if running else "karpenter"
    )
    for claim in facts.items(NODECLAIMS.name):
        status = claim.get("status") or {}
        node = nodes.get(status.get("nodeName", ""))
        initialised = condition(claim, "Initialized")
        if node is None or not initialised or initialised.get("status") != "True":
            continue
        instance_type = (node["metadata"].get("labels") or {}).get("node.kubernetes.io/instance-type", "")
        predicted = quantity.resources(status.get("allocatable") or {})
        actual = quantity.resources((node.get("status") or {}).get("allocatable") or {})
        for resource, floor in (("memory", MAX_MEMORY_EXCESS_BYTES), ("cpu", 0)):
            if resource not in predicted or resource not in actual or instance_type in types:
                continue
            excess = predicted[resource] - actual[resource]
            if excess > max(floor, MAX_ALLOCATABLE_EXCESS * predicted[resource]):
                types.add(instance_type)
                shown = quantity.format_resources({resource: excess})[resource]
                yield warning(
                    f"nodeclaim/{claim['metadata']['name']}",
                    f"status.allocatable predicts {shown} more {resource} than node {status['nodeName']}"
                    f" ({instance_type}) has: pods planned for such nodes may not fit",
                    f"kubectl set env deployment/{deployment} VM_MEMORY_OVERHEAD_PERCENT=0.1"
                    if resource == "memory"
                    else f"kubectl get node {status['nodeName']} -o yaml  # kubeReserved of spec.kubelet",
                )


# D12: DaemonSet pods that fit no existing node


def check_daemon_sets(facts: Facts) -> Iterator[Fault]:
    pending: dict[str, list[Json]] = {}
    for pod in facts.items(PODS.name):
        owner: Json = next(iter(pod["metadata"].get("ownerReferences") or ()), {})
        scheduled = condition(pod, "PodScheduled") or {}
        since = moment(scheduled.get("lastTransitionTime"))
        if owner.get("kind") != "DaemonSet" or scheduled.get("status") != "False" or since is None:
            continue
        if facts.time - since > PENDING_LIMIT and not pod["metadata"].get("deletionTimestamp"):
            pending.setdefault(f"{pod['metadata']['namespace']}/{owner['name']}", []).append(pod)
    for name, pods in sorted(pending.items()):
        cause = (condition(pods[0], "PodScheduled") or {}).get("message") or "no reason given"
        namespace, _, short = name.partition("/")
        yield failure(
            f"daemonset/{name}",
            f"{len(pods)} of its pods wait for room on nodes that exist, first {pods[0]['metadata']['name']}: {cause}",
            f"kubectl patch daemonset {short} -n {namespace} --type=merge -p"
            ' \'{"spec":{"template":{"spec":{"priorityClassName":"system-node-critical"}}}}\'',
        )


# D13: images that roll a whole pool


def check_image_rollout(facts: Facts) -> Iterator[Fault]:
    latest = {
        node_class["metadata"]["name"]: term["alias"]
        for node_class in facts.items(EC2NODECLASSES.name)
        for term in (node_class.get("spec") or {}).get("amiSelectorTerms") or ()
        if str(term.get("alias", "")).endswith("@latest")
    }
    for pool in facts.items(NODEPOOLS.name):
        reference = pool["spec"]["template"]["spec"].get("nodeClassRef") or {}
        budgets = (pool["spec"].get("disruption") or {}).get("budgets")
        limits = [row for row in budgets or () if str(row.get("nodes")) != "100%"]
        if reference.get("name") in latest and budgets is not None and not limits:
            name = pool["metadata"]["name"]
            yield warning(
                f"nodepool/{name}",
                f"spec.disruption.budgets limits nothing and EC2NodeClass {reference['name']} uses"
                f" {latest[reference['name']]}: each new AMI replaces all nodes of the pool at once",
                f"kubectl patch nodepool {name} --type=merge -p"
                ' \'{"spec":{"disruption":{"budgets":[{"nodes":"10%"}]}}}\'',
            )


# D14: another autoscaler on the same nodes


def check_other_autoscalers(facts: Facts) -> Iterator[Fault]:
    if not facts.items(NODEPOOLS.name):
        return
    for deployment in facts.items(DEPLOYMENTS.name):
        images = [str(box.get("image", "")) for box in deployment["spec"]["template"]["spec"].get("containers") or ()]
        for program, effect in (
            ("cluster-autoscaler", "both add nodes for the same pending pods"),
            ("descheduler", "both evict pods from the same nodes"),
        ):
            if deployment["spec"].get("replicas", 1) and any(f"/{program}:" in image for image in images):
                metadata = deployment["metadata"]
                yield warning(
                    f"deployment/{name_of(deployment)}",
                    f"{program} runs beside {len(facts.items(NODEPOOLS.name))} NodePools: {effect}",
                    f"kubectl scale deployment {metadata['name']} -n {metadata['namespace']} --replicas=0",
                )


# D15: nodes that never initialise


def check_initialisation(facts: Facts) -> Iterator[Fault]:
    for claim in facts.items(NODECLAIMS.name):
        registered, initialised = condition(claim, "Registered"), condition(claim, "Initialized")
        since = moment((registered or {}).get("lastTransitionTime"))
        if not registered or registered.get("status") != "True" or since is None or initialised is None:
            continue
        if claim["metadata"].get("deletionTimestamp") or initialised.get("status") == "True":
            continue
        if facts.time - since > INITIALISATION_LIMIT:
            minutes = (facts.time - since).total_seconds() / 60
            node = (claim.get("status") or {}).get("nodeName", "")
            yield failure(
                f"nodeclaim/{claim['metadata']['name']}",
                f"its node {node} registered {minutes:.0f} min ago and is not initialised"
                f" ({initialised.get('reason', '')}): {initialised.get('message', '')}",
                f"kubectl describe node {node}",
            )


# V03: NodePools and EC2NodeClasses that are not ready


def check_ready(facts: Facts) -> Iterator[Fault]:
    classes = facts.items(EC2NODECLASSES.name)
    for node_class in classes:
        name = node_class["metadata"]["name"]
        for row in _first_causes(node_class):
            if row["type"] in REPORTED_ELSEWHERE or row.get("reason") in AUTH_REASONS:
                continue
            yield failure(
                f"ec2nodeclass/{name}",
                f"condition {row['type']} is False ({row.get('reason', '')}): {row.get('message', '')}",
                f"kubectl edit ec2nodeclass {name}",
            )
    names = {node_class["metadata"]["name"] for node_class in classes}
    for pool in facts.items(NODEPOOLS.name):
        name = pool["metadata"]["name"]
        reference = pool["spec"]["template"]["spec"].get("nodeClassRef") or {}
        if reference.get("kind", "EC2NodeClass") == "EC2NodeClass" and reference.get("name") not in names:
            yield failure(
                f"nodepool/{name}",
                f"spec.template.spec.nodeClassRef.name {reference.get('name')!r}: there is no such EC2NodeClass",
                "kubectl get ec2nodeclasses",
            )
            continue
        for row in _first_causes(pool):
            if row["type"] == "NodeClassReady":
                continue  # the EC2NodeClass has the cause
            make = warning if row["type"] == "NodeRegistrationHealthy" else failure
            yield make(
                f"nodepool/{name}",
                f"condition {row['type']} is False ({row.get('reason', '')}): {row.get('message', '')}",
                f"kubectl describe nodepool {name}",
            )


def _first_causes(obj: Json) -> list[Json]:
    """The conditions that are False; Ready alone only where no other says why."""
    rows = false_conditions(obj)
    return [row for row in rows if row["type"] != "Ready"] or rows
