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

    def space(self, position: int) -> int:
        match = _SPACE.match(self.body, position)
        return match.end() if match else position

    def char(self, position: int) -> str:
        code = self.body[position]
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

    def bad(self, position: int, context: str) -> _Bad:
        if position >= len(self.body):
            return _Bad(_END)
        return _Bad(f"invalid character {self.char(position)} {context}")

    def value(self, position: int) -> int:
        body = self.body
        if position >= len(body):
            raise _Bad(_END)
        lead = body[position : position + 1]
        if lead == b"{":
            return self.nested(position, self.object)
        if lead == b"[":
            return self.nested(position, self.array)
        if lead == b'"':
            return self.string(position)
        if lead in b"-0123456789":
            return self.number(position)
        for word in (b"true", b"false", b"null"):
            if lead == word[:1]:
                return self.literal(position, word)
        raise self.bad(position, "looking for beginning of value")

    def nested(self, position: int, walk: object) -> int:
        self.depth += 1
        if self.depth > min(_DEPTH, 300):
            raise _Bad("exceeded max depth")
        end = self.object(position) if walk == self.object else self.array(position)
        self.depth -= 1
        return end

    def object(self, position: int) -> int:
        position = self.space(position + 1)
        if self.body[position : position + 1] == b"}":
            return position + 1
        while True:
            if self.body[position : position + 1] != b'"':
                raise self.bad(position, "looking for beginning of object key string")
            position = self.space(self.string(position))
            if self.body[position : position + 1] != b":":
                raise self.bad(position, "after object key")
            position = self.space(self.value(self.space(position + 1)))
            if self.body[position : position + 1] == b"}":
                return position + 1
            if self.body[position : position + 1] != b",":
                raise self.bad(position, "after object key:value pair")
            position = self.space(position + 1)

    def array(self, position: int) -> int:
        position = self.space(position + 1)
        if self.body[position : position + 1] == b"]":
            return position + 1
        while True:
            position = self.space(self.value(position))
            if self.body[position : position + 1] == b"]":
                return position + 1
            if self.body[position : position + 1] != b",":
                raise self.bad(position, "after array element")
            position = self.space(position + 1)

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

    def escape(self, position: int) -> int:
        if self.body[position : position + 1] == b"u":
            for offset in range(1, 5):
                if not re.match(rb"[0-9a-fA-F]", self.body[position + offset : position + offset + 1]):
                    raise self.bad(position + offset, "in \\u hexadecimal character escape")
            return position + 5
        if self.body[position : position + 1] and self.body[position : position + 1] in b'"\\/bfnrt':
            return position + 1
        raise self.bad(position, "in string escape code")

    def number(self, position: int) -> int:
        match = _NUMBER.match(self.body, position)
        if match is None:
            raise self.bad(position + 1, "in numeric literal")
        end = match.end()
        if self.body[end : end + 1] == b".":
            raise self.bad(end + 1, "after decimal point in numeric literal")
        if self.body[end : end + 1] in (b"e", b"E"):
            raise self.bad(end + 1, "in exponent of numeric literal")
        return end

    def literal(self, position: int, word: bytes) -> int:
        for offset in range(1, len(word)):
            if self.body[position + offset : position + offset + 1] != word[offset : offset + 1]:
                text = word.decode()
                raise self.bad(position + offset, f"in literal {text} (expecting '{text[offset]}')")
        return position + len(word)
