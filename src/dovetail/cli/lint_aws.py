"""`dovetail lint --aws`: ask AWS whether the selectors of node classes select something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dovetail.errors import Problem
from dovetail.model.kinds.selector_maps import images_up, terms_up
from dovetail.model.lint.envelope import is_known, subjects
from dovetail.model.lint.findings import Finding
from dovetail.model.lint.source import Source, read
from dovetail.model.lint.subject import Subject

Term = Mapping[str, Any]
#: field of v1, field of the first generation, the EC2 call and its answer's list, the filter for an id and a name.
_SELECTORS = (
    ("subnetSelectorTerms", "subnetSelector", "describe_subnets", "Subnets", "subnet-id", None),
    (
        "securityGroupSelectorTerms",
        "securityGroupSelector",
        "describe_security_groups",
        "SecurityGroups",
        "group-id",
        "group-name",
    ),
    ("amiSelectorTerms", "amiSelector", "describe_images", "Images", "image-id", "name"),
)


def selectors(sources: Iterable[Source], region: str | None) -> list[Finding]:
    """A finding for every term that matches nothing, or the reason why AWS could not be asked."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    findings: list[Finding] = []
    try:
        ec2 = boto3.client("ec2", region_name=region)
        for source in sources:
            for document in read(source)[0]:
                for subject in filter(is_known, subjects(document)):
                    if subject.kind in ("EC2NodeClass", "AWSNodeTemplate"):
                        findings.extend(_subject(subject, ec2))
    except (BotoCoreError, ClientError) as error:
        raise Problem(f"AWS could not be asked: {error}") from error
    return findings


def _subject(subject: Subject, ec2: Any) -> Iterable[Finding]:
    for terms_field, map_field, call, answer, id_filter, name_filter in _SELECTORS:
        terms, places = _terms(subject, terms_field, map_field)
        for term, place in zip(terms, places, strict=True):
            filters = _filters(term, id_filter, name_filter)
            if filters and not _found(getattr(ec2, call), answer, filters, term.get("owner")):
                shown = ", ".join(f"{each['Name'].removeprefix('tag:')}={each['Values'][0]}" for each in filters)
                text = f"nothing in AWS matches {shown}"
                hint = "tag what it should find, or correct the term"
                yield subject.finding("DV401", place, text, hint=hint)


def _terms(
    subject: Subject, terms_field: str, map_field: str
) -> tuple[Sequence[Term], Sequence[tuple[str | int, ...]]]:
    written = subject.get("spec", terms_field)
    if isinstance(written, list):
        terms = [(term, ("spec", terms_field, index)) for index, term in enumerate(written) if isinstance(term, dict)]
        return [term for term, _ in terms], [place for _, place in terms]
    old = subject.get("spec", map_field)
    if not isinstance(old, dict):
        return [], []
    up: Callable[[Mapping[str, Any]], list[dict[str, Any]]] = images_up if map_field == "amiSelector" else terms_up
    found = up(old)
    return found, [("spec", map_field)] * len(found)


def _filters(term: Term, id_filter: str, name_filter: str | None) -> list[dict[str, Any]]:
    filters: list[dict[str, Any]] = []
    if isinstance(term.get("id"), str):
        filters.append({"Name": id_filter, "Values": [term["id"]]})
    if isinstance(term.get("name"), str) and name_filter:
        filters.append({"Name": name_filter, "Values": [term["name"]]})
    tags = term.get("tags")
    for key, value in tags.items() if isinstance(tags, dict) else ():
        if value in ("*", ""):
            filters.append({"Name": "tag-key", "Values": [key]})
        else:
            filters.append({"Name": f"tag:{key}", "Values": [str(value)]})
    return filters


def _found(call: Callable[..., Mapping[str, Any]], answer: str, filters: list[dict[str, Any]], owner: Any) -> bool:
    extra = {"Owners": [owner] if owner else ["self", "amazon"]} if answer == "Images" else {}
    return bool(call(Filters=filters, **extra).get(answer))
