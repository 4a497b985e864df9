"""CustomResourceDefinitions."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.base import KindStrategy


class DefinitionStrategy(KindStrategy):
    generation = True
    status_door = True
