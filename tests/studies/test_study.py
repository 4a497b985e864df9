"""Studies: runs are kept by content, found again, and distinguished when anything about them changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.studies import study
from dovetail.studies.setups import NodeAutoscaler, Setup
from dovetail.studies.sources import WorkloadSource, source
from dovetail.studies.study import FolderCache, StudyProgress, Task
from tests.studies import small_study
from tests.studies.test_report import run

DOVETAIL = Setup(NodeAutoscaler.DOVETAIL)


def test_a_kept_run_is_not_run_again(tmp_path: Path) -> None:
    """The kept figures are impossible ones: a new run could not have them."""
    task = Task(source(str(small_study.write(tmp_path))), DOVETAIL, 1)
    cache = FolderCache(tmp_path / "kept")
    kept = run(DOVETAIL, dollars=123456.0)
    cache.put(task.key(), kept)
    seen: list[StudyProgress] = []
    assert study.execute([task], 1, cache, seen.append) == [kept]
    assert seen == [StudyProgress(1, 1, None)]


def test_a_damaged_file_counts_as_absent(tmp_path: Path) -> None:
    cache = FolderCache(tmp_path)
    (tmp_path / "a.json").write_text('{"workload": "web", "se')
    assert cache.get("a") is None
    assert cache.get("b") is None


def test_a_run_is_known_by_all_its_inputs(tmp_path: Path) -> None:
    path = small_study.write(tmp_path)
    first = Task(WorkloadSource(str(path)), DOVETAIL, 1).key()
    assert Task(WorkloadSource(str(path)), DOVETAIL, 1).key() == first
    others = {
        Task(WorkloadSource(str(path)), DOVETAIL, 2).key(),
        Task(WorkloadSource(str(path)), Setup(NodeAutoscaler.KARPENTER), 1).key(),
    }
    path.write_text(small_study.SCENARIO.replace("replicas: 30", "replicas: 31"), encoding="utf-8")
    others.add(Task(WorkloadSource(str(path)), DOVETAIL, 1).key())
    assert len(others | {first}) == 4


def test_a_study_runs_on_several_processes_and_is_kept(tmp_path: Path) -> None:
    path, folder = small_study.write(tmp_path), tmp_path / "kept"
    short = small_study.SCENARIO.replace("duration: 20m", "duration: 4m")
    path.write_text(short, encoding="utf-8")
    wanted = study.tasks(WorkloadSource(str(path)), [DOVETAIL, Setup(NodeAutoscaler.KARPENTER)], [1])
    seen: list[StudyProgress] = []
    runs = study.execute(wanted, 2, FolderCache(folder), seen.append)
    assert [each.setup for each in runs] == [task.setup for task in wanted]
    assert [each.done for each in seen] == [0, 1, 2]
    assert len(list(folder.iterdir())) == 2
    assert study.execute(wanted, 1, FolderCache(folder)) == runs
    assert msgspec.json.encode(study.play(wanted[0])) == msgspec.json.encode(runs[0])


def test_a_part_needs_a_number_and_a_cache() -> None:
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
