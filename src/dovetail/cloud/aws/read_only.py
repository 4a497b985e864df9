"""AWS calls of a dry run: those that describe, get or list; any other is refused before it is sent.

Dry-run flags of EC2 are refused as well: an account's policy may count them, and nothing here needs them.
"""

from __future__ import annotations

from typing import Any

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.provider import CloudError, Remedy

READS = ("describe_", "get_", "list_")


class ReadOnlyCalls(Calls):
    """The same client; an operation that may change the account raises."""

    async def __call__(self, service: str, operation: str, *, region: str | None = None, **arguments: Any) -> Any:
        if not operation.startswith(READS):
            message = f"{service}:{operation}: not sent, a dry run changes nothing in the account"
            raise CloudError("DryRun", message, Remedy.OPERATOR)
        return await super().__call__(service, operation, region=region, **arguments)
