"""The page in a real browser: every figure is what the API says, whatever happens, and any reader can use it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from dovetail.cli.terminal import quiet_logs
from dovetail.controllers.history.decisions import Decision, Refusal
from dovetail.kube.resources import CORE_EVENTS, HPAS, NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.model.meta import stamp
from dovetail.model.quantity import milli
from tests.web.world import TOKEN, World

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
LONG = "a" + "0123456789" * 6 + "zz"
RIGHT_TO_LEFT = "שלום عليكم"


def open_page(tab: BrowserContext, world: World, path: str = "/") -> Page:
    page = tab.new_page()
    joined = "&" if "?" in path else "?"
    page.goto(f"{world.base}{path}{joined}token={TOKEN}")
    expect(page.locator("body[data-link=live], body[data-stream_open]")).to_have_count(1)
    return page


@pytest.fixture(autouse=True, scope="module")
def quiet() -> None:
    """Watches report every failure to the log; here they fail on purpose."""
    quiet_logs()


def figure(page: Page, name: str) -> str:
    return page.locator(f"[data-figure={name}] .value").inner_text()


def from_the_api(world: World) -> dict[str, str]:
    """The figures, counted from lists of the API server alone."""
    nodes = world.do(world.kube.list(NODES)).items
    claims = world.do(world.kube.list(NODECLAIMS)).items
    pods = world.do(world.kube.list(PODS)).items
    launched = {claim["status"]["providerID"]: claim for claim in claims if claim.get("status", {}).get("providerID")}
    prices: list[float] = []
    for node in nodes:
        claim = launched.pop(node["spec"]["providerID"], None)
        annotation = (claim or node)["metadata"].get("annotations", {}).get("dovetail.sh/price")
        prices.append(float(annotation) if annotation else 0.192)
    for claim in launched.values():
        prices.append(float(claim["metadata"]["annotations"]["dovetail.sh/price"]))
    waiting = [claim for claim in claims if not claim.get("status", {}).get("providerID")]
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    asked = sum(milli(each["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for each in bound)
    total = sum(milli(node["status"]["allocatable"]["cpu"]) for node in nodes)
    share = asked / total
    return {
        "nodes": f"{len(nodes) + len(launched) + len(waiting):,}",
        "pods": f"{len(bound):,}",
        "pending": f"{len(pods) - len(bound):,}",
        "cost": f"${sum(prices):.4f}" if sum(prices) < 10 else f"${sum(prices):.2f}",
        "cpu": f"{share:.1%}" if share < 0.1 else f"{share:.0%}",
    }


def check(page: Page, world: World) -> dict[str, str]:
    """The page shows what the API says, once it has followed."""
    expected = from_the_api(world)
    for name, value in expected.items():
        expect(page.locator(f"[data-figure={name}] .value")).to_have_text(value)
    return expected


def test_the_figures_are_those_of_the_api_through_a_life_of_the_fleet(world: World, tab: BrowserContext) -> None:
    world.node("pool-1", pool="default", claim="default-aaaaa", price="0.0713")
    for number in range(3):
        world.pod(f"web-{number}", "pool-1")
    page = open_page(tab, world)
    check(page, world)
    expect(page.locator("a.n")).to_have_count(3)
    page.evaluate("window.mark = 1")

    for number in range(120):  # a burst
        world.pod(f"burst-{number}", cpu="300m")
    assert check(page, world)["pending"] == "120"
    for number in range(8):
        world.claim(f"default-b{number}", pool="default", price="0.1")
    check(page, world)
    expect(page.locator("a.n.launching")).to_have_count(8)
    expect(page.locator("#now li").first).to_contain_text("launching")
    for number in range(8):
        world.node(f"burst-node-{number}", pool="default", labels={"topology.kubernetes.io/zone": "us-east-1b"})
    for number in range(96):
        world.delete(PODS, f"burst-{number}", "shop")
        world.pod(f"bound-{number}", f"burst-node-{number % 8}", cpu="300m")
    assert check(page, world)["pods"] == "100"

    for number in range(8):  # a scale-down
        world.delete(NODECLAIMS, f"default-b{number}")
    for number in range(4, 8):
        for pod in range(number, 96, 8):
            world.delete(PODS, f"bound-{pod}", "shop")
        world.delete(NODES, f"burst-node-{number}")
    check(page, world)
    expect(page.locator("a.n")).to_have_count(7)

    going = {"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "2099-01-01T00:00:00Z"}}}
    world.do(world.kube.patch(NODECLAIMS, "default-aaaaa", going))  # an interruption: it is drained at once
    finalizers = {"metadata": {"finalizers": ["karpenter.sh/termination"]}}
    world.do(world.kube.patch(NODECLAIMS, "default-aaaaa", finalizers))
    world.delete(NODECLAIMS, "default-aaaaa")
    expect(page.locator("a.n.draining")).to_have_count(1)
    expect(page.locator("#now")).to_contain_text("draining")
    expect(page.locator("#now .until").first).to_have_text(re.compile(r"\d+h \d+m"))
    check(page, world)
    assert page.evaluate("window.mark") == 1  # all of it without loading the page again
    for number in range(96, 120):
        world.delete(PODS, f"burst-{number}", "shop")


def test_what_is_unknown_is_shown_as_unknown(world: World, tab: BrowserContext) -> None:
    world.node("no-price", labels={"karpenter.sh/capacity-type": "spot"})
    world.settle(lambda observer: "node/no-price" in observer.view.nodes)
    page = open_page(tab, world)
    expect(page.locator("[data-figure=cost] .value")).to_have_text(re.compile("^≥ \\$"))
    expect(page.locator("[data-figure=cost] small")).to_have_text("1 without a price")
    for name in ("bound", "spot"):
        assert figure(page, name) == "unknown"
    expect(page.locator("[data-figure=cpu] small")).to_have_text("usage unknown")
    expect(page.locator("[id='node/no-price']")).to_contain_text("price unknown")
    page.goto(f"{world.base}/?form=table&filter=no-price")
    expect(page.locator("#picture tbody td").nth(6)).to_have_text("unknown")
    page.goto(f"{world.base}/node/no-price")
    expect(page.locator(".facts")).to_contain_text("unknown")
    world.delete(NODES, "no-price")


def test_a_lost_cluster_is_said_at_once_and_heals(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    world._loop.call_soon_threadsafe(world.cable.cut.set)
    expect(page.locator("[data-notice=disconnected]")).to_be_visible()
    world.pod("meanwhile")
    world._loop.call_soon_threadsafe(world.cable.cut.clear)
    expect(page.locator("[data-notice=disconnected]")).to_have_count(0)
    expect(page.locator("#pending")).to_contain_text("meanwhile")
    world.delete(PODS, "meanwhile", "shop")


def test_a_restarted_server_is_noticed_and_followed_again(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    world.stop_page()
    expect(page.locator("#lost")).to_be_visible()
    world.pod("after-restart")
    world.start_page()
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#pending")).to_contain_text("after-restart")
    check(page, world)
    world.delete(PODS, "after-restart", "shop")


def test_hostile_and_odd_texts_are_only_text(world: World, tab: BrowserContext) -> None:
    hostile = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
    world.pod(LONG)
    world.pod("wide")
    refusal = Refusal(
        pods=(f"shop/{LONG}",), count=1, code="NO_NODEPOOL", message=f"{hostile} {RIGHT_TO_LEFT} 디버그용"
    )
    world.decide(
        Decision(
            id="d-hostile1",
            kind="refuse",
            time=stamp(world.clock.now() + timedelta(seconds=1)),
            summary=hostile,
            refusals=(refusal,),
        )
    )
    world.create(
        CORE_EVENTS,
        {
            "metadata": {"name": "e1", "namespace": "shop"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": LONG},
            "reason": "Odd",
            "message": hostile,
            "type": "Warning",
        },
    )
    page = open_page(tab, world)
    expect(page.locator("#pending")).to_contain_text("<script>")
    for path in (f"/pod/shop/{LONG}", "/decision/d-hostile1", "/time", "/pending", f"/search?q={hostile}"):
        page.goto(world.base + path)
        expect(page.locator("main")).to_contain_text("<script>")
    assert page.evaluate("window.hit") is None
    page.goto(f"{world.base}/pod/shop/{LONG}")
    expect(page.locator("[data-figure=answer]")).to_contain_text(RIGHT_TO_LEFT)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_pool_that_is_not_ready_says_why(world: World, tab: BrowserContext) -> None:
    world.pool("broken")
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "NodeClassNotFound",
        "message": "there is no EC2NodeClass default",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    world.do(world.kube.patch(NODEPOOLS, "broken", {"status": {"conditions": [condition]}}, subresource="status"))
    world.settle(lambda observer: "broken" in observer.view.pools)
    page = open_page(tab, world, "/nodepool/broken")
    expect(page.locator("main")).to_contain_text("not ready: there is no EC2NodeClass default")
    page.goto(f"{world.base}/health")
    expect(page.locator("main")).to_contain_text("there is no EC2NodeClass default")


def test_an_object_has_its_reason_events_decisions_and_manifest_without_secrets(
    world: World, tab: BrowserContext
) -> None:
    world.pod("with-secret", "base-1", env=[{"name": "PASSWORD", "value": "hunter2"}], args=["--token=hunter3"])
    world.settle(lambda observer: any(pod.name == "with-secret" for pod in observer.view.nodes["node/base-1"].pods))
    page = open_page(tab, world, "/pod/shop/with-secret")
    expect(page.locator("[data-figure=answer]")).to_contain_text("base-1")
    page.locator("summary", has_text="Manifest").click()
    expect(page.locator("pre.manifest")).to_contain_text("kind: Pod")
    shown = page.locator("pre.manifest").inner_text()
    assert "PASSWORD" in shown and "(hidden)" in shown
    assert "hunter2" not in shown and "hunter3" not in shown and "managedFields" not in shown
    page.locator("a", has_text="base-1").first.click()
    expect(page).to_have_url(f"{world.base}/node/base-1")


def test_search_finds_and_links_everything(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    page.keyboard.press("/")
    page.keyboard.type("base-1")
    expect(page.locator("#found a").first).to_have_text("base-1")
    page.locator("#found a").first.click()
    expect(page).to_have_url(f"{world.base}/node/base-1")
    page.goto(f"{world.base}/search?q=no-such-thing")
    expect(page.locator("main")).to_contain_text("Nothing matches.")


def test_the_url_says_what_is_seen(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    page.locator(".choice a", has_text="Zone").click()
    expect(page).to_have_url(re.compile("group=zone"))
    zones = {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in world.do(world.kube.list(NODES)).items
    }
    assert {heading.split()[0] for heading in page.locator(".group h2").all_inner_texts()} == zones
    page.locator(".choice a", has_text="Table").click()
    rows = page.locator("#picture tbody tr")
    expect(rows).to_have_count(len(world.do(world.kube.list(NODES)).items))
    page.locator("#filter").fill("base-1")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("filter=base-1"))


def test_time_draws_the_series_and_marks_decisions(world: World, tab: BrowserContext) -> None:
    world.decide(Decision(id="d-marked1", kind="disrupt", time=stamp(world.clock.now()), summary="s", evictions=2))
    world.settle(lambda observer: any(decision.id == "d-marked1" for decision in observer.decisions.all()))
    page = open_page(tab, world, "/time")
    expect(page.locator("#plots[data-drawn]")).to_have_count(1)
    expect(page.locator(".uplot canvas")).to_have_count(4)
    data = page.evaluate("fetch('/data/time').then((answer) => answer.json())")
    assert data["nodes"][-1] == len(world.do(world.kube.list(NODES)).items)
    assert data["evictions"][-1] == 2
    assert "d-marked1" in {mark["id"] for mark in data["marks"]}
    page.mouse.move(*_middle(page.locator(".u-over").first))
    expect(page.locator("#hover")).to_contain_text("UTC")


def _middle(element: Any) -> tuple[float, float]:
    box = element.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_recent_decisions_come_by_the_stream_in_the_language_of_the_page(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world, "/?lang=ko")
    said = "rolled back, base-1: it is no longer drifted: x"
    world.decide(Decision(id="d-recent1", kind="undo", time=stamp(world.clock.now()), summary=said))
    entry = page.locator("#recent a[href='/decision/d-recent1']")
    expect(entry).to_contain_text("더 이상 드리프트 상태가 아닙니다")
    expect(page.locator("#recent li").first).to_contain_text("되돌림")


def test_the_page_of_an_hpa_follows_it_and_draws_it_beside_its_target(world: World, tab: BrowserContext) -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": [metric]}
    world.create(HPAS, {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
    world.settle(lambda observer: "shop/web" in observer.hpas.store)
    page = open_page(tab, world, "/hpa/shop/web")
    expect(page.locator("[data-figure=answer]")).to_contain_text("has not been reconciled")
    measured = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 93}}}]
    status = {"currentReplicas": 4, "desiredReplicas": 6, "currentMetrics": measured}
    world.do(world.kube.patch(HPAS, "web", {"status": status}, "shop", subresource="status"))
    expect(page.locator("main")).to_contain_text("cpu 93% / 70%")  # without loading the page again
    expect(page.locator(".uplot canvas")).to_have_count(2)
    data = page.evaluate("fetch('/data/hpa/shop/web').then((answer) => answer.json())")
    assert (data["replicas"][-1], data["desired"][-1], data["used0"][-1], data["target0"][-1]) == (4, 6, 93, 70)
    page.goto(f"{world.base}/workload/shop/Deployment/web")  # it has no pods, and is no unknown object
    expect(page.locator("main")).to_contain_text("There are no pods.")
    world.delete(HPAS, "web", "shop")


def test_budgets_are_a_calendar_with_words(world: World, tab: BrowserContext) -> None:
    world.pool("quiet", budgets=[{"nodes": "0"}])
    world.settle(lambda observer: "quiet" in observer.view.pools)
    page = open_page(tab, world, "/budgets")
    card = page.locator("section.card", has=page.locator("h2", has_text="quiet"))
    expect(card.locator("tbody tr").first).to_contain_text("0 nodes")


def test_the_page_speaks_korean(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world, "/?lang=ko")
    assert page.locator("html").get_attribute("lang") == "ko"
    expect(page.locator("nav")).to_contain_text("플릿")
    page.goto(f"{world.base}/health")  # the choice is kept
    expect(page.locator("h1")).to_have_text("상태 점검")
    world.pod("korean-update")
    page.goto(world.base)
    world.pod("korean-update-2")
    expect(page.locator("#pending")).to_contain_text("korean-update-2")
    expect(page.locator("#pending h2")).to_contain_text("대기")  # so is it in what comes by the stream


def test_every_page_is_accessible_in_both_themes(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    paths = ("/", "/?form=table", "/pending", "/cost", "/time", "/autoscalers", "/budgets", "/health", "/node/base-1")
    for theme, looked_at in (("light", paths), ("dark", paths)):
        tab.add_cookies([{"name": "dovetail-theme", "value": theme, "url": world.base}])
        for path in looked_at:
            page.goto(world.base + path)
            assert page.locator("html").get_attribute("data-theme") == theme
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            assert found["passes"]
            serious = [
                (each["id"], each["nodes"][0]["html"][:200], each["nodes"][0]["failureSummary"])
                for each in found["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            assert serious == [], f"{path} {theme}"


def test_everything_is_reached_by_keyboard(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    first = page.locator("a.n").first
    first.focus()
    expect(page.locator("#tip")).to_be_visible()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == page.locator("a.n").nth(1).get_attribute("id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/(node|nodeclaim)/"))


def test_a_small_screen_needs_no_sideways_scrolling(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    page.set_viewport_size({"width": 375, "height": 700})
    for path in (
        "/",
        "/?form=table",
        "/pending",
        "/cost",
        "/time",
        "/autoscalers",
        "/budgets",
        "/health",
        "/node/base-1",
    ):
        page.goto(world.base + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path


def test_the_page_asks_its_own_server_alone(world: World, tab: BrowserContext) -> None:
    page = tab.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{world.base}/time?token={TOKEN}")
    expect(page.locator("#plots[data-drawn]")).to_have_count(1)
    assert len(asked) >= 6
    assert [url for url in asked if not url.startswith(world.base)] == []
    assert TOKEN not in page.url


def test_pointing_at_a_sample_of_the_legend_is_no_error(world: World, tab: BrowserContext) -> None:
    page = open_page(tab, world)
    page.locator("#legend .n").first.hover()
    page.locator("a.n").first.hover()
    expect(page.locator("#tip")).to_contain_text("CPU")
