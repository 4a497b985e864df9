"""What tags of Auto Scaling groups tell an autoscaler, and how its flags name groups.

`k8s.io/cluster-autoscaler/node-template/{label,taint,resources,autoscaling-options}/NAME` describe the nodes of a
group that has none. Tags that cannot be read are passed over: one bad tag must not stop a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dovetail.cloud.node_groups import GroupOptions
from dovetail.language import message
from dovetail.model import duration
from dovetail.model.duration import DurationError
from dovetail.model.nodes import Taint
from dovetail.model.quantity import QuantityError, parse

TEMPLATE_PREFIX = "k8s.io/cluster-autoscaler/node-template/"
LABEL, TAINT = TEMPLATE_PREFIX + "label/", TEMPLATE_PREFIX + "taint/"
RESOURCES, OPTIONS = TEMPLATE_PREFIX + "resources/", TEMPLATE_PREFIX + "autoscaling-options/"
EKS_PREFIX = "eks:"
CLUSTER_NAME, NODEGROUP_NAME = "cluster-name", "nodegroup-name"
_EFFECT = re.compile(r"(.*):(?:NoSchedule|NoExecute|PreferNoSchedule)")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class SpecError(ValueError):
    """A flag that names groups cannot be read; the text says how it is written."""


class NodesFlag(msgspec.Struct, frozen=True):
    """`--nodes=MIN:MAX:NAME`."""

    name: str
    min_size: int
    max_size: int


def parse_nodes_flag(text: str) -> NodesFlag:
    """A group named outright. Raises SpecError."""
    parts = text.split(":", 2)
    if len(parts) != 3:
        raise SpecError(message("--nodes={text}: write it MIN:MAX:NAME, such as 1:10:my-group", text=text))
    numbers: list[int] = []
    for meaning, part in zip(("min", "max"), parts[:2], strict=True):
        try:
            numbers.append(int(part))
        except ValueError:
            raise SpecError(
                message(
                    "--nodes={text}: {meaning} size {part!r} is not a whole number",
                    text=text,
                    meaning=meaning,
                    part=part,
                )
            ) from None
    least, most = numbers
    if least < 0:
        raise SpecError(message("--nodes={text}: min size must be 0 or more", text=text))
    if most < least:
        raise SpecError(message("--nodes={text}: max size must be greater or equal to min size", text=text))
    if not parts[2]:
        raise SpecError(message("--nodes={text}: the group's name is missing", text=text))
    return NodesFlag(parts[2], least, most)


def parse_discovery(text: str) -> dict[str, str]:
    """`asg:tag=KEY,KEY=VALUE`: the tags that a group must have; an empty value is any. Raises SpecError."""
    flag = f"--node-group-auto-discovery={text}"
    discoverer, colon, parameter = text.partition(":")
    if not colon:
        raise SpecError(message("{flag}: write it asg:tag=KEY,KEY=VALUE", flag=flag))
    if discoverer != "asg":
        raise SpecError(
            message("{flag}: unsupported discoverer {discoverer!r}; on AWS it is asg", flag=flag, discoverer=discoverer)
        )
    key, equals, value = parameter.partition("=")
    if not equals:
        raise SpecError(
            message(
                "{flag}: invalid key=value pair {parameter!r}; write asg:tag=KEY,KEY=VALUE",
                flag=flag,
                parameter=parameter,
            )
        )
    if key != "tag":
        raise SpecError(message("{flag}: unsupported parameter {key!r}; the only one is tag", flag=flag, key=key))
    if not value:
        raise SpecError(message("{flag}: no tag is named", flag=flag))
    return {name: tag_value for name, _, tag_value in (tag.partition("=") for tag in value.split(","))}


def discovery_filters(specs: Iterable[Mapping[str, str]]) -> list[dict[str, object]]:
    """The filters of DescribeAutoScalingGroups; all of them must hold."""
    filters: list[dict[str, object]] = []
    for spec in specs:
        for key, value in spec.items():
            filters.append({"Name": f"tag:{key}", "Values": [value]} if value else {"Name": "tag-key", "Values": [key]})
    return filters


def labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Labels of new nodes: those tagged so, and what EKS says of the group."""
    pairs: dict[str, str] = {}
    for key, value in tags.items():
        _, label, name = key.partition(LABEL)
        if not label:
            _, label, name = key.partition(EKS_PREFIX)
        if label and name:
            pairs[name] = value
    return pairs


def taints(tags: Mapping[str, str]) -> tuple[Taint, ...]:
    """Taints of new nodes; a value that is not `VALUE:EFFECT` is passed over."""
    taints_: list[Taint] = []
    for key, value in tags.items():
        _, prefix, name = key.partition(TAINT)
        if prefix and _EFFECT.search(value):
            text, _, effect = value.partition(":")
            taints_.append(Taint(key=name, value=text, effect=effect))
    return tuple(taints_)


def resources(tags: Mapping[str, str]) -> dict[str, str]:
    """Resources of new nodes beside or instead of the instance type's; what is no quantity is passed over."""
    amounts: dict[str, str] = {}
    for key, value in tags.items():
        _, prefix, name = key.partition(RESOURCES)
        if not prefix or not name:
            continue
        try:
            parse(value)
        except QuantityError:
            continue
        amounts[name] = value
    return amounts


def option_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Options of the group as they are tagged, unread."""
    return {
        key.removeprefix(OPTIONS): value
        for key, value in tags.items()
        if key.startswith(OPTIONS) and key != OPTIONS and OPTIONS not in key.removeprefix(OPTIONS)
    }


def options(tags: Mapping[str, str], defaults: GroupOptions) -> GroupOptions:
    """The group's own options over the defaults; a value that cannot be read keeps the default."""
    own = option_tags(tags)
    changes: dict[str, object] = {}
    for name, field in (
        ("scaledownutilizationthreshold", "scale_down_utilization_threshold"),
        ("scaledowngpuutilizationthreshold", "scale_down_gpu_utilization_threshold"),
    ):
        try:
            changes[field] = float(own[name])
        except (KeyError, ValueError):
            continue
    for name, field in (
        ("scaledownunneededtime", "scale_down_unneeded_s"),
        ("scaledownunreadytime", "scale_down_unready_s"),
    ):
        try:
            changes[field] = duration.parse(own[name]).total_seconds()
        except (KeyError, DurationError):
            continue
    ignore = own.get("ignoredaemonsetsutilization")
    if ignore in _TRUE or ignore in _FALSE:
        changes["ignore_daemonsets_utilization"] = ignore in _TRUE
    return msgspec.structs.replace(defaults, **changes) if changes else defaults


def tag_map(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Tags as AWS lists them, by key."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}
