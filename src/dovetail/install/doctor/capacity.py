"""NodePools and the nodes they make: what they can never do, always do, or do beside another controller."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence, Set
from datetime import timedelta

from dovetail.cloud.aws import catalog
from dovetail.install.aws_parts import DISCOVERY_TAG
from dovetail.install.doctor.aws_answers import usual_node_role
from dovetail.install.doctor.controller import controllers, karpenter_version
from dovetail.install.doctor.controller_policy import AUTH_REASONS, put_policy
from dovetail.install.doctor.daemon_sets import NODE_AGENTS, tolerated
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    condition,
    environment,
    failure,
    false_conditions,
    images,
    moment,
    name_of,
    own_pools,
    warning,
)
from dovetail.install.doctor.pending import check_pending
from dovetail.install.plan import general_node_class
from dovetail.kube.resources import CRDS, DAEMONSETS, DEPLOYMENTS, EC2NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.language import message
from dovetail.model import quantity
from dovetail.model.labels import INSTANCE_TYPE
from dovetail.model.lint import LintFinding, SourceFile, lint
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.requirements import meant_key

#: A node that takes longer to initialise waits for something that does not arrive.
INITIALISATION_LIMIT = timedelta(minutes=10)
INITIALISATION_WARNING = timedelta(minutes=2)
#: The startup taint that the EBS CSI driver removes.
EBS_STARTUP_TAINT = "ebs.csi.aws.com/agent-not-ready"
#: The resource of branch network interfaces, for pods with security groups of their own.
POD_ENI = "vpc.amazonaws.com/pod-eni"
FIRST_POD_ENI = (0, 34, 0)
#: By so much may the predicted allocatable exceed the real one.
MAX_ALLOCATABLE_EXCESS = 0.005
MAX_MEMORY_EXCESS_BYTES = 50 * 2**20
#: What lint finds in a NodePool that can launch nothing.
IMPOSSIBLE_CODES = frozenset(("DV104", "DV105", "DV108", "DV201", "DV202"))
ARCHITECTURE = "kubernetes.io/arch"
#: Limits that stop a runaway workload and little else.
ROOMY_LIMITS = {"cpu": "1000", "memory": "4000Gi", "nodes": "100"}
#: The kind of class that a NodePool of AWS names.
EC2_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
#: Conditions of an EC2NodeClass that other checks report.
REPORTED_ELSEWHERE = frozenset(("SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady"))


# D10: NodePools that can launch nothing


def check_node_pools(facts: Facts) -> Iterator[Fault]:
    pools = own_pools(facts.items(NODEPOOLS.name))
    region = facts.region if facts.region in catalog.regions() else ""
    instances = InstanceCatalog(region, catalog.load(region)) if region and pools else None
    for pool in pools:
        name = pool["metadata"]["name"]
        bare = {**pool, "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
        bare.pop("status", None)
        for finding in lint([SourceFile(name, json.dumps(bare))], facts.time, instances):
            if finding.code in IMPOSSIBLE_CODES:
                make = warning if finding.code == "DV202" and _is_paused(pool) else failure
                yield make(
                    f"nodepool/{name}",
                    f"{finding.path}: {finding.message} ({finding.code})",
                    _pool_remedy(pool, finding),
                )
        yield from _architecture_faults(facts, pool)
        if not pool["spec"].get("limits"):
            yield warning(
                f"nodepool/{name}",
                message("spec.limits is not set: a runaway workload launches instances without end"),
                _limit_patch(name, "cpu"),
            )
    yield from check_pending(facts, instances)


def _pool_remedy(pool: Json, finding: LintFinding) -> str:
    """The requirement with the key that its values belong to, or without it; other fields are the operator's."""
    name, hint = pool["metadata"]["name"], f"  # {finding.hint}" if finding.hint else ""
    limited = finding.path.removeprefix("spec.limits.")
    if limited in ROOMY_LIMITS:
        return f"{_limit_patch(name, limited)}{hint}"
    match = re.match(r"spec\.template\.spec\.requirements\[(\d+)\]", finding.path)
    if match is None:
        return f"kubectl edit nodepool {name}{hint}"
    path = f"/spec/template/spec/requirements/{match[1]}"
    requirement = pool["spec"]["template"]["spec"]["requirements"][int(match[1])]
    values = [str(value) for value in requirement.get("values") or ()]
    key = meant_key(values) if requirement.get("key") == INSTANCE_TYPE and values else None
    patch = {"op": "replace", "path": f"{path}/key", "value": key} if key else {"op": "remove", "path": path}
    return f"kubectl patch nodepool {name} --type=json -p '{json.dumps([patch], separators=(',', ':'))}'{hint}"


def _limit_patch(pool: str, resource: str) -> str:
    body = json.dumps({"spec": {"limits": {resource: ROOMY_LIMITS[resource]}}}, separators=(",", ":"))
    return f"kubectl patch nodepool {pool} --type=merge -p '{body}'"


def _architecture_faults(facts: Facts, pool: Json) -> Iterator[Fault]:
    """Images of another architecture than that of the instances that the pool requires."""
    template = pool["spec"]["template"]["spec"]
    node_class = facts.named(EC2NODECLASSES.name, (template.get("nodeClassRef") or {}).get("name", ""))
    amis = ((node_class or {}).get("status") or {}).get("amis") or ()
    required = _values_in(template.get("requirements"), ARCHITECTURE)
    there = [_values_in(image.get("requirements"), ARCHITECTURE) for image in amis]
    if node_class is None or not required or not there or any(not own or own & required for own in there):
        return
    yield failure(
        f"nodepool/{pool['metadata']['name']}",
        message(
            "spec.template.spec.requirements asks for {key} {required}, and the images of EC2NodeClass {node_class} "
            "are for {there} alone: no instance can be launched",
            key=ARCHITECTURE,
            required=", ".join(sorted(required)),
            node_class=node_class["metadata"]["name"],
            there=", ".join(sorted(set[str]().union(*there))),
        ),
        current_images(node_class),
    )


def _values_in(requirements: Sequence[Json] | None, key: str) -> set[str]:
    """The values that requirements list for a label; none if they do not limit it so."""
    lists = [
        set(row.get("values") or ()) for row in requirements or () if row["key"] == key and row["operator"] == "In"
    ]
    return set.intersection(*lists) if lists else set()


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
                    message(
                        "status.allocatable predicts {shown} more {resource} than node {nodeName} "
                        "({instance_type}) has: pods planned for such nodes may not fit",
                        shown=shown,
                        resource=resource,
                        nodeName=status["nodeName"],
                        instance_type=instance_type,
                    ),
                    f"kubectl set env deployment/{deployment} VM_MEMORY_OVERHEAD_PERCENT=0.1"
                    if resource == "memory"
                    else message(
                        "kubectl get node {nodeName} -o yaml  # kubeReserved of spec.kubelet",
                        nodeName=status["nodeName"],
                    ),
                )


# D13: images that roll a whole pool


def check_image_rollout(facts: Facts) -> Iterator[Fault]:
    latest = {
        node_class["metadata"]["name"]: term["alias"]
        for node_class in facts.items(EC2NODECLASSES.name)
        for term in (node_class.get("spec") or {}).get("amiSelectorTerms") or ()
        if str(term.get("alias", "")).endswith("@latest")
    }
    for pool in own_pools(facts.items(NODEPOOLS.name)):
        reference = pool["spec"]["template"]["spec"].get("nodeClassRef") or {}
        budgets = (pool["spec"].get("disruption") or {}).get("budgets")
        limits = [row for row in budgets or () if str(row.get("nodes")) != "100%"]
        if reference.get("name") in latest and budgets is not None and not limits:
            name = pool["metadata"]["name"]
            yield warning(
                f"nodepool/{name}",
                message(
                    "spec.disruption.budgets limits nothing and EC2NodeClass {name} uses {latest}: each new "
                    "AMI replaces all nodes of the pool at once",
                    name=reference["name"],
                    latest=latest[reference["name"]],
                ),
                f"kubectl patch nodepool {name} --type=merge -p"
                ' \'{"spec":{"disruption":{"budgets":[{"nodes":"10%"}]}}}\'',
            )


# D14: another autoscaler on the same nodes


def check_other_autoscalers(facts: Facts) -> Iterator[Fault]:
    if not facts.items(NODEPOOLS.name):
        return
    for deployment in facts.items(DEPLOYMENTS.name):
        for program, effect in (
            ("cluster-autoscaler", message("both add nodes for the same pending pods")),
            ("descheduler", message("both evict pods from the same nodes")),
        ):
            if deployment["spec"].get("replicas", 1) and any(f"/{program}:" in image for image in images(deployment)):
                metadata = deployment["metadata"]
                yield warning(
                    f"deployment/{name_of(deployment)}",
                    message(
                        "{program} runs beside {count} NodePools: {effect}",
                        program=program,
                        count=len(facts.items(NODEPOOLS.name)),
                        effect=effect,
                    ),
                    f"kubectl scale deployment {metadata['name']} -n {metadata['namespace']} --replicas=0",
                )


# D15: nodes that never initialise


def check_initialisation(facts: Facts) -> Iterator[Fault]:
    yield from _branch_interface_faults(facts)
    nodes = {node["metadata"]["name"]: node for node in facts.items(NODES.name)}
    for claim in facts.items(NODECLAIMS.name):
        registered, initialised = condition(claim, "Registered"), condition(claim, "Initialized")
        since = moment((registered or {}).get("lastTransitionTime"))
        if not registered or registered.get("status") != "True" or since is None or initialised is None:
            continue
        if claim["metadata"].get("deletionTimestamp") or initialised.get("status") == "True":
            continue
        waited = facts.time - since
        if waited <= INITIALISATION_WARNING:
            continue
        name = (claim.get("status") or {}).get("nodeName", "")
        taint, hopeless = _startup_taint(facts, claim, nodes.get(name))
        cause = f"{initialised.get('message', '')}" + (
            message("; no DaemonSet of yours tolerates the taint, so nothing on the node removes it")
            if hopeless
            else ""
        )
        make = failure if hopeless or waited > INITIALISATION_LIMIT else warning
        yield make(
            f"nodeclaim/{claim['metadata']['name']}",
            message(
                "its node {name} registered {waited:.0f} min ago and is not initialised ({reason}): {cause}",
                name=name,
                waited=waited.total_seconds() / 60,
                reason=initialised.get("reason", ""),
                cause=cause,
            ),
            f"kubectl taint node {name} {taint['key']}-" if taint else f"kubectl describe node {name}",
            symptom=taint is None,
        )


def _startup_taint(facts: Facts, claim: Json, node: Json | None) -> tuple[Json | None, bool]:
    """A startup taint that the node still has, and whether no DaemonSet tolerates it."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    for taint in (claim.get("spec") or {}).get("startupTaints") or ():
        if any((row.get("key"), row.get("effect")) == (taint.get("key"), taint.get("effect")) for row in taints):
            tolerating = [
                daemon_set
                for daemon_set in facts.items(DAEMONSETS.name)
                if (daemon_set["metadata"]["name"] not in NODE_AGENTS or taint.get("key") == EBS_STARTUP_TAINT)
                and tolerated(taint, daemon_set["spec"]["template"]["spec"].get("tolerations") or ())
            ]
            return taint, not tolerating
    return None, False


def _branch_interface_faults(facts: Facts) -> Iterator[Fault]:
    """Pods with security groups of their own need a resource that the VPC CNI registers only if it is set to."""
    cni = facts.named(DAEMONSETS.name, "aws-node", "kube-system")
    waiting = [
        pod
        for pod in facts.items(PODS.name)
        if not pod["spec"].get("nodeName")
        and any(POD_ENI in ((box.get("resources") or {}).get("requests") or {}) for box in pod["spec"]["containers"])
    ]
    if not waiting:
        return
    subject = f"pod/{name_of(waiting[0])}"
    running = controllers(facts)
    version = karpenter_version(running[0]) if running else None
    if version is not None and version < FIRST_POD_ENI:
        yield failure(
            subject,
            message(
                "it requests {pod_eni}, which Karpenter {map} does not know: it launches nothing for the pod",
                pod_eni=POD_ENI,
                map=".".join(map(str, version)),
            ),
            "helm upgrade karpenter oci://public.ecr.aws/karpenter/karpenter --version 0.34.0 --reuse-values"
            f" -n {running[0]['metadata']['namespace']}",
        )
    elif cni is not None and environment(cni).get("ENABLE_POD_ENI") != "true":
        yield failure(
            subject,
            message(
                "it requests {pod_eni}, and ENABLE_POD_ENI of DaemonSet kube-system/aws-node is not "
                "true: no node registers the resource",
                pod_eni=POD_ENI,
            ),
            "kubectl set env daemonset/aws-node -n kube-system ENABLE_POD_ENI=true",
        )


# V03: NodePools and EC2NodeClasses that are not ready


def _class_remedy(facts: Facts, node_class: Json, row: Json) -> str:
    if row.get("reason") == "Unauthorized":
        return put_policy(facts)
    if row["type"] == "AMIsReady":
        return current_images(node_class)
    return f"kubectl edit ec2nodeclass {node_class['metadata']['name']}"


def check_ready(facts: Facts) -> Iterator[Fault]:
    classes = facts.items(EC2NODECLASSES.name)
    for node_class in classes:
        yield from _class_condition_faults(facts, node_class)
    for pool in own_pools(facts.items(NODEPOOLS.name)):
        reference = _class_reference_fault(facts, pool, classes)
        if reference is not None:
            yield reference
        else:
            yield from _node_pool_condition_faults(pool)


def _class_condition_faults(facts: Facts, node_class: Json) -> Iterator[Fault]:
    for row in _first_causes(node_class):
        if row["type"] in REPORTED_ELSEWHERE or row.get("reason") in AUTH_REASONS:
            continue
        yield failure(
            f"ec2nodeclass/{node_class['metadata']['name']}",
            message(
                "condition {type} is False ({reason}): {message}",
                type=row["type"],
                reason=row.get("reason", ""),
                message=row.get("message", ""),
            ),
            _class_remedy(facts, node_class, row),
            symptom=row.get("reason") != "AMINotFound",  # EC2 was asked, and has none
        )


def _class_reference_fault(facts: Facts, pool: Json, classes: Sequence[Json]) -> Fault | None:
    """The class that a NodePool names: of no known kind, absent, or being deleted."""
    names = {node_class["metadata"]["name"] for node_class in classes}
    leaving = {row["metadata"]["name"] for row in classes if row["metadata"].get("deletionTimestamp")}
    name = pool["metadata"]["name"]
    reference = pool["spec"]["template"]["spec"].get("nodeClassRef") or {}
    if not _is_served(facts, reference):
        return failure(
            f"nodepool/{name}",
            message(
                "spec.template.spec.nodeClassRef names the kind {kind} of {group}: there is no such kind",
                kind=reference.get("kind"),
                group=reference.get("group"),
            ),
            f"kubectl patch nodepool {name} --type=merge -p"
            f' \'{{"spec":{{"template":{{"spec":{{"nodeClassRef":{json.dumps(EC2_CLASS)}}}}}}}}}\'',
        )
    if reference.get("kind", "EC2NodeClass") == "EC2NodeClass" and reference.get("name") not in names:
        return failure(
            f"nodepool/{name}",
            message(
                "spec.template.spec.nodeClassRef.name {name!r}: there is no such EC2NodeClass",
                name=reference.get("name"),
            ),
            _class_named(facts, name, str(reference.get("name")), names),
        )
    if reference.get("name") not in leaving:
        return None
    return failure(
        f"ec2nodeclass/{reference['name']}",
        message(
            "metadata.deletionTimestamp is set while NodePool {pool} uses it: it launches nothing, and is gone "
            "once its NodeClaims are",
            pool=name,
        ),
        message(
            "kubectl wait --for=delete ec2nodeclass/{name} --timeout=10m  # then apply it again, or name "
            "another in NodePool {pool}",
            name=reference["name"],
            pool=name,
        ),
    )


def _class_named(facts: Facts, pool: str, name: str, names: Set[str]) -> str:
    """The command by which the pool names the only class that exists, or by which the class exists."""
    if len(names) == 1:
        patch = f'{{"spec":{{"template":{{"spec":{{"nodeClassRef":{{"name":"{min(names)}"}}}}}}}}}}'
        return f"kubectl patch nodepool {pool} --type=merge -p '{patch}'"
    if names or not facts.cluster:
        return "kubectl get ec2nodeclasses"
    by_tag = [{"tags": {DISCOVERY_TAG: facts.cluster}}]
    body = json.dumps(general_node_class(name, usual_node_role(facts.cluster), by_tag, by_tag), separators=(",", ":"))
    return f"echo '{body}' | kubectl apply -f -"


def _is_served(facts: Facts, reference: Json) -> bool:
    """Whether there is a kind as this one; of others than EC2NodeClass no more than the group's definition is known."""
    group, kind = reference.get("group", EC2_CLASS["group"]), reference.get("kind", EC2_CLASS["kind"])
    if group == EC2_CLASS["group"]:
        return bool(kind == EC2_CLASS["kind"])
    return any(row["metadata"]["name"].partition(".")[2] == group for row in facts.items(CRDS.name))


def _node_pool_condition_faults(pool: Json) -> Iterator[Fault]:
    name = pool["metadata"]["name"]
    for row in _first_causes(pool):
        if row["type"] == "NodeClassReady":
            continue  # the EC2NodeClass has the cause
        text = message(
            "condition {type} is False ({reason}): {message}",
            type=row["type"],
            reason=row.get("reason", ""),
            message=row.get("message", ""),
        )
        remedy = f"kubectl describe nodepool {name}"
        if row["type"] == "NodeRegistrationHealthy":
            yield warning(f"nodepool/{name}", text, remedy)
        else:
            yield failure(f"nodepool/{name}", text, remedy, symptom=row["type"] != "ValidationSucceeded")


def _first_causes(obj: Json) -> list[Json]:
    """The conditions that are False; those that only wait for others where no other says why."""
    rows = false_conditions(obj)
    return [row for row in rows if row["type"] != "Ready" and row.get("reason") != "DependenciesNotReady"] or rows


def current_images(node_class: Json) -> str:
    """The command that selects the current images of the class's family; AL2 has none any more."""
    name, spec = node_class["metadata"]["name"], node_class["spec"]
    aliases = [str(term["alias"]).partition("@")[0] for term in spec.get("amiSelectorTerms") or () if term.get("alias")]
    family = (aliases or [str(spec.get("amiFamily") or "").lower()])[0]
    if family in ("", "custom"):
        return f"kubectl edit ec2nodeclass {name}"
    alias = "al2023" if family == "al2" else family
    patch = json.dumps({"spec": {"amiFamily": None, "amiSelectorTerms": [{"alias": f"{alias}@latest"}]}})
    return f"kubectl patch ec2nodeclass {name} --type=merge -p '{patch}'"
