"""Studies as Indexed Jobs: the lab runs the Job's pods, and the command collects their runs from their logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dovetail.chance import Chance
from dovetail.cli.main import main
from dovetail.clock import run_scaled, run_virtual
from dovetail.errors import UserError
from dovetail.kube.client import Kube
from dovetail.kube.resources import CONFIGMAPS, JOBS
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.in_process import InProcess
from dovetail.studies import study
from dovetail.studies.indexed_job import JobSettings, manifests
from dovetail.studies.job_collection import collect, log_line
from dovetail.studies.run import Run
from dovetail.studies.setups import NodeAutoscaler, Setup
from dovetail.studies.sources import WorkloadSource
from dovetail.studies.study import ObjectStoreCache, Task
from tests.studies import small_study
from tests.studies.test_report import run

DOVETAIL = Setup(NodeAutoscaler.DOVETAIL)
IMAGE = "registry.example.com/dovetail/controller:0.1.0"
#: Simulated seconds per second: pods of the lab start in a moment, and their processes run in real time.
SPEED = 5.0
Json = dict[str, Any]


def _short_scenario(folder: Path) -> Path:
    path = small_study.write(folder)
    path.write_text(small_study.SCENARIO.replace("duration: 20m", "duration: 2m"), encoding="utf-8")
    return path


def _job(path: Path, seeds: list[int], image: str = IMAGE) -> tuple[list[Task], list[Json]]:
    wanted = study.tasks(WorkloadSource(str(path)), [DOVETAIL], seeds)
    options = ["--setup", "dovetail", "--seeds", str(len(seeds))]
    return wanted, manifests(WorkloadSource(str(path)), options, [task.key() for task in wanted], JobSettings(image))


async def _in_lab(body: Callable[[Kube], Awaitable[None]]) -> None:
    """Run the body on two nodes; its Problem is raised once the lab is closed, which would put it into a group."""
    problem: UserError | None = None
    async with Lab.embedded(1, LabParts(programs=True)) as lab:
        assert lab.server is not None
        seed_defaults(lab.server, lab.clock.now())
        await lab.nodes(2, "m5.2xlarge")
        try:
            await body(Kube(InProcess(lab.server), lab.clock, chance=Chance(1)))
        except UserError as raised:
            problem = raised
    if problem is not None:
        raise problem


@pytest.mark.timeout(300)
def test_the_pods_of_a_job_make_the_runs_that_the_command_would_make(tmp_path: Path) -> None:
    """A scenario file goes along; the collected runs equal one that is made here; the Job is gone afterwards."""
    wanted, objects = _job(_short_scenario(tmp_path), [1, 2])
    kept: dict[str, Run] = {}

    async def body(kube: Kube) -> None:
        await collect(kube, objects, [task.key() for task in wanted], kept.__setitem__)
        assert (await kube.list(JOBS, "default")).items == []
        assert objects[0]["metadata"]["name"] not in {
            item["metadata"]["name"] for item in (await kube.list(CONFIGMAPS, "default")).items
        }

    run_scaled(_in_lab(body), SPEED)
    assert set(kept) == {task.key() for task in wanted}
    assert kept[wanted[0].key()] == study.play(wanted[0])


@pytest.mark.timeout(300)
def test_a_part_that_fails_after_every_retry_is_named_with_its_log(tmp_path: Path) -> None:
    wanted, objects = _job(_short_scenario(tmp_path), [1])
    container = objects[-1]["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["compare", "bacth", *container["args"][2:]]
    objects[-1]["spec"]["backoffLimitPerIndex"] = 0

    async def body(kube: Kube) -> None:
        await collect(kube, objects, [task.key() for task in wanted], lambda key, run: None)

    with pytest.raises(UserError) as failure:
        run_scaled(_in_lab(body), SPEED)
    assert "parts 0 failed" in str(failure.value)
    assert "did you mean `batch`?" in str(failure.value)


class _Logs:
    """A transport that answers every log with this text."""

    def __init__(self, inner: Transport, text: str) -> None:
        self._inner, self._text = inner, text

    async def send(self, request: Request) -> Response:
        if request.path.endswith("/log"):
            return Response(status=200, headers={}, body=self._text.encode())
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


def _collected_from(objects: list[Json], wanted: list[Task], text: str) -> dict[str, Run]:
    """What is kept of pods that ended well and logged this."""
    kept: dict[str, Run] = {}
    container = objects[-1]["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": "busybox", "command": ["true"]}

    async def body(kube: Kube) -> None:
        logged = Kube(_Logs(kube.transport, text), kube.clock, chance=Chance(2))
        await collect(logged, objects, [task.key() for task in wanted], kept.__setitem__)

    run_virtual(_in_lab(body))
    return kept


def test_an_image_with_other_code_is_refused(tmp_path: Path) -> None:
    """Its runs have keys that the command does not know."""
    wanted, objects = _job(_short_scenario(tmp_path), [1])
    with pytest.raises(UserError, match="other code than this command"):
        _collected_from(objects, wanted, log_line("f" * 64, run(DOVETAIL, dollars=1.0)))


def test_lines_that_are_no_runs_are_left_out(tmp_path: Path) -> None:
    wanted, objects = _job(_short_scenario(tmp_path), [1])
    outcome = run(DOVETAIL, dollars=1.0)
    text = f'a warning\n{{"level":"INFO"}}\n{log_line(wanted[0].key(), outcome)}\n'
    assert _collected_from(objects, wanted, text) == {wanted[0].key(): outcome}


def test_an_image_that_cannot_be_pulled_is_an_error(tmp_path: Path) -> None:
    wanted, objects = _job(_short_scenario(tmp_path), [1], image="busybox::1")

    async def body(kube: Kube) -> None:
        await collect(kube, objects, [task.key() for task in wanted], lambda key, run: None)

    with pytest.raises(UserError, match=r"ImagePullBackOff.*busybox::1.*delete the Job"):
        run_virtual(_in_lab(body))


def test_a_dry_run_prints_a_job_that_is_the_same_for_the_same_study(tmp_path: Path) -> None:
    asked = ["compare", str(_short_scenario(tmp_path)), "--on", "kubernetes", "--image", IMAGE, "--dry-run"]
    first, again = CliRunner().invoke(main, asked), CliRunner().invoke(main, asked)
    assert first.exit_code == 0, first.output
    assert first.output == again.output
    config, job = yaml.safe_load_all(first.output)
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == 3
    assert "small.yaml" in config["data"]
    other = list(yaml.safe_load_all(CliRunner().invoke(main, [*asked, "--seeds", "2"]).output))
    assert other[-1]["metadata"]["name"] != job["metadata"]["name"]


def test_runs_are_kept_in_a_claim_or_a_bucket_as_well(tmp_path: Path) -> None:
    asked = ["compare", "web", "--setup", "dovetail", "--on", "kubernetes", "--image", IMAGE, "--dry-run"]
    (job,) = yaml.safe_load_all(CliRunner().invoke(main, [*asked, "--results", "shared"]).output)
    pod = job["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "results", "persistentVolumeClaim": {"claimName": "shared"}}]
    (job,) = yaml.safe_load_all(
        CliRunner().invoke(main, [*asked, "--results", "s3://runs/a", "--service-account", "study"]).output
    )
    pod = job["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert arguments[arguments.index("--cache") + 1] == "s3://runs/a"
    assert pod["serviceAccountName"] == "study"


def test_a_bucket_keeps_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto")
    for name, value in (("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto.mock_aws():
        with pytest.raises(UserError, match="NoSuchBucket"):
            ObjectStoreCache("s3://runs/a").get("k")
        client = boto3.client("s3")
        client.create_bucket(Bucket="runs")
        cache, outcome = ObjectStoreCache("s3://runs/a"), run(DOVETAIL, dollars=7.0)
        assert cache.get("k") is None
        cache.put("k", outcome)
        assert ObjectStoreCache("s3://runs/a/").get("k") == outcome
        client.put_object(Bucket="runs", Key="a/k.json", Body=b'{"workload": "web", "se')
        assert cache.get("k") is None
    with pytest.raises(UserError, match="s3://BUCKET"):
        ObjectStoreCache("s3:///a")


@pytest.mark.parametrize("option", ["--image=a", "--results=b", "--dry-run", "--namespace=c", "--service-account=d"])
def test_an_option_of_the_job_needs_a_job(option: str) -> None:
    outcome = CliRunner().invoke(main, ["compare", "web", option])
    assert outcome.exit_code == 2
    assert "needs --on kubernetes" in outcome.output


def test_a_job_needs_an_image_and_a_cache() -> None:
    asked = ["compare", "web", "--on", "kubernetes"]
    assert "--image" in CliRunner().invoke(main, asked).output
    assert CliRunner().invoke(main, [*asked, "--image", IMAGE, "--no-cache"]).exit_code == 2
