"""Specs already judged: the pods of one workload are alike, so each spec is read once and remembered.

A spec is remembered by its bytes. Where the verdict depends on the pod's own name (claims of ephemeral volumes),
nothing is remembered.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.lab.apiserver.kinds.pod.spec import check_spec
from dovetail.lab.apiserver.kinds.pod.warnings import warnings
from dovetail.model.validation.field_errors import FieldError

_LIMIT = 2048
_encode = msgspec.json.Encoder().encode


class SpecValidationCache:
    """What is known of specs: that they are good, and what to warn of."""

    def __init__(self) -> None:
        self._good: dict[bytes, list[str]] = {}

    def check(self, spec: dict[str, Any], name: str) -> list[FieldError]:
        key = _encode(spec)
        if key in self._good:
            return []
        errors = check_spec(spec, "spec", name)
        if not errors and not any("ephemeral" in volume for volume in spec.get("volumes") or ()):
            if len(self._good) >= _LIMIT:
                self._good.clear()
            self._good[key] = warnings(spec, {})
        return errors

    def warnings(self, spec: dict[str, Any], meta: dict[str, Any]) -> list[str]:
        if any(".alpha.kubernetes.io/" in key for key in meta.get("annotations") or ()):
            return warnings(spec, meta)
        existing = self._good.get(_encode(spec))
        return list(existing) if existing is not None else warnings(spec, {})


VERDICTS = SpecValidationCache()
