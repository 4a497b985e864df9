"""`dovetail doctor` on an installed cluster: a healthy one gives no failure, and each fault gives its own id alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from dovetail.chance import Chance
from dovetail.cloud.aws.client import Calls
from dovetail.install.doctor.checks import CHECKS, checks_of, report
from dovetail.install.doctor.collect import collect
from dovetail.install.doctor.facts import Facts, Finding, Status
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.aws.endpoint import AwsEndpoint
from tests.install.account_faults import endpoints, isolated
from tests.install.doctor_scenarios import SCENARIOS, Scenario
from tests.install.install_site import REGION, SERVER, Site, endpoint, tell

__all__ = ["endpoint"]

#: Seconds of the lab until controllers have acted on a fault that is mended.
SETTLING_S = 60.0


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
    """What doctor reads, a moment after the controller has renewed its lease."""
    now = site.lab.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": "karpenter-0", "leaseDurationSeconds": 15, "renewTime": now}
    await site.kube.apply(
        kinds.LEASES, {"metadata": {"name": "karpenter-leader-election", "namespace": "karpenter"}, "spec": spec}
    )
    calls = Calls(site.lab.clock, region=REGION, endpoint=site.endpoint.url, session=site._session)
    try:
        return await collect(Kube(ReadsOnly(site.lab.transport, refused), site.lab.clock), calls, server=SERVER)
    finally:
        calls.close()


def with_status(findings: Sequence[Finding], *statuses: Status) -> dict[str, str]:
    return {row.id: f"{row.object}: {row.message}" for row in findings if row.status in statuses}


async def findings_with(site: Site, scenarios: Sequence[Scenario]) -> list[Finding]:
    """What doctor says while all of the faults are there."""
    async with AsyncExitStack() as stack:
        for scenario in scenarios:
            await stack.enter_async_context(scenario.breaks(site))
        await asyncio.sleep(max(scenario.settling_s for scenario in scenarios))
        return report(await look(site), pre=scenarios[0].pre)
    raise AssertionError("a fault swallowed an error")


def check(scenarios: Sequence[Scenario], findings: Sequence[Finding]) -> str:
    """What is wrong with the report; empty if every fault has its id and no other check fails.

    A fault that one of the others may have led to warns, with the id of the other.
    """
    expected = {scenario.check for scenario in scenarios if scenario.status is Status.FAILED}
    explained = {check.id for check in CHECKS if check.id in expected and expected & set(check.causes)}
    failed = with_status(findings, Status.FAILED)
    warned = explained | {scenario.check for scenario in scenarios if scenario.status is Status.WARNING}
    unseen = warned - set(with_status(findings, Status.WARNING, Status.FAILED))
    names = " + ".join(f"{scenario.check} {scenario.name}" for scenario in scenarios)
    if not expected - explained <= set(failed) <= expected or unseen:
        return f"{names}: failed {failed}, not warned {sorted(unseen)}"
    return ""


#: They need nodes that a controller launched, or a cluster that EKS does not serve: their faults are given as facts.
NOT_PROVOKED = {"D11", "P01", "P03", "V05", "V07", "V09"}


def first_of_each_check() -> list[Scenario]:
    rows: dict[str, Scenario] = {}
    for scenario in SCENARIOS:
        rows.setdefault(scenario.check, scenario)
    return list(rows.values())


def test_a_fault_of_each_check_gives_its_id_and_no_other(endpoint: AwsEndpoint) -> None:
    assert len(SCENARIOS) >= 46
    chosen = first_of_each_check()
    assert {check.id for check in CHECKS} - {scenario.check for scenario in chosen} == NOT_PROVOKED
    check_each(endpoint, chosen)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_fault_gives_its_id_and_no_other(endpoint: AwsEndpoint) -> None:
    check_each(endpoint, SCENARIOS)


def check_each(endpoint: AwsEndpoint, scenarios: Sequence[Scenario]) -> None:
    """One installation: healthy at first, with each fault, and healthy again at the end."""

    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        facts = await look(site)
        findings = report(facts)
        assert len(findings) == len(checks_of())
        assert with_status(findings, Status.FAILED, Status.WARNING, Status.NOT_CHECKED) == {}
        again = msgspec.json.decode(msgspec.json.encode(facts), type=Facts)
        assert report(again) == findings, "a bundle gives the same report"
        refused = {row.id: row for row in report(await look(site, refused="/ec2nodeclasses"))}
        assert refused["D02"].status is Status.NOT_CHECKED
        assert "list ec2nodeclasses.karpenter.k8s.aws" in refused["D02"].message
        assert with_status(list(refused.values()), Status.FAILED) == {}
        problems = []
        for scenario in scenarios:
            findings = await findings_with(site, [scenario])
            problems.append(check([scenario], findings))
            problems += [
                f"{row.id} has no remedy" for row in findings if row.status is Status.FAILED and not row.remedy
            ]
        assert problems and not any(problems), "\n".join(filter(None, problems))
        await asyncio.sleep(SETTLING_S)
        assert with_status(report(await look(site)), Status.FAILED, Status.WARNING) == {}
        await site.uninstall()

    tell(endpoint, story, nodes=2)


#: Faults that change the same field cannot be there at once.
EXCLUSIVE = {
    "an absent role": {"D03", "D04", "D05", "D17", "D08"},
    "a trust of another namespace": {"D04"},
    "no provider": {"D04"},
    "an old Karpenter": {"D06", "D07", "D08", "D09", "V01", "V02", "D15"},
}


def compatible(first: Scenario, second: Scenario) -> bool:
    """Whether two faults touch different things, and neither hides the evidence of the other."""
    if first.pre or second.pre or first.check == second.check:
        return False
    for one, other in ((first, second), (second, first)):
        if other.check in EXCLUSIVE.get(one.name, ()) or {one.check, other.check} & {"D06", "V02"}:
            return False
        if one.check in ("D01", "D05") and other.check in ("D01", "D05", "D17"):
            return False
    fields = {scenario.check for scenario in (first, second)}
    if fields == {"D14", "V06"}:  # both are a Deployment of Cluster Autoscaler
        return False
    return not (fields <= {"D02", "D16", "D17", "D18", "D05", "D13"} or fields <= {"D08", "D09", "D07", "D10", "D13"})


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", [2, 3])
def test_several_faults_at_once_give_their_ids(endpoint: AwsEndpoint, size: int) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        chance = Chance(size)
        problems, tried = [], 0
        while tried < 40:
            chosen = [chance.choice(SCENARIOS) for _ in range(size)]
            pairs = [(chosen[a], chosen[b]) for a in range(size) for b in range(a)]
            if not all(compatible(first, second) for first, second in pairs):
                continue
            tried += 1
            problems.append(check(chosen, await findings_with(site, chosen)))
        assert tried == 40
        assert not any(problems), "\n".join(filter(None, problems))
        await site.uninstall()

    tell(endpoint, story, nodes=2)


def test_isolated_subnets_with_endpoints_are_healthy(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0, values={"settings": {"isolatedVPC": True}})
        services = ("ec2", "ecr.api", "ecr.dkr", "s3", "sts", "ssm", "eks", "sqs")
        async with isolated(site), endpoints(*services)(site):
            assert with_status(report(await look(site)), Status.FAILED, Status.WARNING) == {}
        async with isolated(site), endpoints(*services[:-1])(site):
            assert set(with_status(report(await look(site)), Status.FAILED)) == {"D18"}
        await site.uninstall()

    tell(endpoint, story, nodes=2)
