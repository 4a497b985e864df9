"""Why every node rejects the pods of one shape, kept up to date from the matrix's log of changed rows.

A pod that waits for a node is tried again whenever the cluster changes; only nodes that changed are checked again.
"""

from __future__ import annotations

from dovetail.lab.scheduler.node_matrix import NodeMatrix
from dovetail.model.fit import Rejection
from dovetail.model.fit.local import check_resources, check_static
from dovetail.model.fit.podinfo import Shape


class RejectedNodes:
    """Only for pods that look at nothing but the node itself: no ports, volumes, spread or affinity."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._restarts = -1
        self._followed = 0
        self._rows: dict[int, str] = {}
        self._fitting: set[int] = set()
        self.by_name: dict[str, Rejection] = {}
        self.tally: dict[Rejection, int] = {}

    def follow(self, matrix: NodeMatrix) -> bool:
        """Take over what changed; whether every node rejects the pods."""
        fresh = self._restarts != matrix.restarts
        changed = set(range(len(matrix.infos)) if fresh else matrix.log[self._followed :])
        self._restarts, self._followed = matrix.restarts, len(matrix.log)
        for row in changed:  # all of them first: a node may have moved to another row
            self._forget(row)
        for row in changed:
            info = matrix.infos[row]
            if info is None:
                continue
            rejection = check_static(self._shape, info.node, "") or check_resources(self._shape, info)
            if rejection is None:
                self._fitting.add(row)
                continue
            self._rows[row] = info.name
            self.by_name[info.name] = rejection
            self.tally[rejection] = self.tally.get(rejection, 0) + 1
        return not self._fitting

    def _forget(self, row: int) -> None:
        self._fitting.discard(row)
        name = self._rows.pop(row, None)
        if name is None:
            return
        rejection = self.by_name.pop(name)
        self.tally[rejection] -= 1
        if not self.tally[rejection]:
            del self.tally[rejection]
