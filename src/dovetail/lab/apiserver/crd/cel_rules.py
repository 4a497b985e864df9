"""Validation rules of a schema: expressions with a message, run against a value and what it was before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dovetail.lab.apiserver.crd import cel
from dovetail.lab.apiserver.crd.cel.cost import EXCEEDED
from dovetail.lab.apiserver.crd.cel.values import NONE, Optional
from dovetail.lab.apiserver.crd.cel_values import typed
from dovetail.lab.apiserver.crd.rule import ValidationRule
from dovetail.lab.apiserver.crd.structural import Structural
from dovetail.model.validation.field_errors import OMIT, FieldError, duplicate, forbidden, invalid, required

Warn = Callable[[str], None]


def run(node: Structural, value: Any, old: Any, path: str, trace: Correlation, warn: Warn) -> list[FieldError]:
    """Every rule at and below this node."""
    if value is None or not node.has_rules:
        return []
    errors = _own(node, value, old, path, trace, warn) if node.rules else []
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name in sorted(value):
            child = node.properties.get(name) or node.additional
            if child is None or not child.has_rules:
                continue
            field_path = (f"{path}.{name}" if path else name) if name in node.properties else f"{path}[{name}]"
            errors += run(child, value[name], before.get(name), field_path, trace.key(name), warn)
    elif isinstance(value, list) and node.items is not None and node.items.has_rules:
        for index, item in enumerate(value):
            trace_item, before = trace.item(node, item, old)
            errors += run(node.items, item, before, f"{path}[{index}]", trace_item, warn)
    return errors


def _own(node: Structural, value: Any, old: Any, path: str, trace: Correlation, warn: Warn) -> list[FieldError]:
    errors: list[FieldError] = []
    env: dict[str, Any] = {"self": typed(node, value)}
    if old is not None:
        env["oldSelf"] = typed(node, old)
    field_path = path or "<nil>"
    for rule in node.rules:
        if rule.program is None:
            errors.append(invalid(field_path, node.kind(), f"rule compile error: {rule.error}"))
            continue
        if rule.uses_old and old is None and not rule.optional_old:
            continue
        scope = env
        if rule.optional_old:
            scope = {**env, "oldSelf": Optional(env["oldSelf"]) if old is not None else NONE}
        try:
            verdict = rule.program(scope)
        except cel.CelError as error:
            errors.append(_failed(error, rule, node, field_path))
            if str(error) == EXCEEDED:
                break
            continue
        if verdict is True:
            continue
        complaint = _complaint(rule, node, value, path, scope)
        if not rule.uses_old and trace.unchanged():
            warn(str(complaint))
        else:
            errors.append(complaint)
    return errors


def _failed(error: cel.CelError, rule: ValidationRule, node: Structural, field_path: str) -> FieldError:
    text = str(error)
    if text.startswith("no such overload"):
        detail = (
            f"'{text}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {rule.shown()}"
        )
        return invalid(field_path, node.kind(), detail)
    if text == EXCEEDED:
        why = "no further validation rules will be run due to call cost exceeds limit for rule"
        return invalid(field_path, node.kind(), f"'{text}': {why}: {rule.shown()}")
    return invalid(field_path, node.kind(), f"{text} evaluating rule: {rule.shown()}")


def _complaint(rule: ValidationRule, node: Structural, value: Any, path: str, env: Mapping[str, Any]) -> FieldError:
    field_path = path
    if rule.path:
        field_path = f"{path}{rule.path}" if path else rule.path.removeprefix(".")
    field_path = field_path or "<nil>"
    shown = OMIT if node.kind() in ("object", "array") else value
    detail = rule.detail(env)
    if rule.reason == "FieldValueForbidden":
        return forbidden(field_path, detail)
    if rule.reason == "FieldValueRequired":
        return required(field_path, detail)
    if rule.reason == "FieldValueDuplicate":
        return duplicate(field_path, shown)
    return invalid(field_path, shown, detail)


class Correlation:
    """Where a value stands beside what it was: unchanged parts are not blamed for old mistakes."""

    __slots__ = ("known", "new", "old", "parent")

    def __init__(
        self, new: Any = None, old: Any = None, has_old: bool = False, parent: Correlation | None = None
    ) -> None:
        self.new, self.old, self.known, self.parent = new, old, has_old, parent

    def unchanged(self) -> bool:
        if self.known:
            return bool(self.new == self.old)
        return self.parent is not None and self.parent.unchanged()

    def key(self, name: str) -> Correlation:
        if not self.known:
            return self
        if isinstance(self.old, dict) and name in self.old:
            return Correlation(self.new[name], self.old[name], True, self)
        return Correlation(parent=self)

    def item(self, node: Structural, item: Any, old: Any) -> tuple[Correlation, Any]:
        """The same item before: only lists with keys can tell."""
        if node.list_type == "map" and isinstance(old, list) and isinstance(item, dict):
            for candidate in old:
                if isinstance(candidate, dict) and all(candidate.get(k) == item.get(k) for k in node.keys):
                    correlation = Correlation(item, candidate, self.known, self) if self.known else self
                    return correlation, candidate
        return (Correlation(parent=self) if self.known else self), None
