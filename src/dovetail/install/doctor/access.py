"""May nodes join, and may the controller act: the node role, its policies, and the controller's identity."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from dovetail.install.doctor.aws_answers import ROLE_ANNOTATION, oidc_issuer
from dovetail.install.doctor.collect import AWS_AUTH, MUTATING
from dovetail.install.doctor.controller import controller, controller_account
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    NotAvailable,
    environment,
    failure,
    warning,
)
from dovetail.install.doctor.principals import (
    POD_IDENTITY_ACTIONS,
    PODS_SERVICE,
    STS_AUDIENCE,
    WEB_IDENTITY,
    is_for_pods,
    policy_document,
    service_is_allowed,
    token_refusal,
    trust_statements,
    trusted_services,
)
from dovetail.install.doctor.system_pods import pods_of
from dovetail.install.iam import OWNER_TAG, bounded_name
from dovetail.install.pod_role import WEBHOOK, holds_role
from dovetail.kube.resources import DAEMONSETS, EC2NODECLASSES, SERVICEACCOUNTS
from dovetail.language import message
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem

NODE_GROUPS = frozenset(("system:bootstrappers", "system:nodes"))
#: Tags of the sessions of Pod Identity: the namespace and the name of the service account.
POD_TAGS = ("namespace", "service-account")
NODE_USER = "system:node:{{EC2PrivateDNSName}}"


def eks_cluster(facts: Facts) -> Json:
    """EKS's description of the cluster."""
    if not facts.cluster:
        raise NotAvailable(message("no EKS cluster has the API server's address; name it with --cluster"))
    described = facts.read("eks:DescribeCluster")
    if described is None:
        raise NotAvailable(
            message("EKS has no cluster {cluster!r} in {region}", cluster=facts.cluster, region=facts.region)
        )
    return described  # type: ignore[no-any-return]


def partition(facts: Facts) -> str:
    """`aws`, or the part of AWS that GovCloud and China are."""
    described = facts.answers.get("eks:DescribeCluster")
    arn = str(((described.data if described is not None else None) or {}).get("arn") or "arn:aws")
    return arn.split(":")[1]


def node_roles(facts: Facts) -> Iterator[tuple[str, Json, str]]:
    """Each EC2NodeClass by its name, with the name of its role; those without a usable role are left out."""
    for node_class in facts.items(EC2NODECLASSES.name):
        spec = node_class.get("spec") or {}
        role = spec.get("role") or ""
        if spec.get("instanceProfile"):
            profile = facts.read(f"instance profile {spec['instanceProfile']}") or {}
            roles = profile.get("Roles") or ()
            role = roles[0]["RoleName"] if roles else ""
        if role and ":" not in role:
            yield node_class["metadata"]["name"], node_class, role


# D01: the node role may join


def check_node_role_may_join(facts: Facts) -> Iterator[Fault]:
    mode = ""
    for name, node_class, role in node_roles(facts):
        described = facts.read(f"role {role}")
        if described is None:
            continue  # D05 reports a role that does not exist
        mode = mode or str((eks_cluster(facts).get("accessConfig") or {}).get("authenticationMode") or "CONFIG_MAP")
        yield from _join_faults(facts, name, _is_windows(node_class), role, described["Arn"], mode)


def _join_faults(facts: Facts, name: str, windows: bool, role: str, arn: str, mode: str) -> Iterator[Fault]:
    entry_type = "EC2_WINDOWS" if windows else "EC2_LINUX"
    create = (
        f"aws eks create-access-entry --cluster-name {facts.cluster} --principal-arn {arn} --type {entry_type}"
        f" --region {facts.region}"
    )
    entry = facts.read(f"access entry {role}") if "API" in mode else None
    if entry is not None:
        accepted = {entry_type, "EC2_WINDOWS"}
        if entry.get("type") not in accepted:
            yield failure(
                f"accessentry/{role}",
                message(
                    "the access entry of role {role} (EC2NodeClass {name}) has type {type}, not {wanted}: an "
                    "entry takes priority over aws-auth, so no node with this role can join",
                    role=role,
                    name=name,
                    type=entry.get("type"),
                    wanted=entry_type,
                ),
                f"aws eks delete-access-entry --cluster-name {facts.cluster} --principal-arn {arn} --region"
                f" {facts.region} && {create}",
            )
        return
    if "CONFIG_MAP" not in mode:
        yield failure(
            f"ec2nodeclass/{name}",
            message(
                "spec.role {role}: the cluster authenticates by access entries alone and has none for "
                "this role, so no node with it can join",
                role=role,
            ),
            create,
            safe=True,
        )
        return
    cause = _aws_auth_fault(facts.read(AWS_AUTH), arn)
    if cause:
        remedy = (
            create
            if "API" in mode
            else f"eksctl create iamidentitymapping --cluster {facts.cluster} --region {facts.region} --arn"
            f" {_mapped_arn(arn)} --username '{NODE_USER}' --group system:bootstrappers --group system:nodes"
        )
        entries = message(", and it has no access entry") if "API" in mode else ""
        yield failure(
            f"ec2nodeclass/{name}",
            message(
                "spec.role {role}: {cause}{entries}; no node with it can join", role=role, cause=cause, entries=entries
            ),
            remedy,
            safe="API" in mode,
        )
        return
    yield from _shared_role_faults(facts, name, role, arn, create if "API" in mode else "")


def _shared_role_faults(facts: Facts, name: str, role: str, arn: str, create: str) -> Iterator[Fault]:
    """A node group of the same role, whose deletion would take the mapping; `create` makes an access entry."""
    for group in facts.items("node groups"):
        if group.get("nodeRole") == arn:
            yield warning(
                f"nodegroup/{group['nodegroupName']}",
                message(
                    "its node role {role} is that of EC2NodeClass {name} and is mapped in aws-auth alone: "
                    "deleting the node group removes the mapping, and every node with this role becomes "
                    "NotReady",
                    role=role,
                    name=name,
                ),
                create or message("kubectl edit ec2nodeclass {name}  # a role of its own in spec.role", name=name),
                safe=bool(create),
            )


def _is_windows(node_class: Json) -> bool:
    spec = node_class.get("spec") or {}
    aliases = [str(term.get("alias", "")) for term in spec.get("amiSelectorTerms") or ()]
    return any(text.lower().startswith("windows") for text in (*aliases, str(spec.get("amiFamily") or "")))


def _mapped_arn(arn: str) -> str:
    """The ARN without the role's path, as aws-auth wants it."""
    account, _, name = arn.partition(":role/")
    return f"{account}:role/{name.rsplit('/', 1)[-1]}"


def _is_same(written: Any, arn: str) -> bool:
    return str(written).lower() == arn.lower()


def _aws_auth_fault(data: Mapping[str, str] | None, arn: str) -> str:
    """Why aws-auth does not let this role in; empty if it does."""
    if data is None:
        return message("the ConfigMap kube-system/aws-auth does not exist")
    try:
        roles = yaml_document.load(data.get("mapRoles") or "[]")
    except yaml.YAMLError as error:
        why = yaml_problem(error)
        return message("mapRoles of the ConfigMap kube-system/aws-auth is not YAML ({why})", why=why)
    if not isinstance(roles, list):
        return message("mapRoles of the ConfigMap kube-system/aws-auth is not a list")
    # The last entry of an ARN counts, and its case does not.
    mapped = [row for row in roles if isinstance(row, dict) and _is_same(row.get("rolearn"), _mapped_arn(arn))][-1:]
    if not mapped:
        written = [row for row in roles if isinstance(row, dict) and _is_same(row.get("rolearn"), arn)]
        if written:
            return message(
                "the ConfigMap kube-system/aws-auth maps {arn} with its path, which EKS never matches", arn=arn
            )
        return message("the ConfigMap kube-system/aws-auth does not map {mapped_arn}", mapped_arn=_mapped_arn(arn))
    missing = NODE_GROUPS - set(mapped[0].get("groups") or ())
    if missing:
        return message(
            "the ConfigMap kube-system/aws-auth maps it without the groups {missing}",
            missing=", ".join(sorted(missing)),
        )
    if mapped[0].get("username") != NODE_USER:
        return message(
            "the ConfigMap kube-system/aws-auth maps it to username {username!r}, not {node_user}",
            username=mapped[0].get("username"),
            node_user=NODE_USER,
        )
    return ""


# D04: the controller's identity


def check_controller_identity(facts: Facts) -> Iterator[Fault]:
    deployment = controller(facts)
    variables = {row["name"] for box in _containers(deployment) for row in box.get("env") or ()}
    if variables & {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN"}:
        return
    cluster = eks_cluster(facts)
    account = controller_account(facts)
    namespace, name = account
    subject = f"serviceaccount/{namespace}/{name}"
    service_account = facts.named(SERVICEACCOUNTS.name, name, namespace)
    if service_account is None:
        yield failure(
            subject,
            message(
                "Deployment {namespace}/{name} names it in spec.serviceAccountName, and it does not exist",
                namespace=namespace,
                name=deployment["metadata"]["name"],
            ),
            f"kubectl create serviceaccount {name} -n {namespace} && {_annotation(facts, deployment, account)}",
        )
        return
    arn = (service_account["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION, "")
    if arn and ":role/" not in arn:
        yield failure(
            subject,
            message(
                "annotation {role_annotation} is {arn!r}: the ARN of a role is expected",
                role_annotation=ROLE_ANNOTATION,
                arn=arn,
            ),
            _annotation(facts, deployment, account),
        )
    elif arn:
        faults = list(_role_for_account_faults(facts, cluster, arn, account))
        yield from faults or _former_role_faults(facts, deployment, arn)
    elif not is_associated(facts, account):
        yield failure(
            subject,
            message(
                "it has no annotation {role_annotation} and no Pod Identity association, so the "
                "controller has no AWS credentials of its own",
                role_annotation=ROLE_ANNOTATION,
            ),
            _annotation(facts, deployment, account),
        )
    else:
        yield from _associated_role_faults(facts, account)
        if not (cluster.get("computeConfig") or {}).get("enabled"):
            yield from _agent_faults(facts)


def _former_role_faults(facts: Facts, deployment: Json, arn: str) -> Iterator[Fault]:
    """Pods that were created with another role than the one that the annotation names by now."""
    webhooks = facts.answers.get(MUTATING.name)
    names = [item["metadata"]["name"] for item in (webhooks.data if webhooks is not None else None) or ()]
    if WEBHOOK not in names:  # nothing would give a pod its role
        return
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    former = [pod for pod in pods_of(facts, deployment) if not holds_role(pod, arn)]
    if former:
        yield failure(
            f"deployment/{namespace}/{name}",
            message(
                "{count} of its pods were created before serviceaccount {account} was given the role {arn}, and pods "
                "keep the credentials of their creation",
                count=len(former),
                account=deployment["spec"]["template"]["spec"].get("serviceAccountName", "default"),
                arn=arn,
            ),
            f"kubectl rollout restart deployment/{name} -n {namespace}",
        )


def _usual_role(facts: Facts) -> str:
    return bounded_name(f"KarpenterControllerRole-{facts.cluster}")


def _annotation(facts: Facts, deployment: Json, account: tuple[str, str], role: str = "") -> str:
    """The command that gives the service account a role, or the one that installations make; pods read it at start."""
    _, partition, _, _, owner, *_ = (eks_cluster(facts).get("arn") or "arn:aws:eks::ACCOUNT:cluster").split(":")
    namespace, name = account
    role = role or f"arn:{partition}:iam::{owner}:role/{_usual_role(facts)}"
    return (
        f"kubectl annotate serviceaccount {name} -n {namespace} --overwrite"
        f" {ROLE_ANNOTATION}={role}"
        f" && kubectl rollout restart deployment/{deployment['metadata']['name']} -n {namespace}"
    )


def _role_creation(facts: Facts, role: str, account: tuple[str, str], issuer: str) -> str:
    """The command that makes the controller's role; the installer makes it only where the release is its own."""
    namespace, name = account
    if OWNER_TAG in (controller(facts)["metadata"].get("annotations") or {}):
        return f"dovetail install --namespace {namespace} --no-node-pool"
    documents = f"dovetail iam --cluster {facts.cluster} --region {facts.region}"
    trust = f"--part controller-trust --oidc-issuer {issuer} --namespace {namespace} --service-account {name}"
    return (
        f'aws iam create-role --role-name {role} --assume-role-policy-document "$({documents} {trust})"'
        f" && aws iam put-role-policy --role-name {role} --policy-name dovetail-controller"
        f' --policy-document "$({documents})"'
    )


def _containers(deployment: Json) -> list[Json]:
    return deployment["spec"]["template"]["spec"].get("containers") or []


def is_associated(facts: Facts, account: tuple[str, str]) -> bool:
    rows = facts.items("eks:ListPodIdentityAssociations")
    return any((row.get("namespace"), row.get("serviceAccount")) == account for row in rows)


def _associated_role_faults(facts: Facts, account: tuple[str, str]) -> Iterator[Fault]:
    """Pod Identity: the association's role exists, and trusts the agent."""
    association = facts.read("controller association") or {}
    arn = str(association.get("roleArn") or "")
    name = arn.rsplit("/", 1)[-1]
    role = facts.read(f"role {name}") if name else None
    statement = {"Effect": "Allow", "Principal": {"Service": PODS_SERVICE}, "Action": list(POD_IDENTITY_ACTIONS)}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    if role is None:
        yield failure(
            f"serviceaccount/{account[0]}/{account[1]}",
            message("its Pod Identity association names the role {arn}, and IAM has no such role", arn=arn),
            f"aws iam create-role --role-name {name} --assume-role-policy-document '{trust}'",
        )
        return
    cause = _agent_refusal(facts, role, account)
    if cause:
        yield failure(
            f"role/{name}",
            message(
                "its trust policy {cause}, so the Pod Identity agent gets no credentials for {account}/{account_2}",
                cause=cause,
                account=account[0],
                account_2=account[1],
            ),
            f"aws iam update-assume-role-policy --role-name {name} --policy-document '{trust}'",
        )


def _agent_refusal(facts: Facts, role: Json, account: tuple[str, str]) -> str:
    """Why the Pod Identity agent gets no credentials by a role's trust policy; empty if it does."""
    if PODS_SERVICE not in trusted_services(role):
        return message("does not name {service}", service=PODS_SERVICE)
    cluster = str(eks_cluster(facts).get("arn") or "")
    context = {
        "aws:RequestTag/kubernetes-namespace": account[0],
        "aws:RequestTag/kubernetes-service-account": account[1],
    }
    if cluster:
        context |= {
            "aws:SourceArn": cluster,
            "aws:SourceAccount": cluster.split(":")[4],
            "aws:RequestTag/eks-cluster-arn": cluster,
            "aws:RequestTag/eks-cluster-name": facts.cluster,
        }
    statements = trust_statements(role)
    refused = [
        action
        for action in POD_IDENTITY_ACTIONS
        if not service_is_allowed(statements, PODS_SERVICE, action, None, context)
    ]
    return message("does not allow it {actions}", actions=", ".join(refused)) if refused else ""


def _agent_faults(facts: Facts) -> Iterator[Fault]:
    for daemon_set in facts.items(DAEMONSETS.name):
        if daemon_set["metadata"]["name"] == "eks-pod-identity-agent":
            status = daemon_set.get("status") or {}
            if status.get("desiredNumberScheduled") and not status.get("numberReady"):
                yield failure(
                    "daemonset/kube-system/eks-pod-identity-agent",
                    message("status.numberReady is 0: no pod gets the credentials of its Pod Identity association"),
                    "kubectl describe pods -n kube-system -l app.kubernetes.io/name=eks-pod-identity-agent",
                )
            return
    yield failure(
        "daemonset/kube-system/eks-pod-identity-agent",
        message("it does not exist: the controller's Pod Identity association gives it no credentials"),
        f"aws eks create-addon --cluster-name {facts.cluster} --addon-name eks-pod-identity-agent"
        f" --region {facts.region}",
    )


def _role_for_account_faults(facts: Facts, cluster: Json, arn: str, account: tuple[str, str]) -> Iterator[Fault]:
    """IAM Roles for Service Accounts: the provider is registered, and the role trusts this account."""
    role_name = arn.rsplit("/", 1)[-1]
    issuer = oidc_issuer(cluster)
    role = facts.read(f"role {role_name}")
    named = _named_role_fault(facts, role, arn, account, issuer)
    if named is not None:
        yield named
        return
    if not issuer:
        raise NotAvailable(message("EKS states no OIDC issuer for the cluster"))
    providers = facts.items("iam:ListOpenIDConnectProviders")
    provider = next((row["Arn"] for row in providers if row["Arn"].endswith(f":oidc-provider/{issuer}")), "")
    unfit = _provider_fault(facts, provider, issuer)
    if unfit is not None:
        yield unfit
        return
    namespace, name = account
    cause = token_refusal(policy_document(role.get("AssumeRolePolicyDocument")), provider, f"{namespace}:{name}")
    if cause:
        yield failure(
            f"role/{role_name}",
            message(
                "its trust policy {cause}, so the controller's service account {namespace}/{name} cannot assume it",
                cause=cause,
                namespace=namespace,
                name=name,
            ),
            f"aws iam update-assume-role-policy --role-name {role_name} --policy-document"
            f" '{_account_trust(provider, f'{namespace}:{name}')}'",
        )


def _named_role_fault(facts: Facts, role: Json | None, arn: str, account: tuple[str, str], issuer: str) -> Fault | None:
    """The annotation names no role, one of another path or account, or one that is not for pods."""
    subject, role_name = f"serviceaccount/{account[0]}/{account[1]}", arn.rsplit("/", 1)[-1]
    if role is None:
        return failure(
            subject,
            message(
                "annotation {role_annotation} names {arn}, and IAM has no such role",
                role_annotation=ROLE_ANNOTATION,
                arn=arn,
            ),
            _annotation(facts, controller(facts), account)
            if role_name != _usual_role(facts)
            else _role_creation(facts, role_name, account, issuer),
        )
    if role.get("Arn", arn) != arn:
        return failure(
            subject,
            message(
                "annotation {role_annotation} names {arn}, and the account's role of this name is {actual}: STS knows "
                "no other",
                role_annotation=ROLE_ANNOTATION,
                arn=arn,
                actual=role["Arn"],
            ),
            _annotation(facts, controller(facts), account, role["Arn"]),
        )
    if is_for_pods(role) or role_name == _usual_role(facts):
        return None
    return failure(
        subject,
        message(
            "annotation {role_annotation} names {arn}, and that role's trust policy admits {services}, no service "
            "account",
            role_annotation=ROLE_ANNOTATION,
            arn=arn,
            services=", ".join(trusted_services(role)) or message("no service"),
        ),
        _annotation(facts, controller(facts), account),
    )


def _provider_fault(facts: Facts, provider: str, issuer: str) -> Fault | None:
    """IAM does not know the cluster's issuer, or takes its tokens for another audience."""
    subject = f"cluster/{facts.cluster}"
    if not provider:
        return failure(
            subject,
            message(
                "its OIDC issuer {issuer} is not registered as an identity provider in IAM, so STS "
                "refuses the controller's token",
                issuer=issuer,
            ),
            f"aws iam create-open-id-connect-provider --url https://{issuer} --client-id-list {STS_AUDIENCE}",
            safe=True,
        )
    described = facts.answers.get("identity provider")
    audiences = ((described.data if described is not None else None) or {}).get("ClientIDList")
    if audiences is None or STS_AUDIENCE in audiences:
        return None
    return failure(
        subject,
        message(
            "its OIDC identity provider in IAM has the audiences {audiences} and not {audience}, so STS refuses "
            "the controller's token",
            audiences=", ".join(audiences) or message("none"),
            audience=STS_AUDIENCE,
        ),
        f"aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn {provider}"
        f" --client-id {STS_AUDIENCE}",
        safe=True,
    )


def _account_trust(provider: str, service_account: str) -> str:
    """The trust policy that admits this service account (`namespace:name`)."""
    issuer = provider.partition(":oidc-provider/")[2]
    equal = {f"{issuer}:sub": f"system:serviceaccount:{service_account}", f"{issuer}:aud": STS_AUDIENCE}
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": provider},
        "Action": WEB_IDENTITY,
        "Condition": {"StringEquals": equal},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def interruption_queue(facts: Facts) -> str:
    return environment(controller(facts)).get("INTERRUPTION_QUEUE", "")
