"""What the checks of a request read of the lab's AWS account."""

from __future__ import annotations

from typing import Any, Protocol

from dovetail.lab.aws.signatures import AccessKey


class AccountState(Protocol):
    """The AWS endpoint, as the checks of a request see it."""

    credentials: AccessKey
    session_tags: dict[str, dict[str, str]]

    def backend(self, service: str, region: str | None = None) -> Any:
        """moto's own state of a service."""
