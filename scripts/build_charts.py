"""Write the parts of the charts that have their source elsewhere: custom resource definitions and RBAC rules in the
code, the names of values in the schema.

python scripts/build_charts.py           writes charts/
python scripts/build_charts.py --check   says what differs, and fails if anything does
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.install.rbac import rules_template
from dovetail.install.vpa_chart import vpa_template
from dovetail.model.kinds.crds import KINDS, definition, render

CHARTS = Path(__file__).parent.parent / "charts"


def generated() -> dict[Path, str]:
    """Path and content of every generated file."""
    templates = CHARTS / "dovetail" / "templates"
    files = {
        templates / "_rules.tpl": rules_template(),
        templates / "_names.tpl": names_template(),
        templates / "vpa.yaml": vpa_template(),
    }
    for kind in KINDS:
        text = render([definition(kind)]).removeprefix("---\n")
        for folder in (CHARTS / "dovetail" / "crds", CHARTS / "dovetail-crd" / "definitions"):
            files[folder / f"{kind.group}_{kind.plural}.yaml"] = text
    return files


def names_template() -> str:
    """The chart's `_names.tpl`: the names that are read, by the path of their map, so that NOTES.txt names others."""
    schema = json.loads((CHARTS / "dovetail" / "values.schema.json").read_text())
    lines = [f"{path}: [{', '.join(sorted(names))}]\n" for path, names in _names("", schema)]
    head = "{{/* Written by scripts/build_charts.py from values.schema.json. */}}\n"
    return f'{head}{{{{- define "dovetail.names" -}}}}\n{"".join(lines)}{{{{- end }}}}\n'


def _names(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Maps that the templates read name by name. What the schema only refers to (`$ref`) is handed on whole."""
    properties = schema.get("properties", {})
    if properties:
        yield path or "values", list(properties)
    for name, inner in properties.items():
        yield from _names(f"{path}.{name}" if path else name, inner)


def main() -> int:
    stale = [path for path, text in generated().items() if not path.is_file() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(CHARTS.parent)} differs from its source: run scripts/build_charts.py")
        return 1 if stale else 0
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
