"""Names of properties in expressions: keywords and characters that CEL does not allow are escaped."""

from __future__ import annotations

_ESCAPED = (("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__"))
_KEYWORDS = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)


def field_name(name: str) -> str:
    """A property's name behind its escaped form."""
    if "__" not in name:
        return name
    if name.startswith("__") and name.endswith("__") and name[2:-2] in _KEYWORDS:
        return name[2:-2]
    for escaped, plain in _ESCAPED:
        name = name.replace(escaped, plain)
    return name
