"""`dovetail lint --aws`: ask AWS whether what node classes name exists: what selectors select, roles, pinned images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.model.kinds.selector_maps import images_up, terms_up
from dovetail.model.lint.envelope import is_known, subjects
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.source import SourceFile, read
from dovetail.model.lint.subject import LintSubject

Term = Mapping[str, Any]
#: Minor versions of Kubernetes that images may be published for.
_MINORS = range(25, 40)
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


def selectors(sources: Iterable[SourceFile], region: str | None) -> list[LintFinding]:
    """A finding for every term that matches nothing, or the reason why AWS could not be asked."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    findings: list[LintFinding] = []
    try:
        ec2, iam, ssm = (boto3.client(service, region_name=region) for service in ("ec2", "iam", "ssm"))
        for source in sources:
            for document in read(source)[0]:
                for subject in filter(is_known, subjects(document)):
                    if subject.kind in ("EC2NodeClass", "AWSNodeTemplate"):
                        findings.extend(_subject(subject, ec2))
                        findings.extend(_identity(subject, iam))
                        findings.extend(_aliases(subject, ssm))
    except (BotoCoreError, ClientError) as error:
        raise UserError(message("AWS could not be asked: {error}", error=error)) from error
    return findings


def _subject(subject: LintSubject, ec2: Any) -> Iterable[LintFinding]:
    for terms_field, map_field, call, answer, id_filter, name_filter in _SELECTORS:
        terms, places = _terms(subject, terms_field, map_field)
        for term, place in zip(terms, places, strict=True):
            filters = _filters(term, id_filter, name_filter)
            if filters and not _found(getattr(ec2, call), answer, filters, term.get("owner")):
                shown = ", ".join(
                    f"{tag_filter['Name'].removeprefix('tag:')}={tag_filter['Values'][0]}" for tag_filter in filters
                )
                text = message("nothing in AWS matches {shown}", shown=shown)
                hint = message("tag what it should find, or correct the term")
                yield subject.finding("DV401", place, text, hint=hint)


def _identity(subject: LintSubject, iam: Any) -> Iterable[LintFinding]:
    """The role or instance profile that the class names."""
    for field, call, argument in (
        ("role", iam.get_role, "RoleName"),
        ("instanceProfile", iam.get_instance_profile, "InstanceProfileName"),
    ):
        name = subject.get("spec", field)
        if not isinstance(name, str) or not name or "$" in name:
            continue
        try:
            call(**{argument: name})
        except iam.exceptions.NoSuchEntityException:
            kind = "role" if field == "role" else message("instance profile")
            hint = message("correct the name, or create it: aws iam create-{replace}", replace=kind.replace(" ", "-"))
            yield subject.finding(
                "DV402", ("spec", field), message("IAM has no {kind} {name!r}", kind=kind, name=name), hint=hint
            )


def _aliases(subject: LintSubject, ssm: Any) -> Iterable[LintFinding]:
    """Pinned versions of images, for any Kubernetes version that they were published for."""
    from dovetail.cloud.aws.amis import variants

    terms, places = _terms(subject, "amiSelectorTerms", "amiSelector")
    for term, place in zip(terms, places, strict=True):
        family, at_sign, version = str(term.get("alias") or "").partition("@")
        if not at_sign or version == "latest" or not family:
            continue
        names = [variants(family, version, f"1.{minor}")[0].parameter for minor in _MINORS]
        parameters = [ssm.get_parameters(Names=names[first : first + 10]) for first in range(0, len(names), 10)]
        if not any(answer.get("Parameters") for answer in parameters):
            text = message("AWS publishes no image {family}@{version}", family=family, version=version)
            yield subject.finding(
                "DV402", place, text, hint=message("pin a version that exists, or use {family}@latest", family=family)
            )


def _terms(
    subject: LintSubject, terms_field: str, map_field: str
) -> tuple[Sequence[Term], Sequence[tuple[str | int, ...]]]:
    written = subject.get("spec", terms_field)
    if isinstance(written, list):
        terms = [(term, ("spec", terms_field, index)) for index, term in enumerate(written) if isinstance(term, dict)]
        return [term for term, _ in terms], [place for _, place in terms]
    old = subject.get("spec", map_field)
    if not isinstance(old, dict):
        return [], []
    up: Callable[[Mapping[str, Any]], list[dict[str, Any]]] = images_up if map_field == "amiSelector" else terms_up
    selectors = up(old)
    return selectors, [("spec", map_field)] * len(selectors)


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
