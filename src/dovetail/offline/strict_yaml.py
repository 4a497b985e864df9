"""YAML in which a key that is given twice is an error: the last would win, and the first be planned for in vain."""

from __future__ import annotations

from typing import Any

import yaml

from dovetail.language import message

_MERGE = "tag:yaml.org,2002:merge"
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(_Base):  # type: ignore[misc]
    """A safe loader, and libyaml's where there is one."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if key.value in lines:
                text = message(
                    '"{value}" is given twice; the first is on line {lines}; keep one of them',
                    value=key.value,
                    lines=lines[key.value],
                )
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
