"""Requirements that cannot mean what they say: values no node has, keys misspelt, contradictions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dovetail.language import message
from dovetail.model import labels
from dovetail.model.kinds.common import Term
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.subject import LintSubject
from dovetail.model.requirements import Requirement, Requirements, requirement
from dovetail.model.spelling import listed, nearest

_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_CATEGORY = re.compile(r"[a-z]{1,4}")
_FAMILY = re.compile(r"[a-z]+[0-9]+[a-z0-9-]*")
_SIZE = re.compile(r"(nano|micro|small|medium|large|[0-9]*xlarge|metal(-[0-9]+xl)?)")
_CATEGORY_KEY = f"{labels.AWS_GROUP}/instance-category"
_FAMILY_KEY = f"{labels.AWS_GROUP}/instance-family"
_SIZE_KEY = f"{labels.AWS_GROUP}/instance-size"


def requirement_findings(subject: LintSubject, shop: InstanceCatalog | None) -> Iterator[LintFinding]:
    """What is wrong with the requirements, one by one and together."""
    terms = subject.terms
    own = set(_labels(subject))
    findings: list[LintFinding] = []
    for index, term in terms:
        findings.extend(_key(subject, index, term, own))
        findings.extend(_values(subject, index, term, shop))
    findings.extend(_contradictions(subject, terms))
    yield from findings
    broken = any(finding.code in ("DV104", "DV105", "DV108") for finding in findings)
    if shop is not None and not broken and subject.kind in ("NodePool", "Provisioner", "NodeClaim"):
        yield from _together(subject, terms, shop)


def _labels(subject: LintSubject) -> dict[str, str]:
    path = ("spec", "labels") if subject.kind == "Provisioner" else ("spec", "template", "metadata", "labels")
    labels_there = subject.get(*path)
    return {str(key): str(value) for key, value in labels_there.items()} if isinstance(labels_there, dict) else {}


def _key(subject: LintSubject, index: int, term: Term, own: set[str]) -> Iterator[LintFinding]:
    path, key = (*subject.terms_at, index, "key"), term.key
    if key in labels.ALIASES and key.split("/")[0].endswith("beta.kubernetes.io"):
        modern = labels.ALIASES[key]
        yield subject.finding(
            "DV205",
            path,
            message("{key} is an old name", key=key),
            hint=message("write {text}", text=modern),
            edit=subject.rewrite(path, modern),
        )
    elif key not in labels.WELL_KNOWN and key not in labels.ALIASES and key not in own:
        meant = nearest(key, labels.WELL_KNOWN, cutoff=0.86)
        if labels.restricted(key) is not None:
            if subject.kind in ("Provisioner", "Machine"):  # later generations say so in their schema
                yield subject.finding(
                    "DV107",
                    path,
                    message("{key} is not a label to ask for", key=key),
                    hint=message("did you mean  {meant} ?", meant=meant)
                    if meant
                    else message("labels of that domain are not yours to ask for"),
                    edit=subject.rewrite(path, meant) if meant else None,
                )
        elif meant is not None:
            yield subject.finding(
                "DV109",
                path,
                message("{key} is no label that nodes have", key=key),
                hint=message("did you mean  {meant} ?", meant=meant),
                edit=subject.rewrite(path, meant),
            )


def _values(subject: LintSubject, index: int, term: Term, shop: InstanceCatalog | None) -> Iterator[LintFinding]:
    key, path = labels.normalise(term.key), (*subject.terms_at, index)
    if term.operator not in ("In", "NotIn", "Gt", "Lt", "Gte", "Lte") or not term.values:
        return
    if key == labels.INSTANCE_TYPE and term.operator in ("In", "NotIn"):
        yield from _types(subject, index, term, shop)
        return
    offered = shop.values.get(key) if shop is not None else None
    if offered is None and key == labels.CAPACITY_TYPE:
        offered = frozenset(labels.CAPACITY_TYPES)
    if not offered:
        return
    where = message(" in {region}", region=shop.region) if shop is not None else ""
    if term.operator not in ("In", "NotIn"):
        required = requirement(key, term.operator, term.values)
        if not any(required.has(value) for value in offered):
            text = message(
                "{key} {operator} {values}: no node{where} has such a value",
                key=key,
                operator=term.operator,
                values=" ".join(term.values),
                where=where,
            )
            yield subject.finding(
                "DV105", (*path, "values"), text, hint=message("values are {span}", span=_span(offered))
            )
        return
    for position, value in enumerate(term.values):
        if value not in offered:
            meant = nearest(value, offered, cutoff=0.55)
            some = term.operator == "NotIn" or any(other in offered for other in term.values)
            hint = (
                message("did you mean  {meant} ?", meant=meant)
                if meant
                else message("values are {span}", span=_span(offered))
            )
            edit = subject.rewrite((*path, "values", position), meant) if meant else None
            text = message('"{value}" is no value of {key}{where}', value=value, key=key, where=where)
            yield subject.finding("DV110" if some else "DV105", (*path, "values", position), text, hint=hint, edit=edit)


def _span(values: frozenset[str]) -> str:
    if all(value.isdigit() for value in values):
        numbers = sorted(map(int, values))
        return message("{first} to {last}", first=numbers[0], last=numbers[-1])
    return listed(sorted(values), 10)


def _types(subject: LintSubject, index: int, term: Term, shop: InstanceCatalog | None) -> Iterator[LintFinding]:
    path = (*subject.terms_at, index)
    names = {instance_type.name for instance_type in shop.types} if shop is not None else None
    bad = (
        [value for value in term.values if value not in names]
        if names
        else [value for value in term.values if not _TYPE.fullmatch(value)]
    )
    if not bad:
        return
    where = message(" in {region}", region=shop.region) if shop is not None else ""
    key = meant_key(term.values)
    if key is not None and len(bad) == len(term.values):
        yield subject.finding(
            "DV104",
            (*path, "values"),
            message('"{bad}" is not an instance type{where}', bad=bad[0], where=where),
            hint=message("did you mean  key: {key} ?", key=key),
            edit=subject.rewrite((*path, "key"), key),
        )
        return
    for position, value in enumerate(term.values):
        if value in bad:
            meant = nearest(value, names, cutoff=0.8) if names else None
            code = "DV104" if len(bad) == len(term.values) and term.operator == "In" else "DV110"
            yield subject.finding(
                code,
                (*path, "values", position),
                message('"{value}" is not an instance type{where}', value=value, where=where),
                hint=message("did you mean  {meant} ?", meant=meant) if meant else message("such as m5.large"),
                edit=subject.rewrite((*path, "values", position), meant) if meant and _one_off(value, meant) else None,
            )


def _one_off(value: str, meant: str) -> bool:
    """Near enough to change without asking: the same letters but for case and separators."""
    return re.sub(r"[^a-z0-9]", "", value.lower()) == re.sub(r"[^a-z0-9]", "", meant)


def meant_key(values: Sequence[str]) -> str | None:
    """The label whose values these are, where a list of instance types was expected."""
    for pattern, key in ((_SIZE, _SIZE_KEY), (_CATEGORY, _CATEGORY_KEY), (_FAMILY, _FAMILY_KEY)):
        if all(pattern.fullmatch(value) for value in values):
            return key
    return None


def _contradictions(subject: LintSubject, terms: Sequence[tuple[int, Term]]) -> Iterator[LintFinding]:
    """Requirements of one key, or a label and a requirement, that leave no value."""
    left: dict[str, tuple[Requirement, str]] = {
        requirement.key: (requirement, message("the template's label"))
        for requirement in Requirements.of_labels(_labels(subject)).values()
    }
    for index, term in terms:
        new = requirement(term.key, term.operator, term.values)
        earlier = left.get(new.key)
        if earlier is None:
            left[new.key] = (new, f"requirement {index}")
            continue
        both = new.intersection(earlier[0])
        if both.operator == "DoesNotExist" and (new.operator, earlier[0].operator) != ("DoesNotExist",) * 2:
            text = message(
                "{new} contradicts {origin}, {old}: no node meets both", new=new, origin=earlier[1], old=earlier[0]
            )
            yield subject.finding("DV108", (*subject.terms_at, index), text, hint=message("keep one of them"))
            return
        left[new.key] = (both, earlier[1])


def _together(subject: LintSubject, terms: Sequence[tuple[int, Term]], shop: InstanceCatalog) -> Iterator[LintFinding]:
    """Follow the requirements down to the one that leaves no instance type."""
    required = Requirements()
    types = list(shop.types)
    for index, term in terms:
        required = required.add(requirement(term.key, term.operator, term.values))
        fewer = shop.meeting(required, types)
        if not fewer:
            text = message(
                "no instance type in {region} is left: {count} before {term} {operator} ",
                region=shop.region,
                count=len(types),
                term=term.key,
                operator=term.operator,
            )
            text += message("[{values}], none after", values=" ".join(term.values))
            near = listed([instance_type.name for instance_type in types[:200]], 3)
            yield subject.finding(
                "DV201", (*subject.terms_at, index), text, hint=message("before it there were {near}", near=near)
            )
            return
        types = fewer
    capacity = required.of(labels.CAPACITY_TYPE)
    spot = capacity.operator == "In" and capacity.values == {labels.SPOT}
    if spot and len(types) < 5 and subject.kind != "NodeClaim":
        text = message("spot nodes of {listed} only", listed=listed([instance_type.name for instance_type in types]))
        yield subject.finding(
            "DV207", subject.terms_at, text, hint=message("allow more instance types or on-demand"), key=True
        )
