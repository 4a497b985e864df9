"""Colours of namespaces and workloads: the same for every viewer, and for as long as the server runs."""

from __future__ import annotations

from collections.abc import Iterable

#: How many colours there are that people with any colour vision tell apart; the rest share one.
DISTINCT = 8
OTHER = DISTINCT


class Palette:
    """Gives colours in the order in which keys are first seen."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}

    def prepare(self, dimension: str, keys: Iterable[str]) -> None:
        """Reserve colours for keys, the most important first."""
        for key in keys:
            self.of(dimension, key)

    def of(self, dimension: str, key: str) -> int:
        colours = self._of.setdefault(dimension, {})
        return min(colours.setdefault(key, len(colours)), OTHER)
