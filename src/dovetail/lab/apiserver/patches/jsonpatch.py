"""JSON patch (RFC 6902), as strict and as lenient as the library the real server uses.

`replace` of a missing map key adds it; everything else that does not fit is a failure of the whole patch.
"""

from __future__ import annotations

from typing import Any


class WrongField(ValueError):
    """An operation says something other than a text where a text belongs."""

    def __init__(self, field: str, value: Any) -> None:
        super().__init__(field)
        self.field = field
        self.value = value


class PatchFailure(ValueError):
    """An operation does not apply."""


class TestFailed(PatchFailure):
    """A value is not what the patch expects."""


class BadPatch(ValueError):
    """The document is no JSON patch at all."""


def apply(document: Any, operations: Any) -> Any:
    """The document after all operations; the input stays as it was."""
    if not isinstance(operations, list):
        raise BadPatch("not a list of operations")
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise BadPatch("an operation is not an object")
        for field in ("op", "path", "from"):
            given = (operation or {}).get(field)
            if given is not None and not isinstance(given, str):
                raise WrongField(field, given)
    for operation in operations:
        document = _apply_one(document, operation or {})
    return document


_FIELDS = frozenset(("op", "path", "from", "value"))


def unknown(operations: list[dict[str, Any] | None]) -> list[str]:
    """What strict reading complains about in operations that apply."""
    return [
        f'unknown field "[{index}].{name}"'
        for index, operation in enumerate(operations)
        for name in operation or ()
        if name not in _FIELDS
    ]


class NoContainer(PatchFailure):
    """There is nothing that could hold the last step of a path."""


def _apply_one(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation.get("op"), operation.get("path")
    if op not in _OPERATIONS:
        raise PatchFailure(f"Unexpected kind: {op}")
    if not isinstance(path, str):
        detail = "missing value" if op in ("add", "remove", "copy") else "operation missing path field: missing value"
        raise PatchFailure(f"{op} operation failed to decode path: {detail}")
    return _OPERATIONS[op](document, path, operation)


def _added(document: Any, path: str, operation: dict[str, Any]) -> Any:
    try:
        return _add(document, _tokens(path), operation.get("value"))
    except NoContainer:
        raise PatchFailure(f'add operation does not apply: doc is missing path: "{path}": missing value') from None
    except PatchFailure as failure:
        raise PatchFailure(f"error in add for path: '{path}': {failure}") from failure


def _removed(document: Any, path: str, operation: dict[str, Any]) -> Any:
    try:
        return _remove(document, _tokens(path))
    except NoContainer:
        raise PatchFailure(f'remove operation does not apply: doc is missing path: "{path}": missing value') from None
    except PatchFailure as failure:
        raise PatchFailure(f"error in remove for path: '{path}': {failure}") from failure


def _replaced(document: Any, path: str, operation: dict[str, Any]) -> Any:
    try:
        return _replace(document, _tokens(path), operation.get("value"))
    except NoContainer:
        raise PatchFailure(f"replace operation does not apply: doc is missing path: {path}: missing value") from None
    except PatchFailure:
        raise PatchFailure(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _tested(document: Any, path: str, operation: dict[str, Any]) -> Any:
    value = operation.get("value")
    try:
        held = _get(document, _tokens(path), missing_is_null=value is None)
    except NoContainer:
        raise PatchFailure(f"test operation does not apply: is missing path: {path}: missing value") from None
    except PatchFailure as failure:
        raise TestFailed(f"testing value {path} failed: test failed") from failure
    if not equal(held, value):
        raise TestFailed(f"testing value {path} failed: test failed")
    return document


def _moved(document: Any, path: str, operation: dict[str, Any]) -> Any:
    op, source = operation["op"], operation.get("from")
    if not isinstance(source, str):
        detail = "operation, missing from field: missing value"
        raise PatchFailure(f"{op} operation failed to decode from: {detail}")
    try:
        value = _get(document, _tokens(source))
        if op == "move":
            document = _remove(document, _tokens(source))
    except PatchFailure:
        text = f"{op} operation does not apply: doc is missing from path: {source}: missing value"
        raise PatchFailure(text) from None
    try:
        return _add(document, _tokens(path), value)
    except PatchFailure:
        text = f"{op} operation does not apply: doc is missing destination path: {path}: missing value"
        raise PatchFailure(text) from None


_OPERATIONS = {
    "add": _added,
    "remove": _removed,
    "replace": _replaced,
    "test": _tested,
    "move": _moved,
    "copy": _moved,
}


def equal(first: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(first, bool) or isinstance(other, bool):
        return first is other
    if isinstance(first, dict) and isinstance(other, dict):
        return first.keys() == other.keys() and all(equal(first[key], other[key]) for key in first)
    if isinstance(first, list) and isinstance(other, list):
        return len(first) == len(other) and all(equal(a, b) for a, b in zip(first, other, strict=True))
    return bool(first == other)


def _tokens(path: str) -> list[str]:
    """The steps of a path; what stands before the first slash is not read."""
    if path == "":
        return []
    if "/" not in path:
        raise NoContainer(f"path {path} has no slash")
    return [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def _index(token: str, size: int, adding: bool) -> int:
    if token == "-" and adding:
        return size
    try:
        index = int(token)
    except ValueError as error:
        why = f'strconv.Atoi: parsing "{token}": invalid syntax'
        raise PatchFailure(f"value was not a proper array index: '{token}': {why}") from error
    limit = size if adding else size - 1
    if index < 0:
        index += size + (1 if adding else 0)
    if not 0 <= index <= limit:
        raise PatchFailure(f"Unable to access invalid index: {token}: invalid index referenced")
    return index


def _get(document: Any, tokens: list[str], missing_is_null: bool = False) -> Any:
    for position, token in enumerate(tokens):
        if isinstance(document, dict):
            if token not in document:
                if missing_is_null and position == len(tokens) - 1:
                    return None
                last = position == len(tokens) - 1
                raise (PatchFailure if last else NoContainer)(f"missing value at {token}")
            document = document[token]
        elif isinstance(document, list):
            document = document[_index(token, len(document), False)]
        else:
            raise NoContainer(f"nothing under {token}")
    return document


def _change(document: Any, tokens: list[str], last: Any) -> Any:
    """A copy of the document in which the container of the last token went through `last`."""
    if len(tokens) == 1:
        return last(document, tokens[0])
    token = tokens[0]
    if isinstance(document, dict):
        if token not in document:
            raise NoContainer(f"missing container {token}")
        return {**document, token: _change(document[token], tokens[1:], last)}
    if isinstance(document, list):
        try:
            index = _index(token, len(document), False)
        except PatchFailure as failure:
            raise NoContainer(str(failure)) from failure
        copy = list(document)
        copy[index] = _change(document[index], tokens[1:], last)
        return copy
    raise NoContainer(f"nothing under {token}")


def _add(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        raise PatchFailure("cannot add to the document as a whole")

    def last(container: Any, token: str) -> Any:
        if isinstance(container, dict):
            return {**container, token: value}
        if isinstance(container, list):
            copy = list(container)
            copy.insert(_index(token, len(copy), True), value)
            return copy
        raise PatchFailure(f"cannot add {token}")

    return _change(document, tokens, last)


def _replace(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value

    def last(container: Any, token: str) -> Any:
        if isinstance(container, dict):
            return {**container, token: value}
        if isinstance(container, list):
            copy = list(container)
            copy[_index(token, len(copy), False)] = value
            return copy
        raise PatchFailure(f"cannot replace {token}")

    return _change(document, tokens, last)


def _remove(document: Any, tokens: list[str]) -> Any:
    if not tokens:
        raise PatchFailure("cannot remove the document")

    def last(container: Any, token: str) -> Any:
        if isinstance(container, dict):
            if token not in container:
                raise PatchFailure(f"Unable to remove nonexistent key: {token}: missing value")
            return {key: item for key, item in container.items() if key != token}
        if isinstance(container, list):
            copy = list(container)
            del copy[_index(token, len(copy), False)]
            return copy
        raise PatchFailure(f"cannot remove {token}")

    return _change(document, tokens, last)
