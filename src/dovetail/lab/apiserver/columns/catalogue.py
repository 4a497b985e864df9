"""Which kind has which columns."""

from __future__ import annotations

from dovetail.lab.apiserver.columns import Layout

LAYOUTS: dict[tuple[str, str], Layout] = {}
