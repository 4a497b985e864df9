"""What earlier snapshots worked out about objects that are still the same.

Keyed by the object's identity and holding the object itself, so an entry can never speak of another one.
Forgetting any of it is always safe.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

#: Entries that are never worth forgetting, about pods and about nodes: these weigh much more.
_PODS, _NODES = 5_000, 50


class Memory:
    """A bag of memo tables by name. The planner's modules each own one table."""

    __slots__ = ("lock", "tables")

    def __init__(self) -> None:
        self.lock = RLock()
        """Held while a snapshot is compiled: plans may be made in several threads."""
        self.tables: dict[str, dict[Any, Any]] = {}

    def trim(self, pods: int, nodes: int) -> None:
        """Forget what has outgrown what is there: most of it speaks of pods and nodes that are gone.

        A snapshot may leave out existing nodes; hardly ever are there more of them than pods.
        """
        most = dict.fromkeys(("pods", "shapes", "levels"), _PODS + 3 * pods)
        most["nodes"] = _NODES + 3 * max(nodes, pods)
        for name, entries in most.items():
            if len(self.tables.get(name, ())) > entries:
                self.tables[name].clear()

    def table(self, name: str) -> dict[Any, Any]:
        table = self.tables.get(name)
        return self.tables.setdefault(name, {}) if table is None else table
