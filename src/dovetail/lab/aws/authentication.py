"""Authentication before the lab's AWS: it lets in what credentials of the lab signed and IAM allows.

Every refusal is an AWS error.

Beside signatures it checks the Host, so that a web page cannot reach the endpoint through a name of its own (DNS
rebinding); it closes moto's management API and its instance metadata; it takes the CORS headers off every answer; and
it turns what is no answer of an AWS service (an HTML page, an exception) into one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from dovetail.lab.aws.http_forms import Answer, Environ, body_of, refused, take_body
from dovetail.lab.aws.signatures import Lookup, SignatureRefused, verify
from dovetail.lab.aws.web_identity import IdentityRefused, WebIdentity, is_web_identity

_log = logging.getLogger("dovetail.aws")

Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
#: The largest body that is read, in bytes.
MAX_BODY_BYTES = 16 * 2**20
_HOST = re.compile(r"(?:127\.0\.0\.1|\[::1\]|(?:[a-z0-9.-]+\.)?localhost)(?::\d{1,5})?", re.IGNORECASE)
#: moto's own pages: the management API, and the metadata of an instance that there is none of here.
_CLOSED = ("/moto-api", "/latest/", "/favicon.ico")
_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([a-z0-9-]+)/aws4_request")
#: Services that answer in XML, with the form of the Query protocol.
_QUERY_SERVICES = frozenset(("autoscaling", "cloudformation", "iam", "monitoring", "sns", "sts"))
#: What services with JSON answers call it.
_JSON_CODES = {
    "InvalidClientTokenId": "UnrecognizedClientException",
    "SignatureDoesNotMatch": "InvalidSignatureException",
    "MissingAuthenticationToken": "MissingAuthenticationTokenException",
    "ExpiredToken": "ExpiredTokenException",
    "IncompleteSignature": "IncompleteSignatureException",
}
#: Headers that let a web page read an answer.
_CORS = ("access-control-", "vary")


class Authentication:
    """A WSGI application around another."""

    def __init__(
        self,
        inner: Wsgi,
        credentials_of: Lookup,
        web_identity: WebIdentity,
        now: Callable[[], datetime],
        authorize: Callable[[Environ], Answer | None] = lambda environ: None,
        record_refusal: Callable[[Environ, Answer], None] = lambda environ, answer: None,
    ) -> None:
        self._inner = inner
        self._record_refusal = record_refusal
        self._authorize = authorize
        self._web_identity = web_identity
        self._credentials_of = credentials_of
        self._now = now

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        refusal = self._refusal(environ)
        if refusal is not None:
            return _send(refusal, start)
        heads: list[Any] = []
        try:
            content = b"".join(self._inner(environ, lambda *head, **more: heads.append(head)))
            status, headers = heads[-1][0], heads[-1][1]
        except Exception:  # one request of one client: the others go on
            _log.exception("AWS request failed: %s %s", environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"))
            return _send(error(environ, 500, "InternalFailure", "the lab's AWS failed; its log says where"), start)
        kind = next((value for name, value in headers if name.lower() == "content-type"), "")
        number = int(str(status).split()[0])
        if number >= 400 and kind.startswith("text/html"):
            return _send(_not_served(environ, number), start)
        start(status, [(name, value) for name, value in headers if not name.lower().startswith(_CORS)])
        return [content]

    def _refusal(self, environ: Environ) -> Answer | None:
        """The answer to a request that is not let in."""
        try:
            size = take_body(environ, MAX_BODY_BYTES)
        except OSError as problem:
            return error(environ, 400, "MalformedQueryString", f"The body cannot be read: {problem}.")
        if size > MAX_BODY_BYTES:
            return error(environ, 413, "RequestEntityTooLarge", f"The body must have at most {MAX_BODY_BYTES} bytes.")
        host = environ.get("HTTP_HOST", "")
        if not _HOST.fullmatch(host):
            return error(environ, 403, "AccessDenied", f"The lab's AWS is not at {host!r} but at 127.0.0.1.")
        path = environ.get("PATH_INFO", "")
        if path.startswith(_CLOSED):
            return error(environ, 403, "AccessDenied", f"{path} is not part of AWS.")
        if is_web_identity(environ):
            try:
                self._web_identity.check(environ)
            except IdentityRefused as refusal:
                return self._recorded(environ, error(environ, 403, refusal.code, refusal.message))
            return None
        try:
            verify(environ, self._credentials_of, self._now())
        except SignatureRefused as refused_signature:
            return error(environ, 403, refused_signature.code, refused_signature.message)
        denied = self._authorize(environ)
        return self._recorded(environ, denied) if denied is not None else None

    def _recorded(self, environ: Environ, answer: Answer) -> Answer:
        self._record_refusal(environ, answer)
        return answer


def _not_served(environ: Environ, status: int) -> Answer:
    requested = f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO')}"
    if status == 404:
        return error(environ, 404, "UnknownOperationException", f"{requested} is no operation that the lab has")
    return error(environ, status, "InternalFailure", f"{requested}: the lab's AWS does not know how to answer this")


def error(environ: Environ, status: int, code: str, message: str) -> Answer:
    """An error in the form of the service that was asked, or looks to have been."""
    service = _service(environ)
    kind = environ.get("CONTENT_TYPE", "")
    if environ.get("HTTP_X_AMZ_TARGET") or "json" in kind or service == "eks" or _is_eks(environ, service):
        json_code = _JSON_CODES.get(code, code)
        media = "application/x-amz-json-1.1" if environ.get("HTTP_X_AMZ_TARGET") else "application/json"
        return status, media, json.dumps({"__type": json_code, "code": json_code, "message": message}).encode()
    if service == "ec2":
        ec2_code = "AuthFailure" if code in ("InvalidClientTokenId", "SignatureDoesNotMatch") else code
        return refused(ec2_code, message, status)
    inside = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service in _QUERY_SERVICES or "form" in kind:
        text = f"<ErrorResponse><Error><Type>Sender</Type>{inside}</Error><RequestId>lab</RequestId></ErrorResponse>"
    else:
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inside}<RequestId>lab</RequestId></Error>'
    return status, "text/xml", text.encode()


def _service(environ: Environ) -> str:
    """By the signature, or else by what only EC2's requests say: its version of the API."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    if scope:
        return scope[1]
    text = environ.get("QUERY_STRING", "")
    if "form" in environ.get("CONTENT_TYPE", ""):
        text = f"{text}&{body_of(environ).decode(errors='replace')}"
    try:
        form = parse_qs(text)
    except ValueError:
        return ""
    if form.get("Version") == ["2016-11-15"]:
        return "ec2"
    return "sts" if "Action" in form else ""


def _is_eks(environ: Environ, service: str) -> bool:
    return not service and environ.get("PATH_INFO", "").startswith("/clusters")


def _send(answer: Answer, start: Callable[..., Any]) -> Iterable[bytes]:
    status, kind, body = answer
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Error"
    headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
    if "json" in kind:
        headers.append(("x-amzn-ErrorType", json.loads(body)["__type"]))
    start(f"{status} {phrase}", headers)
    return [body]
