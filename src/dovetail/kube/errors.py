"""What can go wrong between us and an API server.

Two families, because callers do different things about them: `ApiError` is the server's considered
answer (a `Status`), `Disconnected` means there is no answer and the request may or may not have happened.
The class follows the Status `reason`, not the HTTP code alone: 409 is both Conflict and AlreadyExists.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.transport import Response


class KubeError(Exception):
    """Any failure of a Kubernetes call."""


class Disconnected(KubeError):
    """No answer. `sent` is False only where the request surely never reached the server."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class ApiError(KubeError):
    """The server said no, in its own words."""

    def __init__(self, status: int, reason: str, message: str, body: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.body: dict[str, Any] = body or {}
        self.request = ""
        self.retry_after: float | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.request}: {text}" if self.request else text

    @property
    def details(self) -> dict[str, Any]:
        return self.body.get("details") or {}

    @property
    def causes(self) -> tuple[dict[str, Any], ...]:
        return tuple(self.details.get("causes") or ())

    def has_cause(self, reason: str) -> bool:
        return any(cause.get("reason") == reason for cause in self.causes)


class BadRequest(ApiError):
    """400: the body or the query does not parse."""


class Unauthorized(ApiError):
    """401: the credentials are unknown or expired."""


class Forbidden(ApiError):
    """403: known, and not allowed to; also some admission plugins."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: the object moved on, or an apply would take fields of others."""


class AlreadyExists(ApiError):
    """409 on create."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is older than the server remembers."""


class Invalid(ApiError):
    """422: the object breaks a rule; `causes` names the fields."""


class TooManyRequests(ApiError):
    """429: overload, or a disruption budget that protects a pod."""


class Unavailable(ApiError):
    """503 and 504: the server, or something behind it, cannot answer now."""


class ServerError(ApiError):
    """500 and its like."""


class BadObject(KubeError):
    """An object that does not decode into the type asked for. The others of its list are fine."""

    def __init__(self, resource: str, key: str, problem: str) -> None:
        super().__init__(f"{resource} {key}: {problem}")
        self.resource = resource
        self.key = key
        self.problem = problem


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "ServiceUnavailable": Unavailable,
    "ServerTimeout": Unavailable,
    "Timeout": Unavailable,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    503: Unavailable,
    504: Unavailable,
}


def from_status(body: dict[str, Any], status: int | None = None) -> ApiError:
    """The error a `Status` object stands for (a response body, or an ERROR event of a watch)."""
    code = status or int(body.get("code") or 500)
    reason = str(body.get("reason") or "")
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(code) or (ServerError if code >= 500 else ApiError)
    error = kind(code, reason, str(body.get("message") or "no message"), body)
    seconds = error.details.get("retryAfterSeconds")
    if isinstance(seconds, int) and seconds > 0:
        error.retry_after = float(seconds)
    return error


def from_response(response: Response) -> ApiError:
    """The error a failed response stands for: proxies and old servers answer in plain text."""
    try:
        body = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = None
    if not isinstance(body, dict) or body.get("kind") != "Status":
        body = {"message": response.body[:500].decode(errors="replace").strip() or "no body"}
    error = from_status(body, response.status)
    header = response.headers.get("retry-after", "")
    if header.isdigit():
        error.retry_after = float(header)
    return error
