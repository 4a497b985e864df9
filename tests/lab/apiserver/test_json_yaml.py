"""Documents: JSON and YAML as Go reads them, complaints included."""

from __future__ import annotations

import pytest

from dovetail.lab.apiserver.gocompat import gojson
from dovetail.lab.apiserver.json_yaml import SyntaxProblem, parse_json, parse_yaml


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"nope", "invalid character 'o' in literal null (expecting 'u')"),
        (b'{"a":}', "invalid character '}' looking for beginning of value"),
        (b'{"a":1}x', "invalid character 'x' after top-level value"),
        (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b'"\\q"', "invalid character 'q' in string escape code"),
        (b'{"a":[1,{"b":null}]}', ""),
    ],
)
def test_broken_json_is_described_in_go_s_words(text: bytes, problem: str) -> None:
    assert gojson.problem(text) == problem


def test_keys_given_twice_are_reported_and_the_last_wins() -> None:
    value, repeated = parse_json(b'{"a":{"b":1,"b":2},"l":[{"c":1,"c":1}]}')
    assert value == {"a": {"b": 2}, "l": [{"c": 1}]}
    assert repeated == ['duplicate field "a.b"', 'duplicate field "l[0].c"']


def test_a_key_given_twice_is_reported_even_if_the_text_is_as_long_as_without_it() -> None:
    """Lengths were compared where bytes are meant."""
    body = b'{"a":1,"a":1e6}'
    value, repeated = parse_json(body)
    assert value == {"a": 1e6}
    assert repeated == ['duplicate field "a"']


def test_half_a_surrogate_pair_is_replaced_as_go_does() -> None:
    assert parse_json(b'{"\\ud800":"a\\udfffb"}') == ({"\ufffd": "a\ufffdb"}, [])


def test_yaml_is_version_one_point_one() -> None:
    value, _ = parse_yaml(b"y: y\nn: 0777\nd: 2020-01-01\nx: 0x10\ne: ~\n")
    assert value == {"true": True, "false": 511, "d": "2020-01-01", "x": 16, "e": None}


def test_broken_yaml_says_where() -> None:
    with pytest.raises(SyntaxProblem, match=r"^yaml: line 1: did not find expected node content$"):
        parse_yaml(b"a: [")
