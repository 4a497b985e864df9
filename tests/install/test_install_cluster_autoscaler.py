"""`dovetail install` of the Cluster Autoscaler: interrupted, repeated, beside the other autoscaler."""

from __future__ import annotations

import pytest

from dovetail.install import cluster_autoscaler
from dovetail.install.discovery import Found, discover
from dovetail.install.plan import RefusedError
from dovetail.install.steps import Account
from dovetail.kube import resources as kinds
from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from tests.install.install_site import (
    REGION,
    SERVER,
    Interrupted,
    Site,
    endpoint,
    tell,
)

__all__ = ["endpoint"]


@pytest.mark.timeout(300)
def test_cluster_autoscaler_is_installed_again_after_every_interruption_and_leaves_nothing(
    endpoint: AwsEndpoint,
) -> None:
    async def story(site: Site) -> None:
        async def install(after: int | None = None) -> list[str]:
            async def work(account: Account) -> None:
                found = await discover(account, None, SERVER)
                there = await cluster_autoscaler.deployment(account, "kube-system")
                planned = cluster_autoscaler.plan(found, there, "kube-system", "image", "1")
                await cluster_autoscaler.install(account, planned, site.report, wait_s=0.0)

            return await site._as_operator(work, after)

        async def uninstall(after: int | None = None) -> list[str]:
            async def work(account: Account) -> None:
                found = await discover(account, None, SERVER)
                planned = cluster_autoscaler.plan(found, None, "kube-system", "image", "1", removing=True)
                await cluster_autoscaler.uninstall(account, planned, site.report)

            return await site._as_operator(work, after)

        before = await site.state()
        for write in range(1, len(await install()) + 1):
            await uninstall()
            assert await site.state() == before
            with pytest.raises(Interrupted):
                await install(after=write)
            await install()
            assert await install() == []  # nothing is left to do
        account = await site.kube.get(kinds.SERVICEACCOUNTS, "cluster-autoscaler", "kube-system")
        role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].rpartition("/")[2]
        iam = client(endpoint, "iam")
        assert iam.list_role_policies(RoleName=role)["PolicyNames"] == ["ClusterAutoscaler"]
        [statement] = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]["Statement"]
        subject = "system:serviceaccount:kube-system:cluster-autoscaler"
        assert subject in statement["Condition"]["StringEquals"].values()
        with pytest.raises(Interrupted):
            await uninstall(after=2)
        await uninstall()
        assert await site.state() == before
        await site.kube.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "cluster-autoscaler"}}, "kube-system")
        await install()
        await uninstall()
        assert await site.kube.get(kinds.SERVICEACCOUNTS, "cluster-autoscaler", "kube-system")  # it was not ours
        await site.kube.delete(kinds.SERVICEACCOUNTS, "cluster-autoscaler", "kube-system")

    tell(endpoint, story)


def test_the_provider_stays_as_long_as_one_of_the_two_autoscalers_needs_it(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        async def planned(account: Account, removing: bool) -> cluster_autoscaler.AutoscalerInstallation:
            found = await discover(account, None, SERVER)
            return cluster_autoscaler.plan(found, None, "kube-system", "image", "1", removing=removing)

        async def install(account: Account) -> None:
            await cluster_autoscaler.install(account, await planned(account, False), site.report, wait_s=0.0)

        async def uninstall(account: Account) -> None:
            await cluster_autoscaler.uninstall(account, await planned(account, True), site.report)

        before = await site.state()
        iam = client(endpoint, "iam")
        await site.install()
        await site._as_operator(install, None)
        await site.uninstall()
        assert iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        await site.settle()
        await site.install()
        await site._as_operator(uninstall, None)
        assert iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        await site.uninstall()
        assert await site.state() == before
        assert not iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]

    tell(endpoint, story)


def test_a_cluster_autoscaler_that_runs_is_not_replaced() -> None:
    found = Found(
        cluster="a", region=REGION, account=ACCOUNT, partition="aws", version="1.34", endpoint=SERVER, issuer="oidc/x",
        authentication_mode="API", subnets=(), security_groups=(),
    )  # fmt: skip
    with pytest.raises(RefusedError, match="kubectl delete deployment cluster-autoscaler -n kube-system"):
        cluster_autoscaler.plan(found, {"metadata": {"name": "cluster-autoscaler"}}, "kube-system", "image", "1")
