"""Command lines as Go programs take them: `--name=value`, `--name value`, one dash or two, underscores as dashes.

A boolean takes its value only after `=`. What a flag is called and what its value means is each program's own.
"""

from __future__ import annotations

import math
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


def finite(text: str) -> float:
    """A number; what is none, or has no end, raises ValueError."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(message("it is no number with an end"))
    return number


def listen_address(name: str, text: str) -> tuple[str | None, int] | None:
    """Host and port of `host:port` or `[host]:port`; the host is None for every address, IPv4 and IPv6.

    An empty text serves nothing. Raises FlagError.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdigit() and int(port) < 65536) or (":" in bare and bare == host):
        raise FlagError(
            message("--{name}={text}: write HOST:PORT, :PORT or [IPV6]:PORT; ports go to 65535", name=name, text=text)
        )
    return bare or None, int(port)


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
                + (message("; did you mean --{near}?", near=near) if near else message("; --help lists the flags"))
            )
        if not equals and is_boolean(name):
            text = "true"
        elif not equals:
            if not rest:
                raise FlagError(message("flag needs an argument: --{name}; write --{name}=VALUE", name=name))
            text = rest.pop(0)
        yield name, text
