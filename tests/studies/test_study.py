"""Studies: runs are kept by content, found again, and distinguished when anything about them changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.studies import study
from dovetail.studies.setups import NodeAutoscaler, Setup
from dovetail.studies.sources import Source, source
from dovetail.studies.study import Progress, RunCache, Task
from tests.studies import small_study
from tests.studies.test_report import run

DOVETAIL = Setup(NodeAutoscaler.DOVETAIL)


def test_a_kept_run_is_not_run_again(tmp_path: Path) -> None:
    """The kept figures are impossible ones: a new run could not have them."""
    task = Task(source(str(small_study.write(tmp_path))), DOVETAIL, 1)
    cache = RunCache(tmp_path / "kept")
    kept = run(DOVETAIL, dollars=123456.0)
    cache.put(task.key(), kept)
    seen: list[Progress] = []
    assert study.execute([task], 1, cache, seen.append) == [kept]
    assert seen == [Progress(1, 1, None)]


def test_a_damaged_file_counts_as_absent(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    (tmp_path / "a.json").write_text('{"workload": "web", "se')
    assert cache.get("a") is None
    assert cache.get("b") is None


def test_a_run_is_known_by_all_its_inputs(tmp_path: Path) -> None:
    path = small_study.write(tmp_path)
    first = Task(Source(str(path)), DOVETAIL, 1).key()
    assert Task(Source(str(path)), DOVETAIL, 1).key() == first
    others = {
        Task(Source(str(path)), DOVETAIL, 2).key(),
        Task(Source(str(path)), Setup(NodeAutoscaler.KARPENTER), 1).key(),
    }
    path.write_text(small_study.SCENARIO.replace("replicas: 30", "replicas: 31"), encoding="utf-8")
    others.add(Task(Source(str(path)), DOVETAIL, 1).key())
    assert len(others | {first}) == 4


def test_a_study_runs_on_several_processes_and_is_kept(tmp_path: Path) -> None:
    path, folder = small_study.write(tmp_path), tmp_path / "kept"
    short = small_study.SCENARIO.replace("duration: 20m", "duration: 4m")
    path.write_text(short, encoding="utf-8")
    wanted = study.tasks(Source(str(path)), [DOVETAIL, Setup(NodeAutoscaler.KARPENTER)], [1])
    seen: list[Progress] = []
    runs = study.execute(wanted, 2, RunCache(folder), seen.append)
    assert [each.setup for each in runs] == [task.setup for task in wanted]
    assert [each.done for each in seen] == [0, 1, 2]
    assert len(list(folder.iterdir())) == 2
    assert study.execute(wanted, 1, RunCache(folder)) == runs
    assert msgspec.json.encode(study.play(wanted[0])) == msgspec.json.encode(runs[0])


def test_a_job_on_kubernetes_has_a_part_for_every_run_and_its_runs_are_collected(tmp_path: Path) -> None:
    """The arguments of the Job's pods are run as kubelets would, with their index; the comparison finds all runs."""
    path = small_study.write(tmp_path)
    path.write_text(small_study.SCENARIO.replace("duration: 20m", "duration: 2m"), encoding="utf-8")
    asked = ["compare", str(path), "--setup", "dovetail", "--seeds", "2"]
    printed = CliRunner().invoke(main, [*asked, "--on", "kubernetes", "--image", "example.com/dovetail:1"])
    assert printed.exit_code == 0, printed.output
    claim, config, job = yaml.safe_load_all(printed.output)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == 2
    (container,) = job["spec"]["template"]["spec"]["containers"]
    mounted, results = tmp_path / "workload", tmp_path / "results"
    mounted.mkdir()
    (mounted / "small.yaml").write_text(config["data"]["small.yaml"], encoding="utf-8")
    for index in range(job["spec"]["completions"]):
        arguments = [text.replace("$(JOB_COMPLETION_INDEX)", str(index)) for text in container["args"]]
        arguments = [text.replace("/workload", str(mounted)).replace("/results", str(results)) for text in arguments]
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code, done.output) == (0, "")
    assert len(list(results.iterdir())) == 2
    keys = {f"{task.key()}.json" for task in study.tasks(Source(str(path)), [DOVETAIL], [1, 2])}
    assert {each.name for each in results.iterdir()} == keys


def test_a_job_needs_an_image_and_a_part_a_number() -> None:
    assert "--image" in CliRunner().invoke(main, ["compare", "web", "--on", "kubernetes"]).output
    assert "0/4" in CliRunner().invoke(main, ["compare", "web", "--part", "4/4"]).output
    assert CliRunner().invoke(main, ["compare", "web", "--part", "0/2", "--no-cache"]).exit_code == 2


def test_an_unknown_workload_names_those_that_exist() -> None:
    outcome = CliRunner().invoke(main, ["compare", "bacth"])
    assert outcome.exit_code == 2
    assert "did you mean `batch`?" in outcome.output


def test_a_set_up_that_the_workload_cannot_have_is_refused(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["compare", str(small_study.write(tmp_path)), "--setup", "dovetail+hpa"])
    assert outcome.exit_code == 2
    assert "dovetail+hpa" in outcome.output


def test_the_list_shows_every_built_in_workload() -> None:
    outcome = CliRunner().invoke(main, ["compare", "--list"])
    assert outcome.exit_code == 0
    assert len(outcome.output.splitlines()) == 8
