"""Credentials of a role that the controller assumes: `ASSUME_ROLE_ARN`, `ASSUME_ROLE_DURATION`."""

from __future__ import annotations

from typing import Any

import msgspec

SESSION_NAME = "dovetail"


class AssumedRole(msgspec.Struct, frozen=True):
    """`seconds` is how long a set of credentials lives; botocore renews them in time."""

    arn: str
    seconds: int

    def session(self, plain: Any, endpoint: str | None) -> Any:
        """A boto3 session with the role's credentials, fetched with those of `plain` when they are first needed."""
        import boto3
        import botocore.session
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        def client(service: str, **credentials: Any) -> Any:
            return plain.client(service, region_name=plain.region_name, endpoint_url=endpoint, **credentials)

        fetcher = AssumeRoleCredentialFetcher(
            client_creator=client,
            source_credentials=plain.get_credentials(),
            role_arn=self.arn,
            extra_args={"RoleSessionName": SESSION_NAME, "DurationSeconds": self.seconds},
        )
        assumed = botocore.session.get_session()
        assumed._credentials = DeferredRefreshableCredentials(
            method="assume-role", refresh_using=fetcher.fetch_credentials
        )
        return boto3.session.Session(botocore_session=assumed, region_name=plain.region_name)
