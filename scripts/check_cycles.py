"""Import cycles between modules, counting lazy and type-only imports: there are none.

A cycle of type-only imports does not fail at run time, but it means that neither module can be read, tested or moved
without the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import grimp

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
    components = list(cycles(graph))
    for component in components:
        print("import cycle:")
        for module in component:
            print(f"  {module} imports {', '.join(m for m in graph[module] if m in component)}")
    print(f"import cycles: {len(components)} among {len(graph)} modules; with lazy and type-only imports")
    return 1 if components else 0


if __name__ == "__main__":
    sys.exit(main())
