"""Tables of flags, and how their values are read.

Each program has a table of flags with upstream's names and defaults. A flag without effect here says why, and is
named when the program starts with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.autoscalers.go_flags import FlagError, assignments, boolean, finite
from dovetail.language import message, translated
from dovetail.model.duration import DurationError, nanoseconds
from dovetail.model.quantity import QuantityError, parse
from dovetail.model.spelling import nearest


class Flag(NamedTuple):
    """`kind` is one of text, bool, int, float, duration (seconds), quantity. `idle` says why it has no effect."""

    name: str
    kind: str
    default: str
    meaning: str
    idle: str = ""

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    def value(self, text: str) -> Any:
        """What a text means for this flag. Raises FlagError."""
        try:
            if self.kind == "bool":
                value = boolean(text)
                if value is None:
                    raise FlagError(message("--{name}: {text!r} is neither true nor false", name=self.name, text=text))
                return value
            if self.kind == "int":
                return int(text)
            if self.kind == "float":
                return finite(text)
            if self.kind == "duration":
                return nanoseconds(text) / 1e9
            if self.kind == "quantity" and text:
                parse(text)
        except FlagError:
            raise
        except (DurationError, QuantityError) as error:
            raise FlagError(
                message(
                    "--{name}: {text!r} is not a {kind}: {error}",
                    name=self.name,
                    text=text,
                    kind=self.kind,
                    error=error,
                )
            ) from error
        except ValueError as error:
            what = message("a whole number") if self.kind == "int" else message("a number")
            problem = message("--{name}: {text!r} is not {what}", name=self.name, text=text, what=what)
            raise FlagError(problem) from error
        return text


class Flags(NamedTuple):
    """The values by key (with underscores), and what to say at the start."""

    values: dict[str, Any]
    notes: list[str]


def read(table: Sequence[Flag], arguments: Sequence[str]) -> Flags:
    """Read arguments. Raises FlagError at the first that is not a flag of the table."""
    by_name = {flag.name: flag for flag in table}
    values = {flag.key: flag.value(flag.default) for flag in table}
    notes = []
    for name, text in assignments(arguments, by_name, lambda name: by_name[name].kind == "bool"):
        flag = by_name[name]
        values[flag.key] = flag.value(text)
        if flag.idle:
            notes.append(message("--{name} has no effect: {idle}", name=name, idle=translated(flag.idle)))
    return Flags(values, notes)


def help_text(table: Sequence[Flag]) -> str:
    lines = []
    for flag in sorted(table):
        default = message(" (default {default})", default=flag.default) if flag.default else ""
        idle = message(" No effect: {idle}.", idle=translated(flag.idle)) if flag.idle else ""
        lines.append(f"  --{flag.name} {flag.kind}\n        {translated(flag.meaning)}{default}{idle}")
    return "\n".join(lines)


def gates(text: str, names: Mapping[str, str]) -> dict[str, bool]:
    """`Name=true,Other=false`; `AllAlpha` stands for all, as all gates of this release are alpha.

    `names` maps a gate to the key it is returned by. Raises FlagError for a gate that is none of them.
    """
    values = dict.fromkeys(names.values(), False)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, word = part.partition("=")
        enabled = boolean(word) if equals else None
        if enabled is None:
            raise FlagError(
                message("--feature-gates: {part!r}: write {name}=true or {name}=false", part=part, name=name)
            )
        if name == "AllAlpha":
            values = dict.fromkeys(values, enabled)
        elif name == "AllBeta":
            continue
        elif name in names:
            values[names[name]] = enabled
        else:
            near = nearest(name, names)
            hint = message("; did you mean {near}?", near=near) if near else ""
            raise FlagError(message("--feature-gates: unrecognized feature gate: {name}{hint}", name=name, hint=hint))
    return values
