"""What earlier snapshots worked out about objects that are still the same.

Keyed by the object's identity and holding the object itself, so an entry can never speak of another one.
Forgetting any of it is always safe.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

#: Entries that are never worth forgetting.
_SLACK = 20_000


class Memory:
    """A bag of memo tables by name. The planner's modules each own one table."""

    __slots__ = ("lock", "tables")

    def __init__(self) -> None:
        self.lock = RLock()
        """Held while a snapshot is compiled: plans may be made in several threads."""
        self.tables: dict[str, dict[Any, Any]] = {}

    def trim(self, live: int) -> None:
        """Forget what has outgrown the pods that are there: most of it speaks of pods that are gone."""
        for name in ("pods", "shapes", "levels", "nodes"):
            if len(self.tables.get(name, ())) > _SLACK + 3 * live:
                self.tables[name].clear()

    def table(self, name: str) -> dict[Any, Any]:
        return self.tables.setdefault(name, {})
