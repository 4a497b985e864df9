"""What earlier snapshots worked out about objects that are still the same.

Keyed by the object's identity and holding the object itself, so an entry can never speak of another one.
Forgetting any of it is always safe.
"""

from __future__ import annotations

from typing import Any


class Memory:
    """A bag of memo tables by name. The planner's modules each own one table."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}

    def table(self, name: str) -> dict[Any, Any]:
        return self.tables.setdefault(name, {})
