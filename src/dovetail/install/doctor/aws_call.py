"""One question to AWS, and what its answer or refusal means for the evidence."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, is_not_found, message_of
from dovetail.install.doctor.facts import SourceAnswer, State
from dovetail.language import message

#: A call that takes longer is given up, so that the whole command stays below 15 s.
ANSWER_TIMEOUT_S = 10.0
ABSENT_CODES = frozenset(
    (
        "404",
        "NoSuchEntity",
        "NotFoundException",
        "ResourceNotFoundException",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
    )
)
PAGED = frozenset(
    (
        "describe_auto_scaling_groups",
        "describe_nat_gateways",
        "describe_network_acls",
        "describe_route_tables",
        "describe_security_groups",
        "describe_subnets",
        "describe_vpc_endpoints",
    )
)
REFUSED_MARKS = ("AccessDenied", "Unauthorized", "NotAuthorized", "AuthFailure", "AuthorizationError")


async def ask(
    calls: Calls, service: str, operation: str, right: str, field: str = "", **arguments: Any
) -> SourceAnswer:
    """One answer, over all pages of a list. `field`: the part of it that is kept."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            if operation.startswith("list_") or operation in PAGED:
                return SourceAnswer(data=_plain(await calls.all(service, operation, field, **arguments)), right=right)
            response = await calls(service, operation, **arguments)
    except TimeoutError:
        return SourceAnswer(
            state=State.UNREACHABLE,
            right=right,
            message=message(
                "{right}: no answer within {answer_timeout_s:.0f} s", right=right, answer_timeout_s=ANSWER_TIMEOUT_S
            ),
        )
    except Exception as error:  # each failure of botocore is kept as what it means for the evidence
        return _without(error, right)
    kept = (
        response.get(field) if field else {key: value for key, value in response.items() if key != "ResponseMetadata"}
    )
    return SourceAnswer(data=_plain(kept), right=right)


def _without(error: Exception, right: str) -> SourceAnswer:
    code = code_of(error)
    if is_not_found(error) or code in ABSENT_CODES:
        return SourceAnswer(state=State.ABSENT, right=right)
    refused = any(mark in code for mark in REFUSED_MARKS)
    state = State.REFUSED if refused else State.UNREACHABLE
    return SourceAnswer(state=state, right=right, message=f"{code}: {message_of(error)}"[:400])


def _plain(value: Any) -> Any:
    """JSON can hold it: times become text."""
    return json.loads(json.dumps(value, default=str))
