"""The first generation's selectors: one map, all of whose entries must hold, with commas for choices.

v1beta1 turned it inside out: a list of terms, any of which may hold. A map becomes the product of its choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from dovetail.model.kinds.schema import Json

ID_KEYS = ("aws-ids", "aws::ids")
NAME_KEY = "aws::name"
OWNERS_KEY = "aws::owners"
SPECIAL = (*ID_KEYS, NAME_KEY, OWNERS_KEY)


def choices(value: Any) -> list[str]:
    """The choices of a comma list; nothing stands for anything."""
    parts = [part.strip() for part in str(value).split(",")]
    return [part or "*" for part in parts]


def _ids(selector: Mapping[str, Any]) -> list[str]:
    return [part for key in ID_KEYS if key in selector for part in choices(selector[key])]


def terms_up(selector: Mapping[str, Any]) -> list[Json]:
    """Terms for subnets or security groups. Ids are exclusive: they leave nothing to tags."""
    ids = _ids(selector)
    if ids:
        return [{"id": id_} for id_ in ids]
    return [{"tags": tags} for tags in _tag_sets(selector)]


def _tag_sets(selector: Mapping[str, Any]) -> list[dict[str, str]]:
    tags = {key: choices(value) for key, value in selector.items() if key not in SPECIAL}
    if not tags:
        return []
    return [dict(zip(tags, row, strict=True)) for row in product(*tags.values())]


def images_up(selector: Mapping[str, Any]) -> list[Json]:
    """Terms for images: ids alone, or owners by names by tags."""
    ids = _ids(selector)
    if ids:
        return [{"id": id_} for id_ in ids]
    owners: Sequence[str | None] = choices(selector[OWNERS_KEY]) if OWNERS_KEY in selector else [None]
    names: Sequence[str | None] = choices(selector[NAME_KEY]) if NAME_KEY in selector else [None]
    tag_sets: Sequence[dict[str, str] | None] = _tag_sets(selector) or [None]
    terms = []
    for owner, name, tags in product(owners, names, tag_sets):
        term = {"name": name, "owner": owner, "tags": tags}
        terms.append({key: value for key, value in term.items() if value is not None})
    return [term for term in terms if term]


def terms_down(terms: Sequence[Mapping[str, Any]]) -> Json:
    """One map for terms, exact where they are a product; otherwise the nearest that selects them all."""
    ids = [str(term["id"]) for term in terms if "id" in term]
    if ids:
        return {"aws-ids": ",".join(ids)}
    return _tags_down([term["tags"] for term in terms if isinstance(term.get("tags"), Mapping)])


def _tags_down(sets: Sequence[Mapping[str, Any]]) -> Json:
    values_by_tag: dict[str, list[str]] = {}
    for tags in sets:
        for key, value in tags.items():
            if str(value) not in values_by_tag.setdefault(key, []):
                values_by_tag[key].append(str(value))
    return {key: ",".join(values) for key, values in values_by_tag.items()}


def images_down(terms: Sequence[Mapping[str, Any]]) -> Json:
    selector: Json = {}
    for field, key in (("id", "aws::ids"), ("name", NAME_KEY), ("owner", OWNERS_KEY)):
        values = list(dict.fromkeys(str(term[field]) for term in terms if field in term))
        if values:
            selector[key] = ",".join(values)
    return selector | _tags_down([term["tags"] for term in terms if isinstance(term.get("tags"), Mapping)])
