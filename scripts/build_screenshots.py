"""Pictures of the page and of the terminal for the docs, from a real lab: `make screenshots`.

A lab is started, two NodePools and some workloads are created, and once the nodes are there the pages are drawn in
both languages and both themes into docs/images, and the screen of `dovetail view` as SVG beside them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from dovetail.chance import Chance
from dovetail.cli.cluster_session import server_time
from dovetail.cli.terminal import quiet_logs
from dovetail.cli.view import source_of
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.language import in_language
from dovetail.tui.app import ViewApp
from dovetail.view.observer import Observer

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
NAME = "screenshots"
SIZE = {"width": 1440, "height": 860}
STARTING_ATTEMPTS, SETTLING_S = 60, 120.0
#: file, path of the page, language, theme
PICTURES = (
    ("dashboard.png", "/", "en", "light"),
    ("dashboard-dark.png", "/", "en", "dark"),
    ("dashboard-ko.png", "/", "ko", "light"),
    ("dashboard-cost.png", "/cost", "en", "light"),
    ("dashboard-time.png", "/time", "en", "light"),
    ("dashboard-why.png", "/pod/batch/{unschedulable}", "en", "light"),
    ("dashboard-why-ko.png", "/pod/batch/{unschedulable}", "ko", "dark"),
)

#: Fonts that a picture would load from elsewhere: the reader's own will do.
_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}")
#: file, keys that are pressed, columns and lines, language
SCREENS: tuple[tuple[str, tuple[str, ...], tuple[int, int], str], ...] = (
    ("view.svg", ("s", "s"), (140, 26), "en"),
    ("view-why.svg", ("3", "enter"), (100, 26), "en"),
)

POOLS = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec:
  template:
    spec:
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [%s]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
        - {key: karpenter.k8s.aws/instance-generation, operator: In, values: ["5", "6"]}
        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["2", "4", "8"]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      %s
  limits: {cpu: 400}
---
"""
NODE_CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: KarpenterNodeRole-dovetail
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
---
"""
TAINT = "taints: [{key: batch, effect: NoSchedule}]"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      tolerations: {tolerations}
      nodeSelector: {selector}
      containers:
        - name: main
          image: nginx
          resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}
---
"""
SPOT = "{karpenter.sh/nodepool: spot}"
WORKLOADS = (
    ("web", "shop", 14, "700m", "1Gi", "{}"),
    ("cart", "shop", 6, "400m", "2Gi", "{}"),
    ("search", "search", 8, "900m", "3Gi", "{}"),
    ("api", "payments", 5, "1", "1500Mi", "{}"),
    ("crunch", "batch", 12, "1500m", "2Gi", SPOT),
    ("report", "batch", 6, "600m", "4Gi", SPOT),
    ("enormous", "batch", 1, "300", "1Gi", SPOT),
)


def dovetail(*arguments: str, given: str | None = None, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "dovetail.cli", *arguments]
    done = subprocess.run(command, input=given, text=True, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout


def populate(environment: dict[str, str]) -> None:
    namespaces = sorted({namespace for _, namespace, *_ in WORKLOADS})
    text = "".join(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n" for name in namespaces)
    text += NODE_CLASS + POOLS % ("general", "on-demand", "") + POOLS % ("spot", "spot", TAINT)
    for name, namespace, replicas, cpu, memory, selector in WORKLOADS:
        tolerations = "[{key: batch, operator: Exists}]" if selector == SPOT else "[]"
        text += WORKLOAD.format(
            name=name,
            namespace=namespace,
            replicas=replicas,
            cpu=cpu,
            memory=memory,
            selector=selector,
            tolerations=tolerations,
        )
    dovetail("kubectl", "apply", "-f", "-", given=text, environment=environment)


def draw(page: Page, base: str) -> None:
    expect(page.locator("[data-figure=pending] .value")).to_have_text("1", timeout=SETTLING_S * 1000)
    expect(page.locator("a.n.joining, a.n.launching")).to_have_count(0, timeout=SETTLING_S * 1000)
    expect(page.locator("[data-figure=cpu] small")).not_to_contain_text("unknown", timeout=SETTLING_S * 1000)
    expect(page.locator("[data-figure=bound] small")).to_contain_text("gap", timeout=SETTLING_S * 1000)
    page.goto(f"{base}/pending")
    unschedulable = page.locator("tbody a").first.inner_text().partition("/")[2]
    IMAGES.mkdir(parents=True, exist_ok=True)
    for file, path, language, theme in PICTURES:
        page.context.add_cookies([{"name": "dovetail-theme", "value": theme, "url": base}])
        page.goto(f"{base}{path.format(unschedulable=unschedulable)}?lang={language}")
        if path == "/time":
            page.wait_for_selector("#plots[data-drawn]")
        page.screenshot(path=IMAGES / file)
        print(f"docs/images/{file}")


async def draw_screen(config: Path, file: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    """The screen of `dovetail view` after some keys, as the terminal would have it."""
    connection = load(str(config), None)
    transport = connection.transport()
    clock = Clock(asyncio.get_running_loop(), await server_time(transport))
    observer = Observer(Kube(transport, clock, chance=Chance(1)), clock)
    watching = asyncio.create_task(observer.run())
    try:
        await observer.ready.wait()
        await observer.settle(SETTLING_S)
        app = ViewApp(source_of(observer), "dovetail view")
        async with app.run_test(size=size) as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            picture = _FONT_FACE.sub("", app.export_screenshot(title="dovetail view"))
            (IMAGES / file).write_text(picture, encoding="utf-8")
        print(f"docs/images/{file}")
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await transport.close()


def draw_screens(config: Path) -> None:
    quiet_logs()
    for file, keys, size, language in SCREENS:
        with in_language(language):
            asyncio.run(draw_screen(config, file, keys, size))


def main() -> None:
    program = os.environ.get("DOVETAIL_CHROMIUM") or shutil.which("chromium")
    if not program:
        raise SystemExit("no browser: apt-get install chromium, or set DOVETAIL_CHROMIUM")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        config = Path(folder) / "kubeconfig"
        environment = {**os.environ, "XDG_STATE_HOME": folder, "KUBECONFIG": str(config)}
        command = ["up", "--name", NAME, "--boot", "6", "--seed", "7", "--kubeconfig", str(config)]
        lab = subprocess.Popen(
            [sys.executable, "-u", "-m", "dovetail.cli", *command], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert lab.stdout is not None
        try:
            url = next(line.split()[1] for line in lab.stdout if line.startswith("dashboard"))
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE, locale="en-US", device_scale_factor=1)
            page.goto(url)
            for attempt in reversed(range(STARTING_ATTEMPTS)):  # until the lab's installation has the definitions
                try:
                    populate(environment)
                    break
                except RuntimeError:
                    if not attempt:
                        raise
                    page.wait_for_timeout(1000)
            draw(page, url.partition("?")[0].rstrip("/"))
            browser.close()
            with ThreadPoolExecutor(1) as beside:  # Playwright's own loop runs in this thread
                beside.submit(draw_screens, config).result()
        finally:
            lab.terminate()
            lab.wait()


if __name__ == "__main__":
    main()
