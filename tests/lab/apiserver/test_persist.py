"""The cluster on disk: nothing acknowledged is lost, nothing broken is believed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_scaled
from dovetail.lab.apiserver import persist
from dovetail.lab.apiserver.persist import DataError, Journal
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import Store
from dovetail.lab.server import LabServer
from dovetail.model.kinds import crds
from tests.lab.apiserver.asking import CONFIGMAPS, Asker, configmap


def _open(folder: Path, make: type[ApiServer] = ApiServer) -> tuple[Asker, Journal]:
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    store = Store(clock)
    journal = Journal(folder, store)
    journal.open()
    server = make(clock, Chance(1), store=store)
    server.settled = journal.settled
    return Asker(server), journal


def _run(scenario: Any) -> None:
    run_scaled(scenario)


def test_a_restart_finds_everything_and_goes_on_counting(tmp_path: Path) -> None:
    async def main() -> None:
        api, journal = _open(tmp_path)
        for index in range(5):
            await api.ok("POST", CONFIGMAPS, configmap(f"c{index}"))
        await api.ok("DELETE", f"{CONFIGMAPS}/c0")
        before = await api.ok("GET", CONFIGMAPS)
        journal.close()
        api, journal = _open(tmp_path)
        after = await api.ok("GET", CONFIGMAPS)
        assert after == before
        made = await api.ok("POST", CONFIGMAPS, configmap("later"))
        assert int(made["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
        journal.close()

    _run(main())


def test_a_restart_serves_the_kinds_that_were_defined_before_it(tmp_path: Path) -> None:
    """Otherwise a lab that kept its data would know no NodePool, and buy and give back nothing."""
    pools = "/apis/karpenter.sh/v1beta1/nodepools"
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {
        "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": ref, "requirements": []}}},
    }  # fmt: skip

    async def main() -> None:
        api, journal = _open(tmp_path, LabServer)
        for definition in crds.definitions():
            await api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        before = await api.ok("POST", pools, pool)
        journal.close()
        api, journal = _open(tmp_path, LabServer)
        assert await api.ok("GET", f"{pools}/default") == before
        assert (await api.ok("GET", "/apis/karpenter.sh/v1/nodepools/default"))["apiVersion"] == "karpenter.sh/v1"
        journal.close()

    _run(main())


def test_a_log_cut_in_the_middle_is_good_up_to_there(tmp_path: Path) -> None:
    async def main() -> None:
        api, journal = _open(tmp_path)
        await api.ok("POST", CONFIGMAPS, configmap("kept"))
        size = (tmp_path / "log").stat().st_size
        await api.ok("POST", CONFIGMAPS, configmap("cut"))
        journal.close()
        data = (tmp_path / "log").read_bytes()
        (tmp_path / "log").write_bytes(data[: size + 20])
        api, journal = _open(tmp_path)
        assert (await api("GET", f"{CONFIGMAPS}/kept"))[0] == 200
        assert (await api("GET", f"{CONFIGMAPS}/cut"))[0] == 404
        await api.ok("POST", CONFIGMAPS, configmap("again"))
        journal.close()
        api, journal = _open(tmp_path)
        assert (await api("GET", f"{CONFIGMAPS}/again"))[0] == 200
        journal.close()

    _run(main())


def test_a_long_log_becomes_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persist, "ROTATE_BYTES", 2_000)

    async def main() -> None:
        api, journal = _open(tmp_path)
        for index in range(40):
            await api.ok("POST", CONFIGMAPS, configmap(f"c{index}"))
        before = await api.ok("GET", CONFIGMAPS)
        journal.close()
        assert (tmp_path / "snapshot").exists()
        api, journal = _open(tmp_path)
        assert await api.ok("GET", CONFIGMAPS) == before
        journal.close()

    _run(main())


def test_a_folder_belongs_to_one_lab(tmp_path: Path) -> None:
    async def main() -> None:
        _, journal = _open(tmp_path)
        with pytest.raises(DataError, match="in use by another lab"):
            _open(tmp_path)
        journal.close()

    _run(main())


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="choose another --data folder"):
            _open(tmp_path / "file")

    _run(main())
