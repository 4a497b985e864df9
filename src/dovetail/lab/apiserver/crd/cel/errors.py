"""What can go wrong with an expression."""

from __future__ import annotations


class CelError(Exception):
    """Evaluation failed; the text is that of the real evaluator."""


class CelSyntaxError(ValueError):
    """The expression cannot be parsed; `at` is where, counted from 0."""

    def __init__(self, text: str, position: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.at = position

    def located(self, source: str) -> str:
        """The complaint with its place, as the real compiler prints it."""
        before = source[: self.at]
        line = before.count("\n") + 1
        column = self.at - (before.rfind("\n") + 1)
        shown = source.split("\n")[line - 1]
        return f"ERROR: <input>:{line}:{column + 1}: {self.text}\n | {shown}\n | {'.' * column}^"


def no_overload() -> CelError:
    return CelError("no such overload")


def no_key(name: object) -> CelError:
    return CelError(f"no such key: {name}")
