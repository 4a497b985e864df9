"""`dovetail fault` at a lab that runs: what it asks for is done, and what it answers is printed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.chance import Chance
from dovetail.cli.main import main
from dovetail.clock import Clock, run_scaled
from dovetail.lab.apiserver_only import ApiServerOnly, write_private
from dovetail.lab.cluster import Lab
from dovetail.lab.in_process import InProcess
from dovetail.lab.server import LabServer
from dovetail.runfile import RunningLab, register


def _say(*words: str) -> str:
    answer = CliRunner().invoke(main, ["fault", *words])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer.output.strip()


def _at_a_lab(folder: Path, talk: Callable[[], None]) -> None:
    """Talk while a lab can be found; from another thread, as another process would."""

    async def run() -> None:
        clock, config = Clock(asyncio.get_running_loop()), folder / "kubeconfig.yaml"
        bare = ApiServerOnly(clock, Chance(1), 0, "secret", make=LabServer)
        url = await bare.start()
        try:
            write_private(config, bare.kubeconfig())
            register(RunningLab(os.getpid(), url, str(config), ""))
            assert isinstance(bare.server, LabServer)
            transport = InProcess(bare.server, {"authorization": "Bearer secret"})
            async with Lab(transport, clock, Chance(1), server=bare.server):
                await asyncio.to_thread(talk)
        finally:
            await bare.stop()

    run_scaled(run())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_fault_is_struck_reported_and_mended(home: Path) -> None:
    def talk() -> None:
        assert _say() == "nothing is broken"
        assert _say("watch-twice", "--for", "5m") == "the API server tells every event twice for 300 s"
        assert _say("api-throttled", "--for", "0", "--amount", "0.1").endswith(
            "10% of requests away as too many for good"
        )
        assert _say().startswith("api-throttled, for good\nwatch-twice, ")
        assert _say("mend") == "mended: api-throttled, watch-twice"
        assert _say("api-slwo") == "Error: no fault 'api-slwo'; did you mean api-slow?"
        assert _say("kubelet-silent") == "Error: no instance runs here"

    _at_a_lab(home, talk)


def test_what_makes_no_sense_is_said_without_a_lab() -> None:
    assert _say("api-down", "--for", "soon") == "Error: 'soon' is not a duration; write 90s, 5m, 2h30m or 1d"
    assert _say("api-slow", "--node", "1") == "Error: api-slow strikes the whole API server; leave the node out"
    assert _say("api-slow") == "Error: no lab runs; dovetail up --detach starts one"
