"""Alert rules, dashboards and the runbook: every query names a metric that exists, every alert has its section."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
FILES = ROOT / "charts" / "dovetail" / "files"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
#: Words of the query language that are no metrics.
WORDS = frozenset(
    {"by", "without", "sum", "max", "min", "avg", "count", "rate", "increase", "absent", "histogram_quantile"}
    | {"or", "and", "unless", "on", "ignoring"}
)

RunScenario = Callable[..., None]


def metrics_of(query: str) -> set[str]:
    """The metrics that a query names."""
    bare = re.sub(r'"[^"]*"', "", query)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)", " ", bare)
    return {word for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare) if word not in WORDS}


def queries() -> list[tuple[str, str]]:
    found = [(rule["alert"], rule["expr"]) for rule in ALERTS]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            found += [(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return found


def test_metrics_of_a_query() -> None:
    query = 'max by (pod) (rate(a_total{code=~"5..|b"}[5m])) > 0 or histogram_quantile(0.9, sum by (le, x) (c_bucket))'
    assert metrics_of(query) == {"a_total", "c_bucket"}


def test_every_query_names_a_metric_that_exists(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await asyncio.sleep(1)
        text = world.autoscaler.metrics.text().decode()
        there = set()
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
            there |= {f"{name}{suffix}" for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
        asked = queries()
        assert len(asked) > 50
        missing = {place: sorted(metrics_of(query) - there) for place, query in asked if metrics_of(query) - there}
        assert missing == {}
        assert [place for place, query in asked if not metrics_of(query)] == []

    run_scenario(scenario)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_severity_a_summary_and_a_section_of_the_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    section = runbook.partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
    assert "**You see**" in section and "**Do**" in section


def test_dashboards_are_as_their_source_has_them() -> None:
    before = {path.name: path.read_text() for path in DASHBOARDS}
    assert len(before) == 4
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import json, build_dashboards as b;"
        " print(json.dumps({f'{n}.json': b.rendered(n) for n in b.DASHBOARDS}))"
    )
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(made.stdout) == before


def test_queries_are_well_formed(tmp_path: Path) -> None:
    """By promtool where it is installed; brackets are paired in any case."""
    asked = queries()
    for place, query in asked:
        assert all(query.count(a) == query.count(b) for a, b in ("()", "{}", "[]")), place
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    rules = [
        {"record": f"query:number:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, (_, query) in enumerate(asked)
    ]
    recorded = tmp_path / "rules.yaml"
    recorded.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    for file in (FILES / "alerts.yaml", recorded):
        answer = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)
        assert answer.returncode == 0, answer.stdout + answer.stderr
