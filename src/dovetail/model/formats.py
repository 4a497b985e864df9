"""The formats that names, keys and values must have, each a function from a value to its complaints."""

from __future__ import annotations

import re
from functools import lru_cache

from dovetail.language import message, source
from dovetail.language.recognition import recognized

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + r"(\." + LABEL + ")*"
LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_label = re.compile(LABEL)
_subdomain = re.compile(SUBDOMAIN)
_label_1035 = re.compile(LABEL_1035)
_key = re.compile(KEY)
_label_value = re.compile(f"({KEY})?")
_config_key = re.compile("[-._a-zA-Z0-9]+")
_percent = re.compile("[0-9]+%")
_header = re.compile("[-A-Za-z0-9]+")

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
KEY_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)


def regex_text(text: str, pattern: str, *examples: str) -> str:
    """A complaint with the pattern and examples of what would match."""
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {listed}regex used for validation is '{pattern}')"


def too_long_text(length: int) -> str:
    return f"must be no more than {length} characters"


def size(text: str) -> int:
    """The length of a string as Go counts it: bytes."""
    return len(text) if text.isascii() else len(text.encode())


def label(value: str) -> list[str]:
    if size(value) <= 63 and _label.fullmatch(value):
        return []
    problems = [too_long_text(63)] if size(value) > 63 else []
    if not _label.fullmatch(value):
        dotted = _subdomain.fullmatch(value)
        problems.append("must not contain dots" if dotted else regex_text(LABEL_TEXT, LABEL, "my-name", "123-abc"))
    return problems


def subdomain(value: str) -> list[str]:
    if size(value) <= 253 and _subdomain.fullmatch(value):
        return []
    problems = [too_long_text(253)] if size(value) > 253 else []
    if not _subdomain.fullmatch(value):
        problems.append(regex_text(SUBDOMAIN_TEXT, SUBDOMAIN, "example.com"))
    return problems


def label_1035(value: str) -> list[str]:
    problems = [too_long_text(63)] if size(value) > 63 else []
    if not _label_1035.fullmatch(value):
        text = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        problems.append(regex_text(text, LABEL_1035, "my-name", "abc-123"))
    return problems


@lru_cache(maxsize=4096)
def qualified_name(value: str) -> tuple[str, ...]:
    """A label or annotation key, a finalizer, a resource name: `name` or `prefix/name`."""
    parts = value.split("/")
    examples = ("MyName", "my.name", "123-abc")
    if len(parts) > 2:
        return (
            f"a valid label key {regex_text(KEY_TEXT, KEY, *examples)}"
            " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    problems: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {text}".replace("253 characters", "253 bytes") for text in subdomain(parts[0])]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif size(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _key.fullmatch(name):
        problems.append(f"name part {regex_text(KEY_TEXT, KEY, *examples)}")
    return tuple(problems)


@lru_cache(maxsize=4096)
def label_value(value: str) -> tuple[str, ...]:
    problems = ["must be no more than 63 bytes"] if size(value) > 63 else []
    if not _label_value.fullmatch(value):
        text = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
        problems.append(regex_text(text, f"({KEY})?", "MyValue", "my_value", "12345"))
    return tuple(problems)


def path_segment(value: str) -> list[str]:
    """What a name must obey to stand in a URL, whatever its kind."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return path_segment_prefix(value)


def path_segment_prefix(value: str) -> list[str]:
    return [f"may not contain '{char}'" for char in "/%" if char in value]


def config_key(value: str) -> list[str]:
    problems = [too_long_text(253)] if size(value) > 253 else []
    if not _config_key.fullmatch(value):
        text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        problems.append(regex_text(text, "[-._a-zA-Z0-9]+", "key.name", "KEY_NAME", "key-name"))
    return problems + _parent_folder(value)


def _parent_folder(value: str) -> list[str]:
    if value in (".", ".."):
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def env_name(value: str) -> list[str]:
    problems = [] if value else ["environment variable name must be non-empty"]
    if any(not 32 <= ord(rune) < 127 or rune == "=" for rune in value):
        problems.append(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
    return problems


def port_number(value: int) -> list[str]:
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def in_range(value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [f"must be between {low} and {high}, inclusive"]


def port_name(value: str) -> list[str]:
    problems = [too_long_text(15)] if size(value) > 15 else []
    if not re.fullmatch("[-a-z0-9]+", value):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        problems.append("must contain at least one letter (a-z)")
    if "--" in value:
        problems.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def percent(value: str) -> list[str]:
    if _percent.fullmatch(value):
        return []
    text = "a valid percent string must be a numeric string followed by an ending '%'"
    return [regex_text(text, "[0-9]+%", "1%", "93%")]


def header_name(value: str) -> list[str]:
    if _header.fullmatch(value):
        return []
    return [
        regex_text(
            "a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", "X-Header-Name"
        )
    ]


# What is wrong with a text that should be YAML, in one line with its place.


def yaml_problem(problem: Exception) -> str:
    """`line 2, column 1: expected ',' or ']'`, of an error of the parser; of another error, its own words."""
    mark = getattr(problem, "problem_mark", None)
    what = recognized(" ".join((getattr(problem, "problem", None) or str(problem)).split()))
    if mark is None:
        return what
    return message("line {line}, column {column}: {what}", line=mark.line + 1, column=mark.column + 1, what=what)


#: What the parsers of YAML and JSON say; `recognized` knows them by this.
PARSER_TEXTS = (
    source("block sequence entries are not allowed in this context"),
    source("control characters are not allowed"),
    source("could not determine a constructor for the tag {tag}"),
    source("could not find expected ':'"),
    source("did not find URI escaped octet"),
    source("did not find expected '-' indicator"),
    source("did not find expected ',' or ']'"),
    source("did not find expected ',' or '}'"),
    source("did not find expected <document start>"),
    source("did not find expected alphabetic or numeric character"),
    source("did not find expected comment or line break"),
    source("did not find expected hexdecimal number"),
    source("did not find expected key"),
    source("did not find expected node content"),
    source("did not find expected whitespace or line break"),
    source("expected ',' or ']', but got {token}"),
    source("expected ',' or '}}', but got {token}"),
    source("expected '<document start>', but found {token}"),
    source("expected <block end>, but found {token}"),
    source("expected a mapping node, but found {token}"),
    source("expected alphabetic or numeric character, but found {token}"),
    source("expected the node content, but found {token}"),
    source("found a tab character that violates indentation"),
    source("found a tab character where an indentation space is expected"),
    source("found character that cannot start any token"),
    source("found character {character} that cannot start any token"),
    source("found incompatible YAML document"),
    source("found undefined alias"),
    source("found undefined alias {alias}"),
    source("found undefined tag handle"),
    source("found unexpected document indicator"),
    source("found unexpected document separator"),
    source("found unexpected end of stream"),
    source("found unhashable key"),
    source("found unknown escape character"),
    source("found unknown escape character {character}"),
    source("invalid leading UTF-8 octet"),
    source("invalid trailing UTF-8 octet"),
    source("mapping keys are not allowed here"),
    source("mapping keys are not allowed in this context"),
    source("mapping values are not allowed here"),
    source("mapping values are not allowed in this context"),
    source("sequence entries are not allowed here"),
    source("special characters are not allowed"),
    source("Expected `{expected}`, got `{got}`"),
    source("Expected `{expected}`, got `{got}` - at `{place}`"),
    source("Input data was truncated"),
    source("Invalid enum value {value}"),
    source("Invalid enum value {value} - at `{place}`"),
    source("Invalid value {value}"),
    source("Invalid value {value} - at `{place}`"),
    source("JSON is malformed: {why} (byte {place})"),
    source("Object contains unknown field `{field}`"),
    source("Object contains unknown field `{field}` - at `{place}`"),
    source("Object missing required field `{field}`"),
    source("Object missing required field `{field}` - at `{place}`"),
    source("but found another document"),
    source("duplicate tag handle {handle}"),
    source("expected ' ', but found {character}"),
    source("expected '!' but found {character}"),
    source("expected '!', but found {character}"),
    source("expected '>' but found {character}"),
    source("expected '>', but found {character}"),
    source("expected URI escape sequence of 2 hexadecimal numbers, but found {character}"),
    source("expected URI escape sequence of 2 hexdecimal numbers, but found {character}"),
    source("expected URI, but found {character}"),
    source("expected a comment or a line break, but found {character}"),
    source("expected a digit or ' ', but found {character}"),
    source("expected a digit or '.', but found {character}"),
    source("expected a digit, but found {character}"),
    source("expected a mapping for merging, but found {token}"),
    source("expected a mapping of length 1, but found {token}"),
    source("expected a mapping or list of mappings for merging, but found {token}"),
    source("expected a scalar node, but found {token}"),
    source("expected a sequence node, but found {token}"),
    source("expected a sequence, but found {token}"),
    source("expected a single mapping item, but found {n} items"),
    source("expected chomping or indentation indicators, but found {character}"),
    source("expected escape sequence of {n} hexadecimal numbers, but found {character}"),
    source("expected escape sequence of {n} hexdecimal numbers, but found {character}"),
    source("expected indentation indicator in the range 1-9, but found 0"),
    source("expected the empty value, but found {token}"),
    source('failed to construct timestamp from "{text}"'),
    source("failed to convert base64 data into ascii: {why}"),
    source("failed to decode base64 data: {why}"),
    source("found duplicate YAML directive"),
    source("found non-comment content after document end marker, {token}"),
    source("found unconstructable recursive node"),
    source("found undefined tag handle {handle}"),
    source("found unexpected ':'"),
    source("maximum depth of data structure exceeded ({depth}), if necessary increase YAML().max_depth"),
    source("more indented follow up line than first in a block scalar"),
    source("second occurrence"),
    source("unacceptable character #x{code}: {why}"),
    source('unacceptable character #x{code}: {why} in "{source}", position {place}'),
    source("Expecting ',' delimiter"),
    source("Expecting ':' delimiter"),
    source("Expecting property name enclosed in double quotes"),
    source("Expecting property name enclosed in double quotes or '}}'"),
    source("Expecting value"),
    source("Extra data"),
    source("Illegal trailing comma before end of array"),
    source("Illegal trailing comma before end of object"),
    source("Invalid \\escape"),
    source("Invalid \\uXXXX escape"),
    source("Invalid control character at"),
    source("Unterminated string starting at"),
    source("{what}: line {line} column {column} (char {place})"),
    source("'{codec}' codec can't decode byte {byte} in position {place}: {why}"),
    source("'{codec}' codec can't decode bytes in position {first}-{last}: {why}"),
    source("invalid continuation byte"),
    source("invalid start byte"),
    source("unexpected end of data"),
    source("invalid character"),
    source("trailing characters"),
)
