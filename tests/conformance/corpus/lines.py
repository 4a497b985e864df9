"""Topics kept as data: `lines/<topic>.json`, one request a line. What was found by trying, not by composing.

`{"definition": name}` in place of a body is our own definition of a Karpenter kind, in its stored version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dovetail.model.kinds.crds import definitions
from tests.conformance.steps import Step

_FOLDER = Path(__file__).parent / "lines"


def _definition(name: str) -> dict[str, Any]:
    found = next(one for one in definitions() if one["metadata"]["name"] == name)
    stored = [version for version in found["spec"]["versions"] if version["storage"]]
    return {**found, "spec": {**found["spec"], "versions": stored}}


def _step(step: Step) -> Step:
    if isinstance(step.body, dict) and set(step.body) == {"definition"}:
        return msgspec.structs.replace(step, body=_definition(step.body["definition"]))
    return step


TOPICS = {
    path.stem: [_step(step) for step in msgspec.json.decode(path.read_bytes(), type=list[Step])]
    for path in sorted(_FOLDER.glob("*.json"))
}
