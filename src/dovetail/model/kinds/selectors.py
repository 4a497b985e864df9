"""How a node class finds things in AWS: lists of terms, any of which may match; within a term all must."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.meta import View

TAGS = Field(
    "Tags it must have; the value * stands for any.",
    max_properties=20,
    rules=(
        SchemaRule(
            "self.all(k, k != '' && self[k] != '')",
            "empty tag keys or values aren't supported",
            lambda tags: all(key and value for key, value in tags.items()),
        ),
    ),
)
ALIASES = ("al2", "al2023", "bottlerocket", "windows2019", "windows2022", "windows2025")
WINDOWS_ALIASES = ALIASES[3:]


def has_any(term: Mapping[str, Any], *fields: str) -> bool:
    return any(field in term for field in fields)


def some_of(*fields: str) -> SchemaRule:
    """Every term must say something."""
    either = " || ".join(f"has(x.{field})" for field in fields)
    listed = ", ".join(f"'{field}'" for field in fields)
    return SchemaRule(
        f"self.all(x, {either})",
        f"expected at least one, got none, [{listed}]",
        lambda terms: all(has_any(term, *fields) for term in terms),
    )


def not_empty(field: str) -> SchemaRule:
    return SchemaRule("self.size() != 0", f"{field} cannot be empty", lambda terms: len(terms) != 0)


def alone(field: str, others: tuple[str, ...], where: str, words: str = "set with a combination of") -> SchemaRule:
    """A field that stands alone in its term. As upstream, the rule speaks up only where all terms break it."""
    either = " || ".join(f"has(x.{other})" for other in others)
    inner = f"({either})" if len(others) > 1 else either
    return SchemaRule(
        f"!self.all(x, has(x.{field}) && {inner})",
        f"'{field}' is mutually exclusive, cannot be {words} other fields in {where}",
        lambda terms: not all(field in term and has_any(term, *others) for term in terms),
    )


def alone_everywhere(field: str, others: tuple[str, ...]) -> SchemaRule:
    """The strict form: one term that breaks it is enough."""
    either = " || ".join(f"has(x.{other})" for other in others)
    return SchemaRule(
        f"!self.exists(x, has(x.{field}) && ({either}))",
        f"'{field}' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        lambda terms: not any(field in term and has_any(term, *others) for term in terms),
    )


class SubnetTerm(View, frozen=True, kw_only=True):
    tags: Annotated[Mapping[str, str] | None, TAGS] = None
    id: Annotated[str | None, Field("The subnet itself; then nothing else.", pattern=r"subnet-[0-9a-z]+")] = None


class SecurityGroupTerm(View, frozen=True, kw_only=True):
    tags: Annotated[Mapping[str, str] | None, TAGS] = None
    id: Annotated[str | None, Field("The group itself; then nothing else.", pattern=r"sg-[0-9a-z]+")] = None
    name: Annotated[str | None, Field("The group's own name, which is not its Name tag.")] = None


class ReservationTerm(View, frozen=True, kw_only=True):
    tags: Annotated[Mapping[str, str] | None, TAGS] = None
    id: Annotated[str | None, Field("The reservation itself; then nothing else.", pattern=r"^cr-[0-9a-z]+$")] = None
    owner_id: Annotated[str | None, Field("Account that owns the reservation.", pattern=r"^[0-9]{12}$")] = (
        msgspec.field(default=None, name="ownerID")
    )
    instance_match_criteria: Annotated[
        str | None,
        Field("Whether any node may use the reservation or only those that name it.", enum=("open", "targeted")),
    ] = None


def _family(alias: str) -> str:
    return alias.split("@")[0]


def _alias_shape(alias: str) -> bool:
    family, separator, version = alias.partition("@")
    return bool(separator) and bool(version) and family.isascii() and family.isalnum()


ALIAS_RULES = (
    SchemaRule(
        "self.matches('^[a-zA-Z0-9]+@.+$')",
        "'alias' is improperly formatted, must match the format 'family@version'",
        _alias_shape,
    ),
    SchemaRule(
        "self.split('@')[0] in [" + ",".join(f"'{family}'" for family in ALIASES) + "]",
        "family is not supported, must be one of the following: " + ", ".join(f"'{family}'" for family in ALIASES),
        lambda alias: _family(alias) in ALIASES,
    ),
    SchemaRule(
        "self.split('@')[0] in ["
        + ",".join(f"'{family}'" for family in WINDOWS_ALIASES)
        + "] ? self.split('@')[1] == 'latest' : true",
        "windows families may only specify version 'latest'",
        lambda alias: _family(alias) not in WINDOWS_ALIASES or alias.split("@")[1] == "latest",
    ),
)


class BetaImageTerm(View, frozen=True, kw_only=True):
    tags: Annotated[Mapping[str, str] | None, TAGS] = None
    id: Annotated[str | None, Field("The image itself; then nothing else.", pattern=r"ami-[0-9a-z]+")] = None
    name: Annotated[str | None, Field("Name of the image; wildcards are allowed.")] = None
    owner: Annotated[str | None, Field("Account or alias that owns the image; self and amazon if left out.")] = None


class ImageTerm(BetaImageTerm, frozen=True, kw_only=True):
    alias: Annotated[
        str | None,
        Field(
            "Family and version of one of Amazon's own images, such as al2023@latest; then the only term.",
            max_length=30,
            rules=ALIAS_RULES,
        ),
    ] = None
    ssm_parameter: Annotated[str | None, Field("Name or ARN of an SSM parameter that holds the image's id.")] = None


IMAGE_TERMS = Field(
    "Images the nodes may boot.",
    required=True,
    min_items=1,
    max_items=30,
    rules=(
        some_of("tags", "id", "name", "alias", "ssmParameter"),
        alone_everywhere("id", ("alias", "tags", "name", "owner")),
        alone_everywhere("alias", ("id", "tags", "name", "owner")),
        SchemaRule(
            "!(self.exists(x, has(x.alias)) && self.size() != 1)",
            "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
            lambda terms: not (any("alias" in term for term in terms) and len(terms) != 1),
        ),
    ),
)


def subnet_terms(where: str) -> Field:
    return Field(
        "Subnets the nodes may stand in.",
        required=True,
        max_items=30,
        rules=(not_empty("subnetSelectorTerms"), some_of("tags", "id"), alone("id", ("tags",), where)),
    )


def security_group_terms(where: str) -> Field:
    return Field(
        "Security groups the nodes get: all that any term matches.",
        required=True,
        max_items=30,
        rules=(
            not_empty("securityGroupSelectorTerms"),
            some_of("tags", "id", "name"),
            alone("id", ("tags", "name"), where),
            alone("name", ("tags", "id"), where),
        ),
    )


RESERVATION_TERMS = Field(
    "Capacity reservations the nodes may use.",
    max_items=30,
    rules=(
        some_of("tags", "id", "instanceMatchCriteria"),
        alone(
            "id",
            ("tags", "ownerID", "instanceMatchCriteria"),
            "a capacity reservation selector term",
            "set along with",
        ),
    ),
)
