"""What an installation makes at AWS for the autoscaler of the lab: its role, the queue's policy and the event rules."""

from __future__ import annotations

import json

from dovetail.install import iam as documents
from dovetail.lab.aws.account import AwsAccount, client
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint


def site(endpoint: AwsEndpoint, account: AwsAccount) -> documents.Site:
    """Where the autoscaler is installed, and what its parts are called."""
    issuer = str(endpoint.backend("eks").clusters[account.cluster].identity["oidc"]["issuer"])
    return documents.Site(
        cluster=account.cluster,
        region=account.region,
        account=ACCOUNT,
        queue=account.cluster,
        issuer=issuer.removeprefix("https://"),
        reboots=True,
    )


def grant(endpoint: AwsEndpoint, account: AwsAccount) -> None:
    """Make provider, role, queue policy and rules, with the documents that `dovetail install` uses.

    One thing more is allowed: an EC2NodeClass may name any role, also one that is made while the lab runs.
    """
    iam, sqs, events = (client(endpoint, service) for service in ("iam", "sqs", "events"))
    place = site(endpoint, account)
    any_role = {
        "Effect": "Allow",
        "Action": ["iam:PassRole"],
        "Resource": [place.role_arn("*")],
        "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
    }
    policies = {**documents.controller_policies(place), "AnyNodeRole": documents.document(any_role)}
    providers = iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
    if not any(row["Arn"].endswith(f":oidc-provider/{place.issuer}") for row in providers):
        iam.create_open_id_connect_provider(Url=f"https://{place.issuer}", ClientIDList=["sts.amazonaws.com"])
    iam.create_role(
        RoleName=place.controller_role, AssumeRolePolicyDocument=json.dumps(documents.controller_trust(place))
    )
    for name, policy in policies.items():
        iam.put_role_policy(RoleName=place.controller_role, PolicyName=name, PolicyDocument=json.dumps(policy))
    policy_text = json.dumps(documents.queue_policy(place))
    sqs.set_queue_attributes(QueueUrl=account.queue_url, Attributes={"Policy": policy_text})
    for event, pattern in documents.EVENT_PATTERNS.items():
        rule = documents.rule_name(place.cluster, event)
        events.put_rule(Name=rule, EventPattern=json.dumps(pattern), State="ENABLED")
        events.put_targets(Rule=rule, Targets=[{"Id": "InterruptionQueue", "Arn": place.queue_arn}])
