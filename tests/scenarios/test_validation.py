"""What a scenario names is looked up before it is played: file, field, value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.lab.scenario.schema import ScenarioError, Vanish, convert, read
from dovetail.lab.scenario.validation import check

FOLDER = Path(__file__).parents[2] / "scenarios"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster: {pools: [{count: 2, type: m5.huge}]}", "cluster.pools[0].type: no instance type 'm5.huge'; did you"),
        ("steps: [{at: 1m, join: {count: 1, type: x}}]", "steps[0].join.type: no instance type 'x'"),
        ("manifests: [none.yaml]", "manifests[0]: .*none.yaml: No such file"),
        ("manifests: [bad.yaml]", "manifests[0]: .*bad.yaml: not YAML: line 1, column 4: "),
        ("steps: [{at: 1m, apply: none.yaml}]", "steps[0].apply: .*none.yaml: No such file"),
        ("autoscaler: {region: mars}", "autoscaler.region: region 'mars' is not in the packaged catalogue"),
        ("autoscaler: {families: [m5, q9]}", "autoscaler.families: 'q9' is not there"),
        ("autoscaler: {reserved: {q9.large: 1}}", "autoscaler.reserved: 'q9.large' is not there"),
        ("autoscaler: {gates: [Nope]}", "autoscaler.gates: 'Nope' is not there; NodeRepair, "),
        (
            "nodeGroups: {groups: [], flags: [--scan-intervall=5s]}",
            "nodeGroups.flags: .*; did you mean --scan-interval",
        ),
        ("nodeGroups: {groups: [], flags: ['--nodes=1:2:a']}", "nodeGroups.flags: --nodes has no effect in a scenario"),
        ("nodeGroups: {groups: [], flags: [--salvo-scale-up]}", "nodeGroups.flags: --salvo-scale-up has no effect"),
        ("autoscaler: {market: {boot: 3}}", "autoscaler.market: boot: Expected `array`, got `int`; there are boot, "),
        (
            "autoscaler: {}\nsteps: [{at: 1m, market: {bot: 3}}]",
            "steps[0].market: a market: Object contains unknown field `bot`",
        ),
    ],
)
def test_what_is_not_there_is_reported_with_its_field(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "day.yaml"
    file.write_text(f"duration: 10m\n{text}")
    (tmp_path / "bad.yaml").write_text("a: ]")
    with pytest.raises(ScenarioError, match=r"day\.yaml: " + message.replace("[", r"\[")):
        check(read(file), tmp_path, str(file))


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_scenarios_of_this_repository_name_only_what_is_there(file: Path) -> None:
    check(read(file), FOLDER, str(file))


def test_former_keys_stay_accepted_and_clash_with_their_successors() -> None:
    steps = [{"at": 1, "vanish": {"machines": 3}}]
    former = convert({"duration": 60, "autoscaler": {}, "expect": {"boughtAtMost": 2}, "steps": steps})
    assert (former.expect.launched_at_most, former.steps[0].vanish) == (2, Vanish(instances=3))
    fault = (
        convert({"duration": 60, "steps": [{"at": 1, "fault": {"kind": "machine-gone", "node": "a"}}]}).steps[0].fault
    )
    assert fault is not None and fault.kind == "instance-gone"
    with pytest.raises(ScenarioError, match="expect: `boughtAtMost` is the former name of `launchedAtMost`; remove it"):
        convert({"duration": 60, "expect": {"boughtAtMost": 2, "launchedAtMost": 2}})


def test_a_simulation_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """The client of webhooks, the catalogue of EC2 and the programs of pods are a third of the start."""
    path = tmp_path / "empty.yaml"
    path.write_text("name: empty\nduration: 1s\ncluster: {pools: [{count: 1, type: m5.large}]}\n", encoding="utf-8")
    code = (
        "import sys; from dovetail.cli.main import main; "
        f"main(['simulate', {str(path)!r}], standalone_mode=False); "
        "print([name for name in ('aiohttp', 'boto3', 'dovetail.cloud.aws.catalog', 'dovetail.controllers.manager', "
        "'dovetail.lab.programs.execution') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
