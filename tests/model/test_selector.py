"""Selectors mean the same in a manifest, in a label query and in a field query."""

from __future__ import annotations

import pytest

from dovetail.model.meta import view
from dovetail.model.pods import Pod
from dovetail.model.selector import LabelSelector, NameValidators, SelectorError, matches, parse_fields, parse_labels

LABELS = {"app": "web", "tier": "front", "size": "7"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app!=web", False),
        ("gone!=x", True),
        ("app in (web, api)", True),
        ("app notin (web)", False),
        ("tier", True),
        ("!tier", False),
        ("!gone,app", True),
        ("size>6", True),
        ("size<7", False),
        ("app=", False),
        ("in in (in)", False),
    ],
)
def test_label_queries_select(text: str, selected: bool) -> None:
    assert parse_labels(text).matches(LABELS) is selected


@pytest.mark.parametrize("text", ["app=(", "app in web", "app in (web", "=x", "a b", "a,,b", "a,"])
def test_unreadable_label_queries_are_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_labels(text)


def test_field_queries_split_and_unescape() -> None:
    terms = parse_fields(r"spec.nodeName=n1,status.phase!=Running,metadata.name=a\,b")
    assert [(each.path, each.equal, each.value) for each in terms] == [
        ("spec.nodeName", True, "n1"),
        ("status.phase", False, "Running"),
        ("metadata.name", True, "a,b"),
    ]


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, LABELS)
    assert matches(LabelSelector(), LABELS)


def test_a_null_in_a_manifest_says_the_same_as_silence() -> None:
    pod = view({"metadata": {"name": "a", "labels": None}, "spec": {"containers": None, "affinity": None}}, Pod)
    assert (pod.metadata.name, pod.metadata.labels, pod.spec.containers) == ("a", {}, ())


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("a,", "found '', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
    ],
)
def test_a_mistake_is_named_in_the_servers_words(text: str, reported: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_labels(text)
    assert str(caught.value) == reported


def test_a_judge_is_asked_in_the_order_of_the_text() -> None:
    """The first thing that is wrong is reported, be it a name or the grammar behind it."""

    def refuse(key: str) -> None:
        raise SelectorError(f"{key} is no name")

    with pytest.raises(SelectorError, match="b is no name"):
        parse_labels("b in c", NameValidators(key=refuse))
