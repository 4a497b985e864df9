"""Make the safe edits. Comments and order stay: only the spans that were wrong are touched."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.model.lint.findings import Edit, Finding


def fixed(text: str, findings: Iterable[Finding]) -> tuple[str, int]:
    """The text with every safe edit made, and how many that were; edits that overlap are made one at a time."""
    edits = sorted({each.edit for each in findings if each.edit is not None}, key=lambda edit: (edit.start, edit.end))
    chosen: list[Edit] = []
    for edit in edits:
        if not chosen or edit.start >= chosen[-1].end:
            chosen.append(edit)
    for edit in reversed(chosen):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text, len(chosen)
