"""An object as YAML, without what may hold a secret: variables, arguments, user data, and what was applied last."""

from __future__ import annotations

from typing import Any

import yaml

from dovetail.install.doctor.collect import LAST_APPLIED

HIDDEN = "(hidden)"
_DROPPED = frozenset(("managedFields",))
_HIDDEN_FIELDS = frozenset(("userData", "args", "command", "data", "stringData", "binaryData"))
#: Under these keys are free names: a label called `data` is no secret.
_NAMES = frozenset(("labels", "matchLabels", "nodeSelector", "selector", "annotations"))


def without_secrets(value: Any, field: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: HIDDEN if key in _HIDDEN_FIELDS and field not in _NAMES else without_secrets(inner, key)
            for key, inner in value.items()
            if key not in _DROPPED and key != LAST_APPLIED
        }
    if isinstance(value, list):
        if field == "env":
            return [{**entry, "value": HIDDEN} if "value" in entry else entry for entry in value]
        return [without_secrets(inner, field) for inner in value]
    return value


def as_yaml(obj: dict[str, Any]) -> str:
    return yaml.safe_dump(without_secrets(obj), sort_keys=False, allow_unicode=True, width=100)
