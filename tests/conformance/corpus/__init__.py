"""The requests both servers must answer alike, by topic. Every module here adds its `TOPICS`."""

from __future__ import annotations

import importlib
import pkgutil

from tests.conformance.steps import Step


def topics() -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda one: one.name):
        for name, steps in importlib.import_module(f"{__name__}.{module.name}").TOPICS.items():
            if name in found:
                raise ValueError(f"two topics are named {name!r}")
            found[name] = steps
    return found
