"""What can go wrong with an expression."""

from __future__ import annotations


class CelError(Exception):
    """Evaluation failed; the text is what the real evaluator would say."""


class CelSyntaxError(ValueError):
    """The expression cannot be parsed."""


def no_overload() -> CelError:
    return CelError("no such overload")


def no_key(name: object) -> CelError:
    return CelError(f"no such key: {name}")
