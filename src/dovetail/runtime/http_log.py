"""What aiohttp's servers log: bytes that are no HTTP, or no body of the encoding that they claim, are not logged.

They are the client's mistake, which has its 400. Any client that reaches a port could fill the log with tracebacks.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_MISTAKES = (HttpProcessingError, web.RequestPayloadError)


def _is_of_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _MISTAKES))


#: The logger of every server of this process.
http_log = logging.getLogger("aiohttp.server")
http_log.addFilter(_is_of_ours)
