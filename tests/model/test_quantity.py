"""Quantities are read, printed, compared and added as Kubernetes does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.quantity import (
    BINARY,
    DECIMAL,
    Quantity,
    QuantityError,
    format_resources,
    milli,
    parse,
    resources,
    whole,
)

VECTORS = Path(__file__).parents[1] / "data" / "model" / "quantities.jsonl.gz"


def answer(a: str, b: str) -> dict[str, Any]:
    try:
        mine = parse(a)
    except QuantityError as error:
        return {"err": str(error)}
    found: dict[str, Any] = {"fmt": mine.format, "val": mine.whole, "milli": mine.milli, "str": str(mine)}
    try:
        other = parse(b)
    except QuantityError:
        return found
    order = (mine > other) - (mine < other)
    return found | {"cmp": order, "add": str(mine + other), "sub": str(mine - other)}


def test_reads_and_prints_as_apimachinery_does() -> None:
    rows = [json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]
    assert len(rows) > 500
    for row in rows:
        a, b = row.pop("in")
        mine = answer(a, b)
        assert {key: mine.get(key) for key in row} == row, (a, b)


@given(st.integers(-(10**24), 10**24), st.sampled_from([DECIMAL, BINARY]))
def test_what_is_printed_reads_as_the_same_amount(nano: int, form: str) -> None:
    printed = Quantity(nano, form)
    if abs(nano) < 10**27:
        assert parse(str(printed)).nano == nano


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP ", max_size=12))
def test_any_text_is_a_quantity_or_an_error(text: str) -> None:
    try:
        parse(text)
    except QuantityError as error:
        assert str(error)


def test_resources_are_integers_rounded_up() -> None:
    assert resources({"cpu": "0.1", "memory": "1Ki", "nvidia.com/gpu": 2, "ephemeral-storage": "100m"}) == {
        "cpu": 100,
        "memory": 1024,
        "nvidia.com/gpu": 2,
        "ephemeral-storage": 1,
    }
    assert (milli("1.0001"), whole("1.5")) == (1001, 2)


def test_resources_are_printed_as_people_write_them() -> None:
    amounts = {"cpu": 1500, "memory": 2**31, "pods": 58, "hugepages-2Mi": 0}
    assert format_resources(amounts) == {"cpu": "1500m", "memory": "2Gi", "pods": "58", "hugepages-2Mi": "0"}


@pytest.mark.parametrize("number", [1, 0.5, 1e-7])
def test_numbers_of_a_manifest_are_quantities(number: float) -> None:
    assert parse(number).nano == round(number * 10**9)


@pytest.mark.parametrize("text", ["1e999999999", "9" * 5000, "0." + "1" * 5000, "1e" + "9" * 5000, "9" * 5000 + "Gi"])
def test_a_number_with_thousands_of_digits_is_read_and_printed(text: str) -> None:
    """Python neither reads nor prints an integer of more than 4,300 digits: a manifest of one ended in a traceback."""
    try:
        amount = parse(text)
    except QuantityError:
        assert text.startswith("1e9999999999")
    else:
        assert parse(str(amount)).nano >= 1 and str(amount.nano * 1000)
