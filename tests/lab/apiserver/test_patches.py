"""Patch laws, and the corners of the three kinds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.lab.apiserver.kinds.types import schema_of
from dovetail.lab.apiserver.patches import jsonpatch
from dovetail.lab.apiserver.patches.merge import merge
from dovetail.lab.apiserver.patches.strategic import StrategicFailure, strategic

_scalars = st.one_of(st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2))
_documents = st.recursive(
    _scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc", max_size=1), inner))
)
_objects = st.dictionaries(st.text("abc", max_size=1), st.one_of(st.none(), _documents), max_size=4)


@given(_objects, _objects)
def test_merging_twice_is_merging_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge(document, patch)
    assert merge(once, patch) == once


@given(_documents, _documents)
def test_merge_follows_the_rfc(document: Any, patch: Any) -> None:
    def spec(target: Any, change: Any) -> Any:
        if not isinstance(change, dict):
            return change
        out = dict(target) if isinstance(target, dict) else {}
        for name, value in change.items():
            if value is None:
                out.pop(name, None)
            else:
                out[name] = spec(out.get(name), value)
        return out

    assert merge(document, patch) == spec(document, patch)


def test_a_json_patch_leaves_its_input_alone() -> None:
    document = {"a": [1, {"b": 2}]}
    changed = jsonpatch.apply(document, [{"op": "replace", "path": "/a/1/b", "value": 3}])
    assert document == {"a": [1, {"b": 2}]} and changed == {"a": [1, {"b": 3}]}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/list/7", "value": 1},
        {"op": "add", "path": "/none/x", "value": 1},
        {"op": "frob", "path": "/a"},
        {"op": "move", "path": "/b"},
        {"path": "/a"},
    ],
)
def test_an_operation_that_does_not_fit_fails_the_patch(operation: dict[str, Any]) -> None:
    with pytest.raises(jsonpatch.PatchFailure):
        jsonpatch.apply({"a": 1, "list": [1]}, [operation])


def test_replace_of_a_missing_map_key_adds_it() -> None:
    assert jsonpatch.apply({}, [{"op": "replace", "path": "/a", "value": 1}]) == {"a": 1}


POD = schema_of("", "v1", "Pod")


def _containers(*items: dict[str, Any], **directives: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(items), **directives}}


def test_new_list_elements_go_to_the_front_unless_an_order_is_given() -> None:
    have = _containers({"name": "a", "image": "1"})
    assert strategic(have, _containers({"name": "b"}), POD)["spec"]["containers"][0]["name"] == "b"
    order = {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]}
    ordered = strategic(have, _containers({"name": "b"}, **order), POD)
    assert [each["name"] for each in ordered["spec"]["containers"]] == ["a", "b"]


def test_elements_merge_by_key_and_can_be_deleted() -> None:
    have = _containers({"name": "a", "image": "1"}, {"name": "b", "image": "2"})
    patch = _containers({"name": "a", "image": "3"}, {"name": "b", "$patch": "delete"})
    assert strategic(have, patch, POD) == _containers({"name": "a", "image": "3"})


def test_lists_without_a_merge_strategy_are_replaced() -> None:
    have = {"spec": {"tolerations": [{"key": "a"}]}}
    assert strategic(have, {"spec": {"tolerations": [{"key": "b"}]}}, POD) == {"spec": {"tolerations": [{"key": "b"}]}}


def test_a_missing_merge_key_is_a_failure() -> None:
    with pytest.raises(StrategicFailure, match="does not contain declared merge key: name"):
        strategic(_containers({"name": "a"}), _containers({"image": "x"}), POD)
