"""What a generation cannot say is put back where nothing changed since, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.kinds.conversion_annotations import differences, recall

SIMPLE = {"spec": {"a": 1, "b": {"c": 2}}}
ORIGINAL = {"spec": {"a": 3, "b": {"d": True}}}


def test_differences_put_back_make_the_original() -> None:
    assert recall(SIMPLE, differences(ORIGINAL, SIMPLE)) == ORIGINAL


@pytest.mark.parametrize(
    ("edited", "recalled"),
    [
        ({"spec": {"a": 5, "b": {"c": 2}}}, {"spec": {"a": 5, "b": {"d": True}}}),
        ({"spec": {"a": 1, "b": {"c": 7}}}, {"spec": {"a": 3, "b": {"c": 7, "d": True}}}),
        ({"spec": {"a": 1, "b": {"c": 2, "d": False}}}, {"spec": {"a": 3, "b": {"d": False}}}),
        ({"spec": {"a": True, "b": {"c": 2}}}, {"spec": {"a": True, "b": {"d": True}}}),
        ({"spec": {}}, {"spec": {}}),
        ({}, {}),
    ],
)
def test_an_edit_made_in_between_is_never_undone(edited: dict[str, Any], recalled: dict[str, Any]) -> None:
    assert recall(edited, differences(ORIGINAL, SIMPLE)) == recalled
    assert SIMPLE == {"spec": {"a": 1, "b": {"c": 2}}}


def test_an_annotation_that_another_client_spoilt_puts_nothing_back() -> None:
    assert recall(SIMPLE, ["x", {}, {"at": []}, {"at": "spec"}, {"at": ["spec", "a", "b"], "is": 1}]) == SIMPLE
