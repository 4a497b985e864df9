"""Images: how long a pull takes, what it weighs, and the words containerd has for one that is not there."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

import msgspec

from dovetail.lab.kubelet.container_model import short_name

_REFERENCE = re.compile(r"[a-z0-9]+([._/:@-]+[a-zA-Z0-9_]+)*")
_MISSING = re.compile(r"(does-?not-?exist|non-?existent|no-?such|not-?found|\binvalid\b|missing-image)", re.IGNORECASE)

#: Tags that exist, for images people misspell in every tutorial.
_TAGS = {
    "nginx": re.compile(r"(latest|stable|mainline|alpine|perl|otel|1|1\.\d{1,2}(\.\d{1,2})?)(-.*)?"),
    "busybox": re.compile(r"(latest|stable|musl|glibc|uclibc|1|1\.\d{1,2}(\.\d{1,2})?)(-.*)?"),
    "redis": re.compile(r"(latest|alpine|[2-9]|[2-9]\.\d(\.\d{1,2})?)(-.*)?"),
}
#: Bytes, for images whose size a tutorial shows.
_SIZES = {"pause": 318_731, "busybox": 2_227_000, "nginx": 72_324_501, "hpa-example": 174_218_432}


class Image(msgspec.Struct, frozen=True):
    """An image as a node sees it. `error` is what pulling it says, if it cannot be pulled."""

    reference: str
    canonical: str
    size: int
    pull_seconds: float
    error: str | None = None
    invalid: bool = False


@lru_cache(maxsize=4096)
def image_of(reference: str, error: str | None = None, pull_seconds: float | None = None) -> Image:
    size = _SIZES.get(short_name(reference)) or 20_000_000 + zlib.crc32(reference.encode()) % 80_000_000
    seconds = 0.4 + size / 60_000_000 if pull_seconds is None else pull_seconds
    canonical = canonical_name(reference)
    if not _REFERENCE.fullmatch(reference):
        text = f'Failed to apply default image tag "{reference}": couldn\'t parse image name "{reference}": '
        return Image(reference, reference, 0, 0.0, text + "invalid reference format", invalid=True)
    if error is None and _is_missing(reference):
        error = _not_found(canonical)
    return Image(reference, canonical, size, seconds, error)


@lru_cache(maxsize=4096)
def canonical_name(reference: str) -> str:
    """With registry and tag, as containerd writes it."""
    name = reference
    first = name.split("/", 1)[0]
    if "/" not in name:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    if "@" not in name and ":" not in name.rsplit("/", 1)[-1]:
        name += ":latest"
    return name


def _is_missing(reference: str) -> bool:
    if _MISSING.search(reference):
        return True
    tail = reference.rsplit("/", 1)[-1]
    name, _, tag = tail.partition(":")
    existing = _TAGS.get(name)
    return (
        existing is not None and "/" not in reference and bool(tag) and "@" not in tag and not existing.fullmatch(tag)
    )


def _not_found(canonical: str) -> str:
    return (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{canonical}": failed to resolve reference '
        f'"{canonical}": {canonical}: not found'
    )


@lru_cache(maxsize=4096)
def digest(reference: str) -> str:
    """A stable image id."""
    head = f"{zlib.crc32(reference.encode()):08x}"
    return f"{canonical_name(reference).split('@', 1)[0].rsplit(':', 1)[0]}@sha256:{head * 8}"


def go_seconds(seconds: float) -> str:
    """A short duration as Go prints it, to the millisecond."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    text = f"{seconds % 60:.3f}".rstrip("0").rstrip(".")
    return f"{text}s" if seconds < 60 else f"{int(seconds // 60)}m{text}s"
