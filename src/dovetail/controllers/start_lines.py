"""Log lines at start: the settings in force, and what was set and has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from dovetail import __version__
from dovetail.controllers.settings import Settings, flag

#: Characters of a value that are shown: a CA bundle fills a screen.
MAX_VALUE_CHARS = 200
#: Variables of the AWS SDK that send calls, launches included, to another address.
ENDPOINT_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_EC2",
    "AWS_ENDPOINT_URL_EKS",
    "AWS_ENDPOINT_URL_IAM",
    "AWS_ENDPOINT_URL_PRICING",
    "AWS_ENDPOINT_URL_SQS",
    "AWS_ENDPOINT_URL_SSM",
    "AWS_ENDPOINT_URL_STS",
)


def in_force(settings: Settings) -> dict[str, Any]:
    """Every setting by its flag's name, as it is acted on."""
    values = msgspec.to_builtins(settings)
    return {flag(name).removeprefix("--"): _shown(value) for name, value in values.items()}


def announce(log: FilteringBoundLogger, settings: Settings, environment: Mapping[str, str]) -> None:
    """One line with the settings in force, one for each that has no effect, one for each replaced AWS endpoint."""
    log.info("starting dovetail", version=__version__, settings=in_force(settings))
    for inert in settings.without_effect():
        log.warning("setting has no effect here", setting=inert.setting, value=inert.value, reason=inert.reason)
    for name in ENDPOINT_VARIABLES:
        if environment.get(name):
            log.warning("AWS calls go to another endpoint", variable=name, endpoint=environment[name])


def _shown(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
        return f"{value[:MAX_VALUE_CHARS]}... ({len(value)} characters)"
    return value
