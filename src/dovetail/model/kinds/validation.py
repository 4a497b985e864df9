"""What the API server cannot check of a pool or an overlay: the controllers' checks, in Karpenter's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dovetail.model import duration, labels
from dovetail.model.formats import label_value, qualified_name
from dovetail.model.kinds.common import ClaimTerm, Taint, Term
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.overlay import RESERVED, NodeOverlay

#: Labels that a requirement of a pool or an overlay may name; the class has its own field, `nodeClassRef`.
KNOWN = labels.WELL_KNOWN - {f"{labels.AWS_GROUP}/ec2nodeclass", f"{labels.AWS_GROUP}/nitro-sandbox"}
#: Labels whose values are known beforehand, in order.
KNOWN_VALUES = {
    labels.CAPACITY_TYPE: labels.CAPACITY_TYPES,
    f"{labels.AWS_GROUP}/instance-tenancy": ("dedicated", "default"),
}
#: Resources that the cloud alone knows the number of.
COUNTED = frozenset(
    {
        *RESERVED,
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "habana.ai/gaudi",
        "vpc.amazonaws.com/efa",
        "vpc.amazonaws.com/pod-eni",
    }
)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")


def pool_problems(pool: NodePool) -> list[str]:
    """Why a NodePool cannot be used: the message of its ValidationSucceeded condition, in parts."""
    template = pool.spec.template
    problems_ = list(_labels(template.metadata.labels))
    seen: set[tuple[str, str]] = set()
    problems_.extend(_taints(template.spec.taints, "taints", seen))
    problems_.extend(_taints(template.spec.startup_taints, "startupTaints", seen))
    problems_.extend(_requirements(template.spec.requirements))
    problems_.extend(
        f'invalid key: "{term.key}" in requirements, restricted'
        for term in template.spec.requirements
        if term.key == labels.NODEPOOL
    )
    problems_.extend(_lengths(pool))
    return problems_


def _lengths(pool: NodePool) -> Iterator[str]:
    """Durations of the right form that are too long all the same."""
    template = pool.spec.template.spec
    for field, text in (
        ("spec.disruption.consolidateAfter", pool.spec.disruption.consolidate_after),
        ("spec.template.spec.expireAfter", template.expire_after),
        ("spec.template.spec.terminationGracePeriod", template.termination_grace_period),
    ):
        try:
            duration.parse_or_never(text)
        except duration.DurationError as problem:
            yield f"{field}: {problem}, no more than 2562047h can be counted"


def _labels(given: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(given.items()):
        if key == labels.PROVISIONER_NAME:
            continue  # a Provisioner's nodes carry its name
        if key == labels.NODEPOOL:
            yield f'invalid key name "{key}" in labels, restricted'
        for text in qualified_name(key):
            yield f'invalid key name "{key}" in labels, {_quoted(text)}'
        for text in label_value(value):
            yield f"invalid value: {value} for label[{key}], {text}"
        refused = labels.restricted(key, KNOWN)
        if refused is not None:
            yield f'invalid key name "{key}" in labels, {refused}'


def _quoted(text: str) -> str:
    """As Go quotes a string."""
    return '"' + text.replace("\\", "\\\\") + '"'


def _taints(taints: Sequence[Taint], field: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    for taint in taints:
        for text in qualified_name(taint.key):
            yield f"invalid value: {text} in {field}"
        if taint.value:
            for text in qualified_name(taint.value):
                yield f"invalid value: {text} in {field}"
        if taint.effect not in EFFECTS:
            yield f'invalid value: "{taint.effect}" in {field}'
        if (taint.key, taint.effect) in seen:
            yield f"duplicate taint Key/Effect pair {taint.key}={taint.effect}"
        seen.add((taint.key, taint.effect))


def _requirements(terms: Sequence[Term]) -> Iterator[str]:
    for term in terms:
        problems = list(requirement_problems(term))
        if problems:
            yield f"invalid value: {'; '.join(problems)} in requirements, restricted"


def requirement_problems(term: Term) -> Iterator[str]:
    """Why one requirement cannot be used."""
    key, operator, values = labels.normalise(term.key), term.operator, term.values
    least = term.min_values if isinstance(term, ClaimTerm) else None
    if operator not in OPERATORS:
        yield f"key {key} has an unsupported operator {operator} not in [{' '.join(OPERATORS)}]"
    refused = labels.restricted(key, KNOWN)
    if refused is not None:
        yield refused
    yield from _known_values(key, operator, values, least)
    for text in qualified_name(key):
        yield f"key {key} is not a qualified name, {text}"
    for value in values:
        for text in label_value(value):
            yield f"invalid value {value} for key {key}, {text}"
    if operator == "In" and not values:
        yield f"key {key} with operator In must have a value defined"
    if operator == "In" and least is not None and len(values) < least:
        yield f"key {key} with operator In must have at least minimum number of values defined in 'values' field"
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and _is_natural(values[0])):
        yield f"key {key} with operator {operator} must have a single positive integer value"


def _known_values(key: str, operator: str, values: Sequence[str], least: int | None) -> Iterator[str]:
    known_values = KNOWN_VALUES.get(key)
    if known_values is None or operator != "In":
        return
    good = [value for value in values if value in known_values]
    given = " ".join(values)
    if not good:
        choice = " ".join(f"{value}:{{}}" for value in known_values)
        yield f"no valid values found in [{given}] for {key}, expected one of: map[{choice}], got: [{given}]"
    elif least is not None and len(good) < least:
        yield (
            f"not enough valid values found in [{given}] for {key}, expected at least {least} valid values "
            f"from: [{' '.join(known_values)}], got: {len(good)}"
        )


def _is_natural(text: str) -> bool:
    digits = text[1:] if text[:1] == "+" else text
    return digits.isascii() and digits.isdigit() and int(digits) < 2**63


def overlay_problems(overlay: NodeOverlay) -> list[str]:
    """Why a NodeOverlay cannot be used."""
    problems = list(_requirements(overlay.spec.requirements))
    problems.extend(
        f"key {term.key} with operator NotIn must have a value defined"
        for term in overlay.spec.requirements
        if term.operator == "NotIn" and not term.values
    )
    problems.extend(
        f"invalid capacity: {name} in resource, restricted" for name in overlay.spec.capacity if name in COUNTED
    )
    return problems
