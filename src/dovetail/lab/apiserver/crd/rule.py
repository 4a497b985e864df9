"""One validation rule of a schema: the expression, its message, and the compiled programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.crd import cel


class ValidationRule:
    """One rule; compiled when first used, so that a definition can be stored before the rule is needed."""

    __slots__ = ("error", "message", "message_program", "optional_old", "path", "program", "raw", "reason", "text")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.text: str = raw.get("rule", "")
        self.message: str = raw.get("message", "").strip()
        self.reason: str = raw.get("reason", "")
        self.path: str = raw.get("fieldPath", "")
        self.optional_old = bool(raw.get("optionalOldSelf"))
        self.error = ""
        self.program: cel.Program | None = None
        self.message_program: cel.Program | None = None
        try:
            self.program = cel.compile_expression(self.text)
            if raw.get("messageExpression"):
                self.message_program = cel.compile_expression(raw["messageExpression"])
        except cel.CelSyntaxError as error:
            self.error = error.located(self.text)

    @property
    def uses_old(self) -> bool:
        return self.program is not None and "oldSelf" in self.program.names

    def shown(self) -> str:
        """How errors name the rule."""
        return self.message or self.text.strip()

    def detail(self, env: Mapping[str, Any]) -> str:
        if self.message_program is not None:
            try:
                text = self.message_program(env)
            except cel.CelError:
                text = ""
            if isinstance(text, str) and text.strip() and "\n" not in text:
                return text.strip()
        return self.message or f"failed rule: {self.text.strip()}"
