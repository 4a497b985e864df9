"""Every reason says who must act and what cures it."""

from __future__ import annotations

from dovetail.model.reasons import REASONS, reason


def test_every_reason_has_a_text_a_class_and_a_cure() -> None:
    for code, row in REASONS.items():
        assert code == row.code == code.upper()
        assert row.text and row.cure
        assert row.kind in ("wait", "change", "admin", "bug")


def test_facts_are_filled_in() -> None:
    assert reason("PDB").told(budget="web") == "the PodDisruptionBudget web allows no disruption"
    assert "?" in reason("PDB").told()
