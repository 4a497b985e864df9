"""`dovetail iam`: print what the controller, the nodes and the queue need at AWS."""

from __future__ import annotations

import click

from dovetail.errors import UserError
from dovetail.language import message

PARTS = ("controller", "controller-trust", "node-trust", "queue")


@click.command()
@click.option("--cluster", "--cluster-name", required=True, help="Name of the EKS cluster.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["policy", "cloudformation", "terraform"]),
    default="policy",
    show_default=True,
)
@click.option(
    "--part",
    type=click.Choice(PARTS),
    default="controller",
    show_default=True,
    help="Which document, with --format policy.",
)
@click.option(
    "--for",
    "program",
    type=click.Choice(["dovetail", "cluster-autoscaler"]),
    default="dovetail",
    show_default=True,
    help="Which program's permissions.",
)
@click.option("--region", default=None, help="Region; default as the AWS command's.")
@click.option("--account", default=None, help="Account; AWS is asked if left out.")
@click.option("--partition", default="aws", show_default=True)
@click.option("--queue", default=None, help='Interruption queue; the cluster\'s name if left out, "" for none.')
@click.option("--node-role", default="", help="Name of the nodes' role.  [default: KarpenterNodeRole-CLUSTER]")
@click.option("--namespace", default="karpenter", show_default=True)
@click.option("--service-account", default="karpenter", show_default=True)
@click.option("--oidc-issuer", default="", help="The cluster's OIDC issuer; Pod Identity if left out.")
@click.option("--reboots", is_flag=True, help="Let NodeRepair reboot instances.")
def iam(
    cluster: str,
    form: str,
    part: str,
    program: str,
    region: str | None,
    account: str | None,
    partition: str,
    queue: str | None,
    node_role: str,
    namespace: str,
    service_account: str,
    oidc_issuer: str,
    reboots: bool,
) -> None:
    """Print IAM policies, roles, queue and rules, as a policy, a CloudFormation template or Terraform."""
    import json

    from dovetail.install import iam as source
    from dovetail.install import iam_formats

    if form == "policy":
        region, account = _region(region), account or _account()
    site = source.Site(
        cluster=cluster,
        region=region or "",
        account=account or "",
        partition=partition,
        queue=cluster if queue is None else queue,
        node_role_name=node_role,
        namespace=namespace,
        service_account=service_account,
        issuer=oidc_issuer.removeprefix("https://"),
        reboots=reboots,
    )
    if program == "cluster-autoscaler":
        documents = {
            "policy": source.cluster_autoscaler_policy,
            "cloudformation": iam_formats.cluster_autoscaler_cloudformation,
            "terraform": iam_formats.cluster_autoscaler_terraform,
        }
        made = documents[form](site)
    elif form == "policy":
        made = {
            "controller": source.controller_policy,
            "controller-trust": source.controller_trust,
            "node-trust": source.node_trust,
            "queue": source.queue_policy,
        }[part](site)
    else:
        made = {"cloudformation": iam_formats.cloudformation, "terraform": iam_formats.terraform}[form](site)
    click.echo(made if isinstance(made, str) else json.dumps(made, indent=2), nl=not isinstance(made, str))


def _region(given: str | None) -> str:
    import boto3

    region = given or boto3.session.Session().region_name
    if not region:
        raise UserError(message("--region: is not set; give it here, or set AWS_REGION"))
    return str(region)


def _account() -> str:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return str(boto3.client("sts").get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as problem:
        raise UserError(
            message("--account: AWS did not say which account this is ({problem}); give it here", problem=problem)
        ) from problem
