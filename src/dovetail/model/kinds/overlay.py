"""NodeOverlay v1alpha1: corrections to what the cloud says of its instance types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from dovetail.model.kinds.common import AMOUNT, INSTANCE_LABELS, Term, key_field, label_rules, number_rule, values_rule
from dovetail.model.kinds.conditions import CONDITIONS, StatusCondition
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.meta import Amount, ObjectMeta, View

RESERVED = ("cpu", "memory", "ephemeral-storage", "pods")
EXTENDED_ONLY = SchemaRule(
    "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
    "invalid resource restricted",
    lambda capacity: not any(name in RESERVED for name in capacity),
)
ADJUSTMENT = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"


class OverlayTerm(Term, frozen=True, kw_only=True):
    """A requirement of an overlay: it picks instance types and offerings."""

    key: Annotated[str, key_field(label_rules(of_map=False, pool=False, aws=INSTANCE_LABELS))] = ""


class NodeOverlaySpec(View, frozen=True, kw_only=True):
    requirements: Annotated[
        tuple[OverlayTerm, ...],
        Field(
            "Which instance types and offerings the overlay is for.",
            required=True,
            max_items=100,
            list_type="atomic",
            rules=(
                values_rule("NotIn"),
                values_rule("In"),
                number_rule(("Gt", "Lt", "Gte", "Lte"), "'Gt', 'Lt', 'Gte' or 'Lte'"),
            ),
        ),
    ] = ()
    price: Annotated[
        str | None, Field("Price per hour in dollars to count with instead of the cloud's.", pattern=r"^\d+(\.\d+)?$")
    ] = None
    price_adjustment: Annotated[
        str | None,
        Field(
            "Signed amount or signed percentage to add to the cloud's price; the result is never below 0.",
            pattern=ADJUSTMENT,
        ),
    ] = None
    capacity: Annotated[
        Mapping[str, Amount],
        Field(
            "Extended resources that these nodes also have, once something on the node announces them.",
            each=AMOUNT,
            rules=(EXTENDED_ONLY,),
        ),
    ] = {}
    weight: Annotated[
        int | None,
        Field("Preference among overlays: the heavier wins.", format="int32", minimum=1, maximum=10000),
    ] = None


class NodeOverlayStatus(View, frozen=True, kw_only=True):
    conditions: Annotated[tuple[StatusCondition, ...], CONDITIONS] = ()


class NodeOverlay(View, frozen=True, kw_only=True):
    """A correction to prices or capacities of some instance types."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        NodeOverlaySpec,
        Field(
            "What to correct, and where.",
            required=True,
            rules=(
                SchemaRule(
                    "!has(self.price) || !has(self.priceAdjustment)",
                    "cannot set both 'price' and 'priceAdjustment'",
                    lambda spec: not ("price" in spec and "priceAdjustment" in spec),
                ),
            ),
        ),
    ] = NodeOverlaySpec()
    status: Annotated[NodeOverlayStatus, Field("Whether the overlay is in force.")] = NodeOverlayStatus()

    @property
    def name(self) -> str:
        return self.metadata.name
