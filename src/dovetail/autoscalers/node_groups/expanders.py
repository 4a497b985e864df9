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
        raise ExpanderError(f"--expander={text}: names no expander; choose of {', '.join(AVAILABLE)}")
    for position, name in enumerate(names):
        if name == GRPC:
            raise ExpanderError(f"--expander={text}: grpc is not supported; choose of {', '.join(AVAILABLE)}")
        if name not in AVAILABLE:
            raise ExpanderError(f"--expander={text}: {name!r} is no expander; choose of {', '.join(AVAILABLE)}")
        if name in names[:position]:
            raise ExpanderError(f"--expander={text}: {name} stands there twice; name it once")
        if name == RANDOM and position < len(names) - 1:
            raise ExpanderError(f"--expander={text}: nothing may follow random, which leaves one option; put it last")
    return names


def choose(options: Sequence[Option], filters: Sequence[Filter], templates: Templates, chance: Chance) -> Option | None:
    """The option that is left after every filter; the last word is chance's."""
    left = list(options)
    for narrow in filters:
        if len(left) <= 1:
            break
        left = narrow(left, templates)
    if not left:
        return None
    return left[0] if len(left) == 1 else chance.choice(left)


def least_waste(options: Sequence[Option], templates: Templates) -> list[Option]:
    """The least CPU and memory that no pod requests, each as a share of what the nodes have."""
    asked: dict[int, tuple[int, int]] = {}
    for option in options:
        if id(option.pods) not in asked:
            wanted = [requests(pod) for pod in option.pods]
            cpu, memory = (sum(each.get(name, 0) for each in wanted) for name in ("cpu", "memory"))
            asked[id(option.pods)] = cpu, memory
    return lowest(options, lambda option: _waste(option, asked[id(option.pods)], templates))


def _waste(option: Option, asked: tuple[int, int], templates: Templates) -> float | None:
    template = templates.get(option.group.id)
    if template is None:
        return None
    capacity = resources(template.node.status.capacity)
    waste = 0.0
    for name, amount in zip(("cpu", "memory"), asked, strict=True):
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
    """Something about the priority ConfigMap that its owner should know."""

    reason: str
    message: str


Warn = Callable[[ConfigWarning], None]


def parse_priorities(text: str) -> dict[int, tuple[re.Pattern[str], ...]]:
    """Priorities with the patterns of group names that have them. Raises ValueError."""
    if not text.strip():
        raise ValueError(f"{PRIORITY_KEY} in ConfigMap {PRIORITY_CONFIG_MAP} is empty; list patterns under numbers")
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"{PRIORITY_KEY} is not YAML: {problem}") from problem
    if not isinstance(parsed, dict):
        raise ValueError(f"{PRIORITY_KEY} must map numbers to lists of patterns")
    priorities: dict[int, tuple[re.Pattern[str], ...]] = {}
    for number, patterns in parsed.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"{number!r} is no priority: it must be a whole number")
        if not isinstance(patterns, list):
            raise ValueError(f"priority {number} must have a list of patterns")
        try:
            priorities[number] = tuple(re.compile(str(pattern)) for pattern in patterns)
        except re.error as problem:
            raise ValueError(f"priority {number}: {problem}") from problem
    return priorities


def priority_filter(config: Mapping[str, str] | None, warn: Warn) -> Filter:
    """Groups of the highest priority in the ConfigMap's data. A missing or bad ConfigMap keeps every option."""

    def narrow(options: Sequence[Option], templates: Templates) -> list[Option]:
        if config is None:
            return list(options)
        text = config.get(PRIORITY_KEY)
        if text is None:
            warn(ConfigWarning("PriorityConfigMapInvalid", f"the ConfigMap has no key {PRIORITY_KEY}; it is ignored"))
            return list(options)
        try:
            priorities = parse_priorities(text)
        except ValueError as problem:
            warn(ConfigWarning("PriorityConfigMapInvalid", f"{problem}; the ConfigMap is ignored"))
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
            text = f"group {option.group.id} matches no pattern and is not used; list it in {PRIORITY_CONFIG_MAP}"
            warn(ConfigWarning("PriorityConfigMapNotMatchedGroup", text))
    if not ranked:
        warn(ConfigWarning("PriorityConfigMapNoGroupMatched", "no group matches a pattern; all are equal"))
        return list(options)
    highest = max(number for number, _ in ranked)
    return [option for number, option in ranked if number == highest]
