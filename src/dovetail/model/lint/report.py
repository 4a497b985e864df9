"""Findings for a terminal, for a script, and for GitHub's annotations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from dovetail.language import message, plural, source
from dovetail.model.lint.findings import LintFinding, Severity

_SEVERITIES = {Severity.ERROR: source("error"), Severity.WARNING: source("warning"), Severity.INFO: source("info")}


def text(finding: LintFinding) -> str:
    """Object, field, value, way out."""
    head = ": ".join(part for part in (finding.subject, finding.path, finding.message) if part)
    lines = [f"{message(_SEVERITIES[finding.severity])}: {head}"]
    if finding.hint:
        lines.append(f"  {finding.hint}")
    tail = message(", dovetail lint --fix") if finding.fixable else ""
    lines.append(f"  {finding.file}:{finding.line}:{finding.column}   ({finding.code}{tail})")
    return "\n".join(lines)


def summary(findings: Sequence[LintFinding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    words = []
    if errors := counts[Severity.ERROR]:
        words.append(plural("{n} error", "{n} errors", n=errors))
    if warnings := counts[Severity.WARNING]:
        words.append(plural("{n} warning", "{n} warnings", n=warnings))
    if infos := counts[Severity.INFO]:
        words.append(message("{n} info", n=infos))
    fixable = sum(finding.fixable for finding in findings)
    tail = message("; {fixable} can be fixed with --fix", fixable=fixable) if fixable else ""
    return (", ".join(words) or message("nothing found")) + tail


def as_json(findings: Sequence[LintFinding]) -> str:
    rows = [
        {
            "code": finding.code,
            "severity": finding.severity.value,
            "file": finding.file,
            "line": finding.line,
            "column": finding.column,
            "object": finding.subject,
            "path": finding.path,
            "message": finding.message,
            "hint": finding.hint,
            "fixable": finding.fixable,
        }
        for finding in findings
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False)


_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github(finding: LintFinding) -> str:
    """A workflow command: the finding appears beside the line in a pull request."""
    head = ": ".join(part for part in (finding.subject, finding.path, finding.message) if part)
    body = f"{head} ({finding.hint})" if finding.hint else head
    place = f"file={_property(finding.file)},line={finding.line},col={finding.column},title={finding.code}"
    return f"::{_LEVEL[finding.severity]} {place}::{_data(body)}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
