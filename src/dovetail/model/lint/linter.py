"""Lint as a whole: read the files, look at every object of ours, then at all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.cross_object import contradictions, fleet
from dovetail.model.lint.deprecated import deprecated
from dovetail.model.lint.envelope import is_known, metadata, pod_autoscalers, subjects, unknown_kind
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.nodeclasses import classes
from dovetail.model.lint.nodepools import pools, refusals
from dovetail.model.lint.requirements import requirement_findings
from dovetail.model.lint.schema import shape
from dovetail.model.lint.source import SourceFile, read
from dovetail.model.lint.subject import LintSubject


def lint(sources: Iterable[SourceFile], now: datetime, shop: InstanceCatalog | None = None) -> list[LintFinding]:
    """Everything found, in the order of files and lines."""
    findings: list[LintFinding] = []
    subjects_: list[LintSubject] = []
    autoscalers: list[LintSubject] = []
    order: dict[str, int] = {}
    for source in sources:
        order.setdefault(source.name, len(order))
        documents, unread = read(source)
        findings.extend(unread)
        for document in documents:
            autoscalers.extend(pod_autoscalers(document))
            for subject in subjects(document):
                if is_known(subject):
                    subjects_.append(subject)
                    findings.extend(_one(subject, shop, now))
                else:
                    findings.extend(unknown_kind(subject))
    findings.extend(fleet(subjects_, shop))
    findings.extend(contradictions(autoscalers))
    return sorted(
        set(findings),
        key=lambda finding: (order[finding.file], finding.line, finding.column, finding.code, finding.message),
    )


def _one(subject: LintSubject, shop: InstanceCatalog | None, now: datetime) -> Iterator[LintFinding]:
    findings = [*metadata(subject), *shape(subject)]
    findings.extend(requirement_findings(subject, shop))
    said = {finding.path for finding in findings if finding.severity == "error"}
    findings.extend(
        finding for finding in pools(subject, shop, now) if finding.code != "DV107" or finding.path not in said
    )
    findings.extend(refusals(subject, {finding.path for finding in findings if finding.severity == "error"}))
    findings.extend(classes(subject))
    findings.extend(deprecated(subject))
    yield from findings
