"""Why the operating system refused: its own words, which Python leaves in English."""

from __future__ import annotations

from dovetail.language.reader import source, translated

#: What a command meets when it reads, writes, listens or connects.
TEXTS = (
    source("Address already in use"),
    source("Cannot assign requested address"),
    source("Connection refused"),
    source("Connection reset by peer"),
    source("Connection timed out"),
    source("Disk quota exceeded"),
    source("File exists"),
    source("File name too long"),
    source("File too large"),
    source("Input/output error"),
    source("Invalid argument"),
    source("Is a directory"),
    source("Name or service not known"),
    source("Network is unreachable"),
    source("No route to host"),
    source("No space left on device"),
    source("No such device or address"),
    source("No such file or directory"),
    source("Not a directory"),
    source("Operation not permitted"),
    source("Permission denied"),
    source("Read-only file system"),
    source("Temporary failure in name resolution"),
    source("Too many levels of symbolic links"),
    source("Too many open files"),
    source("Bad file descriptor"),
)


#: What asyncio and the HTTP client say of a connection; `recognized` knows them by this.
CONNECTION_TEXTS = (
    source("404 page not found"),
    source("Cannot connect to host {host} ssl:{tls} [{why}]"),
    source("Connect call failed {address}"),
    source("Connection timeout to host {url}"),
    source("Multiple exceptions: {errors}"),
    source("Server disconnected"),
    source("[Errno {number}] {why}"),
    source("[SSL: {code}] certificate verify failed: {why}"),
)


def system_error(error: OSError) -> str:
    """The error in words, without its number and its file."""
    return translated(error.strerror) if error.strerror else str(error)
