"""`dovetail doctor` on an installed cluster: a healthy one gives no failure, and each fault gives its own id alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dovetail.cloud.aws.client import Calls
from dovetail.install.doctor.checks import report
from dovetail.install.doctor.collect import collect
from dovetail.install.doctor.facts import Facts, Finding, Status
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import ACCOUNT, Endpoint
from tests.install.test_install import CLUSTER, REGION, SERVER, Site, endpoint, tell

__all__ = ["endpoint"]

NODE_ROLE, CONTROLLER_ROLE = f"KarpenterNodeRole-{CLUSTER}", f"KarpenterControllerRole-{CLUSTER}"


class ReadsOnly:
    """Fails on a write, and refuses what it is asked to refuse."""

    def __init__(self, inner: Any, refused: str = "") -> None:
        self._inner = inner
        self._refused = refused

    async def send(self, request: Request) -> Response:
        assert request.method == "GET", f"doctor wrote {request.method} {request.path}"
        if self._refused and self._refused in request.path:
            body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not allowed"}
            return Response(status=403, headers={}, body=json.dumps(body).encode())
        response: Response = await self._inner.send(request)
        return response

    async def close(self) -> None:
        return None


async def look(site: Site, refused: str = "") -> Facts:
    calls = Calls(site.lab.clock, region=REGION, endpoint=site.endpoint.url, session=site._session)
    try:
        return await collect(Kube(ReadsOnly(site.lab.transport, refused), site.lab.clock), calls, server=SERVER)
    finally:
        calls.close()


def failed(findings: list[Finding]) -> dict[str, str]:
    return {finding.id: finding.message for finding in findings if finding.status is Status.FAILED}


async def lead(site: Site) -> None:
    """A controller holds the lease."""
    now = site.lab.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": "karpenter-0", "leaseDurationSeconds": 15, "renewTime": now}
    await site.kube.apply(
        kinds.LEASES, {"metadata": {"name": "karpenter-leader-election", "namespace": "karpenter"}, "spec": spec}
    )


Break = Callable[[Site], Awaitable[None]]


async def delete_entry(site: Site) -> None:
    arn = f"arn:aws:iam::{ACCOUNT}:role/{NODE_ROLE}"
    client(site.endpoint, "eks").delete_access_entry(clusterName=CLUSTER, principalArn=arn)


async def select_nothing(site: Site) -> None:
    await site.kube.patch(
        kinds.EC2NODECLASSES, "default", {"spec": {"subnetSelectorTerms": [{"tags": {"team": "none"}}]}}
    )


async def name_absent_role(site: Site) -> None:
    patch = {"metadata": {"annotations": {"eks.amazonaws.com/role-arn": f"arn:aws:iam::{ACCOUNT}:role/absent"}}}
    await site.kube.patch(kinds.SERVICEACCOUNTS, "karpenter", patch, "karpenter")


async def trust_another_namespace(site: Site) -> None:
    iam = client(site.endpoint, "iam")
    document = iam.get_role(RoleName=CONTROLLER_ROLE)["Role"]["AssumeRolePolicyDocument"]
    text = json.dumps(document).replace("system:serviceaccount:karpenter:", "system:serviceaccount:kube-system:")
    iam.update_assume_role_policy(RoleName=CONTROLLER_ROLE, PolicyDocument=text)


async def detach_worker_policy(site: Site) -> None:
    iam = client(site.endpoint, "iam")
    for row in iam.list_attached_role_policies(RoleName=NODE_ROLE)["AttachedPolicies"]:
        if row["PolicyName"].startswith("AmazonEKSWorkerNode"):
            iam.detach_role_policy(RoleName=NODE_ROLE, PolicyArn=row["PolicyArn"])


async def delete_definition(site: Site) -> None:
    await site.kube.delete(kinds.CRDS, "nodeclaims.karpenter.sh")


async def delete_queue(site: Site) -> None:
    sqs = client(site.endpoint, "sqs")
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"])


async def clear_queue_policy(site: Site) -> None:
    sqs = client(site.endpoint, "sqs")
    url = sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"]
    sqs.set_queue_attributes(
        QueueUrl=url, Attributes={"Policy": json.dumps({"Version": "2012-10-17", "Statement": []})}
    )


async def limit_below_one_instance(site: Site) -> None:
    await site.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"limits": {"cpu": "100m"}}})


async def name_absent_class(site: Site) -> None:
    reference = {"nodeClassRef": {"name": "absent"}}
    await site.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"template": {"spec": reference}}})


async def remove_rights(site: Site) -> None:
    from dovetail.install.doctor.collect import CLUSTERROLES

    await site.kube.patch(CLUSTERROLES, "karpenter", {"rules": []})


FAULTS: list[tuple[str, Break]] = [
    ("D01", delete_entry),
    ("D02", select_nothing),
    ("D04", name_absent_role),
    ("D04", trust_another_namespace),
    ("D05", detach_worker_policy),
    ("D06", delete_definition),
    ("D08", delete_queue),
    ("D08", clear_queue_policy),
    ("D10", limit_below_one_instance),
    ("V03", name_absent_class),
    ("V02", remove_rights),
]


def test_a_healthy_installation_gives_no_failure_and_no_warning(endpoint: Endpoint) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        await lead(site)
        findings = report(await look(site))
        assert len(findings) >= 20
        objections = [row for row in findings if row.status in (Status.FAILED, Status.WARNING)]
        assert objections == []
        assert [row.message for row in findings if row.status is Status.NOT_CHECKED] == []
        await site.uninstall()

    tell(endpoint, story, nodes=2)


@pytest.mark.parametrize(("check", "breaks"), FAULTS, ids=[breaks.__name__ for _, breaks in FAULTS])
def test_a_fault_gives_its_own_id_and_no_other(endpoint: Endpoint, check: str, breaks: Break) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        await breaks(site)
        await asyncio.sleep(5.0)
        await lead(site)
        findings = report(await look(site))
        assert set(failed(findings)) == {check}
        assert [row.remedy for row in findings if row.status is Status.FAILED and not row.remedy] == []
        await site.uninstall()

    tell(endpoint, story, nodes=2)


def test_a_refused_list_is_not_checked_and_names_the_right(endpoint: Endpoint) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        await lead(site)
        facts = await look(site, refused="/ec2nodeclasses")
        findings = {row.id: row for row in report(facts)}
        assert findings["D02"].status is Status.NOT_CHECKED
        assert "list ec2nodeclasses.karpenter.k8s.aws" in findings["D02"].message
        assert failed(list(findings.values())) == {}
        again = msgspec.json.decode(msgspec.json.encode(facts), type=Facts)
        assert report(again) == list(report(facts)), "a bundle gives the same report"
        await site.uninstall()

    tell(endpoint, story, nodes=2)
