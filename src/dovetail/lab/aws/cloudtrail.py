"""CloudTrail in the lab: who made which change, as `aws cloudtrail lookup-events` shows it.

Reads are not kept. A fleet's instances are RunInstances events of their own, made by EC2 Fleet for the caller.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from dovetail.clock import wall
from dovetail.lab.aws.authorization import Principal
from dovetail.lab.aws.http_forms import Answer, Environ
from dovetail.lab.aws.permissions import AwsRequest, read

Json = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

TARGET = "LookupEvents"
MAX_EVENTS = 1000
PAGE = 50
FLEET = "ec2fleet.amazonaws.com"
#: Operations that change nothing, and those that only give out credentials.
_READS = ("Describe", "Get", "List", "Lookup", "Simulate", "Receive", "Head", "Assume")
#: Names of attributes that events are looked up by, and where an event has them.
_ATTRIBUTES = {
    "EventName": "EventName",
    "Username": "Username",
    "EventSource": "EventSource",
    "EventId": "EventId",
    "AccessKeyId": "AccessKeyId",
    "ReadOnly": "ReadOnly",
}


class Trail:
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
        self.now: Callable[[], datetime] = wall

    def around(self, inner: Wsgi) -> Wsgi:
        """A WSGI application that records what passes it."""

        def application(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
            request = read(environ)
            if not request.action or " " in request.action or request.action.startswith(_READS):
                return inner(environ, start)
            before = {instance.id for instance in self._instances()} if _launches(request) else set()
            statuses: list[str] = []

            def started(status: str, *more: Any, **options: Any) -> Any:
                statuses.append(status)
                return start(status, *more, **options)

            body = b"".join(inner(environ, started))
            self._record(environ, request, statuses[-1] if statuses else "500", before)
            return [body]

        return application

    def answer(self, environ: Environ) -> Answer | None:
        if not environ.get("HTTP_X_AMZ_TARGET", "").endswith(f".{TARGET}"):
            return None
        asked = dict(read(environ).parameters)
        wanted = {row["AttributeKey"]: str(row["AttributeValue"]) for row in asked.get("LookupAttributes") or ()}
        with self._lock:
            events = list(self._events)
        rows = [event for event in reversed(events) if all(_has(event, key, wanted[key]) for key in wanted)]
        first, size = int(asked.get("NextToken") or 0), int(asked.get("MaxResults") or PAGE)
        page: Json = {"Events": rows[first : first + size]}
        if first + size < len(rows):
            page["NextToken"] = str(first + size)
        return 200, "application/x-amz-json-1.1", json.dumps(page).encode()

    def _record(self, environ: Environ, request: AwsRequest, status: str, before: set[str]) -> None:
        identity = self._identity(environ)
        error = "" if status.startswith("2") else status
        self._keep(request, identity, dict(request.parameters), [], error)
        if not before and not _launches(request):
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
        for secret in ("Action", "Version"):
            parameters.pop(secret, None)
        record = {
            "eventVersion": "1.11",
            "userIdentity": identity,
            "eventTime": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "eventSource": f"{request.service}.amazonaws.com",
            "eventName": request.action,
            "awsRegion": request.region,
            "sourceIPAddress": source,
            "userAgent": source,
            "requestParameters": parameters,
            "eventID": f"00000000-0000-0000-0000-{next(self._numbers):012d}",
            "readOnly": False,
            "eventType": "AwsApiCall",
            **({"errorCode": error} if error else {}),
        }
        event = {
            "EventId": record["eventID"],
            "EventName": request.action,
            "ReadOnly": "false",
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
        session = {"sessionIssuer": issuer, "attributes": {"mfaAuthenticated": "false"}}
        return {"type": "AssumedRole", "arn": principal.arn, "accountId": account, "sessionContext": session}


def _launches(request: AwsRequest) -> bool:
    return (request.service, request.action) == ("ec2", "CreateFleet")


def _run_parameters(instance: Any) -> Json:
    return {
        "instancesSet": {"items": [{"minCount": 1, "maxCount": 1}]},
        "instanceType": instance.instance_type,
        "availabilityZone": instance.placement.zone,
        "subnetId": instance.subnet_id,
        "monitoring": {"enabled": False},
        "disableApiTermination": False,
        "disableApiStop": False,
    }


def _user_name(identity: Mapping[str, Any]) -> str:
    """Of a role's session, the session's name."""
    return str(identity.get("userName") or str(identity["arn"]).rpartition("/")[2].rpartition(":")[2])


def _has(event: Mapping[str, Any], key: str, value: str) -> bool:
    if key in ("ResourceName", "ResourceType"):
        return any(row.get(key) == value for row in event["Resources"])
    return str(event.get(_ATTRIBUTES.get(key, ""), "")) == value
