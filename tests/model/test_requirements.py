"""The algebra of requirements has the laws of sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.labels import ARCH, WELL_KNOWN, ZONE
from dovetail.model.requirements import OPERATORS, Requirement, Requirements, requirement

_VALUES = st.sampled_from(["a", "b", "c", "1", "2", "5", "10"])


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(OPERATORS))
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        values = [str(draw(st.integers(0, 12)))]
    else:
        values = draw(st.lists(_VALUES, min_size=1, max_size=4)) if operator in ("In", "NotIn") else []
    return requirement("k", operator, values, draw(st.none() | st.integers(1, 5)))


@given(requirements(), requirements())
def test_intersection_is_commutative(a: Requirement, b: Requirement) -> None:
    assert a.intersection(b) == b.intersection(a)


@given(requirements(), requirements(), requirements())
def test_intersection_is_associative_in_what_it_allows(a: Requirement, b: Requirement, c: Requirement) -> None:
    left, right = a.intersection(b).intersection(c), a.intersection(b.intersection(c))
    for value in ["a", "b", "c", "1", "2", "5", "10", "11", "zzz"]:
        assert left.has(value) == right.has(value)


@given(requirements())
def test_intersection_is_idempotent(a: Requirement) -> None:
    assert a.intersection(a) == a


@given(requirements(), requirements(), _VALUES)
def test_both_allow_what_the_intersection_allows(a: Requirement, b: Requirement, value: str) -> None:
    assert a.intersection(b).has(value) == (a.has(value) and b.has(value))


@given(requirements())
def test_entries_say_all_that_the_requirement_says(a: Requirement) -> None:
    """Bounds together with exclusions survive being written down."""
    entries = [(str(e["operator"]), [str(v) for v in e.get("values", ())]) for e in a.entries()]  # type: ignore[attr-defined]
    again = Requirements(requirement("k", operator, values, a.min_values) for operator, values in entries)
    assert again["k"] == a


def test_old_names_of_labels_are_the_new_ones() -> None:
    assert requirement("failure-domain.beta.kubernetes.io/zone", "In", ["z"]).key == ZONE
    assert requirement("beta.kubernetes.io/arch", "In", ["arm64"]).key == ARCH


def test_absence_is_satisfied_by_a_label_nothing_knows() -> None:
    assert Requirements().compatible(Requirements([requirement("custom", "NotIn", ["a"])]))
    assert not Requirements().compatible(Requirements([requirement("custom", "Exists")]))
    assert Requirements().compatible(Requirements([requirement(ZONE, "Exists")]), WELL_KNOWN)


def test_any_picks_an_allowed_value_and_always_the_same() -> None:
    assert requirement("k", "In", ["b", "a"]).any() == "a"
    assert requirement("k", "Gt", ["3"]).any() == "4"
    assert requirement("k", "NotIn", ["0", "1"]).any() == "2"
