"""Cached results about objects that are unchanged since earlier snapshots.

Keyed by the object's identity and holding the object itself, so an entry can never be about another object.
Dropping any entry is always safe.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

#: Cache entries about pods and about nodes that are always kept; an entry about a node is much larger.
_MIN_POD_ENTRIES, _MIN_NODE_ENTRIES = 5_000, 50


class PlannerCache:
    """Cache tables by name. Each module of the planner owns one table."""

    __slots__ = ("lock", "tables")

    def __init__(self) -> None:
        self.lock = RLock()
        """Held while a snapshot is compiled: plans may be made in several threads."""
        self.tables: dict[str, dict[Any, Any]] = {}

    def trim(self, pods: int, nodes: int) -> None:
        """Clear tables that are much larger than the cluster: most of their entries are about deleted pods and nodes.

        A snapshot may omit existing nodes; there are hardly ever more nodes than pods.
        """
        most = dict.fromkeys(("pods", "shapes", "levels"), _MIN_POD_ENTRIES + 3 * pods)
        most["nodes"] = _MIN_NODE_ENTRIES + 3 * max(nodes, pods)
        for name, entries in most.items():
            if len(self.tables.get(name, ())) > entries:
                self.tables[name].clear()

    def table(self, name: str) -> dict[Any, Any]:
        table = self.tables.get(name)
        return self.tables.setdefault(name, {}) if table is None else table
