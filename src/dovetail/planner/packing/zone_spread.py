"""Zones of the machines to buy: how many they reach, and more of them where that costs nothing, or is owed.

One zone's failure should take as little as possible; at the same price more zones are better than fewer, and as many as
the yardstick has are worth what the yardstick costs.

Dispersal: one more zone for next to nothing.

A machine that no topology pins is launched where it is cheapest, and so all of them may end in one zone. One zone's
failure should take as little as possible: a small share of the price is worth another zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.attachments import load_of
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.topology_validation import bereaved, sound
from dovetail.planner.packing.violated_preferences import unkept
from dovetail.planner.plan import Choice, Machine
from dovetail.planner.problem.request import Ask

#: What more zones may cost at least, as a share of the price, where the yardstick places other pods.
_OWED = 0.1
#: So many pods and machines are tried in a zone that nobody uses: each takes as long as the board is large.
_TRIED = 200_000


def reach(board: Board, enough: int) -> int:
    """How many zones the machines to buy may lie in, counted up to `enough`."""
    axis, bought = board.axis_at.get(ZONE), board.bought()
    if axis is None:
        return min(enough, len(bought))
    free = [at for at in bought if all(ZONE not in board.asks[number].keys for number in board.contents[at])]
    found = {int(board.domains[axis][at]) for at in set(bought).difference(free)}
    for at in free:
        if len(found) >= enough:
            break
        found.update(sorted(_open_to(board, at, axis) - found)[:1])
    return min(enough, len(found))


def _open_to(board: Board, at: int, axis: int) -> set[int]:
    """The zones in which a machine could stand that holds its pods, for all that they ask."""
    menu, column = board.menu, board.column[at]
    ok: Bools = menu.kinds == menu.kinds[column]
    for number in board.contents[at]:
        ok = ok & board.asks[number].columns
    rows = np.flatnonzero(ok)
    load = menu.capacity[:, column] - board.free[:, at]
    return set(menu.domains[axis][rows[(menu.capacity[:, rows] >= load[:, None]).all(axis=0)]].tolist())


def owed(board: Board, left: Mapping[int, int]) -> tuple[int, float]:
    """The zones that a board should have, and what it may cost more to have them."""
    yardstick, cost = board.problem.yardstick, board.cost()
    if yardstick is None:
        return 0, 0.0
    price = yardstick.price(left)
    if price is None:
        price = max(yardstick.fewer(left), (1 + _OWED) * cost)
    return yardstick.zones, max(0.0, price - cost)


def widened(board: Board, left: Mapping[int, int]) -> Board:
    """The board with pods moved to zones that nobody uses, as far as every rule allows."""
    if board.problem.reservations:
        board = _rebooked(board)
    axis = board.axis_at.get(ZONE)
    if axis is None:
        return board
    wanted, spare = owed(board, left)
    for domain in range(len(board.problem.axes[axis].values)):
        used = [int(board.domains[axis][at]) for at in board.bought()]
        if domain in used:
            continue
        limit = board.cost() + (spare if len({*used}) < wanted else 0.0)
        found = min(_settled(board, axis, domain), key=lambda each: each.cost(), default=None)
        if found is not None and found.cost() <= limit:
            spare -= found.cost() - board.cost()
            board = found
    return board


def _rebooked(board: Board) -> Board:
    """The board with machines of one reservation taken from others in zones that nobody uses, at the same price.

    A reservation is of one zone, so these machines cannot be launched elsewhere as others can.
    """
    twin, menu, missed = board.clone(), board.menu, unkept(board)
    used = Counter(menu.zones[twin.standing(at)] for at in twin.bought())
    for at in twin.bought():
        column = twin.standing(at)
        if menu.reservations[column] is None or used[menu.zones[column]] < 2:
            continue
        for other in [each for each in _alike(twin, at) if menu.zones[each] not in used]:
            twin.move(at, other)
            if unkept(twin) <= missed:
                used[menu.zones[column]] -= 1
                used[menu.zones[other]] += 1
                break
            twin.move(at, column)
    return twin


def _alike(board: Board, at: int) -> list[int]:
    """Columns of reservations that would hold what is on a machine, in domains that matter to it and for no more."""
    menu, column, load = board.menu, board.standing(at), board.used(at)
    asks = [board.asks[number] for number in board.contents[at]]
    ok = board.open_to(at) & (menu.pools == menu.pools[column]) & (menu.finite <= menu.finite[column])
    ok &= (menu.capacity >= np.array(load)[:, None]).all(axis=0)
    for ask in asks:
        ok &= ask.columns
    if board.problem.diversity is not None:
        ok = board.problem.diversity.holding(ok, asks, load)
    for axis in {board.axis_at[key] for ask in asks for key in ask.keys}:
        ok &= menu.domains[axis] == menu.domains[axis][column]
    return [each for each in ok.nonzero()[0].tolist() if menu.reservations[each]]


def _settled(board: Board, axis: int, domain: int) -> Iterator[Board]:
    """Boards on which a machine of its own stands in a zone: one that stood elsewhere, or one for a single pod."""
    missed = unkept(board)
    used = [int(board.domains[axis][at]) for at in board.bought()]
    tries = _TRIED // (board.size + len(board.problem.cells))
    for at in board.bought():
        lots = [{number: 1} for number in board.contents[at]]
        if used.count(int(board.domains[axis][at])) > 1:
            lots.append(dict(board.contents[at]))
        tries -= len(lots)
        if tries < 0:
            return
        for lot in lots:
            twin = _moved(board, at, lot, axis, domain)
            if twin is not None and unkept(twin) <= missed:
                yield twin


def _moved(board: Board, at: int, lot: Mapping[int, int], axis: int, domain: int) -> Board | None:
    twin, menu = board.clone(), board.menu
    asks = {twin.asks[number]: count for number, count in lot.items()}
    kind = menu.kinds[twin.column[at]]
    for ask, count in asks.items():
        twin.put(ask, at, -count)
    if twin.contents[at]:
        shrink(twin, (at,))
    else:
        twin.close(at)
    ok = (menu.kinds == kind) & (menu.domains[axis] == domain)
    load = load_of(board.problem, asks).tolist()
    for dim, amount in enumerate(load):
        ok &= menu.capacity[dim] >= amount
    for ask in asks:
        ok &= ask.columns
    if board.problem.binding or board.problem.reservations:
        ok &= twin.open_to()
    if board.problem.diversity is not None:
        ok = board.problem.diversity.holding(ok, asks, load)
    if not ok.any():
        return None
    fresh = twin.open(int(ok.argmax()))
    for ask, count in asks.items():
        if twin.per_new(ask) < count or not _allowed(twin, ask, fresh, count):
            return None
        twin.put(ask, fresh, count)
    return twin if sound(twin) and not bereaved(twin, twin.size) else None


def _allowed(board: Board, ask: Ask, at: int, count: int) -> bool:
    """Whether topology rules over domains let some pods onto a machine."""
    axes = [board.axis_at[key] for key in ask.keys]
    return all(board.allowance(ask, axis)[board.domains[axis][at]] >= count for axis in axes)


#: The share of a plan's price that all further zones together may cost.
_WORTH = 0.015
#: Dollars an hour that nobody counts.
_CENT = 1e-9


def dispersed(
    machines: Sequence[Machine],
    settled: Callable[[Machine, Machine], Machine | None],
    owed: tuple[int, float] = (0, 0.0),
) -> tuple[Machine, ...]:
    """The machines, some kept to a zone that nobody uses yet.

    `settled` makes what a machine was into what it would be; None if too few offerings were left to it. So many zones
    are `owed`, and may cost so much; others are worth a small share of the price.
    """
    found = list(machines)
    worth, (wanted, spare) = _WORTH * sum(machine.price for machine in found), owed
    while True:
        used = Counter(machine.choice.zone for machine in found)
        purse = max(worth, spare) if len(used) < wanted else worth
        offers = sorted(
            (extra, at, zone)
            for at, machine in enumerate(found)
            if used[machine.choice.zone] > 1
            for zone, extra in _elsewhere(machine, used).items()
            if extra <= purse + _CENT
        )
        moved = ((extra, at, settled(found[at], _kept_to(found[at], zone))) for extra, at, zone in offers)
        extra, at, machine = next((each for each in moved if each[2] is not None), (0.0, -1, None))
        if machine is None:
            return tuple(found)
        worth, spare = worth - extra, spare - extra
        found[at] = machine


def _elsewhere(machine: Machine, used: Counter[str]) -> dict[str, float]:
    """What the machine would cost more in each zone that nobody uses."""
    found: dict[str, float] = {}
    for choice in machine.offerings:
        if choice.price is not None and choice.zone not in used:
            found.setdefault(choice.zone, choice.price - machine.price)
    return found


def _kept_to(machine: Machine, zone: str) -> Machine:
    held = tuple(choice for choice in machine.offerings if choice.zone == zone)
    return replace(machine, offerings=held, requirements=tuple(_narrowed(each, held) for each in machine.requirements))


def _narrowed(need: Mapping[str, Any], held: Sequence[Choice]) -> Mapping[str, Any]:
    left = {
        INSTANCE_TYPE: {choice.instance_type for choice in held},
        CAPACITY_TYPE: {choice.capacity_type for choice in held},
        ZONE: {choice.zone for choice in held},
    }.get(need["key"])
    return need if left is None else {**need, "values": sorted(left)}
