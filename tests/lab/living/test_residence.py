"""A running lab can be found, and one that is gone is not."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.cli.kubectl import as_typed
from dovetail.lab.residence import Residence, find, leave, register


def test_a_lab_is_found_until_it_leaves(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lab.json"
    register(Residence(os.getpid(), "https://127.0.0.1:1", "kc", ""), path)
    found = find(path)
    assert found is not None
    assert found.url == "https://127.0.0.1:1"
    assert path.stat().st_mode & 0o077 == 0
    leave(os.getpid(), path)
    assert find(path) is None


def test_a_process_that_is_gone_is_no_lab(tmp_path: Path) -> None:
    path = tmp_path / "lab.json"
    register(Residence(2**22 + 1, "", "", ""), path)
    assert find(path) is None


def test_kubectl_gets_its_double_dash() -> None:
    line = ["dovetail", "kubectl", "run", "x", "--", "sh", "-c", "true"]
    assert as_typed(line, ("run",)) == ["run", "x", "--", "sh", "-c", "true"]
