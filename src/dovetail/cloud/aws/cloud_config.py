"""The file of `--cloud-config`: endpoints of AWS services, for partitions and test endpoints that boto3 does not know.

```
[ServiceOverride "1"]
Service = autoscaling
Region = eu-west-1
URL = https://autoscaling.example.com
SigningRegion = eu-west-1
```

Sections of other kinds describe the cluster for other programs and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"([^"]*)")?\s*\]')
_ENTRY = re.compile(r"([\w-]+)\s*=\s*(.*)")
_REQUIRED = ("service", "region", "url", "signingregion")


class CloudConfigError(ValueError):
    """The file cannot be used; the text names the section and the field."""


class ServiceEndpoint(msgspec.Struct, frozen=True):
    """Where a service is reached, and the region that requests are signed for."""

    url: str
    signing_region: str


def service_endpoints(text: str, region: str) -> dict[str, ServiceEndpoint]:
    """The endpoints of services in a region, by boto3's names of them. Raises CloudConfigError."""
    endpoints: dict[tuple[str, str], ServiceEndpoint] = {}
    for title, fields in _overrides(text).items():
        missing = next((field for field in _REQUIRED if not fields.get(field)), None)
        if missing is not None:
            raise CloudConfigError(f'[ServiceOverride "{title}"]: {missing} is missing')
        key = fields["service"].lower().replace(" ", ""), fields["region"]
        if key in endpoints:
            raise CloudConfigError(f'[ServiceOverride "{title}"]: {key[0]} in {key[1]} has an endpoint already')
        endpoints[key] = ServiceEndpoint(fields["url"], fields["signingregion"])
    return {service: endpoint for (service, place), endpoint in endpoints.items() if place == region}


def _overrides(text: str) -> Mapping[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        section, entry = _SECTION.fullmatch(line), _ENTRY.fullmatch(line)
        if section is not None:
            fields = {}
            if section[1].lower() == "serviceoverride":
                fields = sections.setdefault(section[2] or "", {})
        elif entry is not None:
            fields[entry[1].lower()] = _value(entry[2])
        else:
            raise CloudConfigError(f"line {number}: {line!r} is neither a [section] nor a field = value")
    return sections


def _value(text: str) -> str:
    if text.startswith('"'):
        return text[1:].partition('"')[0]
    return re.split(r"\s*[#;]", text, maxsplit=1)[0].strip()
