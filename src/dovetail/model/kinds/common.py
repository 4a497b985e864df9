"""The parts that NodePools, NodeClaims and node classes of every generation are made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.labels import AWS_GROUP, CAPACITY_TYPE, GROUP, HOSTNAME, NODEPOOL
from dovetail.model.meta import View

LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"

#: Labels of the AWS domain that a node's type decides, so that a requirement may name them.
INSTANCE_LABELS = tuple(
    f"{AWS_GROUP}/{name}"
    for name in (
        "ec2nodeclass",
        "instance-encryption-in-transit-supported",
        "instance-category",
        "instance-hypervisor",
        "instance-family",
        "instance-generation",
        "instance-local-nvme",
        "instance-size",
        "instance-cpu",
        "instance-cpu-manufacturer",
        "instance-cpu-sustained-clock-speed-mhz",
        "instance-memory",
        "instance-ebs-bandwidth",
        "instance-network-bandwidth",
        "instance-gpu-name",
        "instance-gpu-manufacturer",
        "instance-gpu-count",
        "instance-gpu-memory",
        "instance-accelerator-name",
        "instance-accelerator-manufacturer",
        "instance-accelerator-count",
        "instance-capability-flex",
    )
)
#: And those that the purchase decides.
PURCHASE_LABELS = tuple(
    f"{AWS_GROUP}/{name}"
    for name in (
        "instance-tenancy",
        "capacity-reservation-type",
        "capacity-reservation-id",
        "capacity-reservation-interruptible",
        "placement-group-id",
        "placement-group-partition",
    )
)
AWS_LABELS = PURCHASE_LABELS + INSTANCE_LABELS
BETA_AWS_LABELS = tuple(
    key
    for key in INSTANCE_LABELS
    if not key.endswith(("/ec2nodeclass", "/instance-capability-flex", "/instance-cpu-sustained-clock-speed-mhz"))
)


def domain(key: str) -> str:
    """What stands before the slash, or the whole key: the part that the API server's rules look at."""
    return key.partition("/")[0]


def _cel_list(keys: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{key}"' for key in keys) + "]"


def domain_rule(name: str, allowed: tuple[str, ...], *, of_map: bool, friends: tuple[str, ...] = ()) -> SchemaRule:
    """Keys of a domain are refused, but for those listed and for the friendly subdomains."""
    subject = "x" if of_map else "self"
    head = f'{subject}.find("^([^/]+)")'
    exempt = f"{subject} in {_cel_list(allowed)} || " if allowed else ""
    spared = "".join(f'{head}.endsWith("{friend}") || ' for friend in friends)
    cel = f'{exempt}{spared}!{head}.endsWith("{name}")'
    permitted = frozenset(allowed)

    def may(key: str) -> bool:
        start = domain(key)
        return key in permitted or any(start.endswith(friend) for friend in friends) or not start.endswith(name)

    return _keyed(cel, f'label domain "{name}" is restricted', may, of_map=of_map)


def key_rule(key: str, *, of_map: bool) -> SchemaRule:
    """One key is refused."""
    subject = "x" if of_map else "self"
    return _keyed(f'{subject} != "{key}"', f'label "{key}" is restricted', lambda other: other != key, of_map=of_map)


def _keyed(cel: str, message: str, may: Any, *, of_map: bool) -> SchemaRule:
    if of_map:
        return SchemaRule(f"self.all(x, {cel})", message, lambda value: all(may(key) for key in value))
    return SchemaRule(cel, message, may)


def label_rules(*, of_map: bool, pool: bool, aws: tuple[str, ...] = AWS_LABELS) -> tuple[SchemaRule, ...]:
    """Which keys a v1 object may ask for; a pool may not name its own label."""
    own = (key_rule(NODEPOOL, of_map=of_map),) if pool else ()
    return (
        domain_rule(GROUP, (CAPACITY_TYPE, NODEPOOL), of_map=of_map),
        *own,
        key_rule(HOSTNAME, of_map=of_map),
        domain_rule(AWS_GROUP, aws, of_map=of_map),
    )


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
BETA_OPERATORS = OPERATORS[:6]

KEY_TEXT = "Label key that the requirement is about. Old beta keys are read as their modern names."
OPERATOR_TEXT = (
    "How the label's value relates to `values`. Gt, Lt, Gte and Lte compare whole numbers; "
    "Exists and DoesNotExist take no values."
)
VALUES_TEXT = "Values to compare with. In needs at least one; Gt, Lt, Gte and Lte need exactly one whole number."
MIN_VALUES_TEXT = (
    "Flexibility to keep: the instance types left for a node must offer at least this many different values of the key."
)


def key_field(rules: tuple[SchemaRule, ...]) -> Field:
    return Field(KEY_TEXT, required=True, max_length=316, pattern=LABEL_KEY, rules=rules)


class Term(View, frozen=True, kw_only=True):
    """A requirement as it stands in a manifest; `dovetail.model.requirements` gives it its meaning."""

    key: Annotated[str, key_field(label_rules(of_map=False, pool=False))] = ""
    operator: Annotated[str, Field(OPERATOR_TEXT, required=True, enum=OPERATORS)] = ""
    values: Annotated[tuple[str, ...], Field(VALUES_TEXT, list_type="atomic", max_length=63, pattern=LABEL_VALUE)] = ()


class ClaimTerm(Term, frozen=True, kw_only=True):
    """A requirement that may also ask for flexibility."""

    min_values: Annotated[int | None, Field(MIN_VALUES_TEXT, minimum=1, maximum=50)] = None


class PoolTerm(ClaimTerm, frozen=True, kw_only=True):
    """A requirement of a pool, which may not name the pool's own label."""

    key: Annotated[str, key_field(label_rules(of_map=False, pool=True))] = ""


def _single_number(term: Mapping[str, Any]) -> bool:
    values = term["values"]
    return len(values) == 1 and _cel_int(values[0]) >= 0


def _cel_int(text: str) -> int:
    """Go's reading of a decimal integer, which is what CEL's int() does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("type conversion error from 'string' to 'int'")
    return int(text)


def values_rule(operator: str) -> SchemaRule:
    return SchemaRule(
        f"self.all(x, x.operator == '{operator}' ? x.values.size() != 0 : true)",
        f"requirements with operator '{operator}' must have a value defined",
        lambda terms: _all(terms, lambda term: term["operator"] != operator or len(term["values"]) != 0),
    )


def number_rule(operators: tuple[str, ...], named: str) -> SchemaRule:
    either = " || ".join(f"x.operator == '{operator}'" for operator in operators)
    return SchemaRule(
        f"self.all(x, ({either}) ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
        f"requirements operator {named} must have a single positive integer value",
        lambda terms: _all(terms, lambda term: term["operator"] not in operators or _single_number(term)),
    )


MIN_VALUES_RULE = SchemaRule(
    "self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)",
    "requirements with 'minValues' must have at least that many values specified in the 'values' field",
    lambda terms: _all(
        terms,
        lambda term: not (term["operator"] == "In" and "minValues" in term) or len(term["values"]) >= term["minValues"],
    ),
)


def _all(items: Any, holds: Any) -> bool:
    """CEL's `all`: one refusal outweighs an error in another member."""
    failure: Exception | None = None
    for item in items:
        try:
            if not holds(item):
                return False
        except (KeyError, ValueError) as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return True


REQUIREMENTS_TEXT = "Which nodes will do. A node must meet every one; pods narrow them further."
NUMBER_RULE = number_rule(("Gt", "Lt", "Gte", "Lte"), "'Gt', 'Lt', 'Gte', or 'Lte'")
REQUIREMENT_RULES = (values_rule("In"), NUMBER_RULE, MIN_VALUES_RULE)
REQUIREMENTS = Field(REQUIREMENTS_TEXT, required=True, max_items=100, list_type="atomic", rules=REQUIREMENT_RULES)


class Taint(View, frozen=True, kw_only=True):
    """A taint that a node is born with."""

    key: Annotated[str, Field("Name of the taint.", required=True, min_length=1, pattern=LABEL_KEY)] = ""
    value: Annotated[str, Field("Value of the taint; pods tolerate key and value.", pattern=LABEL_KEY)] = ""
    effect: Annotated[
        str,
        Field(
            "What happens to pods that do not tolerate the taint.",
            required=True,
            enum=("NoSchedule", "PreferNoSchedule", "NoExecute"),
        ),
    ] = ""
    time_added: Annotated[datetime | None, Field("When the taint was added.")] = None


TAINTS = Field("Taints of the node for its whole life. Pods come only if they tolerate them.", list_type="atomic")
STARTUP_TAINTS = Field(
    "Taints the node is born with and that something else (a network agent, say) takes away. Pods need not "
    "tolerate them to be planned here.",
    list_type="atomic",
)


def _said(field: str) -> SchemaRule:
    return SchemaRule("self != ''", f"{field} may not be empty", lambda value: value != "")


class NodeClassRef(View, frozen=True, kw_only=True):
    """Where a node's cloud settings stand."""

    group: Annotated[
        str,
        Field(
            "API group of the node class.",
            required=True,
            pattern=r"^[^/]*$",
            rules=(_said("group"),),
        ),
    ] = ""
    kind: Annotated[
        str, Field("Kind of the node class, EC2NodeClass on AWS.", required=True, rules=(_said("kind"),))
    ] = ""
    name: Annotated[
        str,
        Field(
            "Name of the node class. Naming another one makes the nodes drift.",
            required=True,
            rules=(_said("name"),),
        ),
    ] = ""


AMOUNT = Field(quantity=True)
EXPIRE_AFTER = Field(
    "Life of a node; after it the node is drained and replaced. Never turns expiry off.",
    pattern=DURATION_OR_NEVER,
    default="720h",
)
TERMINATION_GRACE = Field(
    "Longest time a drain may take. When it ends, pods that are left are deleted in spite of disruption budgets "
    "and do-not-disrupt. Without it a drain waits for ever.",
    pattern=DURATION,
)
