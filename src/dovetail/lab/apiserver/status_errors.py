"""Status errors: what the API server says when it refuses, in the words clients already parse.

A refusal is raised as `StatusError` anywhere in the core and turned into a response in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model.validation.field_errors import FieldError, quoted

Json = dict[str, Any]


class StatusError(Exception):
    """A refusal with its HTTP code and the Status that explains it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        #: ListMeta of the Status: a page that came too late says how to go on.
        self.metadata: Json = {}

    def status(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


class PlainError(Exception):
    """A refusal in plain text: the mux, not the API, did not know the way."""

    def __init__(self, code: int = 404, text: str = "404 page not found\n") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def _details(group: str, kind: str, name: str = "", **more: Any) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details.update(more)
    return details


def qualified(group: str, plural: str) -> str:
    """`deployments.apps`, or `pods` in the core group."""
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, plural, name))


def no_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def already_exists(group: str, plural: str, name: str, deleting: bool = False) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _details(group, plural, name))


CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = CHANGED) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, plural, name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[Json] = ()) -> StatusError:
    if name:
        message = f'{qualified(group, plural)} "{name}" is forbidden: {why}'
    else:
        message = f"{qualified(group, plural)} is forbidden: {why}"
    details = _details(group, plural, name)
    if causes:
        details["causes"] = list(causes)
    return StatusError(403, "Forbidden", message, details)


def internal(message: str) -> StatusError:
    """The plain 500 that storage and patch machinery answer: a message and no reason."""
    return StatusError(500, "", message)


def internal_error(message: str) -> StatusError:
    """The 500 with reason InternalError."""
    details: Json = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422: identical errors are said once in the message and kept in the causes."""
    said: list[str] = []
    causes: list[Json] = []
    for error in errors:
        text = str(error)
        if text not in said:
            said.append(text)
        causes.append(dict(error.cause()))
    joined = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    message = f"{qualified(group, kind)} {quoted(name)} is invalid: {joined}"
    return StatusError(422, "Invalid", message, _details(group, kind, name, causes=causes))


def rejected() -> StatusError:
    """422 of a JSON patch that cannot be applied."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def unsupported_media(accepted: Sequence[str]) -> StatusError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", message)
