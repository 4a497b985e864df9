"""YAML that cannot be read is one error, whatever the parser raises, and never the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dovetail.cloud.aws import awsauth
from dovetail.cloud.aws.userdata import linux
from dovetail.install.doctor import access
from dovetail.lab.aws import user_data
from dovetail.lab.cluster_config import parse
from dovetail.lab.eksctl_fields import ConfigRefused
from dovetail.model.scheduler_config import SchedulerConfigError, default_constraints
from dovetail.model.yaml_document import MAX_LEVELS, NestedTooDeeply, load, load_all

LOADERS = [yaml.SafeLoader, yaml.CSafeLoader]
#: What libyaml follows down the stack of C until the process ends.
DEEP = [
    "- " * 200_000 + "x",
    "? " * 100_000 + "x",
    "[" * 100_000 + "]" * 100_000,
    "{a: " * 100_000 + "}" * 100_000,
    "x: [\n" + "[\n" * 100_000,
]
MEANINGLESS = [
    "a: 2020-13-45",
    "a: " + "9" * 5000,
    "a: !!int x",
    "a: !!bool x",
    'a: !!float ""',
    "a: !!timestamp x",
    "a: 2001-01-01T00:00:00+99:99",
    '"\\ud800"',
    'a: ["\\U0000dfff"]',
]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", DEEP, ids=lambda text: text[:5])
def test_nesting_without_end_is_an_error_and_not_the_end_of_the_process(text: str, loader: Any) -> None:
    for call in (load, load_all):
        with pytest.raises(NestedTooDeeply):
            call(text, loader)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", MEANINGLESS, ids=lambda text: text[:12])
def test_a_value_without_meaning_is_an_error_of_yaml(text: str, loader: Any) -> None:
    with pytest.raises(yaml.YAMLError):
        load(text, loader)


@pytest.mark.parametrize("loader", LOADERS)
def test_manifests_with_many_brackets_and_deep_indents_are_read(loader: Any) -> None:
    rows = [{"name": f"row-{index}", "labels": {}, "text": "]]]] [[ }"} for index in range(2 * MAX_LEVELS)]
    assert load(yaml.safe_dump(rows, default_flow_style=None), loader) == rows
    assert load("".join(" " * level + "a:\n" for level in range(200)), loader) is not None
    aliases = 'a: &a ["\\u00e4", 1]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b, "\\udbff\\n"]\n'
    with pytest.raises(yaml.YAMLError):
        load(aliases, loader)


@pytest.mark.parametrize("text", ["{a: " * 3000, "a: 2020-13-45", "a: !!bool x"], ids=lambda text: text[:5])
def test_what_users_write_into_a_cluster_ends_no_controller(text: str) -> None:
    """aws-auth, user data, a scheduler's configuration: each is read again and again while the autoscaler runs."""
    arn = "arn:aws:iam::123456789012:role/nodes"
    readers: list[Callable[[], Any]] = [
        lambda: awsauth._rows({"mapRoles": text}, "mapRoles"),
        lambda: linux._is_node_config(text),
        lambda: user_data._node_config([text]),
        lambda: access._aws_auth_fault({"mapRoles": text}, arn),
    ]
    assert [bool(read()) for read in readers] == [False, False, False, True]
    with pytest.raises(SchedulerConfigError):
        default_constraints(text)
    with pytest.raises(ConfigRefused):
        parse(text)
