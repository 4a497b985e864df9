"""What kubectl printed, without what differs from run to run: instants, ages, identities, addresses, random names."""

from __future__ import annotations

import re

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \+0000( UTC)?", "<time>"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} [\d:]+ [+-]\d{4}", "<time>"),
        (r"\b\d{8}T\d{6}Z", "<time>"),
        (r"-----BEGIN CERT.*?END CERTIFICATE-----", "<certificate>"),
        (r"containerd://[0-9a-f]+", "<container>"),
        (r"\b(10|127|192)\.\d+\.\d+\.\d+\b", "<ip>"),
        (r"<ip>:\d{4,5}\b", "<ip>:<port>"),
        (r"\b3[0-2]\d{3}/(TCP|UDP)", r"<port>/\1"),
        (r"(IPv4 +)\d{4,5}\b", r"\1<port>"),
        (r"(Resource Version: +)\d+", r"\1<version>"),
        (r"nodePort: 3\d{4}", "nodePort: <port>"),
        (r"(?i)((?:target)?port: +)\d{4,5}\b", r"\1<port>"),
        (r'("?resourceVersion"?: )"?\d+"?', r"\1<version>"),
        (r"\.1[0-9a-f]{15}\b", ".<instant>"),
        (r"\b(LIVE|MERGED)-\d+", r"\1"),
        (r"\bin [\d.]+m?s \([\d.]+m?s including waiting\)", "in <age>"),
        (r"(?<![\w.-])(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s|m)(?!\w)( ago)?", "<age>"),
        (r"-[0-9a-f]{7,10}(?=-[bcdfghjklmnpqrstvwxz2456789]{5}\b|[\s\"',.:)/]|$)", "-<hash>"),
        (r"((?:template|revision)-hash[=:] ?)[0-9a-z]+", r"\1<hash>"),
        (r"(?<=-)(?!\d{5})[bcdfghjklmnpqrstvwxz2456789]{5}\b(?=[\s\"',./:)}]|$)", "<name>"),
    )
)


def normal(text: str) -> str:
    """The text with every varying part named by its kind, and columns one blank apart."""
    for pattern, name in _RULES:
        text = pattern.sub(name, text)
    return "\n".join(re.sub(r"[ \t]+", " ", line).rstrip() for line in text.splitlines())
