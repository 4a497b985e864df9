"""What the installation of the lab's own autoscaler would leave: its role, queue policy and event rules at AWS, its
service account and rights in the cluster.

The autoscaler itself runs inside the lab and needs none of it. An operator who looks, or breaks something to learn how
that shows, finds what a real cluster has.
"""

from __future__ import annotations

import json
from typing import Any

from dovetail.install import iam as documents
from dovetail.install.rbac import RULES, Scope
from dovetail.kube.resources import SERVICEACCOUNTS, Resource
from dovetail.lab.aws.account import AwsAccount, client
from dovetail.lab.aws.endpoint import ACCOUNT, Endpoint

_RBAC = "rbac.authorization.k8s.io"
CLUSTERROLES = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False)
CLUSTERROLEBINDINGS = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
NAME = "karpenter"


def issuer(endpoint: Endpoint, cluster: str) -> str:
    """The cluster's OIDC issuer without its scheme."""
    stated = str(endpoint.backend("eks").clusters[cluster].identity["oidc"]["issuer"])
    return stated.removeprefix("https://")


def role_arn(cluster: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{_site(cluster, '').controller_role}"


def _site(cluster: str, region: str, issuer: str = "") -> documents.Site:
    return documents.Site(cluster=cluster, region=region, account=ACCOUNT, queue=cluster, issuer=issuer)


def grant(endpoint: Endpoint, account: AwsAccount) -> None:
    """Make provider, role, queue policy and rules, with the documents that `dovetail install` uses."""
    iam, sqs, events = (client(endpoint, service) for service in ("iam", "sqs", "events"))
    site = _site(account.cluster, account.region, issuer(endpoint, account.cluster))
    providers = iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
    if not any(row["Arn"].endswith(f":oidc-provider/{site.issuer}") for row in providers):
        iam.create_open_id_connect_provider(Url=f"https://{site.issuer}", ClientIDList=["sts.amazonaws.com"])
    iam.create_role(
        RoleName=site.controller_role, AssumeRolePolicyDocument=json.dumps(documents.controller_trust(site))
    )
    for name, policy in documents.controller_policies(site).items():
        iam.put_role_policy(RoleName=site.controller_role, PolicyName=name, PolicyDocument=json.dumps(policy))
    policy_text = json.dumps(documents.queue_policy(site))
    sqs.set_queue_attributes(QueueUrl=account.queue_url, Attributes={"Policy": policy_text})
    for event, pattern in documents.EVENT_PATTERNS.items():
        rule = documents.rule_name(site, event)
        events.put_rule(Name=rule, EventPattern=json.dumps(pattern), State="ENABLED")
        events.put_targets(Rule=rule, Targets=[{"Id": "InterruptionQueue", "Arn": site.queue_arn}])


def settings(cluster: str) -> list[dict[str, str]]:
    """Variables of the Deployment that stands for the autoscaler."""
    return [
        {"name": "CLUSTER_NAME", "value": cluster},
        {"name": "INTERRUPTION_QUEUE", "value": cluster},
        {"name": "DISABLE_LEADER_ELECTION", "value": "true"},
    ]


def objects(cluster: str, namespace: str) -> list[tuple[Resource, dict[str, Any], str | None]]:
    """The service account with its role, and the rights in the whole cluster that are bound to it."""
    rules = [
        {
            "apiGroups": [rule.group],
            "resources": list(rule.resources),
            "verbs": list(rule.verbs),
            **({"resourceNames": list(rule.names)} if rule.names else {}),
        }
        for rule in RULES
        if rule.scope is Scope.CLUSTER
    ]
    annotations = {"eks.amazonaws.com/role-arn": role_arn(cluster)}
    binding = {
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }
    return [
        (SERVICEACCOUNTS, {"metadata": {"name": NAME, "annotations": annotations}}, namespace),
        (CLUSTERROLES, {"metadata": {"name": NAME}, "rules": rules}, None),
        (CLUSTERROLEBINDINGS, binding, None),
    ]
