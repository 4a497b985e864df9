"""Sharing: volumes that several pods use, which a machine attaches once.

Packing adds up what pods take, so a volume cannot be free for the second pod that uses it. Instead shared volumes are
put into packs, and whoever uses one of a pack takes no attachment on a machine that could hold all of it. Either every
machine keeps attachments for the one pack there is, or those with different packs, or with volumes of their own, stay
off each other's machines: whatever asks for fewer machines. Where neither does, each pod is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

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
    others off their machines. `drivers` have shared volumes, counted in whatever way.
    """

    packs: Mapping[Volume, str] = {}
    assumed: Mapping[str, frozenset[Volume]] = {}
    beside: Mapping[str, str] = {}
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

    def left(self, name: str, limit: int, held: Set[Volume], plenty: int) -> int:
        """How much of a dimension there is on a machine that attaches so many volumes and holds some already."""
        driver = driver_of(name)
        left = limit - sum(each[0] == driver for each in held | self.assumed.get(name, frozenset()))
        if _FOR in name:
            return plenty if left >= 0 else 0
        return left


NOBODY = Sharing()


def driver_of(name: str) -> str:
    """The driver whose attachments a dimension counts; empty for any other."""
    return name.removeprefix(ATTACH).partition(" ")[0] if name.startswith(ATTACH) else ""


def sharing(uses: Mapping[Volume, int], limits: Mapping[str, int], mixed: Set[str]) -> Sharing:
    """How shared volumes are counted. `uses` says how many pods use each, `limits` how few a machine attaches at least.

    Pods use shared volumes of the `mixed` drivers together with others, so nobody can be kept apart there.
    """
    assumed: dict[str, frozenset[Volume]] = {}
    beside: dict[str, str] = {}
    fences: dict[str, dict[str, Group]] = {}
    for driver, most in sorted(limits.items()):
        mine = {volume: count for volume, count in uses.items() if volume[0] == driver}
        shared = sorted((volume for volume, count in mine.items() if count > 1), key=lambda each: (-mine[each], each))
        kept, machines = _kept([mine[each] for each in shared], sum(mine.values()), most)
        apart = [frozenset(shared[at : at + most]) for at in range(0, len(shared), most)]
        own = len(mine) - len(shared)
        parted = max(len(apart), (sum(mine.values()) - own) / _TO_A_MACHINE) + own / most
        if driver not in mixed and len(apart) <= _MOST_PACKS and parted < machines:
            named = {f"{ATTACH}{driver}{_FOR}{len(each)} shared, {at}": each for at, each in enumerate(apart)}
            fences[driver] = {name: _fence(name) for name in named}
            assumed |= named
        elif kept:
            beside[driver] = f"{ATTACH}{driver} beside {kept} shared"
            together = f"{ATTACH}{driver}{_FOR}{kept} shared"
            assumed |= dict.fromkeys((together, beside[driver]), frozenset(shared[:kept]))
    return Sharing(
        packs={volume: name for name, volumes in assumed.items() if _FOR in name for volume in volumes},
        assumed=assumed,
        beside=beside,
        fences=fences,
        drivers=frozenset(driver for (driver, _), count in uses.items() if count > 1),
    )


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
