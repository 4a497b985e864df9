"""CloudTrail in the lab: who made which change, as `aws cloudtrail lookup-events` shows it.

Reads are kept only where they were refused. A fleet's instances are RunInstances events of their own, made by EC2 Fleet
for the caller.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.clock import wall
from dovetail.lab.aws.authorization import Principal
from dovetail.lab.aws.http_forms import Answer, Environ
from dovetail.lab.aws.permissions import AwsRequest, read
from dovetail.lab.aws.web_identity import ACTION as WEB_IDENTITY

Json = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

TARGET = "LookupEvents"
MAX_EVENTS = 1000
PAGE = 50
FLEET = "ec2fleet.amazonaws.com"
#: Operations that change nothing, and those that only give out credentials.
_READS = ("Describe", "Get", "List", "Lookup", "Simulate", "Receive", "Head", "Assume")
_KEY = re.compile(r"Credential=([^/\s]+)/")
_ISSUED_KEY = re.compile(rb"<AccessKeyId>([^<]+)</AccessKeyId>")
_ERROR_CODE = re.compile(rb"<Code>([^<]+)</Code>")
#: Names of attributes that events are looked up by, and where an event has them.
_ATTRIBUTES = {
    "EventName": "EventName",
    "Username": "Username",
    "EventSource": "EventSource",
    "EventId": "EventId",
    "AccessKeyId": "AccessKeyId",
    "ReadOnly": "ReadOnly",
}


class Session(msgspec.Struct, frozen=True):
    """Temporary credentials: when they were given out, and the provider whose token they were given for."""

    since: str
    provider: str = ""


class CallTrail:
    """Shared by the threads that serve AWS. `now` is the lab's time where it is not the wall's."""

    def __init__(
        self,
        account: str,
        instances: Callable[[], Iterable[Any]],
        principal: Callable[[Environ], Principal | None],
    ) -> None:
        self._account = account
        self._instances = instances
        self._principal = principal
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._events: deque[Json] = deque(maxlen=MAX_EVENTS)
        self._sessions: dict[str, Session] = {}
        self.now: Callable[[], datetime] = wall

    def around(self, inner: Wsgi) -> Wsgi:
        """A WSGI application that records what passes it."""

        def application(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
            request = read(environ)
            if request.action.startswith("Assume"):
                return [self._note_session(request, b"".join(inner(environ, start)))]
            if not request.action or " " in request.action or request.action.startswith(_READS):
                return inner(environ, start)
            before = {instance.id for instance in self._instances()} if _launches(request) else set()
            statuses: list[str] = []

            def started(status: str, *more: Any, **options: Any) -> Any:
                statuses.append(status)
                return start(status, *more, **options)

            body = b"".join(inner(environ, started))
            failed = not statuses or not statuses[-1].startswith("2")
            self._record(environ, request, _error_code(request, body) if failed else "", before)
            return [body]

        return application

    def refused(self, environ: Environ, answer: Answer) -> None:
        """Record a request that IAM or STS did not allow."""
        request = read(environ)
        if request.action and " " not in request.action:
            self._record(environ, request, _error_code(request, answer[2]), set())

    def _note_session(self, request: AwsRequest, body: bytes) -> bytes:
        issued = _ISSUED_KEY.search(body)
        if issued is not None:
            provider = self._provider(request) if request.action == WEB_IDENTITY else ""
            if len(self._sessions) >= MAX_EVENTS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[issued[1].decode()] = Session(f"{self.now():%Y-%m-%dT%H:%M:%SZ}", provider)
        return body

    def _provider(self, request: AwsRequest) -> str:
        issuer = _claims(request).get("iss", "").removeprefix("https://")
        return f"arn:aws:iam::{self._account}:oidc-provider/{issuer}"

    def answer(self, environ: Environ) -> Answer | None:
        if not environ.get("HTTP_X_AMZ_TARGET", "").endswith(f".{TARGET}"):
            return None
        parameters = dict(read(environ).parameters)
        attributes = {
            row["AttributeKey"]: str(row["AttributeValue"]) for row in parameters.get("LookupAttributes") or ()
        }
        with self._lock:
            events = list(self._events)
        rows = [event for event in reversed(events) if all(_has(event, key, attributes[key]) for key in attributes)]
        first, size = int(parameters.get("NextToken") or 0), int(parameters.get("MaxResults") or PAGE)
        page: Json = {"Events": rows[first : first + size]}
        if first + size < len(rows):
            page["NextToken"] = str(first + size)
        return 200, "application/x-amz-json-1.1", json.dumps(page).encode()

    def _record(self, environ: Environ, request: AwsRequest, error: str, before: set[str]) -> None:
        is_token = request.action == WEB_IDENTITY
        identity = self._token_identity(request) if is_token else self._identity(environ)
        self._keep(request, identity, dict(request.parameters), [], error)
        if error or not _launches(request):
            return
        for instance in self._instances():
            if instance.id not in before and request.action == "CreateFleet":
                self._keep(
                    AwsRequest("ec2", "RunInstances", request.region, {}),
                    {**identity, "invokedBy": FLEET},
                    _run_parameters(instance),
                    [{"ResourceType": "AWS::EC2::Instance", "ResourceName": instance.id}],
                    "",
                )

    def _keep(self, request: AwsRequest, identity: Json, parameters: Json, resources: list[Json], error: str) -> None:
        now = self.now()
        source = identity.get("invokedBy", "127.0.0.1")
        for secret in ("Action", "Version", "WebIdentityToken"):
            parameters.pop(secret, None)
        record = {
            "eventVersion": "1.11",
            "userIdentity": identity,
            "eventTime": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "eventSource": f"{request.service or 'sts'}.amazonaws.com",
            "eventName": request.action,
            "awsRegion": request.region,
            "sourceIPAddress": source,
            "userAgent": source,
            "requestParameters": parameters,
            "eventID": f"00000000-0000-0000-0000-{next(self._numbers):012d}",
            "readOnly": request.action.startswith(_READS),
            "eventType": "AwsApiCall",
            **({"errorCode": error} if error else {}),
        }
        event = {
            "EventId": record["eventID"],
            "EventName": request.action,
            "ReadOnly": str(record["readOnly"]).lower(),
            "EventTime": now.timestamp(),
            "EventSource": record["eventSource"],
            "Username": _user_name(identity),
            "AccessKeyId": identity.get("accessKeyId", ""),
            "Resources": resources,
            "CloudTrailEvent": json.dumps(record, default=str),
        }
        with self._lock:
            self._events.append(event)

    def _identity(self, environ: Environ) -> Json:
        account, principal = self._account, self._principal(environ)
        if principal is None:
            return {"type": "Root", "arn": f"arn:aws:iam::{account}:root", "accountId": account}
        if ":assumed-role/" not in principal.arn:
            name = principal.arn.rpartition("/")[2]
            return {"type": "IAMUser", "arn": principal.arn, "accountId": account, "userName": name}
        role = principal.source.rpartition("/")[2]
        issuer = {"type": "Role", "arn": principal.source, "accountId": account, "userName": role}
        identity: Json = {"type": "AssumedRole", "arn": principal.arn, "accountId": account}
        if principal.role_id:
            issuer = {"type": "Role", "principalId": principal.role_id, **issuer}
            session_name = principal.arn.rpartition("/")[2]
            identity = {"type": "AssumedRole", "principalId": f"{principal.role_id}:{session_name}", **identity}
        match = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
        key = match[1] if match else ""
        session = self._sessions.get(key)
        context: Json = {"sessionIssuer": issuer}
        if session is not None and session.provider:
            context["webIdFederationData"] = {"federatedProvider": session.provider, "attributes": {}}
        since = {"creationDate": session.since} if session is not None else {}
        context["attributes"] = {**since, "mfaAuthenticated": "false"}
        return {**identity, "accessKeyId": key, "sessionContext": context}

    def _token_identity(self, request: AwsRequest) -> Json:
        """Of a caller that has but the token of a service account."""
        subject = str(_claims(request).get("sub", ""))
        provider = self._provider(request)
        return {
            "type": "WebIdentityUser",
            "principalId": f"{provider}:sts.amazonaws.com:{subject}",
            "userName": subject,
            "identityProvider": provider,
        }


def _claims(request: AwsRequest) -> Mapping[str, str]:
    """The claims of a token, whether or not its signature holds."""
    try:
        body = str(request.parameters.get("WebIdentityToken", "")).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    except (IndexError, ValueError):
        return {}
    return {name: str(value) for name, value in claims.items()} if isinstance(claims, dict) else {}


def _error_code(request: AwsRequest, body: bytes) -> str:
    """AWS's word for a failure; EC2's says whose fault it is."""
    match = _ERROR_CODE.search(body)
    if match is not None:
        code = match[1].decode()
    else:
        try:
            code = str(json.loads(body).get("__type", "InternalFailure")).rpartition("#")[2]
        except (ValueError, AttributeError):
            code = "InternalFailure"
    return f"Client.{code}" if request.service == "ec2" else code


def _launches(request: AwsRequest) -> bool:
    return (request.service, request.action) == ("ec2", "CreateFleet")


def _run_parameters(instance: Any) -> Json:
    return {
        "instancesSet": {"items": [{"minCount": 1, "maxCount": 1}]},
        "instanceType": instance.instance_type,
        "blockDeviceMapping": {},
        "availabilityZone": instance.placement.zone,
        "subnetId": instance.subnet_id,
        "monitoring": {"enabled": False},
        "disableApiTermination": False,
        "disableApiStop": False,
    }


def _user_name(identity: Mapping[str, Any]) -> str:
    """Of a role's session, the session's name; empty for a token that names no subject."""
    return str(identity.get("userName") or str(identity.get("arn", "")).rpartition("/")[2].rpartition(":")[2])


def _has(event: Mapping[str, Any], key: str, value: str) -> bool:
    if key in ("ResourceName", "ResourceType"):
        return any(row.get(key) == value for row in event["Resources"])
    return str(event.get(_ATTRIBUTES.get(key, ""), "")) == value
