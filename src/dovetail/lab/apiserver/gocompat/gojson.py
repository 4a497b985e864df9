"""What Go's JSON scanner says about a text that is no JSON."""

from __future__ import annotations

import re

_SPACE = re.compile(rb"[ \t\r\n]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_END = "unexpected end of JSON input"
_DEPTH = 10_000


def problem(body: bytes) -> str:
    """The complaint, or nothing when the text is JSON."""
    scanner = _Scanner(body)
    try:
        value = scanner.value(scanner.space(0))
        value = scanner.space(value)
        if value < len(body):
            return f"invalid character {scanner.char(value)} after top-level value"
    except _Bad as bad:
        return str(bad)
    return ""


class _Bad(ValueError):
    pass


class _Scanner:
    """Walks without recursion on the happy path being needed: depth is bounded as in Go."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.depth = 0

    def space(self, at: int) -> int:
        match = _SPACE.match(self.body, at)
        return match.end() if match else at

    def char(self, at: int) -> str:
        code = self.body[at]
        if code == 0x27:
            return "'\\''"
        if code == 0x22:
            return "'\"'"
        if 0x20 <= code < 0x7F:
            return f"'{chr(code)}'"
        special = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}
        if code in special:
            return f"'{special[code]}'"
        if code < 0x80:
            return f"'\\x{code:02x}'"
        rune = chr(code)
        return f"'{rune}'" if rune.isprintable() else f"'\\u{code:04x}'"

    def bad(self, at: int, context: str) -> _Bad:
        if at >= len(self.body):
            return _Bad(_END)
        return _Bad(f"invalid character {self.char(at)} {context}")

    def value(self, at: int) -> int:
        body = self.body
        if at >= len(body):
            raise _Bad(_END)
        lead = body[at : at + 1]
        if lead == b"{":
            return self.nested(at, self.object)
        if lead == b"[":
            return self.nested(at, self.array)
        if lead == b'"':
            return self.string(at)
        if lead in b"-0123456789":
            return self.number(at)
        for word in (b"true", b"false", b"null"):
            if lead == word[:1]:
                return self.literal(at, word)
        raise self.bad(at, "looking for beginning of value")

    def nested(self, at: int, walk: object) -> int:
        self.depth += 1
        if self.depth > min(_DEPTH, 300):
            raise _Bad("exceeded max depth")
        end = self.object(at) if walk == self.object else self.array(at)
        self.depth -= 1
        return end

    def object(self, at: int) -> int:
        at = self.space(at + 1)
        if self.body[at : at + 1] == b"}":
            return at + 1
        while True:
            if self.body[at : at + 1] != b'"':
                raise self.bad(at, "looking for beginning of object key string")
            at = self.space(self.string(at))
            if self.body[at : at + 1] != b":":
                raise self.bad(at, "after object key")
            at = self.space(self.value(self.space(at + 1)))
            if self.body[at : at + 1] == b"}":
                return at + 1
            if self.body[at : at + 1] != b",":
                raise self.bad(at, "after object key:value pair")
            at = self.space(at + 1)

    def array(self, at: int) -> int:
        at = self.space(at + 1)
        if self.body[at : at + 1] == b"]":
            return at + 1
        while True:
            at = self.space(self.value(at))
            if self.body[at : at + 1] == b"]":
                return at + 1
            if self.body[at : at + 1] != b",":
                raise self.bad(at, "after array element")
            at = self.space(at + 1)

    def string(self, escape: int) -> int:
        body = self.body
        escape += 1
        while True:
            if escape >= len(body):
                raise _Bad(_END)
            code = body[escape]
            if code == 0x22:
                return escape + 1
            if code == 0x5C:
                escape = self.escape(escape + 1)
                continue
            if code < 0x20:
                raise self.bad(escape, "in string literal")
            escape += 1

    def escape(self, at: int) -> int:
        if self.body[at : at + 1] == b"u":
            for offset in range(1, 5):
                if not re.match(rb"[0-9a-fA-F]", self.body[at + offset : at + offset + 1]):
                    raise self.bad(at + offset, "in \\u hexadecimal character escape")
            return at + 5
        if self.body[at : at + 1] and self.body[at : at + 1] in b'"\\/bfnrt':
            return at + 1
        raise self.bad(at, "in string escape code")

    def number(self, at: int) -> int:
        match = _NUMBER.match(self.body, at)
        if match is None:
            raise self.bad(at + 1, "in numeric literal")
        end = match.end()
        if self.body[end : end + 1] == b".":
            raise self.bad(end + 1, "after decimal point in numeric literal")
        if self.body[end : end + 1] in (b"e", b"E"):
            raise self.bad(end + 1, "in exponent of numeric literal")
        return end

    def literal(self, at: int, word: bytes) -> int:
        for offset in range(1, len(word)):
            if self.body[at + offset : at + offset + 1] != word[offset : offset + 1]:
                text = word.decode()
                raise self.bad(at + offset, f"in literal {text} (expecting '{text[offset]}')")
        return at + len(word)
