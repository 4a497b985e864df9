"""No setting is accepted and ignored: it works, is refused, or is named at start."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail.clock import EPOCH, Clock, run_scaled, run_virtual
from dovetail.controllers import logs
from dovetail.controllers.inert_settings import INERT_GATES, WITHOUT_EFFECT
from dovetail.controllers.log_output import LogOutput, LogPathError, paths
from dovetail.controllers.memory_limit import is_near, keep_below
from dovetail.controllers.profiling import serving_profiles
from dovetail.controllers.settings import Settings, SettingsError, read
from dovetail.controllers.start_lines import announce

#: The variables that Karpenter's chart sets in its Deployment without any value of a user's.
CHART = {
    "KUBERNETES_MIN_VERSION": "1.19.0-0",
    "KARPENTER_SERVICE": "karpenter",
    "LOG_LEVEL": "info",
    "LOG_OUTPUT_PATHS": "stdout",
    "LOG_ERROR_OUTPUT_PATHS": "stderr",
    "METRICS_PORT": "8080",
    "HEALTH_PROBE_PORT": "8081",
    "SYSTEM_NAMESPACE": "karpenter",
    "MEMORY_LIMIT": "1073741824",
    "FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false",
    "AWS_FEATURE_GATES": "NodeClassCEL=false",
    "BATCH_MAX_DURATION": "10s",
    "BATCH_IDLE_DURATION": "1s",
    "PREFERENCE_POLICY": "Respect",
    "MIN_VALUES_POLICY": "Strict",
    "CLUSTER_NAME": "c",
    "VM_MEMORY_OVERHEAD_PERCENT": "0.075",
    "RESERVED_ENIS": "0",
    "IGNORE_DRA_REQUESTS": "true",
    "ENABLE_ZONAL_SHIFT": "false",
    "DISABLE_CLUSTER_STATE_OBSERVABILITY": "false",
}


def _lines(settings: Settings, environment: dict[str, str]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        announce(logs.logger(clock, lambda line: lines.append(json.loads(line))), settings, environment)

    run_virtual(main())
    return lines


def test_a_zonal_shift_that_cannot_be_followed_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"--enable-zonal-shift: true cannot be honoured: .*NodePools"):
        read({}, {"ENABLE_ZONAL_SHIFT": "true"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CPU_REQUESTS", "4000"),
        ("IGNORE_DRA_REQUESTS", "false"),
        ("DISABLE_WEBHOOK", "false"),
        ("WEBHOOK_PORT", "9443"),
        ("WEBHOOK_METRICS_PORT", "9001"),
        ("AWS_FEATURE_GATES", "NodeClassCEL=true"),
        ("KARPENTER_SERVICE", "karpenter"),
        ("DISABLE_CONTROLLER_WARMUP", "false"),
    ],
)
def test_a_value_without_effect_is_named_in_one_line_at_start(name: str, value: str) -> None:
    named = [line for line in _lines(read({}, {name: value}), {}) if line["message"] == "setting has no effect here"]
    assert [(line["level"], line["setting"], line["value"]) for line in named] == [("WARN", name.lower(), value)]
    assert named[0]["reason"] == WITHOUT_EFFECT[name.lower()]


def test_a_gate_that_nothing_reads_is_named() -> None:
    lines = _lines(read({}, {"FEATURE_GATES": "CapacityBuffer=true,NodeRepair=true"}), {})
    named = [(line["setting"], line["reason"]) for line in lines if line["message"] == "setting has no effect here"]
    assert named == [("feature_gates CapacityBuffer", INERT_GATES["CapacityBuffer"])]


def test_defaults_name_nothing() -> None:
    assert [line["message"] for line in _lines(read({}, {}), {})] == ["starting dovetail"]


def test_the_chart_of_karpenter_as_it_is_starts_and_names_what_has_no_effect() -> None:
    named = {line["setting"] for line in _lines(read({}, CHART), CHART) if "setting" in line}
    assert named == {"karpenter_service", "kubernetes_min_version"}


def test_the_settings_in_force_are_logged_and_long_values_cut() -> None:
    settings = read({"batch_max_duration": "20s", "cluster_ca_bundle": "A" * 2000}, {})
    start = _lines(settings, {})[0]
    assert start["settings"]["batch-max-duration"] == 20.0
    assert start["settings"]["place"] == "bind"
    assert start["settings"]["cluster-ca-bundle"] == "A" * 200 + "... (2000 characters)"


def test_a_replaced_aws_endpoint_is_named() -> None:
    lines = _lines(read({}, {}), {"AWS_ENDPOINT_URL": "http://10.0.0.1:4566"})
    assert [line["endpoint"] for line in lines if "endpoint" in line] == ["http://10.0.0.1:4566"]


@pytest.mark.parametrize(("level", "written"), [("warn", ["WARN", "ERROR"]), ("error", ["ERROR"])])
def test_log_levels_have_karpenters_names(level: str, written: list[str]) -> None:
    assert read({}, {"LOG_LEVEL": level}).log_level == level
    lines: list[str] = []

    async def main() -> None:
        log = logs.logger(Clock(asyncio.get_running_loop(), EPOCH), lines.append, level)
        log.info("a")
        log.warning("b")
        log.error("c")

    run_virtual(main())
    assert [json.loads(line)["level"] for line in lines] == written


def test_log_lines_go_to_every_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = LogOutput(paths(f"stdout, {tmp_path / 'a.log'},stderr,stdout"))
    output.write("line")
    output.close()
    assert (tmp_path / "a.log").read_text() == "line\n"
    assert capsys.readouterr() == ("line\n", "line\n")


def test_a_path_that_cannot_be_opened_is_refused_and_one_that_fills_up_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LogPathError, match=r"--log-output-paths: .*none/a\.log"):
        LogOutput([str(tmp_path / "none" / "a.log")])

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    errors = tmp_path / "errors.log"
    output = LogOutput(["stdout"], [str(errors)])
    monkeypatch.setattr(sys, "stdout", Full())
    output.write("line")
    output.close()
    assert errors.read_text() == "log line not written to stdout: No space left on device: line\n"


def test_console_encoding_is_tab_separated() -> None:
    lines: list[str] = []

    async def main() -> None:
        logs.logger(Clock(asyncio.get_running_loop(), EPOCH), lines.append, "info", "console").info("hello", node="n")

    run_virtual(main())
    moment, level, name, message, rest = lines[0].split("\t")
    assert (level, name, message) == ("INFO", "controller", "hello") and moment.endswith("Z")
    assert json.loads(rest)["node"] == "n"


def test_memory_near_its_limit_is_released() -> None:
    assert [is_near(size, 100) for size in (89, 90)] == [False, True]
    assert not is_near(10**12, -1)
    lines: list[dict[str, Any]] = []
    resident = [95]

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        log = logs.logger(clock, lambda line: lines.append(json.loads(line)))
        collected = asyncio.create_task(keep_below(100, log, lambda: resident[0], lambda: resident.__setitem__(0, 40)))
        await asyncio.sleep(120)
        collected.cancel()

    run_virtual(main())
    assert [(line["before"], line["after"]) for line in lines] == [(95, 40)]


def test_profiles_are_served_on_the_loopback_address() -> None:
    async def main() -> None:
        port = 17060
        async with serving_profiles(port), aiohttp.ClientSession() as session:

            async def ask(path: str) -> str:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    assert answer.status == 200
                    return await answer.text()

            waiting = asyncio.create_task(asyncio.sleep(60), name="a task that waits")
            try:
                await asyncio.sleep(0)
                assert "a task that waits" in await ask("/debug/tasks")
                assert "tracing begins now" in await ask("/debug/memory")
                kept = [bytearray(1000) for _ in range(100)]
                assert "traced" in await ask("/debug/memory") and kept
                async with session.post(f"http://127.0.0.1:{port}/debug/memory/stop") as answer:
                    assert answer.status == 200
            finally:
                waiting.cancel()

    run_scaled(main())
