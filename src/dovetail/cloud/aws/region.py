"""The region to work in: as set, or that of the instance we run on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


async def find_region(region_flag: str | None, environment: Mapping[str, str]) -> str:
    """By flag, by variable, or by the instance's metadata service; empty where none of them tells it."""
    named = (region_flag, *(environment.get(name) for name in REGION_VARIABLES))
    for region in named:
        if region:
            return region
    return await asyncio.to_thread(instance_region)


def instance_region() -> str:
    """What the instance metadata service says; empty where there is none. Its address is AWS's variable to change."""
    import botocore.session
    from botocore.utils import IMDSRegionProvider

    session = botocore.session.get_session()
    session.set_config_variable("metadata_service_timeout", 1)
    session.set_config_variable("metadata_service_num_attempts", 2)
    return str(IMDSRegionProvider(session).provide() or "")
