"""Expressions mean what they mean to Kubernetes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.lab.apiserver.crd.cel import CelError, CelSyntaxError, compile_expression
from dovetail.lab.apiserver.crd.cel.cost import METER, PER_CALL_LIMIT

SELF = {
    "name": "a-b",
    "count": 3,
    "ratio": 0.5,
    "tags": ["x", "y"],
    "labels": {"app": "web", "tier": "db"},
    "items": [{"key": "k", "values": ["1"]}, {"key": "q"}],
    "namespace": "n",
    "with-dash": 1,
}


def run(text: str, **more: Any) -> Any:
    return compile_expression(text)({"self": SELF, **more})


@pytest.mark.parametrize(
    "text",
    [
        "has(self.name) && !has(self.other)",
        "self.count + 1 == 4 && self.count * 2 > 5 && -7 / 2 == -3 && -7 % 2 == -1",
        "self.ratio == 0.5 && self.count == 3.0",
        "self.name.split('-') == ['a', 'b'] && self.tags.join(',') == 'x,y'",
        "self.tags.all(t, t in ['x', 'y', 'z']) && self.tags.exists_one(t, t == 'x')",
        "self.labels.all(k, self.labels[k] != '') && 'app' in self.labels",
        "self.labels.all(k, v, k != v)",
        "self.items.filter(i, has(i.values)).map(i, i.key) == ['k']",
        "self.?other.orValue('none') == 'none' && self.?name.hasValue()",
        "optional.none().or(optional.of(2)).value() == 2",
        "self.tags.isSorted() && self.tags.indexOf('y') == 1 && [1, 2].sum() == 3 && [1, 2].max() == 2",
        "self.name.find('[a-z]+') == 'a' && self.name.findAll('[a-z]') == ['a', 'b']",
        "quantity('1Gi').isGreaterThan(quantity('1000Mi')) && isQuantity('5') && !isQuantity('x')",
        "quantity('500m').add(quantity('500m')).compareTo(quantity('1')) == 0",
        "duration('1h30m') > duration('89m') && duration('90s').getSeconds() == 90",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-02T00:00:00Z')",
        "url('https://e.com:80/x').getHost() == 'e.com:80' && isURL('https://a') && !isURL('a b')",
        "isIP('10.0.0.1') && cidr('10.0.0.0/8').containsIP('10.1.2.3') && !isCIDR('x')",
        "'%s has %d'.format(['a', 2]) == 'a has 2'",
        "type(self.count) == int && type(self.name) == string",
        "self.missing == 1 || true",
        "!(self.missing == 1 && false)",
        "self.__namespace__ == 'n' && self.with__dash__dash == 1",
        "cel.bind(n, self.count, n + n == 6)",
        "sets.equivalent(self.tags, ['y', 'x']) && sets.intersects([1], [1, 2])",
        "self.count > 2 ? self.name.startsWith('a') : false",
        "r'\\d' == '\\\\d' && \"it's\" == 'it\\'s'",
        "self == self && self.tags != ['x']",
    ],
)
def test_an_expression_that_holds(text: str) -> None:
    assert run(text) is True


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("self.other", "no such key: other"),
        ("self.items.all(i, i.values.size() > 0)", "no such key: values"),
        ("self.tags[5]", "index out of bounds: 5"),
        ("self.count + 'a'", "no such overload"),
        ("1 / 0", "division by zero"),
        ("duration('soon')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
    ],
)
def test_an_expression_that_fails_says_why(text: str, error: str) -> None:
    with pytest.raises(CelError, match="^" + error.replace("(", r"\(") + "$"):
        run(text)


def test_what_decides_is_enough_even_if_the_rest_fails() -> None:
    """all and exists absorb errors of elements that do not matter."""
    assert run("self.items.exists(i, i.values.size() == 1)") is True
    assert run("self.items.all(i, i.values.size() == 5)") is False


def test_a_program_knows_which_variables_it_reads() -> None:
    program = compile_expression("self.all(x, x == oldSelf.size())")
    assert program.names == {"self", "oldSelf"}


def test_durations_are_values() -> None:
    assert run("duration('5m')") == timedelta(minutes=5)


@given(st.text(alphabet="self.axy()[]{}'\"&|!=<>+-*/%?:, 01\\", max_size=30))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        compile_expression(text)
    except CelSyntaxError:
        return


@given(st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31).filter(bool))
def test_division_and_remainder_go_together(a: int, b: int) -> None:
    assert compile_expression("a / b * b + a % b == a")({"a": a, "b": b}) is True


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("self.all(a, a >= 0)", 500),
        ("self.exists(a, a < 0)", 600),
        ("self.exists_one(a, a == 3)", 200),
        ("self.filter(a, a >= 0).size() > 0", 1500),
        ("self.map(a, a).size() > 0", 1300),
        ("self.map(a, a + 1).size() > 0", 1400),
        ("self.all(a, self.all(b, a + b >= 0))", 70_400),
    ],
)
def test_loops_cost_what_they_cost_the_real_evaluator(text: str, cost: int) -> None:
    """cel-go 0.26 counts 502, 602, 205, 1514, 1314, 1414 and 70,502 for lists of 100 numbers."""
    METER.left = PER_CALL_LIMIT
    compile_expression(text).code({"self": list(range(100))})
    assert PER_CALL_LIMIT - METER.left == cost


def test_an_expression_past_its_limit_is_cancelled_whatever_stands_beside_it() -> None:
    pairs = "self.all(a, self.all(b, a + b >= 0))"
    assert compile_expression(pairs)({"self": list(range(300))}) is True
    for text in (pairs, f"true && {pairs}", f"{pairs} || true", f"self.exists(x, {pairs})"):
        with pytest.raises(CelError, match="operation cancelled: actual cost limit exceeded"):
            compile_expression(text)({"self": list(range(400))})
    assert compile_expression("self.size() == 400")({"self": list(range(400))}) is True
