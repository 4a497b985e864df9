"""Import cycles between modules, counting lazy and type-only imports: none beyond those listed here.

A cycle of type-only imports does not fail at run time, but it means that neither module can be read, tested or moved
without the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import grimp

#: Classes and the functions that take them, each importing the other for its types only. A cycle that is gone must go
#: from this list.
TYPE_ONLY = (
    ("dovetail.planner.packing.attachments", "dovetail.planner.packing.state"),
    (
        "dovetail.planner.packing.candidate_nodes",
        "dovetail.planner.packing.offering_choice",
        "dovetail.planner.packing.packer",
        "dovetail.planner.packing.resize",
    ),
    (
        "dovetail.planner.problem.compile",
        "dovetail.planner.problem.min_values",
        "dovetail.planner.problem.preferences",
    ),
)

Graph = Mapping[str, Sequence[str]]


def cycles(graph: Graph) -> Iterator[list[str]]:
    """The strongly connected components of more than one module (Tarjan), each sorted."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for imported in graph[module]:
            if imported not in order:
                yield from visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            start = stack.index(module)
            component = stack[start:]
            del stack[start:]
            if len(component) > 1:
                yield sorted(component)

    for module in graph:
        if module not in order:
            yield from visit(module)


def main() -> int:
    sys.setrecursionlimit(10_000)
    imports = grimp.build_graph("dovetail", cache_dir=None)
    graph = {module: sorted(imports.find_modules_directly_imported_by(module)) for module in sorted(imports.modules)}
    found = {tuple(component) for component in cycles(graph)}
    new, gone = sorted(found - set(TYPE_ONLY)), sorted(set(TYPE_ONLY) - found)
    for component in new:
        print("import cycle:")
        for module in component:
            print(f"  {module} imports {', '.join(m for m in graph[module] if m in component)}")
    for component in gone:
        print(f"no cycle any more, remove it from TYPE_ONLY: {', '.join(component)}")
    print(f"import cycles: {len(found)}, {len(new)} new, among {len(graph)} modules; lazy and type-only imports count")
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
