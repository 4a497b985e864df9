"""AWS in trouble: calls that answer with an error, as asked for, each in the words and the form of its service.

endpoint.trouble.add(Rule("ec2", "CreateFleet", "RequestLimitExceeded", "Request limit exceeded.", every=2))
"""

from __future__ import annotations

import json
import re
import threading
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import msgspec

from dovetail.lab.aws.http_forms import Answer, Environ, body_of, refused

_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([a-z0-9-]+)/aws4_request")
_PLAIN = {"autoscaling", "iam", "sts"}


class ErrorRule(msgspec.Struct, frozen=True):
    """Every so many calls of `action` (`*` for all of a service, `*` for all services) fail, `times` at most."""

    service: str
    action: str
    code: str
    message: str
    every: int = 1
    times: int | None = None
    status: int = 400


class InjectedErrors:
    """Shared by the threads that serve AWS; `calls` counts what was asked, in trouble or not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: dict[ErrorRule, list[int]] = {}
        self.calls: dict[tuple[str, str], int] = {}

    def add(self, rule: ErrorRule) -> None:
        with self._lock:
            self._rules[rule] = [0, 0]

    def remove(self, rule: ErrorRule) -> None:
        with self._lock:
            self._rules.pop(rule, None)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def answer(self, environ: Environ) -> Answer | None:
        service, action = asked(environ)
        with self._lock:
            self.calls[service, action] = self.calls.get((service, action), 0) + 1
            for rule, counts in self._rules.items():
                if rule.service in (service, "*") and rule.action in (action, "*") and _applies(rule, counts):
                    return _error(service, rule)
        return None


def _applies(rule: ErrorRule, counts: list[int]) -> bool:
    """`counts`: calls seen, calls struck."""
    counts[0] += 1
    if counts[0] % rule.every or (rule.times is not None and counts[1] >= rule.times):
        return False
    counts[1] += 1
    return True


def asked(environ: Environ) -> tuple[str, str]:
    """The service and the action of a request; REST services have their method and path for an action."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    service = scope[1] if scope else ""
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return service, target.rpartition(".")[2]
    if "form" in environ.get("CONTENT_TYPE", ""):
        form = parse_qs(body_of(environ).decode(errors="replace"))
        return service, form.get("Action", [""])[0]
    return service, f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO')}"


def _error(service: str, rule: ErrorRule) -> Answer:
    if service == "ec2":
        return refused(rule.code, rule.message, rule.status)
    if service in _PLAIN:
        code, message = escape(rule.code), escape(rule.message)
        text = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
        return rule.status, "text/xml", f"<ErrorResponse>{text}<RequestId>lab</RequestId></ErrorResponse>".encode()
    body = {"__type": rule.code, "code": rule.code, "message": rule.message}
    return rule.status, "application/x-amz-json-1.1", json.dumps(body).encode()
