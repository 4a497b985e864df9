"""Conditions in a status: how they are described. Their reading is `dovetail.model.meta.Condition`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from dovetail.model.kinds.schema import Field
from dovetail.model.meta import View

TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
STATUSES = ("True", "False", "Unknown")


class StatusCondition(View, frozen=True, kw_only=True):
    """One thing that is true, false or not known of the object."""

    last_transition_time: Annotated[datetime | None, Field("When the status last changed.", required=True)] = None
    message: Annotated[str, Field("The same for a human reader.", required=True, max_length=32768)] = ""
    observed_generation: Annotated[
        int, Field("Generation of the object that this was said of.", format="int64", minimum=0)
    ] = 0
    reason: Annotated[
        str,
        Field(
            "Why, in one CamelCase word.",
            required=True,
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ] = ""
    status: Annotated[str, Field("Whether it holds.", required=True, enum=STATUSES)] = ""
    type: Annotated[str, Field("What is said.", required=True, max_length=316, pattern=TYPE)] = ""


class ClaimCondition(StatusCondition, frozen=True, kw_only=True):
    """A NodeClaim's: reason and message may be left out."""

    message: Annotated[str, Field("The same for a human reader.", max_length=32768)] = ""
    reason: Annotated[
        str,
        Field("Why, in one CamelCase word.", max_length=1024, pattern=r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"),
    ] = ""


CONDITIONS = Field("What is known of the object now; Ready sums it up.", list_type="map", list_keys=("type",))
PLAIN_CONDITIONS = Field("What is known of the object now; Ready sums it up.")
