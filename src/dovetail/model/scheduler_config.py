"""The part of kube-scheduler's configuration that planning must know: the default spread constraints.

A document, not a path. Mistakes stop the start, in Karpenter's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from dovetail.model import yaml_document
from dovetail.model.formats import qualified_name
from dovetail.model.pods import TopologySpreadConstraint


class SchedulerConfigError(ValueError):
    """What is wrong with the document."""


class _Spread(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    default_constraints: list[dict[str, Any]] = []


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pod_topology_spread: _Spread = _Spread()


_FIELDS = {field.encode_name for field in msgspec.structs.fields(TopologySpreadConstraint)}


def default_constraints(text: str) -> tuple[TopologySpreadConstraint, ...]:
    """The default constraints of a document; an empty one has none."""
    if not text.strip():
        return ()
    try:
        document = msgspec.convert(yaml_document.load(text) or {}, _Document)
        constraints_ = [
            _constraint(default_constraint) for default_constraint in document.pod_topology_spread.default_constraints
        ]
    except (yaml.YAMLError, msgspec.ValidationError) as problem:
        raise SchedulerConfigError(f"decoding scheduler config, {problem}") from problem
    seen: dict[tuple[str, str], int] = {}
    for index, constraint in enumerate(constraints_):
        where = f"validating scheduler config, podTopologySpread.defaultConstraints[{index}]"
        problem_text = _problem(constraint)
        if problem_text:
            raise SchedulerConfigError(where + problem_text)
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        if key in seen:
            raise SchedulerConfigError(f"{where} is a duplicate of [{seen[key]}], {{{key[0]}, {key[1]}}}")
        seen[key] = index
    return tuple(constraints_)


def _constraint(given: Mapping[str, Any]) -> TopologySpreadConstraint:
    unknown = sorted(given.keys() - _FIELDS)
    if unknown:
        raise msgspec.ValidationError(f'unknown field "{unknown[0]}"')
    constraint = {"maxSkew": 0, "whenUnsatisfiable": "", **given}
    return msgspec.convert(constraint, TopologySpreadConstraint)


def _problem(constraint: TopologySpreadConstraint) -> str:
    if constraint.max_skew <= 0:
        return ".maxSkew must be greater than 0"
    if not constraint.topology_key:
        return ".topologyKey must be set"
    wrong = qualified_name(constraint.topology_key)
    if wrong:
        return f'.topologyKey "{constraint.topology_key}" is not a valid label name, {", ".join(wrong)}'
    if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        return (
            f'.whenUnsatisfiable "{constraint.when_unsatisfiable}" must be one of "DoNotSchedule" or "ScheduleAnyway"'
        )
    if constraint.label_selector is not None:
        return ".labelSelector must not be set, as selectors are deduced for each pod"
    if constraint.match_label_keys:
        return ".matchLabelKeys must not be set, as it has no effect on default constraints"
    return ""
