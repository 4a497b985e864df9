"""Stock: free volumes of classes that make none, and which open claim of a waiting pod each of them will serve.

A volume serves one claim, so it draws one pod, not all that could use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model.fit.binding import capacity, serves
from dovetail.model.fit.storage import class_of
from dovetail.model.volumes import NO_PROVISIONER, PersistentVolume
from dovetail.planner.shape import claim_names
from dovetail.planner.snapshot import Snapshot


def spoken_for(snapshot: Snapshot) -> Mapping[str, PersistentVolume]:
    """The volume for each open claim that finds one: that which is meant for it, or the smallest that will do."""
    table = snapshot.memory.table("stock")
    made_of = (snapshot.pending, snapshot.claims, snapshot.volumes)
    known = table.get("spoken for")
    if known is None or any(old is not new for old, new in zip(known[0], made_of, strict=True)):
        known = table["spoken for"] = (made_of, _matched(snapshot))
    found: Mapping[str, PersistentVolume] = known[1]
    return found


def _matched(snapshot: Snapshot) -> dict[str, PersistentVolume]:
    stock = _stock(snapshot)
    found: dict[str, PersistentVolume] = {}
    for key in sorted({key for pod in snapshot.pending if pod.spec.volumes for key, _ in claim_names(pod)}):
        claim = snapshot.claims.get(key)
        if claim is None or claim.spec.volume_name:
            continue
        left = stock.get(class_of(claim), [])
        at = next((at for at, volume in enumerate(left) if serves(volume, claim)), None)
        if at is not None:
            found[key] = left.pop(at)
    return found


def _stock(snapshot: Snapshot) -> dict[str, list[PersistentVolume]]:
    """The volumes of each class that makes none, those that are meant for somebody first, then the smallest."""
    found: dict[str, list[PersistentVolume]] = {
        name: [] for name, each in snapshot.storage_classes.items() if each.provisioner == NO_PROVISIONER
    }
    for volume in snapshot.volumes.values():
        if volume.spec.storage_class_name in found:
            found[volume.spec.storage_class_name].append(volume)
    for volumes in found.values():
        volumes.sort(key=lambda each: (each.spec.claim_ref is None, capacity(each), each.metadata.name))
    return found
