"""The tables of the view: which columns a width has room for, in which order rows stand, and which a filter keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from dovetail.language import message, source
from dovetail.language.columns import left, right
from dovetail.language.recognition import recognized
from dovetail.tui import figures
from dovetail.tui.figures import UNICODE, Glyphs, fit, fit_middle, printable
from dovetail.view.decisions import host
from dovetail.view.model import FleetView, NodePhase, NodeView, PendingPod, PodView, PoolView, Sum
from dovetail.view.totals import pod_money

R = TypeVar("R")
_LAST = datetime.max.replace(tzinfo=UTC)


class TableLook(msgspec.Struct, frozen=True):
    """How it is drawn: when, with what, and whether bars show usage in place of requests."""

    now: datetime
    glyphs: Glyphs = UNICODE
    usage: bool = False


class Column(NamedTuple, Generic[R]):
    """`narrow` columns below 120, `wide` above; 0 is left out. A `stretched` column takes what is left over.

    Where there is no room, columns go in the order of the table's `expendable`.
    """

    name: str
    title: str
    cell: Callable[[R, TableLook, int], str]
    order: Callable[[R], Any]
    narrow: int
    wide: int
    right: bool = False
    stretched: bool = False
    usage_title: str = ""


class Table(NamedTuple, Generic[R]):
    """`words` are what a filter looks at, by the name before its colon; `kind` is what a row is explained as."""

    name: str
    title: str
    columns: Sequence[Column[R]]
    words: Callable[[R], dict[str, str]]
    rows: Callable[[FleetView], Iterable[R]]
    key: Callable[[R], str]
    first: str
    expendable: tuple[str, ...]


class PlacedPod(NamedTuple):
    pod: PodView
    node: NodeView


class NodePoolRow(NamedTuple):
    """A NodePool with what it has; `view` is None for nodes that no NodePool of the cluster has."""

    name: str
    view: PoolView | None
    total: Sum


WIDE = 120
GAP = " "


def widths(table: Table[R], width: int) -> list[tuple[Column[R], int]]:
    """The columns that are shown, with their widths; together as wide as the screen."""
    chosen = [(column, column.wide if width >= WIDE else column.narrow) for column in table.columns]
    chosen = [(column, size) for column, size in chosen if size]
    for name in table.expendable:
        if _left_over(chosen, width) >= 0:
            break
        chosen = [(column, size) for column, size in chosen if column.name != name]
    over = _left_over(chosen, width)
    stretched = [index for index, (column, _) in enumerate(chosen) if column.stretched]
    for number, index in enumerate(stretched):
        part = over // len(stretched) + (number < over % len(stretched))
        chosen[index] = (chosen[index][0], max(1, chosen[index][1] + part))
    return chosen


def _left_over(chosen: Sequence[tuple[Column[R], int]], width: int) -> int:
    return width - sum(size for _, size in chosen) - len(GAP) * (len(chosen) - 1)


def line(columns: Sequence[tuple[Column[R], int]], row: R, look: TableLook) -> str:
    """A row as text, every cell in its width."""
    cells = []
    for column, size in columns:
        text = fit(printable(column.cell(row, look, size)), size, look.glyphs.cut)
        cells.append((right if column.right else left)(text, size))
    return GAP.join(cells)


def heading(
    columns: Sequence[tuple[Column[Any], int]], look: TableLook, sort: str = "", descending: bool = False
) -> str:
    """The titles; that of the column which the rows are in the order of has a mark."""
    cells = []
    for column, size in columns:
        title = message(column.usage_title if look.usage and column.usage_title else column.title)
        if column.name == sort:
            title = fit(title, size - 1, "") + ("v" if descending else "^")
        cells.append((right if column.right else left)(fit(title, size, look.glyphs.cut), size))
    return GAP.join(cells)


def ordered(table: Table[R], rows: Iterable[R], sort: str, descending: bool) -> list[R]:
    """By a column, then by key. What is unknown stands last in either direction."""
    order = next(column.order for column in table.columns if column.name == sort)
    sortable: list[tuple[Any, str, R]] = []
    unknown: list[tuple[str, R]] = []
    for row in rows:
        value = order(row)
        if value is None:
            unknown.append((table.key(row), row))
        else:
            sortable.append((value, table.key(row), row))
    sortable.sort(key=lambda entry: entry[1])
    sortable.sort(key=lambda entry: entry[0], reverse=descending)
    return [row for _, _, row in sortable] + [row for _, row in sorted(unknown, key=lambda entry: entry[0])]


def matching(table: Table[R], rows: Iterable[R], text: str) -> list[R]:
    """Rows in which every word of the filter occurs: anywhere, or with `pool:web` in that field alone."""
    terms = [_term(word) for word in text.casefold().split()]
    if not terms:
        return list(rows)
    kept = []
    for row in rows:
        words = table.words(row)
        everything = "\n".join(words.values()).casefold()
        if all(
            term in (words[field].casefold() if field in words else everything if not field else "")
            for field, term in terms
        ):
            kept.append(row)
    return kept


def _term(word: str) -> tuple[str, str]:
    field, colon, value = word.partition(":")
    return (field, value) if colon else ("", word)


# -- cells


def _bar(resource: str) -> Callable[[NodeView, TableLook, int], str]:
    def cell(node: NodeView, look: TableLook, columns: int) -> str:
        share = node.usage_share(resource) if look.usage else node.share(resource)
        return share_bar(share, columns, look)

    return cell


def share_bar(share: float | None, columns: int, look: TableLook) -> str:
    """A bar with the percentage behind it."""
    if share is None:
        return figures.UNKNOWN
    return f"{figures.bar(share, columns - 5, look.glyphs)} {right(figures.percent(share), 4)}"


def _usage(resource: str) -> Callable[[NodeView, TableLook, int], str]:
    return lambda node, look, columns: share_bar(node.usage_share(resource), columns, look)


def _pods(node: NodeView, look: TableLook, columns: int) -> str:
    most = node.allocatable.get("pods")
    count = figures.UNKNOWN if node.requests is None or not node.has_node else str(len(node.pods))
    return count if most is None else f"{count}/{most}"


def _price(node: NodeView, look: TableLook, columns: int) -> str:
    return figures.dollars(node.price.per_hour if node.price is not None else None)


def _binding(node: NodeView, look: TableLook, columns: int) -> str:
    """The resource that is used up first."""
    return node.binding or figures.UNKNOWN


def _until(node: NodeView, look: TableLook, columns: int) -> str:
    left_over = "" if node.until is None else f" ({figures.span((node.until - look.now).total_seconds())})"
    return f"{recognized(node.reason)}{left_over}"


def _request(resource: str) -> Callable[[PendingPod | PodView, TableLook, int], str]:
    def cell(pod: PendingPod | PodView, look: TableLook, columns: int) -> str:
        return figures.amount(resource, None if pod.requests is None else pod.requests.get(resource, 0))

    return cell


def _asked(pod: PendingPod | PodView, resource: str) -> int | None:
    return None if pod.requests is None else pod.requests.get(resource, 0)


def _text(value: str | None) -> str:
    return value or "-"


def _youngest_first(created: datetime | None) -> float | None:
    return None if created is None else (_LAST - created).total_seconds()


def pod_state(pod: PodView) -> str:
    if pod.terminating:
        return "Terminating"
    return "NotReady" if pod.phase == "Running" and pod.ready is False else pod.phase


#: The states, what needs attention first. The names fit into the column.
_STATES = {
    NodePhase.NOT_READY: source("not-ready"),
    NodePhase.DRAINING: source("draining"),
    NodePhase.REPLACING: source("replacing"),
    NodePhase.LAUNCHING: source("launching"),
    NodePhase.JOINING: source("joining"),
    NodePhase.CORDONED: source("cordoned"),
    NodePhase.READY: source("ready"),
}


def node_state(node: NodeView) -> str:
    return message(_STATES[node.state])


def _state_order(node: NodeView) -> int:
    return [*_STATES].index(node.state)


NODES: Table[NodeView] = Table(
    "nodes",
    source("Nodes"),
    (
        Column("name", source("NODE"), lambda n, look, w: host(n.name), lambda n: n.name, 12, 20, stretched=True),
        Column("pool", source("POOL"), lambda n, look, w: _text(n.pool or n.group), lambda n: n.pool or n.group, 0, 14),
        Column("cpu", source("CPU"), _bar("cpu"), lambda n: n.share("cpu"), 10, 15, usage_title=source("CPU USED")),
        Column("used-cpu", source("CPU USED"), _usage("cpu"), lambda n: n.usage_share("cpu"), 0, 12),
        Column(
            "memory", source("MEM"), _bar("memory"), lambda n: n.share("memory"), 10, 15, usage_title=source("MEM USED")
        ),
        Column("used-memory", source("MEM USED"), _usage("memory"), lambda n: n.usage_share("memory"), 0, 12),
        Column("pods", source("PODS"), _pods, lambda n: len(n.pods), 6, 7, right=True),
        Column("full", source("FULLEST"), _binding, lambda n: n.share(n.binding) if n.binding else None, 0, 8),
        Column("type", source("TYPE"), lambda n, look, w: n.instance_type or "?", lambda n: n.instance_type, 11, 14),
        Column(
            "capacity", source("CAPACITY"), lambda n, look, w: n.capacity_type or "?", lambda n: n.capacity_type, 0, 9
        ),
        Column("zone", source("ZONE"), lambda n, look, w: n.zone or "?", lambda n: n.zone, 0, 16),
        Column(
            "price",
            source("$/HOUR"),
            _price,
            lambda n: n.price.per_hour if n.price is not None else None,
            7,
            8,
            right=True,
        ),
        Column("state", source("STATE"), lambda n, look, w: node_state(n), _state_order, 9, 11),
        Column(
            "age",
            source("AGE"),
            lambda n, look, w: figures.age(n.created, look.now),
            lambda n: _youngest_first(n.created),
            4,
            4,
            right=True,
        ),
        Column("why", source("WHY"), _until, lambda n: n.reason, 0, 14, stretched=True),
    ),
    lambda n: {
        "name": n.name,
        "pool": n.pool or "",
        "group": n.group or "",
        "zone": n.zone or "",
        "type": n.instance_type or "",
        "capacity": n.capacity_type or "",
        "state": n.state.value,
        "arch": n.architecture or "",
    },
    lambda view: view.nodes.values(),
    lambda n: n.key,
    "name",
    ("full", "used-memory", "used-cpu", "why", "zone", "age", "capacity", "pods", "type", "pool", "memory", "state"),
)


def pod_price(row: PlacedPod) -> float | None:
    return pod_money(row.node, row.pod).per_hour if row.node.is_paid else None


PODS: Table[PlacedPod] = Table(
    "pods",
    source("Pods"),
    (
        Column(
            "name",
            source("POD"),
            lambda p, look, w: fit_middle(p.pod.key, w, look.glyphs.cut),
            lambda p: p.pod.key,
            12,
            30,
            stretched=True,
        ),
        Column("workload", source("WORKLOAD"), lambda p, look, w: p.pod.workload, lambda p: p.pod.workload, 0, 30),
        Column(
            "cpu",
            source("CPU"),
            lambda p, look, w: _request("cpu")(p.pod, look, w),
            lambda p: _asked(p.pod, "cpu"),
            6,
            7,
            right=True,
        ),
        Column(
            "memory",
            source("MEM"),
            lambda p, look, w: _request("memory")(p.pod, look, w),
            lambda p: _asked(p.pod, "memory"),
            6,
            7,
            right=True,
        ),
        Column(
            "price", source("$/HOUR"), lambda p, look, w: figures.dollars(pod_price(p)), pod_price, 7, 8, right=True
        ),
        Column("state", source("STATE"), lambda p, look, w: pod_state(p.pod), lambda p: pod_state(p.pod), 11, 11),
        Column(
            "age",
            source("AGE"),
            lambda p, look, w: figures.age(p.pod.created, look.now),
            lambda p: _youngest_first(p.pod.created),
            4,
            4,
            right=True,
        ),
        Column("node", source("NODE"), lambda p, look, w: host(p.node.name), lambda p: p.node.name, 16, 40),
    ),
    lambda p: {
        "name": p.pod.name,
        "namespace": p.pod.namespace,
        "ns": p.pod.namespace,
        "workload": p.pod.workload,
        "node": p.node.name,
        "pool": p.node.pool or "",
        "zone": p.node.zone or "",
        "state": pod_state(p.pod),
    },
    lambda view: (PlacedPod(pod, node) for node in view.nodes.values() for pod in node.pods),
    lambda p: p.pod.key,
    "name",
    ("workload", "age", "memory", "state", "price", "cpu"),
)

PENDING: Table[PendingPod] = Table(
    "pending",
    source("Pending"),
    (
        Column(
            "name", source("POD"), lambda p, look, w: fit_middle(p.key, w, look.glyphs.cut), lambda p: p.key, 24, 40
        ),
        Column("cpu", source("CPU"), _request("cpu"), lambda p: _asked(p, "cpu"), 5, 7, right=True),
        Column("memory", source("MEM"), _request("memory"), lambda p: _asked(p, "memory"), 6, 7, right=True),
        Column(
            "age",
            source("AGE"),
            lambda p, look, w: figures.age(p.created, look.now),
            lambda p: _youngest_first(p.created),
            4,
            4,
            right=True,
        ),
        Column("code", source("CODE"), lambda p, look, w: _text(p.code), lambda p: p.code or None, 0, 26),
        Column(
            "why", source("WHY"), lambda p, look, w: recognized(p.reason), lambda p: p.reason, 12, 30, stretched=True
        ),
    ),
    lambda p: {
        "name": p.name,
        "namespace": p.namespace,
        "ns": p.namespace,
        "workload": p.workload,
        "why": p.reason,
        "code": p.code,
    },
    lambda view: view.pending.values(),
    lambda p: p.key,
    "name",
    ("code", "memory", "age", "cpu"),
)


def _pools(view: FleetView) -> Iterable[NodePoolRow]:
    for name in {**view.pools, **view.totals.pools}:
        yield NodePoolRow(name, view.pools.get(name), view.totals.pools.get(name, Sum()))


def _readiness(pool: NodePoolRow, look: TableLook, columns: int) -> str:
    if pool.view is None:
        return "-"
    return {True: message("ready"), False: message("not ready"), None: figures.UNKNOWN}[pool.view.ready]


def _limit(pool: NodePoolRow, look: TableLook, columns: int) -> str:
    """The limit that is nearest, in per cent and by name."""
    if pool.view is None or not pool.view.limits:
        return "-"
    shares = {name: pool.view.used.get(name, 0) / most for name, most in pool.view.limits.items() if most}
    if not shares:
        return "0"
    nearest = max(shares, key=lambda name: shares[name])
    return f"{shares[nearest]:.0%} {nearest}"


POOLS: Table[NodePoolRow] = Table(
    "pools",
    source("NodePools"),
    (
        Column(
            "name",
            source("NODEPOOL"),
            lambda p, look, w: p.name or message("(none)"),
            lambda p: p.name,
            12,
            20,
            stretched=True,
        ),
        Column(
            "nodes", source("NODES"), lambda p, look, w: str(p.total.nodes), lambda p: p.total.nodes, 5, 6, right=True
        ),
        Column("pods", source("PODS"), lambda p, look, w: str(p.total.pods), lambda p: p.total.pods, 6, 6, right=True),
        Column(
            "cpu",
            source("CPU"),
            lambda p, look, w: figures.amount("cpu", p.total.cpu),
            lambda p: p.total.cpu,
            6,
            8,
            right=True,
        ),
        Column(
            "memory",
            source("MEM"),
            lambda p, look, w: figures.amount("memory", p.total.memory),
            lambda p: p.total.memory,
            7,
            8,
            right=True,
        ),
        Column(
            "price",
            source("$/HOUR"),
            lambda p, look, w: figures.money(p.total.money, look.glyphs),
            lambda p: p.total.money.per_hour,
            9,
            10,
            right=True,
        ),
        Column("limit", source("LIMIT"), _limit, lambda p: _limit(p, TableLook(_LAST), 0), 11, 14),
        Column("state", source("STATE"), _readiness, lambda p: _readiness(p, TableLook(_LAST), 0), 9, 9),
        Column(
            "why",
            source("WHY"),
            lambda p, look, w: recognized(p.view.problem) if p.view else "",
            lambda p: p.name,
            0,
            20,
            stretched=True,
        ),
    ),
    lambda p: {"name": p.name, "state": _readiness(p, TableLook(_LAST), 0)},
    _pools,
    lambda p: p.name,
    "name",
    ("why", "limit", "memory", "cpu", "pods", "state"),
)

TABLES: tuple[Table[Any], ...] = (NODES, PODS, PENDING, POOLS)
