"""Names and values, refused in the server's words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, go_json, invalid, quoted, required, too_many, unsupported


def test_a_label_with_dots_is_reported_so() -> None:
    assert formats.label("a.b") == ["must not contain dots"]


def test_a_key_may_have_one_prefix() -> None:
    assert not formats.qualified_name("example.com/name")
    assert formats.qualified_name("a/b/c")[0].startswith("a valid label key must consist of alphanumeric characters")
    assert formats.qualified_name("/b") == ("prefix part must be non-empty",)


def test_errors_print_values_as_go_does() -> None:
    assert str(invalid("a", 'q"\n', "no")) == 'a: Invalid value: "q\\"\\n": no'
    assert str(invalid("a", {"b": "<"}, "no")) == 'a: Invalid value: {"b":"\\u003c"}: no'
    assert str(invalid("a", 1.5, "no")) == "a: Invalid value: 1.5: no"
    assert str(required("a")) == "a: Required value"
    assert str(too_many("a", 51, 50)) == "a: Too many: 51: must have at most 50 items"
    assert str(unsupported("a", "x", ("y", "z"))) == 'a: Unsupported value: "x": supported values: "y", "z"'


@given(st.text())
def test_every_text_can_be_judged_and_printed(text: str) -> None:
    for rule in (formats.label, formats.subdomain, formats.qualified_name, formats.label_value, formats.config_key):
        for complaint in rule(text):
            assert str(FieldError("FieldValueInvalid", "f", text, complaint)).startswith("f: Invalid value: ")
    assert quoted(text).startswith('"')
    assert go_json(text).startswith('"')
