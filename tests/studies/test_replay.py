"""Replays: a recorded lab run comes out as it was, changes change it, and the same seed gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from dovetail import __version__
from dovetail.cli.main import main
from dovetail.controllers.history.decisions import CreatedNodeClaim, Decision
from dovetail.lab.durations import Seconds
from dovetail.lab.scenario.schema import ScenarioError, ScenarioStep, Vanish
from dovetail.offline.recording import OfferingKey, Recording, Writer, key_of, read
from dovetail.offline.timeline import Timeline, timeline
from dovetail.studies.recorded import report
from dovetail.studies.recorded.replay import Replay, ReplayOptions, first_difference, pairs, replay
from dovetail.studies.recorded.workload import build
from dovetail.studies.setups import NodeAutoscaler
from tests.studies.recorded import record
from tests.studies.small_study import SCENARIO

FAMILIES = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"]}


def scenario(folder: Path) -> Path:
    """Twelve pods, thirty, six; a rolling update, a lost instance, and a Job, on families that the NodePool names."""
    document: dict[str, Any] = yaml.safe_load(SCENARIO)
    pool = document["manifests"][0]
    pool["spec"]["template"]["spec"]["requirements"].append(FAMILIES)
    container = {"name": "main", "image": "batch", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly"},
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "template": {
                "metadata": {"annotations": {"lab.dovetail.dev/run-seconds": "120"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
    body = {"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}}
    document["steps"] += [
        {"at": "5m", "apply": job},
        {"at": "11m", "patch": {"kind": "Deployment", "name": "web", "body": body}},
        {"at": "14m", "vanish": {"instances": 1}},
    ]
    path = folder / "story.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("recorded")
    outcome = record(scenario(folder), folder / "story.dvrec")
    assert outcome.problems == []
    return read(folder / "story.dvrec")


Play = Callable[[ReplayOptions], Replay]


@pytest.fixture
def play(recording: Recording, tmp_path: Path) -> Play:
    return lambda question: replay(recording, question, tmp_path / "replay.dvrec")


def apart(before: Timeline, after: Timeline, *, minutes_late: int) -> list[str]:
    """The minutes at which nodes, price or waiting differ by more than 5 % from every recorded minute near by."""
    found = []
    assert len(before.samples) == len(after.samples) > 15
    for number, ours in enumerate(after.samples):
        near = before.samples[max(0, number - minutes_late) : number + minutes_late + 1]
        for field in ("nodes", "rate", "waited"):
            mine = getattr(ours, field)
            if not any(
                abs(mine - getattr(theirs, field)) <= 0.05 * max(getattr(theirs, field), 1.0) for theirs in near
            ):
                found.append(f"{ours.at:g} s {field}: {[getattr(theirs, field) for theirs in near]} became {mine}")
    return found


def test_a_lab_run_replayed_on_its_own_nodes_is_as_it_was_at_every_minute(recording: Recording, play: Play) -> None:
    """Node count, price and pending time within 5 % at every minute."""
    outcome = play(ReplayOptions())
    assert outcome.recorded.launched >= 10 and outcome.recorded.pods > 40
    assert apart(outcome.recorded, outcome.replayed, minutes_late=0) == []
    assert outcome.first_difference is None and outcome.problems == ()
    assert outcome.replayed.evictions == outcome.recorded.evictions > 0


def test_a_lab_run_replayed_with_its_own_autoscaler_is_as_it_was(recording: Recording, play: Play) -> None:
    """The instances boot at other seconds: a minute earlier or later counts as the same."""
    outcome = play(
        ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL, steps=(ScenarioStep(at=Seconds(840), vanish=Vanish()),))
    )
    assert apart(outcome.recorded, outcome.replayed, minutes_late=1) == []
    assert outcome.replayed.dollars == pytest.approx(outcome.recorded.dollars, rel=0.05)
    assert outcome.replayed.pending_p50 == pytest.approx(outcome.recorded.pending_p50, rel=0.15)
    matched = [pair for pair in outcome.pairs if pair.recorded is not None and pair.replayed is not None]
    assert len(matched) >= 0.9 * len(outcome.pairs) > 10


def test_an_anonymised_recording_is_played_as_the_other(recording: Recording, tmp_path: Path) -> None:
    """Hashed names change nothing that decides: the same nodes for the same pods at the same price."""
    target = tmp_path / "hidden.dvrec"
    record(scenario(tmp_path), target, anonymise=True)
    question = ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL)
    hidden = replay(read(target), question, tmp_path / "replayed hidden.dvrec")
    plain = replay(recording, question, tmp_path / "replayed.dvrec")
    assert hidden.recorded.dollars == plain.recorded.dollars > 0
    assert hidden.replayed.dollars == pytest.approx(plain.replayed.dollars, rel=0.01)
    assert plain.replayed.launched > 5
    assert hidden.replayed.launched == pytest.approx(plain.replayed.launched, rel=0.1)
    assert hidden.replayed.never_bound == plain.replayed.never_bound == 0


def test_another_nodepool_launches_other_instances(recording: Recording, play: Play) -> None:
    pool = {**yaml.safe_load(SCENARIO)["manifests"][0], "metadata": {"name": "arm"}}
    graviton = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    pool["spec"]["template"]["spec"]["requirements"].append(graviton)
    outcome = play(ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL, pools=(pool,)))
    launched = {decision.instance_type for decision in outcome.replayed.decisions if decision.action == "launch"}
    assert launched and all("g" in name.split(".")[0] for name in launched)
    assert {decision.pool for decision in outcome.replayed.decisions} == {"arm"}
    assert outcome.first_difference is not None
    assert outcome.replayed.dollars < outcome.recorded.dollars


def test_a_lost_instance_is_replaced(recording: Recording, play: Play) -> None:
    steps = (ScenarioStep(at=Seconds(240), vanish=Vanish(instances=3)),)
    outcome = play(ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL, steps=steps))
    soon = [decision.action for decision in outcome.replayed.decisions if 240 <= decision.at < 480]
    assert (soon.count("remove"), soon.count("launch")) == (3, 3), outcome.replayed.decisions
    assert outcome.replayed.samples[-1].pending == 0


def test_cluster_autoscaler_runs_on_node_groups_of_the_same_offer(recording: Recording, play: Play) -> None:
    outcome = play(ReplayOptions(autoscaler=NodeAutoscaler.CLUSTER_AUTOSCALER))
    assert outcome.replayed.launched > 0 and outcome.replayed.samples[-1].pending == 0
    assert outcome.replayed.dollars > outcome.recorded.dollars


def test_jobs_run_as_long_as_they_did(recording: Recording) -> None:
    job = next(step.apply for step in build(recording).workload.scenario.steps if _kind(step) == "Job")
    assert isinstance(job, dict)
    ran = job["spec"]["template"]["metadata"]["annotations"]["lab.dovetail.dev/run-seconds"]
    assert 118 <= float(ran.removesuffix("s")) <= 122


def test_a_change_of_size_is_a_scale_and_a_change_of_template_is_applied(recording: Recording) -> None:
    steps = build(recording).workload.scenario.steps
    assert [step.scale.replicas for step in steps if step.scale is not None] == [30, 6]
    applied = [step for step in steps if _kind(step) == "Deployment"]
    assert len(applied) == 2  # it came, and its template changed
    assert not [step for step in steps if _kind(step) in ("Pod", "ReplicaSet")]


def _pod(name: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    spec = {"nodeName": "node", "containers": [{"name": "main", "image": "pause"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def test_a_pod_that_was_evicted_is_evicted_in_the_replay(tmp_path: Path) -> None:
    """By the eviction API, and by a kubelet under pressure, which leaves the pod; a deleted one is deleted."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with Writer.create(tmp_path / "evicted.dvrec", start, "evictions", b"evicted in a rec") as writer:
        for name in ("drained", "pressed", "deleted"):
            writer.put(start, _pod(name, phase="Running"))
        writer.begin()
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        drained = _pod("drained", phase="Running", conditions=[target])
        writer.put(start + timedelta(seconds=60), drained)
        drained["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:30Z"
        writer.put(start + timedelta(seconds=61), drained)
        writer.delete(start + timedelta(seconds=90), key_of(drained), drained)
        writer.put(start + timedelta(seconds=120), _pod("pressed", phase="Failed", reason="Evicted"))
        writer.delete(start + timedelta(seconds=180), key_of(_pod("deleted")), _pod("deleted", phase="Running"))
        writer.close(start + timedelta(seconds=300))
    recording = read(tmp_path / "evicted.dvrec")
    made = build(recording, one_by_one=True)
    steps = [
        (step.at - made.lead_s, act, target.name)
        for step in made.workload.scenario.steps
        for act, target in (("evict", step.evict), ("delete", step.delete))
        if target is not None
    ]
    assert steps == [(61.0, "evict", "drained"), (120.0, "evict", "pressed"), (180.0, "delete", "deleted")]


def test_pods_of_daemonsets_wait_for_no_node_in_the_replay_either(tmp_path: Path) -> None:
    """They come with their node: as pods of their own they would be half of all waits, with zero seconds each."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    with Writer.create(tmp_path / "daemons.dvrec", start, "daemons", b"daemons in a rec") as writer:
        writer.put(start, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other", "uid": "uid-other"}})
        writer.begin()
        web = _pod("web", phase="Pending")
        del web["spec"]["nodeName"]
        writer.put(start + timedelta(seconds=10), web)
        writer.put(start + timedelta(seconds=40), _node("node"))
        agent = _pod("agent-1", phase="Running")
        agent["metadata"]["ownerReferences"] = [owner]
        writer.put(start + timedelta(seconds=41), agent)
        writer.put(start + timedelta(seconds=41), _pod("web", phase="Running"))
        writer.close(start + timedelta(seconds=120))
    outcome = replay(read(tmp_path / "daemons.dvrec"), ReplayOptions(interval_s=60.0), tmp_path / "replay.dvrec")
    assert outcome.replayed.samples[-1].pods == outcome.recorded.samples[-1].pods == 2
    assert outcome.replayed.pods == outcome.recorded.pods == 1
    assert outcome.recorded.pending_p50 == 31.0
    assert outcome.replayed.pending_p50 == pytest.approx(31.0, abs=5.0)


def _node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "58"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"providerID": f"aws:///us-west-2a/i-{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:40Z"}],
        },
    }


def _kind(step: ScenarioStep) -> str:
    return str(step.apply["kind"]) if isinstance(step.apply, dict) else ""


def test_a_recording_without_a_nodepool_needs_one(tmp_path: Path) -> None:
    from tests.offline.recording.small import write

    with pytest.raises(ScenarioError, match="name one with --nodepool"):
        replay(
            read(write(tmp_path / "small.dvrec")),
            ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL),
            tmp_path / "out.dvrec",
        )


def test_the_same_seed_gives_the_same_bytes_on_any_hash_seed(recording: Recording) -> None:
    program = (
        "import hashlib, sys; from pathlib import Path; from tempfile import TemporaryDirectory\n"
        "from dovetail.offline.recording import read\n"
        "from dovetail.studies.recorded.replay import ReplayOptions, replay\n"
        "from dovetail.studies.setups import NodeAutoscaler\n"
        "import logging, structlog\n"
        "structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))\n"
        "with TemporaryDirectory() as folder:\n"
        "    target = Path(folder) / 'replay.dvrec'\n"
        "    found = replay(read(sys.argv[1]), ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL, seed=5), target)\n"
        "    print(hashlib.sha256(found.to_json() + target.read_bytes()).hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(recording.path)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1 and len(digests.pop()) == len(hashlib.sha256().hexdigest())


def test_the_report_has_both_sides_and_the_first_difference(recording: Recording, play: Play) -> None:
    outcome = play(ReplayOptions(autoscaler=NodeAutoscaler.KARPENTER))
    lines = list(report.text(outcome))
    assert lines[0].startswith("story.dvrec: 20m00s, replayed with karpenter")
    cost = next(line for line in lines if line.startswith("cost"))
    assert cost.count("$") == 2
    assert any(line.startswith("first difference at 00:") for line in lines)
    assert any(line.startswith("decisions: ") for line in lines)
    picture = report.chart(outcome)
    assert picture.count("<path") == 7 and "lower bound" in picture


def _program(path: Path, body: str) -> Path:
    """An installation of Dovetail as a program."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_another_version_plays_the_same_and_is_set_beside(recording: Recording, tmp_path: Path) -> None:
    """Another version that launches one node more than this one, as its program says."""
    command = [str(recording.path), "--autoscaler", "dovetail"]
    this = f"exec {sys.executable} -c 'from dovetail.cli.main import main; main()' \"$@\""
    same = _program(tmp_path / "same", this)
    shown = CliRunner().invoke(main, ["replay", *command, "--other-version", str(same)])
    assert shown.exit_code == 0, shown.output
    assert f"dovetail {__version__}: within 5 % of this version at every sample" in shown.output
    assert re.search(r": 0 of [0-9]+ decisions differ", shown.output)
    assert next(line for line in shown.output.splitlines() if line.startswith("cost")).count("$") == 3

    document = json.loads(CliRunner().invoke(main, ["replay", *command, "-o", "json"]).stdout)
    decision = document["replayed"]["decisions"][0]
    document["replayed"]["decisions"].append({**decision, "at": 600.0, "instance_type": "m5.metal"})
    for sample in document["replayed"]["samples"][10:]:
        sample["nodes"] += 5
    (tmp_path / "other.json").write_text(json.dumps(document), encoding="utf-8")
    other = _program(tmp_path / "other", f'[ "$1" = version ] && echo dovetail 9.9 || cat {tmp_path / "other.json"}')
    found = json.loads(
        CliRunner().invoke(main, ["replay", *command, "--other-version", str(other), "-o", "json"]).stdout
    )["other_version"]
    assert found["version"] == "dovetail 9.9"
    assert found["first_difference"][0] == 600.0 and "nodes: this version" in found["first_difference"][1]
    assert [pair["other"]["instance_type"] for pair in found["pairs"] if pair["this"] is None] == ["m5.metal"]


def test_what_is_no_other_version_is_refused(recording: Recording, tmp_path: Path) -> None:
    command = ["replay", str(recording.path), "--autoscaler", "dovetail", "--other-version"]
    for body in ("exit 3", '[ "$1" = version ] && echo dovetail 1 || { echo broken >&2; exit 2; }'):
        refused = CliRunner().invoke(main, [*command, str(_program(tmp_path / "program", body))])
        assert refused.exit_code and "--other-version" in refused.output and "Traceback" not in refused.output
    absent = CliRunner().invoke(main, [*command, str(tmp_path / "absent")])
    assert absent.exit_code and "absent" in absent.output


def test_the_decisions_of_a_dry_run_are_set_beside_the_recorded_ones(recording: Recording, tmp_path: Path) -> None:
    launch = next(decision for decision in timeline(recording, recording.start, 60.0).decisions)
    claim = CreatedNodeClaim(
        claim="dry",
        pool=launch.pool,
        instance_type=launch.instance_type,
        zone=launch.zone,
        capacity_type=launch.capacity_type,
        price=0.1,
        pods=3,
    )
    when = (recording.start + timedelta(seconds=launch.at)).isoformat()
    decisions = [
        Decision(id="d-1", kind="provision", time=when, summary="", node_claims=(claim,)),
        Decision(id="d-2", kind="disrupt", time=when, summary="", removed=(launch.name,), reason="Underutilized"),
        Decision(id="d-3", kind="provision", time="2020-01-01T00:00:00Z", summary="", node_claims=(claim,)),
    ]
    history = tmp_path / "shadow.jsonl"
    history.write_bytes(b"\n".join(map(msgspec.json.encode, decisions)))
    shown = CliRunner().invoke(main, ["replay", str(recording.path), "--shadow", str(history), "-o", "json"])
    paired = json.loads(shown.stdout)["dry_run"]["pairs"]
    both = [pair for pair in paired if pair["recorded"] and pair["replayed"]]
    assert [pair["replayed"]["name"] for pair in both if pair["recorded"]["action"] == "launch"] == ["dry"]
    removal = next(pair["replayed"] for pair in paired if pair["replayed"] and pair["replayed"]["action"] == "remove")
    assert (removal["instance_type"], removal["reason"]) == (launch.instance_type, "Underutilized")
    history.write_bytes(msgspec.json.encode(decisions[-1]))
    refused = CliRunner().invoke(main, ["replay", str(recording.path), "--shadow", str(history)])
    assert refused.exit_code and "no decision in it was made from" in refused.output


def test_decisions_are_paired_by_action_type_and_time(recording: Recording) -> None:
    decisions = timeline(recording, recording.start, 60.0).decisions
    same = list(pairs(decisions, decisions))
    assert same and all(pair.recorded == pair.replayed for pair in same)
    alone = list(pairs(decisions, ()))
    assert [pair.replayed for pair in alone] == [None] * len(decisions)
    assert [pair.recorded for pair in pairs((), decisions)] == [None] * len(decisions)


def test_nothing_differs_from_itself(recording: Recording) -> None:
    before = timeline(recording, recording.start, 60.0)
    assert first_difference(before, before) is None


def test_the_command_names_what_is_wrong(tmp_path: Path, recording: Recording) -> None:
    def said(*arguments: str) -> str:
        outcome = CliRunner().invoke(main, ["replay", *arguments])
        assert outcome.exit_code == 2
        return outcome.output

    other = tmp_path / "other"
    other.write_text("kind: Pod\n", encoding="utf-8")
    assert "not a recording" in said(str(other))
    assert "no fault 'quake'" in said(str(recording.path), "--fault", "3m:quake")
    assert "as 30m:spot-interruption:2" in said(str(recording.path), "--fault", "quake")
    late = said(str(recording.path), "--fault", "30m:spot-interruption:2")
    assert "the recording ends after 20m00s; name an earlier time" in late
    assert "name an --autoscaler" in said(str(recording.path), "--nodepool", str(other))
    assert "Pod is no NodePool" in said(str(recording.path), "--autoscaler", "dovetail", "--nodepool", str(other))


def test_a_recording_is_a_workload_of_compare(recording: Recording, tmp_path: Path) -> None:
    """The same pods on every set-up, and a key that depends on the file's content."""
    arguments = ["compare", "--recording", str(recording.path), "--setup", "dovetail", "--cache", str(tmp_path)]
    outcome = CliRunner().invoke(main, [*arguments, "-o", "json"])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.output)
    assert found["command"].startswith(f"dovetail compare --recording {recording.path}")
    figures = found["setups"][0]["figures"]
    before = timeline(recording, recording.start, 60.0)
    assert figures["pods"]["median"] == pytest.approx(before.pods, abs=5)
    assert figures["dollars"]["median"] == pytest.approx(before.dollars, rel=0.1)
    kept = list(tmp_path.glob("*.json"))
    assert len(kept) == 1
    both = CliRunner().invoke(main, ["compare", "web", "--recording", str(recording.path)])
    assert both.exit_code == 2 and "leave one of them out" in both.output


def _with_prices(recording: Recording, target: Path, changes: dict[float, float]) -> Recording:
    """The recording with prices of every c5: so many dollars from so many seconds on."""
    types = [f"c5.{size}" for size in ("large", "xlarge", "2xlarge")]
    with Writer.create(target, recording.start, "with prices", b"with prices test") as writer:
        for body in recording.objects_at(recording.start):
            writer.put(recording.start, body)
        writer.begin()
        left = sorted(changes.items())
        for event in recording.events(recording.start, recording.end):
            while left and (event.time - recording.start).total_seconds() >= left[0][0]:
                at, dollars = left.pop(0)
                for name in types:
                    key = OfferingKey("ap-northeast-2", name, "", "on-demand")
                    writer.price(recording.start + timedelta(seconds=at), key, dollars, "test")
            if event.type == "DELETED":
                writer.delete(event.time, key_of(event.object), event.object)
            else:
                writer.put(event.time, event.object)
        writer.close(recording.end)
    return read(target)


def test_prices_that_change_in_a_recording_change_what_is_launched(recording: Recording, tmp_path: Path) -> None:
    """c5 is cheap until the pods of the third minute come, and dear from then on."""
    repriced = _with_prices(recording, tmp_path / "prices.dvrec", {1.0: 0.001, 100.0: 5.0})
    outcome = replay(repriced, ReplayOptions(autoscaler=NodeAutoscaler.DOVETAIL), tmp_path / "replay.dvrec")
    launched = [decision for decision in outcome.replayed.decisions if decision.action == "launch"]
    early = {decision.instance_type.split(".")[0] for decision in launched if decision.at < 100.0}
    late = {decision.instance_type.split(".")[0] for decision in launched if decision.at >= 100.0}
    assert early == {"c5"}
    assert late == {"m5"}
    assert outcome.replayed.lower_bound is not None
    assert outcome.replayed.dollars >= outcome.replayed.lower_bound
