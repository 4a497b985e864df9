"""Quantities: amounts with a suffix, exactly as Kubernetes reads and prints them.

A quantity is a whole number of billionths and remembers how it was written. Finer amounts are rounded
away from zero: a small request stays above zero. Inside Dovetail resources are plain integers
(milli-CPU, bytes, counts); `resources` is the way in and `format_resources` the way out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from dovetail.model.meta import Amount

DECIMAL = "DecimalSI"
BINARY = "BinarySI"
EXPONENT = "DecimalExponent"

_NANO = 10**9
_INT64 = (1 << 63) - 1
#: Exponents, digits and amounts beyond these are clipped: no cluster has that much, the arithmetic must stay small, and
#: sums of such amounts still fit a float.
_LARGEST_EXPONENT, _MAX_DIGITS, _LARGEST = 400, 400, 10**290

_SHAPE = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_TEXTS = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_TEXTS = {exponent // 10: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}

BAD_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_SUFFIX = "unable to parse quantity's suffix"
BAD_NUMBER = "unable to parse numeric part of quantity"


class QuantityError(ValueError):
    """The text is not a quantity; the message is the one Kubernetes gives."""


class Quantity:
    """An exact amount. Equal amounts are equal however they are written."""

    __slots__ = ("_text", "format", "nano")

    def __init__(self, nano: int, form: str = DECIMAL, text: str | None = None) -> None:
        self.nano = nano
        self.format = form
        self._text = text

    def __str__(self) -> str:
        if self._text is None:
            self._text = _canonical(self.nano, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano

    def __bool__(self) -> bool:
        return self.nano != 0

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _up(self.nano, 10**6)

    @property
    def whole(self) -> int:
        """Units, rounded away from zero."""
        return _up(self.nano, _NANO)


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


@lru_cache(maxsize=65536)
def parse(text: Amount) -> Quantity:
    """Read a quantity; numbers are read as their text. Raises QuantityError."""
    if not isinstance(text, str):
        text = repr(text)
    shape = _SHAPE.fullmatch(text) if text else None
    if shape is None:
        raise QuantityError(BAD_FORMAT)
    sign, (digits, fraction), suffix = shape[1], _clipped(shape[2] or "0", shape[3] or ""), shape[4]
    base, exponent, form = _suffix(suffix)
    if base == 2:
        return _binary(text, sign, digits, fraction, exponent)
    if exponent < -9 and not re.search("[0-9]", text[: shape.start(4)]):
        raise QuantityError(BAD_NUMBER)
    kept = text if _is_canonical(digits + fraction, exponent - len(fraction)) else None
    nano = min(_scaled(int(digits + fraction), exponent - len(fraction) + 9), _LARGEST)
    return Quantity(-nano if sign == "-" else nano, form, kept)


def _clipped(digits: str, fraction: str) -> tuple[str, str]:
    """A number without digits that make no difference: past so many it is larger than anything, or rounded up."""
    if len(digits) > _MAX_DIGITS:
        digits = "9" * _MAX_DIGITS
    if len(fraction) > _MAX_DIGITS:
        fraction = fraction[: _MAX_DIGITS - 1] + ("1" if fraction[_MAX_DIGITS - 1 :].strip("0") else "0")
    return digits, fraction


def _suffix(suffix: str) -> tuple[int, int, str]:
    if suffix in _DECIMAL_SUFFIXES:
        return 10, _DECIMAL_SUFFIXES[suffix], DECIMAL
    if suffix in _BINARY_SUFFIXES:
        return 2, _BINARY_SUFFIXES[suffix], BINARY
    if suffix[0] in "eE" and re.fullmatch("[+-]?[0-9]+", suffix[1:]):
        exponent = int(suffix[1:]) if len(suffix) < _MAX_DIGITS else _INT64 + 1
        if -_INT64 - 1 <= exponent <= _INT64:
            wrapped = (exponent + (1 << 31)) % (1 << 32) - (1 << 31)
            return 10, max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, wrapped)), EXPONENT
    raise QuantityError(BAD_SUFFIX)


def _is_canonical(digits: str, exponent: int) -> bool:
    """Whether Kubernetes keeps the text as it was written instead of printing it anew."""
    small = len(digits) <= 18 and exponent >= -9
    return small and exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _scaled(mantissa: int, exponent: int) -> int:
    unit: int = 10 ** abs(exponent)
    return mantissa * unit if exponent >= 0 else -(-mantissa // unit)


def _binary(text: str, sign: str, digits: str, fraction: str, exponent: int) -> Quantity:
    exact = not fraction and 15 - len(digits) - int(exponent * 3 / 10) - 1 >= 0
    nano = _scaled(int(digits + fraction) << exponent, 9 - len(fraction))
    nano = min(nano, _INT64 * _NANO)
    kept = text if exact and int(digits) & 7 else None
    form = DECIMAL if 0 < nano < _NANO else BINARY
    return Quantity(-nano if sign == "-" else nano, form, kept)


def _canonical(nano: int, form: str) -> str:
    if not nano:
        return "0"
    if form == BINARY and abs(nano) >= 1024 * _NANO and nano % _NANO == 0:
        amount, times = _strip(nano // _NANO, 1024)
        return f"{amount}{_BINARY_TEXTS.get(times, '')}"
    amount, times = _strip(nano, 10)
    exponent = times - 9
    while exponent % 3:
        amount *= 10
        exponent -= 1
    if form == EXPONENT:
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_DECIMAL_TEXTS.get(exponent, '')}"


def _strip(amount: int, factor: int) -> tuple[int, int]:
    times = 0
    while amount % factor == 0:
        amount //= factor
        times += 1
    return amount, times


@lru_cache(maxsize=65536)
def milli(text: Amount) -> int:
    """Thousandths of a quantity, rounded up."""
    return parse(text).milli


@lru_cache(maxsize=65536)
def whole(text: Amount) -> int:
    """Units of a quantity, rounded up."""
    return parse(text).whole


def amount(name: str, text: Amount) -> int:
    """A resource as Dovetail counts it: milli-CPU for cpu, units for everything else."""
    return milli(text) if name == "cpu" else whole(text)


def resources(amounts: Mapping[str, Amount]) -> dict[str, int]:
    """A resource list of a manifest as integers."""
    return {name: milli(text) if name == "cpu" else whole(text) for name, text in amounts.items()}


def is_bytes(name: str) -> bool:
    """Whether a resource is counted in bytes."""
    return name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-")


def quantity(name: str, count: int) -> Quantity:
    """The quantity of an integer amount of a resource, in the format people expect of it."""
    if name == "cpu":
        return Quantity(count * 10**6)
    return Quantity(count * _NANO, BINARY if is_bytes(name) else DECIMAL)


def format_resources(amounts: Mapping[str, int]) -> dict[str, str]:
    """Integers as a resource list for a manifest."""
    return {name: str(quantity(name, count)) for name, count in amounts.items()}
