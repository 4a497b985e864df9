"""Sharing: volumes that several pods use, which a machine attaches once.

Packing adds up what pods take, so a volume cannot be free for the second pod that uses it. Instead shared volumes are
put into packs, and whoever uses one of a pack takes no attachment on a machine that could hold all of it. Either every
machine keeps attachments for the one pack there is, or those with different packs, or with volumes of their own, stay
off each other's machines: whatever asks for fewer machines. Where neither does, each pod is counted. Machines that are
there may attach fewer than the pack has: each keeps attachments for those it holds, and for others as far as it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from dovetail.model.labels import HOSTNAME
from dovetail.planner.groups import ANTI, Group
from dovetail.planner.storage import Storage, Volume

#: Names of dimensions that count attachments begin so; the driver follows.
ATTACH = "attach:"
_FOR = " for "
#: More packs than this are not kept apart; and a guess at how many pods share a machine where room alone decides.
_MOST_PACKS, _TO_A_MACHINE = 8, 10


class Sharing(msgspec.Struct, frozen=True):
    """`packs` are dimensions by the volumes in them, `assumed` the volumes that a dimension takes to be on a machine.

    `beside` names the attachments of a driver that are left beside its pack, `fences` the packs of a driver that keep
    others off their machines. `loose` are volumes of a pack that each have a dimension, by dimension, the most used
    first. `drivers` have shared volumes, counted in whatever way.
    """

    packs: Mapping[Volume, str] = {}
    assumed: Mapping[str, frozenset[Volume]] = {}
    beside: Mapping[str, str] = {}
    loose: Mapping[str, Volume] = {}
    fences: Mapping[str, Mapping[str, Group]] = {}
    drivers: frozenset[str] = frozenset()

    def relieved(self, storage: Storage) -> Storage:
        """What is left to a pod of its attachments."""
        mine = [self.packs.get(volume) for volume in storage.attached]
        own = tuple(volume for volume, pack in zip(storage.attached, mine, strict=True) if pack is None)
        return replace(storage, attached=own, shared=tuple(sorted(set(filter(None, mine)))))

    def fenced(self, storage: Storage) -> tuple[frozenset[Group], frozenset[Group]]:
        """The groups by which a pod keeps others off its machine, and those by which others do."""
        fences = {pack: group for driver, _ in storage.attached for pack, group in self.fences.get(driver, {}).items()}
        mine = {self.packs.get(volume) for volume in storage.attached}
        own = frozenset(group for pack, group in fences.items() if pack in mine)
        return own, frozenset(fences.values()) - own

    def taken(self, storage: Storage) -> list[str]:
        """The dimensions that a pod which is relieved takes one of, as often as it does."""
        return [*(self.beside.get(driver, ATTACH + driver) for driver, _ in storage.attached), *storage.shared]

    def left(self, name: str, limit: int, held: Set[Volume], plenty: int, turn: int = 0) -> int:
        """How much of a dimension there is on a machine that attaches so many volumes and holds some already.

        Machines that cannot hold all of a pack begin with different volumes, each in its `turn`.
        """
        driver = driver_of(name)
        mine = {each for each in held if each[0] == driver}
        if self.loose and driver in self.beside:
            hosted = self._hosted(driver, limit, mine, turn)
            if name in self.loose:
                return plenty if self.loose[name] in hosted else 0
            return limit - len(mine | hosted)
        left = limit - len(mine | self.assumed.get(name, frozenset()))
        if _FOR in name:
            return plenty if left >= 0 else 0
        return left

    def _hosted(self, driver: str, limit: int, held: Set[Volume], turn: int) -> set[Volume]:
        """The loose volumes that a machine has attachments for: those it holds, and others until none is left."""
        mine = [each for each in self.loose.values() if each[0] == driver]
        more = [each for each in mine if each not in held]
        first = turn % len(more) if more else 0
        more = more[first:] + more[:first]
        return {*(each for each in mine if each in held), *more[: max(0, limit - len(held))]}


NOBODY = Sharing()


def driver_of(name: str) -> str:
    """The driver whose attachments a dimension counts; empty for any other."""
    return name.removeprefix(ATTACH).partition(" ")[0] if name.startswith(ATTACH) else ""


def sharing(
    uses: Mapping[Volume, int], limits: Mapping[str, int], mixed: Set[str], there: Set[str] = frozenset()
) -> Sharing:
    """How shared volumes are counted. `uses` says how many pods use each, `limits` how few a machine attaches at least
    that may be bought; machines that are `there` limit some drivers, too.

    Pods use shared volumes of the `mixed` drivers together with others, so nobody can be kept apart there.
    """
    assumed: dict[str, frozenset[Volume]] = {}
    beside: dict[str, str] = {}
    fences: dict[str, dict[str, Group]] = {}
    loose: dict[str, Volume] = {}
    for driver in sorted({*limits, *there}):
        mine = {volume: count for volume, count in uses.items() if volume[0] == driver}
        shared = sorted((volume for volume, count in mine.items() if count > 1), key=lambda each: (-mine[each], each))
        most = limits.get(driver, 0)
        kept, apart = _ways(mine, shared, most) if most else (min(len(shared), _MOST_PACKS), [])
        if apart and driver not in mixed:
            named = {f"{ATTACH}{driver}{_FOR}{len(each)} shared, {at}": each for at, each in enumerate(apart)}
            fences[driver] = {name: _fence(name) for name in named}
            assumed |= named
        elif kept:
            beside[driver] = f"{ATTACH}{driver} beside {kept} shared"
            assumed[beside[driver]] = frozenset(shared[:kept])
            if driver in there and kept <= _MOST_PACKS:
                loose |= {f"{ATTACH}{driver}{_FOR}shared {at}": shared[at] for at in range(kept)}
            else:
                assumed[f"{ATTACH}{driver}{_FOR}{kept} shared"] = frozenset(shared[:kept])
    packs = {volume: name for name, volumes in assumed.items() if _FOR in name for volume in volumes}
    return Sharing(
        packs=packs | {volume: name for name, volume in loose.items()},
        assumed=assumed,
        beside=beside,
        loose=loose,
        fences=fences,
        drivers=frozenset(driver for (driver, _), count in uses.items() if count > 1),
    )


def _ways(mine: Mapping[Volume, int], shared: Sequence[Volume], most: int) -> tuple[int, list[frozenset[Volume]]]:
    """How many of the shared volumes every machine best keeps an attachment for, and packs if those do with fewer."""
    kept, machines = _kept([mine[each] for each in shared], sum(mine.values()), most)
    apart = [frozenset(shared[at : at + most]) for at in range(0, len(shared), most)]
    own = len(mine) - len(shared)
    parted = max(len(apart), (sum(mine.values()) - own) / _TO_A_MACHINE) + own / most
    return kept, apart if len(apart) <= _MOST_PACKS and parted < machines else []


def _kept(shared: Iterable[int], total: int, most: int) -> tuple[int, float]:
    """How many of some shared volumes, by use, every machine best keeps an attachment for; and how many machines do."""
    best, least = 0, total / most
    for count, pods in enumerate(shared, 1):
        total -= pods
        if count > most or (count == most and total):
            break
        machines = total / (most - count) if total else 0.0
        if machines < least:
            best, least = count, machines
    return best, least


def _fence(name: str) -> Group:
    """A group that selects nobody by labels: it counts pods by the volumes they use."""
    return Group(ANTI, HOSTNAME, ((" volumes", "In", (name,)),), None)
