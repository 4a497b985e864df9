"""The check of import cycles finds every cycle, of any length, and nothing else."""

from __future__ import annotations

from scripts.check_cycles import cycles


def test_modules_that_import_each_other_are_one_cycle() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert sorted(cycles(graph)) == [["a", "b", "c"], ["d", "e"]]


def test_a_chain_and_a_diamond_are_no_cycle() -> None:
    assert list(cycles({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []})) == []
