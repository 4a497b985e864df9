"""Ruin and recreate: take a few machines apart, put their pods back another way, keep it if it costs less.

Every step goes through the same board and the same rules as the first packing, so a better plan is also a valid
one. The search is paid in work (questions asked of the board), so that it ends at the same place on every machine; the
clock only stops it early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dovetail.chance import Chance
from dovetail.planner.packing.objective import weighed
from dovetail.planner.packing.pack import Packing, hopeless, narrowed, pack, standing_at
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.topology_validation import bereaved, sound, widowed
from dovetail.planner.packing.violated_preferences import Lapse, lapses_on, total
from dovetail.planner.packing.zone_spread import reach
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.preferences import welcome
from dovetail.planner.problem.request import Ask
from dovetail.planner.problem.topology_groups import AFFINITY

#: Dollars an hour below which two plans cost the same.
EPSILON = 1e-9
#: How much dearer a step may be, at first, to get out of a dead end.
_HEAT = 0.05
#: Up to this many machines a step touches about the whole plan; of more it touches a part, and may cost less more.
_WHOLE = 10
#: Up to so many groups, and so many dimensions, a step costs much the same; and what each dimension beyond costs.
_CELLS, _DIMS, _EACH_DIM = 100, 20, 20
#: How often pods are also taken off machines that are there.
_UNLOAD = 0.3
#: How often pods try to have again what they gave up.
_CLIMB = 0.3
#: How often pods go only where all their wishes about machines hold.
_WISHFUL = 0.5
#: The share of the work that packings from scratch may take; the walk has the rest.
_AFRESH = 0.4
#: A packing that costs less than this share of the best, and keeps less, is worth a walk of its own.
_BARGAIN = 0.9
#: How often one of those without a place is invited, and how often in a row in vain.
_INVITE, _HOPE = 0.5, 60


def improve(
    problem: Problem,
    start: Packing,
    seed: int,
    budget: int,
    enough: float,
    out_of_time: Callable[[], bool],
    afresh: bool = True,
) -> Packing:
    """The best packing found with `budget` work; stops at the price `enough`, or when little is left to try.

    `afresh`: other packings from scratch are tried first.
    """
    begin = problem.work
    chance = Chance(seed).child("planner", "search")
    best, bargain = start, None
    for strategy in _starts(problem, chance) if afresh else ():
        if out_of_time() or problem.work - begin > budget * _AFRESH or _perfect(best, enough):
            break
        other = pack(problem, strategy)
        if other.left != best.left:
            continue
        if other.rank < best.rank:
            best, other = other, best
        if other.cost < best.cost * _BARGAIN and (bargain is None or other.rank[-1] < bargain.rank[-1]):
            bargain = other
    left = budget - (problem.work - begin)
    if bargain is None:
        return _walked(problem, best, chance, left, enough, out_of_time)
    found = _walked(problem, best, chance, left // 2, enough, out_of_time)
    if bargain.cost >= found.cost * _BARGAIN:
        bargain = found
    other = _walked(problem, bargain, chance, left - left // 2, enough, out_of_time)
    return min((found, other), key=lambda each: each.rank)


def _walked(
    problem: Problem, start: Packing, chance: Chance, budget: int, enough: float, out_of_time: Callable[[], bool]
) -> Packing:
    """The best packing that a walk from one comes to."""
    begin = problem.work
    walk = _Walk(problem, start)
    patience = 200 + 50 * walk.machines * len(problem.classes)
    tries = 0
    while problem.work - begin < budget and tries < budget and not out_of_time():
        tries += 1
        if walk.idle > patience or (_perfect(walk.best, enough) and not walk.waiting):
            break
        walk.step(chance, 1 - (problem.work - begin) / budget)
    return walk.best


def _perfect(packing: Packing, enough: float) -> bool:
    """Whether there is nothing to better: the price, wishes, zones."""
    return packing.cost <= enough + EPSILON and not packing.unkept and packing.wide


class _Walk:
    """Where the search stands, and the best it has seen. Nothing that the start keeps is lost on the way."""

    def __init__(self, problem: Problem, start: Packing) -> None:
        self.problem = problem
        self.best = start
        self.current = start.board
        self.excess = start.excess
        self.cost = self.least = weighed(problem, start.cost, start.lapses, start.left)
        self.zones = reach(start.board, problem.yardstick.zones) if problem.yardstick is not None else 0
        self.machines = len(start.board.bought())
        self.warmth = _HEAT * min(1.0, _WHOLE / max(1, self.machines))
        self.idle = 0
        self.waiting = [index for index in sorted(start.left) if not hopeless(problem, problem.classes[index])]
        """Classes of which some pods have no place, as long as there is hope for them."""
        self.wishful = narrowed(problem, welcome(problem)) if problem.yardstick is not None else []
        """What pods would accept that insist on all their wishes about machines."""
        self._refused = 0

    def step(self, chance: Chance, heat: float) -> None:
        """Try another way; keep it if it is better, or not much worse while it is hot."""
        self.idle += 1
        guest = chance.choice(self.waiting) if self.waiting and chance.random() < _INVITE else None
        with standing_at(self.wishful if self.wishful and chance.random() < _WISHFUL else ()):
            found = _step(self.problem, self.current, chance, guest)
        if guest is not None:
            self._invited(guest, found)
            return
        lapses = lapses_on(found) if found is not None else []
        if found is None or not self._keeps(found, lapses, self.best.left):
            return
        price = weighed(self.problem, found.cost(), lapses, self.best.left)
        if price < self.cost * (1 + self.warmth * heat * chance.random() ** 2) - EPSILON:
            self.current, self.cost = found, price
            if price < self.least - EPSILON:
                self.best, self.least, self.idle = Packing(found.clone(), self.best.left), price, 0
        if self.cost > self.least * (1 + 2 * self.warmth):
            self.current, self.cost = self.best.board, self.least

    def _keeps(self, board: Board, lapses: Sequence[Lapse], left: Mapping[int, int]) -> bool:
        yardstick = self.problem.yardstick
        if yardstick is None:
            return total(lapses) <= self.excess
        return yardstick.excess(lapses, left) <= self.excess and reach(board, self.zones) == self.zones

    def _invited(self, guest: int, found: Board | None) -> None:
        """A pod more with a place is worth its price. Those who are refused too often are not asked again."""
        left = {index: count - (index == guest) for index, count in self.best.left.items()}
        left = {index: count for index, count in left.items() if count}
        if found is None or not self._keeps(found, lapses_on(found), left):
            self._refused += 1
            if self._refused > _HOPE:
                self.waiting.clear()
            return
        self.best = Packing(found.clone(), left)
        self.waiting = [index for index in self.waiting if index in left]
        self.current = found
        self.cost = self.least = weighed(self.problem, self.best.cost, self.best.lapses, left)
        self.idle = self._refused = 0


def _starts(problem: Problem, chance: Chance) -> list[Strategy]:
    """Other ways to pack from scratch: price ceilings along the menu, other orders, other turns."""
    prices = problem.menu.prices
    shares = (0.1, 0.25, 0.4, 0.6, 0.8) if len(prices) else ()
    ceilings = sorted({float(prices[int(len(prices) * share)]) for share in shares})
    found = [Strategy(settle=True), Strategy(level=True), Strategy(settle=True, grow=True, foresight=0.0)]
    found += [Strategy(slack=True, foresight=0.0)]
    found += [Strategy(ceiling=ceiling, foresight=weight) for ceiling in ceilings for weight in (1.0, 0.2)]
    found += [Strategy(order=order, grow=grow) for order in ("sum", "cpu", "memory") for grow in (False, True)]
    found += [Strategy(turn=turn, foresight=0.5) for turn in range(1, 3)]
    found += [Strategy(foresight=0.0, bulk=True, order=order) for order in ("sum", "memory")]
    if problem.weighted:
        found += [replace(each, wide=True) for each in found]
    return found


def _step(problem: Problem, before: Board, chance: Chance, guest: int | None = None) -> Board | None:
    """The board with some machines taken apart and their pods, and perhaps one of another class, placed again."""
    problem.work += 10 + before.size // 5 + _burden(problem)
    board = before.clone()
    bought = board.bought()
    if not bought and guest is None:
        return None
    pods: dict[int, int] = {}
    for at in _victims(board, bought, chance) if bought else ():
        _collect(pods, board.clear(at))
    if board.existing and (guest is not None or chance.random() < _UNLOAD):
        _unload(board, pods, chance)
    if _bereft(before, board):
        _drop_widows(board, pods)
    packer = Packer(problem, _mood(problem, chance), board)
    climb = guest is not None or (bool(problem.wishes) and chance.random() < _CLIMB)
    if guest is not None:
        last = problem.ask(problem.classes[guest], len(problem.classes[guest].levels) - 1)
        _collect(pods, {last.number: 1})
    for number in pods:
        packer.waiting += board.asks[number].request * float(pods[number])
    for number in _shuffled(board, pods, chance):
        ask = board.asks[number]
        packer.waiting -= ask.request * float(pods[number])
        if _placed(packer, ask, pods[number], climb) < pods[number]:
            return None
    board = packer.board
    shrink(board, board.changed(before))
    if not sound(board) or (board.existing and bereaved(board, board.existing)):
        return None
    return board


def _burden(problem: Problem) -> int:
    """What a step costs more where there is an unusual number of groups to count, or of things that machines have."""
    return max(0, len(problem.cells) - _CELLS) // 2 + max(0, len(problem.dims) - _DIMS) * _EACH_DIM


def _placed(packer: Packer, ask: Ask, count: int, climb: bool) -> int:
    """Place pods of an ask; those that `climb` try to have again what their class wished for first."""
    rungs = [packer.problem.ask(ask.cls, rung) for rung in range(ask.level.rung)] if climb else []
    got = 0
    for each in (*rungs, ask):
        got += packer.place(each, count - got) if got < count else 0
    return got


def _unload(board: Board, pods: dict[int, int], chance: Chance) -> None:
    """Take pods of this plan off a few machines that are there; others may make better use of the room."""
    held = [at for at in range(board.existing) if board.contents[at]]
    chance.shuffle(held)
    for at in held[: chance.choice((1, 2, 4, 8))]:
        for number, count in board.contents[at].items():
            ask = board.asks[number]
            if not any(cell.kind == AFFINITY for cell in (*ask.ties.host_members, *ask.ties.domain_members)):
                board.put(ask, at, -count)
                _collect(pods, {number: count})


def _collect(pods: dict[int, int], more: dict[int, int]) -> None:
    for number, count in more.items():
        pods[number] = pods.get(number, 0) + count


def _victims(board: Board, bought: list[int], chance: Chance) -> list[int]:
    """A machine and a few others: its like, the emptiest, or anybody."""
    many = chance.random() < 0.03
    count = min(len(bought), chance.choice((9, 14, 20) if many else (1, 2, 2, 3, 3, 4, 5, 6)))
    first = chance.choice(bought)
    kind = chance.random()
    others = [at for at in bought if at != first]
    if kind < 0.4:
        shared = set(board.contents[first])
        others.sort(key=lambda at: (-len(shared & set(board.contents[at])), chance.random()))
    elif kind < 0.6:
        menu = board.menu
        waste = {at: float((board.free[:, at] / (menu.capacity[:, board.column[at]] + 1)).sum()) for at in others}
        others.sort(key=lambda at: -waste[at] - 0.3 * chance.random())
    else:
        chance.shuffle(others)
    return [first, *others[: count - 1]]


def _bereft(before: Board, board: Board) -> bool:
    """Whether a domain or a machine that stays has lost the last pod that others may need near them."""
    for cell in board.problem.cells.values():
        if cell.kind == AFFINITY:
            size = board.size
            was = before.host_counts[cell.slot, :size].tolist() if cell.host else before.counts[cell.slot]
            now = board.host_counts[cell.slot, :size].tolist() if cell.host else board.counts[cell.slot]
            if any(one and not other for one, other in zip(was, now, strict=True)):
                return True
    return False


def _drop_widows(board: Board, pods: dict[int, int]) -> None:
    """Pods whose company was taken away must be placed again as well."""
    while True:
        lost = [at for at in board.bought() if widowed(board, at)]
        if not lost:
            return
        for at in lost:
            _collect(pods, board.clear(at))


def _mood(problem: Problem, chance: Chance) -> Strategy:
    prices = problem.menu.prices
    ceiling = float("inf")
    if chance.random() < 0.5 and len(prices):
        ceiling = float(prices[chance.randrange(len(prices))])
    return Strategy(
        foresight=chance.choice((0.0, 0.3, 1.0, 1.0)),
        turn=chance.randrange(3),
        ceiling=ceiling,
        grow=chance.random() < 0.35,
        bulk=chance.random() < 0.1,
        wide=problem.weighted and chance.random() < 0.5,
        settle=chance.random() < 0.3,
    )


def _shuffled(board: Board, pods: dict[int, int], chance: Chance) -> list[int]:
    """Largest first, with some noise; those that others lean on still come first."""

    def size(number: int) -> float:
        ask = board.asks[number]
        return float((ask.request / (board.menu.capacity.max(axis=1, initial=0) + 1)).max())

    noise = chance.choice((0.0, 0.3, 1.0))
    keyed = [
        (_leans(board.asks[number]), -size(number) * (1 + noise * chance.uniform(-1, 1)), number) for number in pods
    ]
    return [number for _, _, number in sorted(keyed)]


def _leans(ask: Ask) -> int:
    return int(
        any(
            cell.kind == AFFINITY and cell.group not in ask.cls.members
            for cell in (*ask.ties.host_owned, *ask.ties.domain_owned)
        )
    )
