"""Command lines as Go programs take them: `--name=value`, `--name value`, one dash or two, underscores as dashes.

A boolean takes its value only after `=`. What a flag is called and what its value means is each program's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from dovetail.language import message
from dovetail.model.spelling import nearest

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FlagError(ValueError):
    """A flag that is not known or cannot be read; the text names it, its value and the remedy."""


def boolean(text: str) -> bool | None:
    """What Go reads as a boolean; None for any other text."""
    return True if text in _TRUE else False if text in _FALSE else None


def assignments(
    arguments: Sequence[str], names: Collection[str], is_boolean: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Every flag with its text, in their order. Raises FlagError at the first that is none of `names`."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            raise FlagError(message("{word!r} is not a flag; write --flag=value", word=word))
        spelled, equals, text = word.lstrip("-").partition("=")
        name = spelled.replace("_", "-")
        if name not in names:
            near = nearest(name, names)
            raise FlagError(
                message("unknown flag: --{spelled}", spelled=spelled)
                + (message("; did you mean --{near}?", near=near) if near else "")
            )
        if not equals and is_boolean(name):
            text = "true"
        elif not equals:
            if not rest:
                raise FlagError(message("flag needs an argument: --{name}; write --{name}=VALUE", name=name))
            text = rest.pop(0)
        yield name, text
