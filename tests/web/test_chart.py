"""The page as a part of the chart: off by default, read only, and with every right that it uses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.install.chart import Chart, Release, ValuesError, chart_directory
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.view.observer import Observer

RELEASE = Release(name="dovetail", namespace="autoscaling")
NAME = "dovetail-dashboard"


def rendered(**dashboard: Any) -> dict[str, dict[str, Any]]:
    """The objects of the page, by kind."""
    objects = Chart(chart_directory()).objects(RELEASE, {"dashboard": dashboard})
    return {obj["kind"]: obj for obj in objects if obj["metadata"]["name"] == NAME}


def test_there_is_no_page_unless_it_is_asked_for() -> None:
    assert rendered() == {}
    assert set(rendered(enabled=True)) >= {"Deployment", "Service", "ServiceAccount", "ClusterRole", "Role"}


def test_its_pods_are_not_taken_for_the_controllers() -> None:
    objects = Chart(chart_directory()).objects(RELEASE, {"dashboard": {"enabled": True}})
    page = rendered(enabled=True)["Deployment"]["spec"]
    selectors = [obj["spec"]["selector"] for obj in objects if obj["kind"] == "Service"]
    selectors += [obj["spec"]["selector"]["matchLabels"] for obj in objects if obj["kind"] == "Deployment"]
    labels = page["template"]["metadata"]["labels"]
    assert sum(selector.items() <= labels.items() for selector in selectors) == 2  # its own Service and Deployment
    assert len(selectors) >= 4


def test_it_may_read_and_ask_and_nothing_else() -> None:
    objects = rendered(enabled=True)
    rules = objects["ClusterRole"]["rules"] + objects["Role"]["rules"]
    written = {name for rule in rules if "create" in rule["verbs"] for name in rule["resources"]}
    assert written == {"tokenreviews", "subjectaccessreviews"}
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch", "create"}
    assert "secrets" not in {name for rule in rules for name in rule["resources"]}


class Recorder:
    def __init__(self, inner: InProcess) -> None:
        self._inner = inner
        self.asked: set[tuple[str, str, bool]] = set()

    async def send(self, request: Request) -> Response:
        parts = request.path.strip("/").split("/")
        if parts[0] in ("api", "apis"):
            rest = parts[2:] if parts[0] == "api" else parts[3:]
            inside = rest[0] == "namespaces" and len(rest) > 2
            group = "" if parts[0] == "api" else parts[1]
            self.asked.add((group, rest[2] if inside else rest[0], inside))
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


def test_it_has_every_right_that_the_observer_uses() -> None:
    asked: set[tuple[str, str, bool]] = set()

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        recorder = Recorder(InProcess(ApiServer(clock, Chance(1))))
        observer = Observer(Kube(recorder, clock, chance=Chance(2)), clock, history_namespace="autoscaling")
        task = asyncio.create_task(observer.run())
        await asyncio.sleep(60)
        task.cancel()
        await asyncio.wait([task])
        asked.update(recorder.asked)

    run_virtual(main())
    objects = rendered(enabled=True)

    def granted(kind: str) -> set[tuple[str, str]]:
        rules = objects[kind]["rules"]
        return {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}

    assert len(asked) > 15
    assert ("metrics.k8s.io", "pods") in granted("ClusterRole")  # read for the pages of pods and VPAs alone
    assert {(group, name) for group, name, inside in asked if not inside} <= granted("ClusterRole")
    assert {(group, name) for group, name, inside in asked if inside} <= granted("Role")


def test_names_of_an_ingress_are_hosts_and_cookies_are_for_tls() -> None:
    arguments = rendered(enabled=True, hostNames=["page.example"])["Deployment"]["spec"]["template"]["spec"]
    given = arguments["containers"][0]["args"]
    assert {"--host-name=page.example", "--tls-proxy", "--auth=kubernetes", "--listen=0.0.0.0"} <= set(given)
    plain = rendered(enabled=True)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--tls-proxy" not in plain


def test_a_way_to_sign_in_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValuesError):
        rendered(enabled=True, auth="url")
