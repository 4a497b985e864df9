"""What is wrong with a text that should be YAML, in one line with its place."""

from __future__ import annotations


def told(problem: Exception) -> str:
    """`line 2, column 1: expected ',' or ']'`, of an error of the parser; of another error, its own words."""
    mark = getattr(problem, "problem_mark", None)
    what = " ".join((getattr(problem, "problem", None) or str(problem)).split())
    return what if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {what}"
