"""The cluster on disk: nothing acknowledged is lost, nothing broken is believed."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_scaled
from dovetail.lab.apiserver import journal as journal_module
from dovetail.lab.apiserver import journal_file
from dovetail.lab.apiserver.journal import DataError, Journal
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import ObjectStore
from dovetail.lab.server import LabServer
from dovetail.model.kinds import crds
from tests.lab.apiserver.requests import CONFIGMAPS, Api, configmap


def _open(folder: Path, make: type[ApiServer] = ApiServer, recover: bool = False) -> tuple[Api, Journal]:
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    store = ObjectStore(clock)
    journal = Journal(folder, store, recover)
    journal.open()
    server = make(clock, Chance(1), store=store)
    server.settled = journal.settled
    return Api(server), journal


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
    """Otherwise a lab that kept its data would know no NodePool, and launch and terminate nothing."""
    pools = "/apis/karpenter.sh/v1beta1/nodepools"
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": ref, "requirements": []}}},
    }

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
    monkeypatch.setattr(journal_module, "ROTATE_BYTES", 2_000)

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


def _log_of(folder: Path, count: int) -> tuple[bytes, list[str]]:
    """The bytes of a log with so many ConfigMaps, and their names."""
    names = [f"c{index}" for index in range(count)]

    async def main() -> None:
        api, journal = _open(folder)
        for name in names:
            await api.ok("POST", CONFIGMAPS, configmap(name, {"k": name * 20}))
        journal.close()

    _run(main())
    return (folder / "log").read_bytes(), names


def _names(folder: Path, recover: bool = False) -> set[str]:
    found: set[str] = set()

    async def main() -> None:
        api, journal = _open(folder, recover=recover)
        found.update(item["metadata"]["name"] for item in (await api.ok("GET", CONFIGMAPS))["items"])
        journal.close()

    _run(main())
    return found


def _middle(data: bytes) -> int:
    """A byte inside the object of some record in the middle."""
    return data.index(b"c5c5c5")


DAMAGES = {
    "flipped bit": lambda data: _flipped(data, _middle(data)),
    "flipped bit in a length": lambda data: _flipped(data, _head_behind(data, _middle(data)) + 2),
    "zeroed page": lambda data: data[: _middle(data)] + bytes(600) + data[_middle(data) + 600 :],
    "flipped bit in the last record": lambda data: _flipped(data, len(data) - 30),
    "flipped bit in the beginning": lambda data: _flipped(data, 3),
    "zeros alone": lambda data: bytes(len(data)),
    "wrong length of the last record": lambda data: _flipped(data, _last_head(data) + 2),
}


def _flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 4]) + data[index + 1 :]


def _head_behind(data: bytes, index: int) -> int:
    """Where the first record behind an index begins."""
    return data.index(b"\x94", index) - 8


def _last_head(data: bytes) -> int:
    return data.rindex(b"\x94\xab/configmaps") - 8


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    """Cut off at the damage, the sound records behind it were lost without a word."""
    data, _ = _log_of(tmp_path, 10)
    damaged = DAMAGES[damage](data)
    assert damaged != data and len(damaged) == len(data)
    (tmp_path / "log").write_bytes(damaged)
    with pytest.raises(DataError, match=r"log: damaged at byte \d+: .*\n.*nothing in .* was changed.*--recover"):
        _names(tmp_path)
    assert (tmp_path / "log").read_bytes() == damaged


@pytest.mark.parametrize("damage", ["flipped bit", "flipped bit in a length", "zeroed page"])
def test_recovery_keeps_the_sound_records_and_the_damaged_file(tmp_path: Path, damage: str) -> None:
    data, names = _log_of(tmp_path, 10)
    damaged = DAMAGES[damage](data)
    (tmp_path / "log").write_bytes(damaged)
    found = _names(tmp_path, recover=True)
    assert {"c0", "c1", "c8", "c9"} <= found < set(names) | {"kube-root-ca.crt"}
    (kept,) = tmp_path.glob("log.damaged-*")
    assert kept.read_bytes() == damaged
    assert _names(tmp_path) == found


@pytest.mark.parametrize("tail", [b"", b"\x40", b"\x40\0\0\0abcd\x94\xab/conf"])
@pytest.mark.parametrize("zeros", [0, 5000])
def test_a_torn_tail_is_put_aside(tmp_path: Path, tail: bytes, zeros: int) -> None:
    """A kill leaves the beginning of a record, a power cut zeros behind it: neither was acknowledged."""
    data, names = _log_of(tmp_path, 3)
    (tmp_path / "log").write_bytes(data + tail + bytes(zeros))
    assert _names(tmp_path) >= set(names)
    assert (tmp_path / "log").read_bytes() == data
    kept = [path.read_bytes() for path in tmp_path.glob("log.torn-*")]
    assert kept == ([tail + bytes(zeros)] if tail else [])


def test_a_cut_off_snapshot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was whole when it got its name, so an end that is missing was acknowledged."""
    monkeypatch.setattr(journal_module, "ROTATE_BYTES", 2_000)
    _log_of(tmp_path, 40)
    whole = (tmp_path / "snapshot").read_bytes()
    ends = [len(whole) - 20, _last_head(whole)]
    for end in ends:
        (tmp_path / "snapshot").write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"snapshot: damaged at byte \d+"):
            _names(tmp_path)
        assert (tmp_path / "snapshot").read_bytes() == whole[:end]


@pytest.mark.parametrize("name", ["log", "snapshot", "snapshot.new"])
@pytest.mark.parametrize("text", [b"diary\n" * 300, b"x", b"\x94" * 1000])
def test_a_file_of_another_program_is_left_alone(tmp_path: Path, name: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(DataError, match=f"{name} was not written by a lab"):
        _names(tmp_path)
    assert (tmp_path / name).read_bytes() == text


def test_a_log_that_is_a_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(DataError, match=r"cannot use .*log: Is a directory"):
        _names(tmp_path)


def test_a_log_from_before_files_had_a_beginning_is_read(tmp_path: Path) -> None:
    data, names = _log_of(tmp_path, 3)
    (tmp_path / "log").write_bytes(data.removeprefix(journal_file.MAGIC))
    assert _names(tmp_path) >= set(names)


@contextmanager
def _full_disk(folder: Path, store_module: int) -> Iterator[None]:
    """No file grows beyond what the log is now and some room: a write takes what fits, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "log").stat().st_size + store_module, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Half a record stayed in the log, and what was acknowledged behind it was cut off at the next start."""

    async def main() -> None:
        api, journal = _open(tmp_path)
        api.server.health.storage = journal.health
        await api.ok("POST", CONFIGMAPS, configmap("before"))
        with _full_disk(tmp_path, 20):
            code, answer = await api("POST", CONFIGMAPS, configmap("refused"))
            assert (code, answer["reason"]) == (500, "InternalError")
            assert "disk full" in answer["message"] and str(tmp_path) in answer["message"]
            assert (await api("GET", f"{CONFIGMAPS}/refused"))[0] == 404
            assert (await api("DELETE", f"{CONFIGMAPS}/before"))[0] == 500
            assert (await api("GET", f"{CONFIGMAPS}/before"))[0] == 200
            ready = await api.raw("GET", "/readyz")
            assert ready.status == 500 and b"disk full" in ready.body
            assert (await api.raw("GET", "/livez")).status == 200
        size = (tmp_path / "log").stat().st_size
        assert (await api.raw("GET", "/readyz")).status == 200
        assert (tmp_path / "log").stat().st_size == size
        for index in range(5):
            await api.ok("POST", CONFIGMAPS, configmap(f"after{index}"))
        os.close(journal._log)  # killed: nothing is closed in order
        journal._log = -1
        journal.close()

    _run(main())
    assert _names(tmp_path) >= {"before", *(f"after{index}" for index in range(5))}
    assert "refused" not in _names(tmp_path)


def test_a_full_disk_does_not_stop_the_rewriting_of_the_log_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ROTATE_BYTES", 4_000)

    async def main() -> None:
        api, journal = _open(tmp_path)
        (tmp_path / "snapshot.new").mkdir()  # the snapshot cannot be written
        for index in range(40):
            await api.ok("POST", CONFIGMAPS, configmap(f"c{index}"))
        (tmp_path / "snapshot.new").rmdir()
        for index in range(100):
            await api.ok("POST", CONFIGMAPS, configmap(f"d{index}"))
        journal.close()
        assert (tmp_path / "snapshot").exists()

    _run(main())
    assert len(_names(tmp_path)) >= 140


def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ROTATE_BYTES", 2_000)
    folder = tmp_path / "data"
    _log_of(folder, 40)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"data": 0o700, "log": 0o600, "snapshot": 0o600, "lock": 0o600}
    folder.chmod(0o755)
    (folder / "log").chmod(0o644)
    _names(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "log").stat().st_mode) == 0o600


def test_the_mode_of_a_folder_with_other_things_in_it_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.txt").write_text("")
    _log_of(tmp_path, 1)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
