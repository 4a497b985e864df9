"""Expanders: which of the groups that could help is asked to grow.

Several in a chain narrow the choice one after another; what they leave equal is decided by chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
import yaml

from dovetail.chance import Chance
from dovetail.cloud.node_groups import NodeGroup
from dovetail.language import message
from dovetail.model import yaml_document
from dovetail.model.fit import NodeInfo
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources

RANDOM, LEAST_WASTE, MOST_PODS, LEAST_NODES, PRIORITY, PRICE, GRPC = (
    "random",
    "least-waste",
    "most-pods",
    "least-nodes",
    "priority",
    "price",
    "grpc",
)
AVAILABLE = (RANDOM, LEAST_WASTE, MOST_PODS, LEAST_NODES, PRIORITY, PRICE)
PRIORITY_CONFIG_MAP = "cluster-autoscaler-priority-expander"
PRIORITY_KEY = "priorities"


class Option(msgspec.Struct, frozen=True):
    """A group that could grow by so many nodes for these pods."""

    group: NodeGroup
    nodes: int
    pods: tuple[Pod, ...]
    similar: tuple[NodeGroup, ...] = ()


Templates = Mapping[str, NodeInfo]
Filter = Callable[[Sequence[Option], Templates], list[Option]]


class ExpanderError(ValueError):
    """The --expander flag cannot be read; the text says what it may be."""


def parse_chain(text: str) -> tuple[str, ...]:
    """The names of a chain, checked. Raises ExpanderError."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ExpanderError(
            message("--expander={text}: names no expander; choose of {names}", text=text, names=", ".join(AVAILABLE))
        )
    for position, name in enumerate(names):
        if name == GRPC:
            raise ExpanderError(
                message(
                    "--expander={text}: grpc is not supported, since there is no gRPC client here; write the order of "
                    "the groups into the ConfigMap {config_map} and use priority, or choose of {names}",
                    text=text,
                    config_map=PRIORITY_CONFIG_MAP,
                    names=", ".join(AVAILABLE),
                )
            )
        if name not in AVAILABLE:
            raise ExpanderError(
                message(
                    "--expander={text}: {name!r} is no expander; choose of {names}",
                    text=text,
                    name=name,
                    names=", ".join(AVAILABLE),
                )
            )
        if name in names[:position]:
            raise ExpanderError(
                message("--expander={text}: {name} stands there twice; name it once", text=text, name=name)
            )
        if name == RANDOM and position < len(names) - 1:
            raise ExpanderError(
                message("--expander={text}: nothing may follow random, which leaves one option; put it last", text=text)
            )
    return names


def choose(options: Sequence[Option], filters: Sequence[Filter], templates: Templates, chance: Chance) -> Option | None:
    """The option that is left after every filter; the last word is chance's.

    A single option passes the first filter too: it may be none to choose, or worth a warning.
    """
    left = list(options)
    for narrow in filters:
        if not left:
            return None
        left = narrow(left, templates)
        if len(left) == 1:
            return left[0]
    return chance.choice(left) if left else None


def least_waste(options: Sequence[Option], templates: Templates) -> list[Option]:
    """The least CPU and memory that no pod requests, each as a share of what the nodes have."""
    total_requests: dict[int, tuple[int, int]] = {}
    for option in options:
        if id(option.pods) not in total_requests:
            pod_requests = [requests(pod) for pod in option.pods]
            cpu, memory = (sum(request.get(name, 0) for request in pod_requests) for name in ("cpu", "memory"))
            total_requests[id(option.pods)] = cpu, memory
    return lowest(options, lambda option: _waste(option, total_requests[id(option.pods)], templates))


def _waste(option: Option, total_requests: tuple[int, int], templates: Templates) -> float | None:
    template = templates.get(option.group.id)
    if template is None:
        return None
    capacity = resources(template.node.status.capacity)
    waste = 0.0
    for name, amount in zip(("cpu", "memory"), total_requests, strict=True):
        total = capacity.get(name, 0) * option.nodes
        if total:
            waste += (total - amount) / total
    return waste


def most_pods(options: Sequence[Option], templates: Templates) -> list[Option]:
    return lowest(options, lambda option: -float(len(option.pods)))


def least_nodes(options: Sequence[Option], templates: Templates) -> list[Option]:
    """The fewest new nodes; an option without any is none."""
    return lowest(options, lambda option: float(option.nodes) if option.nodes > 0 else None)


def lowest(options: Sequence[Option], score: Callable[[Option], float | None]) -> list[Option]:
    best: list[Option] = []
    least = 0.0
    for option in options:
        value = score(option)
        if value is None:
            continue
        if not best or value < least:
            best, least = [option], value
        elif value == least:
            best.append(option)
    return best


class ConfigWarning(msgspec.Struct, frozen=True):
    """Something about the priority ConfigMap that its owner should know, in the words that alerts on it match."""

    reason: str
    message: str


Warn = Callable[[ConfigWarning], None]


def parse_priorities(text: str) -> dict[int, tuple[re.Pattern[str], ...]]:
    """Priorities with the patterns of group names that have them. Raises ValueError."""
    if not text.strip():
        raise ValueError(
            f"priority configuration in {PRIORITY_CONFIG_MAP} configmap is empty; please provide valid configuration"
        )
    try:
        parsed = yaml_document.load(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"Can't parse YAML with {PRIORITY_KEY} in the configmap: {problem}") from problem
    if not isinstance(parsed, dict):
        raise ValueError(
            f"Can't parse YAML with {PRIORITY_KEY} in the configmap: it must map numbers to lists of patterns"
        )
    priorities: dict[int, tuple[re.Pattern[str], ...]] = {}
    for number, patterns in parsed.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"{number!r} is no priority: it must be a whole number")
        if patterns is None:
            continue  # a number without a list is that of no group
        if not isinstance(patterns, list):
            raise ValueError(f"priority {number} must have a list of patterns")
        compiled: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                compiled.append(re.compile(str(pattern)))
            except re.error as problem:
                raise ValueError(
                    f"Can't compile regexp rule for priority {number} and rule {pattern}: {problem}"
                ) from problem
        priorities[number] = tuple(compiled)
    return priorities


def priority_filter(config: Mapping[str, str] | None, warn: Warn) -> Filter:
    """Groups of the highest priority in the ConfigMap's data. A missing or bad ConfigMap keeps every option."""

    def narrow(options: Sequence[Option], templates: Templates) -> list[Option]:
        if config is None:
            return list(options)
        text = config.get(PRIORITY_KEY)
        if text is None:
            lacking = f"Wrong configmap for priority expander, doesn't contain {PRIORITY_KEY} key. Ignoring update."
            warn(ConfigWarning("PriorityConfigMapInvalid", lacking))
            return list(options)
        try:
            priorities = parse_priorities(text)
        except ValueError as problem:
            wrong = f"Wrong configuration for priority expander: {problem}. Ignoring update."
            warn(ConfigWarning("PriorityConfigMapInvalid", wrong))
            return list(options)
        return _of_highest_priority(options, priorities, warn)

    return narrow


def _of_highest_priority(
    options: Sequence[Option], priorities: Mapping[int, Sequence[re.Pattern[str]]], warn: Warn
) -> list[Option]:
    ranked: list[tuple[int, Option]] = []
    for option in options:
        matching = [
            number
            for number, patterns in priorities.items()
            if any(pattern.search(option.group.id) for pattern in patterns)
        ]
        if matching:
            ranked.append((max(matching), option))
        else:
            text = (
                f"Priority expander: node group {option.group.id} not found in priority expander configuration. "
                "The group won't be used."
            )
            warn(ConfigWarning("PriorityConfigMapNotMatchedGroup", text))
    if not ranked:
        none = "Priority expander: no priorities info found for any of the expansion options. No options filtered."
        warn(ConfigWarning("PriorityConfigMapNoGroupMatched", none))
        return list(options)
    highest = max(number for number, _ in ranked)
    return [option for number, option in ranked if number == highest]
