"""The controller itself: its kinds, version, pods, lease and rights in the cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from dovetail import __version__
from dovetail.install.doctor.collect import CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES, VERSION
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    NotAvailable,
    environment,
    failure,
    moment,
    name_of,
    warning,
)
from dovetail.install.rbac import RULES, Grant, RuleCondition, Scope, grants
from dovetail.kube.resources import CRDS, DEPLOYMENTS, ENDPOINTSLICES, LEASES, NODES, PODS, SERVICES
from dovetail.language import message, source
from dovetail.model.kinds import crds

LABEL = "app.kubernetes.io/name"
HELM = "meta.helm.sh"
LEASE = "karpenter-leader-election"
DNS_NAMES = ("coredns", "kube-dns")
NODEPOOL_LABEL = "karpenter.sh/nodepool"
DEFINITIONS = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")
#: The oldest Karpenter for a minor version of Kubernetes 1.
OLDEST_KARPENTER = {
    30: (0, 37, 0),
    31: (1, 0, 5),
    32: (1, 2, 0),
    33: (1, 5, 0),
    34: (1, 6, 0),
    35: (1, 9, 0),
    36: (1, 13, 0),
}
#: Karpenter's first version that writes the operators Gte and Lte.
FIRST_GTE_LTE = (1, 9, 0)
#: Versions with a fault that hurts every cluster, and what it is.
KNOWN_BAD = {(1, 8, 4): source("which grows in memory until it is killed")}
#: Releases before these patches take every node for drifted once an AMI is published.
FIXED_AMI_DRIFT = {(0, 31): 5, (0, 32): 10, (0, 33): 5, (0, 34): 6, (0, 35): 5, (0, 36): 2}
MAX_KUBELET_LAG = 3
#: A lease may be this much older than it says before its holder counts as gone.
LEASE_TOLERANCE_S = 15.0
#: More rights than these are not added one by one.
MAX_ADDED_RIGHTS = 10
#: A holder that runs renews its lease sooner.
MAX_SILENCE_S = 30.0


def controllers(facts: Facts) -> list[Json]:
    """Deployments of Dovetail and of Karpenter, in that order."""
    deployments = [
        deployment
        for deployment in facts.items(DEPLOYMENTS.name)
        if (deployment["metadata"].get("labels") or {}).get(LABEL) in ("karpenter", "dovetail")
        and (
            _image(deployment, "dovetail")
            or _image(deployment, "karpenter")
            or "CLUSTER_NAME" in environment(deployment)  # with an image of another name
        )
    ]
    return sorted(deployments, key=lambda deployment: not is_dovetail(deployment))


def dns_deployments(facts: Facts) -> list[Json]:
    """The cluster's DNS, where it runs as a Deployment."""
    deployments = (facts.named(DEPLOYMENTS.name, name, "kube-system") for name in DNS_NAMES)
    return [deployment for deployment in deployments if deployment is not None]


def controller(facts: Facts) -> Json:
    """The one that runs; both may be installed after a take-over, with one of them scaled to 0."""
    deployments = controllers(facts)
    running = [deployment for deployment in deployments if deployment["spec"].get("replicas", 1)]
    if not deployments:
        raise NotAvailable(
            message("no Deployment with the label {label}=karpenter: no controller is installed here", label=LABEL)
        )
    return (running or deployments)[0]


def controller_account(facts: Facts) -> tuple[str, str]:
    """Namespace and name of the controller's service account."""
    deployment = controller(facts)
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName")
    if not account:
        raise NotAvailable(
            message(
                "Deployment {name_of} names no service account, so as whom its controller acts is not known",
                name_of=name_of(deployment),
            )
        )
    return deployment["metadata"]["namespace"], str(account)


def _image(deployment: Json, text: str) -> str:
    """The image of the first container whose name contains `text`."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or ()
    return next((str(box["image"]) for box in containers if text in str(box.get("image", ""))), "")


def is_dovetail(deployment: Json) -> bool:
    return bool(_image(deployment, "dovetail"))


def karpenter_version(deployment: Json) -> tuple[int, int, int] | None:
    """By the image's tag; None for another controller, or a tag that states none."""
    match = re.search(r":v?(\d+)\.(\d+)\.(\d+)(?:@|$)", _image(deployment, "karpenter"))
    return (int(match[1]), int(match[2]), int(match[3])) if match and not is_dovetail(deployment) else None


# D06: custom resource definitions


def check_definitions(facts: Facts) -> Iterator[Fault]:
    definitions = {item["metadata"]["name"]: item for item in facts.items(CRDS.name)}
    present = [definitions[name] for name in DEFINITIONS if name in definitions]
    deployment = controller(facts) if present or controllers(facts) else None
    if deployment is None:
        return
    for name in DEFINITIONS:
        if name not in definitions:
            yield failure(
                f"crd/{name}",
                message("it is not installed, and Deployment {name_of} needs it", name_of=name_of(deployment)),
                f"dovetail crds {name.partition('.')[0]} | kubectl apply --server-side -f -",
                safe=True,
            )
    version = karpenter_version(deployment)
    for item in present:
        name = item["metadata"]["name"]
        yield from _served_faults(item, name, is_dovetail(deployment) or (version or (0, 0, 0)) >= (1, 0, 0))
        stored = (item.get("status") or {}).get("storedVersions") or []
        if version is not None and version >= (1, 1, 0) and set(stored) - {"v1"}:
            yield failure(
                f"crd/{name}",
                message(
                    "status.storedVersions is {stored}: Karpenter {dotted} refuses to start before it is v1 alone",
                    stored=", ".join(stored),
                    dotted=_dotted(version),
                ),
                f'kubectl patch crd {name} --subresource=status --type=merge -p \'{{"status":{{"storedVersions":'
                '["v1"]}}\'',
            )
        yield from _ownership_faults(item, deployment)
        yield from _conversion_faults(facts, item)
        yield from _operator_faults(item, deployment)
        if is_dovetail(deployment):
            yield from _schema_faults(item)


def _operator_faults(item: Json, deployment: Json) -> Iterator[Fault]:
    """Operators that the controller writes into NodeClaims and the schema refuses: every launch fails silently."""
    name = item["metadata"]["name"]
    version = karpenter_version(deployment)
    newest = is_dovetail(deployment) or (version is not None and version >= FIRST_GTE_LTE)
    operators = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"} | ({"Gte", "Lte"} if newest else set())
    spec = ((_schema(item).get("properties") or {}).get("spec") or {}).get("properties") or {}
    if name.startswith("nodepools"):
        spec = ((spec.get("template") or {}).get("properties") or {}).get("spec", {}).get("properties") or {}
    rows = ((spec.get("requirements") or {}).get("items") or {}).get("properties") or {}
    allowed = (rows.get("operator") or {}).get("enum")
    missing = sorted(operators - set(allowed)) if allowed else []
    if missing and (version is not None or is_dovetail(deployment)):
        yield failure(
            f"crd/{name}",
            message(
                "its schema refuses the operators {missing} in requirements, which the controller of "
                "Deployment {name_of} writes: the API server rejects its NodeClaims and nothing is "
                "launched",
                missing=", ".join(missing),
                name_of=name_of(deployment),
            ),
            f"dovetail crds {name.partition('.')[0]} | kubectl apply --server-side --force-conflicts -f -",
            safe=True,
        )


def _served_faults(item: Json, name: str, needs_v1: bool) -> Iterator[Fault]:
    served = [row["name"] for row in item["spec"].get("versions") or () if row.get("served")]
    if needs_v1 and "v1" not in served:
        yield failure(
            f"crd/{name}",
            message(
                "spec.versions serves {served} and not v1, which the controller reads",
                served=", ".join(served) or "nothing",
            ),
            "dovetail crds | kubectl apply --server-side --force-conflicts -f -",
        )


def _ownership_faults(item: Json, deployment: Json) -> Iterator[Fault]:
    """Helm upgrades only what carries its own release's name."""
    annotations = item["metadata"].get("annotations") or {}
    owner, name = str(annotations.get(f"{HELM}/release-name") or ""), item["metadata"]["name"]
    release = deployment["metadata"]["name"]
    if not owner or any(part in owner for part in (release, "karpenter", "dovetail")):
        return
    namespace = deployment["metadata"]["namespace"]
    yield warning(
        f"crd/{name}",
        message(
            "annotation {helm}/release-name is {owner!r}: Helm refuses to upgrade it with the controller's release",
            helm=HELM,
            owner=owner,
        ),
        f"kubectl annotate crd {name} --overwrite {HELM}/release-name={release}-crd"
        f" {HELM}/release-namespace={namespace}",
    )


def _conversion_faults(facts: Facts, item: Json) -> Iterator[Fault]:
    conversion = item["spec"].get("conversion") or {}
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if conversion.get("strategy") != "Webhook" or not service:
        return
    namespace, name = service["namespace"], service["name"]
    if facts.named(SERVICES.name, name, namespace) is None:
        yield failure(
            f"crd/{item['metadata']['name']}",
            message(
                "spec.conversion calls the Service {namespace}/{name}, which does not exist: objects of "
                "other versions can be neither read nor written",
                namespace=namespace,
                name=name,
            ),
            "dovetail crds | kubectl apply --server-side --force-conflicts -f -",
        )
    elif not has_endpoints(facts, namespace, name):
        yield failure(
            f"crd/{item['metadata']['name']}",
            message(
                "spec.conversion calls the Service {namespace}/{name}, which has no ready endpoint",
                namespace=namespace,
                name=name,
            ),
            f"kubectl get pods -n {namespace} && kubectl describe service {name} -n {namespace}",
        )


def has_endpoints(facts: Facts, namespace: str, service: str) -> bool:
    for part in facts.items(ENDPOINTSLICES.name):
        labels = part["metadata"].get("labels") or {}
        if part["metadata"].get("namespace") == namespace and labels.get("kubernetes.io/service-name") == service:
            rows = part.get("endpoints") or ()
            if any((row.get("conditions") or {}).get("ready", True) is not False for row in rows):
                return True
    return False


def _schema_faults(item: Json) -> Iterator[Fault]:
    """Fields of Dovetail's own definition that this schema would drop: it is Karpenter's, or older."""
    name = item["metadata"]["name"]
    bundled = next(row for row in crds.definitions() if row["metadata"]["name"] == name)
    ours, theirs = _schema(bundled), _schema(item)
    missing = sorted(_paths(ours) - _paths(theirs)) if theirs else []
    if missing:
        shown = ", ".join(missing[:3]) + (
            message(" and {count} more", count=len(missing) - 3) if len(missing) > 3 else ""
        )
        yield warning(
            f"crd/{name}",
            message(
                "its schema of v1 has no {shown}: it is of another version, and the API server drops these fields",
                shown=shown,
            ),
            f"dovetail crds {name.partition('.')[0]} | kubectl apply --server-side --force-conflicts -f -",
        )


def _schema(item: Json) -> Json:
    for row in item["spec"].get("versions") or ():
        if row.get("name") == "v1":
            return (row.get("schema") or {}).get("openAPIV3Schema") or {}
    return {}


def _paths(schema: Json, prefix: str = "") -> set[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return set()
    if "items" in schema:
        return _paths(schema["items"], f"{prefix}[]")
    paths: set[str] = set()
    for name, inner in (schema.get("properties") or {}).items():
        path = f"{prefix}.{name}" if prefix else name
        paths |= {path} | _paths(inner, path)
    return paths


# D07: versions that belong together


def check_versions(facts: Facts) -> Iterator[Fault]:
    yield from _kubelet_faults(facts)
    deployment = controller(facts)
    version = karpenter_version(deployment)
    if is_dovetail(deployment):
        yield from _own_version_faults(deployment)
    if version is None:
        return
    subject = f"deployment/{name_of(deployment)}"
    if version in KNOWN_BAD:
        yield failure(
            subject,
            message("its image is Karpenter {dotted}, {why}", dotted=_dotted(version), why=message(KNOWN_BAD[version])),
            f"helm upgrade karpenter oci://public.ecr.aws/karpenter/karpenter --version {version[0]}.{version[1] + 1}.0"
            f" --reuse-values -n {deployment['metadata']['namespace']}",
        )
    if version[:2] in FIXED_AMI_DRIFT and version[2] < FIXED_AMI_DRIFT[version[:2]]:
        fixed = f"{version[0]}.{version[1]}.{FIXED_AMI_DRIFT[version[:2]]}"
        yield failure(
            subject,
            message(
                "its image is Karpenter {dotted}, which takes all nodes for drifted when an AMI is published",
                dotted=_dotted(version),
            ),
            f"helm upgrade karpenter oci://public.ecr.aws/karpenter/karpenter --version {fixed} --reuse-values"
            f" -n {deployment['metadata']['namespace']}",
        )
    stated = facts.read(VERSION) or {}
    minor = re.match(r"\d+", str(stated.get("minor", "")))
    oldest = OLDEST_KARPENTER.get(int(minor[0])) if minor and str(stated.get("major")) == "1" else None
    if oldest and version < oldest:
        yield failure(
            subject,
            message(
                "its image is Karpenter {dotted}; Kubernetes 1.{minor} needs {oldest} or later",
                dotted=_dotted(version),
                minor=minor[0] if minor else "",
                oldest=_dotted(oldest),
            ),
            f"helm upgrade karpenter oci://public.ecr.aws/karpenter/karpenter --version {_dotted(oldest)}"
            f" --reuse-values -n {deployment['metadata']['namespace']}",
        )


def _own_version_faults(deployment: Json) -> Iterator[Fault]:
    """The image's version and this command's: checks and rights here are those of our own."""
    match = re.search(r":v?(\d+\.\d+\.\d+)(?:@|$)", _image(deployment, "dovetail"))
    if match and match[1] != __version__:
        yield warning(
            f"deployment/{name_of(deployment)}",
            message(
                "its image is Dovetail {match}, and this command is {version__}: rights and definitions may differ",
                match=match[1],
                version__=__version__,
            ),
            f"dovetail install --namespace {deployment['metadata']['namespace']} --release"
            f" {deployment['metadata']['name']} --no-node-pool",
        )


def _kubelet_faults(facts: Facts) -> Iterator[Fault]:
    """A kubelet may be up to three minor versions older than the API server, and never newer."""
    stated = facts.read(VERSION) or {}
    minor = re.match(r"\d+", str(stated.get("minor", "")))
    if not minor:
        return
    for node in facts.items(NODES.name):
        text = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")
        match = re.match(r"v1\.(\d+)\.", text)
        if match is None:
            continue
        behind = int(minor[0]) - int(match[1])
        if behind < 0 or behind > MAX_KUBELET_LAG:
            name = node["metadata"]["name"]
            bound = (
                message("newer than the API server")
                if behind < 0
                else message("more than {max_kubelet_lag} minor versions older", max_kubelet_lag=MAX_KUBELET_LAG)
            )
            yield failure(
                f"node/{name}",
                message(
                    "status.nodeInfo.kubeletVersion is {text} and the API server is 1.{minor}: a kubelet "
                    "that is {bound} is not supported, and its pods may fail",
                    text=text,
                    minor=minor[0],
                    bound=bound,
                ),
                message(
                    "kubectl drain {name} --ignore-daemonsets --delete-emptydir-data  # and replace it with "
                    "a current AMI",
                    name=name,
                ),
            )
            return


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


# V01: the lease


def check_lease(facts: Facts) -> Iterator[Fault]:
    names = {LEASE, *(environment(row).get("LEADER_ELECTION_NAME") or LEASE for row in controllers(facts))}
    held = [lease for lease in facts.items(LEASES.name) if lease["metadata"]["name"] in names]
    holders = []
    for lease in held:
        spec = lease.get("spec") or {}
        renewed = moment(spec.get("renewTime"))
        if not spec.get("holderIdentity") or renewed is None:
            continue
        age = (facts.time - renewed).total_seconds()
        if _is_orphaned(facts, lease, age):
            yield failure(
                f"lease/{name_of(lease)}",
                message(
                    "spec.holderIdentity {holder!r} is no pod of the cluster and does not renew it: no controller "
                    "leads before it expires",
                    holder=spec["holderIdentity"],
                ),
                f"kubectl delete lease {lease['metadata']['name']} -n {lease['metadata']['namespace']}",
            )
            return
        if age <= float(spec.get("leaseDurationSeconds") or 15) + LEASE_TOLERANCE_S:
            holders.append(lease)
    if len(holders) > 1:
        listed = ", ".join(f"{name_of(lease)} ({lease['spec']['holderIdentity']})" for lease in holders)
        yield failure(
            f"lease/{name_of(holders[1])}",
            message(
                "{count} controllers lead at once, each with a lease of its own: {listed}",
                count=len(holders),
                listed=listed,
            ),
            f"kubectl scale deployment karpenter -n {holders[1]['metadata']['namespace']} --replicas=0",
        )
    running = [row for row in controllers(facts) if (row.get("status") or {}).get("readyReplicas")]
    if running and not holders:
        yield from _leaderless_faults(running[0], held)


def _leaderless_faults(deployment: Json, held: Sequence[Json]) -> Iterator[Fault]:
    """A controller is ready, and no lease is held."""
    if not held and not is_dovetail(deployment) and karpenter_version(deployment) is None:
        return  # whether another controller elects a leader is not known
    if environment(deployment).get("DISABLE_LEADER_ELECTION") == "true":
        return
    if not held:
        raise NotAvailable(
            message(
                "there is no lease {lease}: the controller's leader election is switched off, or hidden",
                lease=LEASE,
            )
        )
    stale = message(
        "the last holder was {holderIdentity}", holderIdentity=held[0]["spec"].get("holderIdentity") or "none"
    )
    yield failure(
        f"lease/{deployment['metadata']['namespace']}/{LEASE}",
        message(
            "no controller holds it although Deployment {name_of} is ready; {stale}",
            name_of=name_of(deployment),
            stale=stale,
        ),
        f"kubectl logs -n {deployment['metadata']['namespace']} deployment/{deployment['metadata']['name']} --tail=50",
        symptom=True,
    )


def _is_orphaned(facts: Facts, lease: Json, age: float) -> bool:
    """Whether its holder is gone and the lease lasts: a controller waits as long, from when it saw the lease first."""
    spec = lease["spec"]
    duration = float(spec.get("leaseDurationSeconds") or 15)
    holder = str(spec["holderIdentity"])
    names = {pod["metadata"]["name"] for pod in facts.items(PODS.name)}
    return min(age, duration) > MAX_SILENCE_S and not any(holder.startswith(name) for name in names)


# V02: the controller's rights in the cluster


def check_rights(facts: Facts) -> Iterator[Fault]:
    """Rights in the whole cluster that Dovetail needs whatever its settings."""
    deployment = controller(facts)
    if not is_dovetail(deployment):
        return
    namespace, name = controller_account(facts)
    roles = {item["metadata"]["name"]: item for item in facts.items(CLUSTERROLES.name)}
    bound = [
        binding["roleRef"]["name"]
        for binding in facts.items(CLUSTERROLEBINDINGS.name)
        if any(_is_account(subject, namespace, name) for subject in binding.get("subjects") or ())
    ]
    rules = [rule for role in bound for rule in (roles.get(role) or {}).get("rules") or ()]
    needed = grants(rule for rule in RULES if rule.scope is Scope.CLUSTER and rule.when is RuleCondition.ALWAYS)
    missing = sorted(grant for grant in needed if not any(_grants(rule, grant) for rule in rules))
    if missing:
        shown = ", ".join(f"{grant.verb} {grant.resource}" for grant in missing[:3])
        more = message(" and {count} more", count=len(missing) - 3) if len(missing) > 3 else ""
        yield failure(
            f"serviceaccount/{namespace}/{name}",
            message(
                "no ClusterRole bound to it grants {shown}{more}: the controller is refused by the API server",
                shown=shown,
                more=more,
            ),
            _rights_remedy(facts, deployment, bound, missing),
        )
    else:
        yield from _lease_right_faults(facts, deployment, rules, roles)


def _rights_remedy(facts: Facts, deployment: Json, bound: Sequence[str], missing: Sequence[Grant]) -> str:
    """Bind the role that has the rights, add them to the one that is bound, or install again."""
    namespace, name = controller_account(facts)
    roles = {row["metadata"]["name"]: row for row in facts.items(CLUSTERROLES.name)}
    own = [role for role in (name, deployment["metadata"]["name"]) if role in roles and role not in bound]
    for role in own:
        rules = roles[role].get("rules") or ()
        if all(any(_grants(rule, grant) for rule in rules) for grant in missing):
            return f"kubectl create clusterrolebinding {role} --clusterrole={role} --serviceaccount={namespace}:{name}"
    present = [role for role in bound if role in roles and not role.startswith("system:")]
    if present and len(missing) <= MAX_ADDED_RIGHTS:
        patch = [
            {
                "op": "add",
                "path": "/rules/-",
                "value": {"apiGroups": [grant.group], "resources": [grant.resource], "verbs": [grant.verb]},
            }
            for grant in missing
        ]
        return f"kubectl patch clusterrole {present[0]} --type=json -p '{json.dumps(patch, separators=(',', ':'))}'"
    return f"dovetail install --namespace {namespace} --release {deployment['metadata']['name']} --no-node-pool"


def _lease_right_faults(
    facts: Facts, deployment: Json, rules: Sequence[Json], cluster_roles: Mapping[str, Json]
) -> Iterator[Fault]:
    """Leader election takes rights on leases, which the chart grants in one namespace alone."""
    namespace, name = controller_account(facts)
    variables = environment(deployment)
    where = variables.get("LEADER_ELECTION_NAMESPACE") or namespace
    if variables.get("DISABLE_LEADER_ELECTION") == "true":
        return
    local = {row["metadata"]["name"]: row for row in facts.items(ROLES.name) if row["metadata"]["namespace"] == where}
    bound = list(rules)
    for binding in facts.items(ROLEBINDINGS.name):
        subjects = binding.get("subjects") or ()
        if binding["metadata"]["namespace"] == where and any(_is_account(row, namespace, name) for row in subjects):
            table = local if binding["roleRef"]["kind"] == "Role" else cluster_roles
            bound += (table.get(binding["roleRef"]["name"]) or {}).get("rules") or []
    # Which lease is a setting: a rule for one of that kind is enough.
    unnamed = [{key: value for key, value in rule.items() if key != "resourceNames"} for rule in bound]
    verbs = [
        verb
        for verb in ("get", "update")
        if not any(_grants(rule, Grant(verb, LEASES.group, "leases")) for rule in unnamed)
    ]
    if verbs:
        yield failure(
            f"serviceaccount/{namespace}/{name}",
            message(
                "no Role bound to it in namespace {where} grants {verbs} leases: the controller cannot be elected, and "
                "does nothing",
                where=where,
                verbs=", ".join(verbs),
            ),
            f"dovetail install --namespace {namespace} --release {deployment['metadata']['name']} --no-node-pool",
        )


def _is_account(subject: Json, namespace: str, name: str) -> bool:
    if subject.get("kind") == "Group":
        return subject.get("name") in ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return subject.get("kind") == "ServiceAccount" and (subject.get("namespace"), subject.get("name")) == (
        namespace,
        name,
    )


def _grants(rule: Json, grant: Grant) -> bool:
    names = rule.get("resourceNames") or ()
    parts = (("verbs", grant.verb), ("apiGroups", grant.group), ("resources", grant.resource))
    return all({"*", value} & set(rule.get(field) or ()) for field, value in parts) and (
        not names or (bool(grant.name) and grant.name in names)
    )
