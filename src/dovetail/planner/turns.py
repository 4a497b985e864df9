"""Turns: volumes for one pod at a time, and who has to wait for theirs.

kube-scheduler keeps a pod off every node while another uses its ReadWriteOncePod claim, so a machine bought for it
would stand empty. Whoever has such a volume keeps it; else the most important, then the oldest pod goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from dovetail.model.claims import Trouble, in_use
from dovetail.model.pods import Pod
from dovetail.planner.shape import claim_names
from dovetail.planner.snapshot import Snapshot

_ONE_POD = "ReadWriteOncePod"


def scarce(claims: Iterable[str], snapshot: Snapshot) -> frozenset[str]:
    """Those of some claims that are for one pod at a time."""
    found = ((key, snapshot.claims.get(key)) for key in claims)
    return frozenset(key for key, claim in found if claim is not None and _ONE_POD in claim.spec.access_modes)


def turns(line: Iterable[tuple[str, Pod]], claims: Set[str], snapshot: Snapshot) -> dict[str, Trouble]:
    """Who of a line of pods waits for one of the claims, and for whom."""
    line = list(line)
    users = _users(claims, {name for name, _ in line}, snapshot)
    first: dict[str, str] = {}
    found: dict[str, Trouble] = {}
    for name, pod in line:
        mine = [key for key, _ in claim_names(pod) if key in claims]
        taken = next((key for key in mine if key in users or key in first), None)
        if taken is None:
            first.update(dict.fromkeys(mine, name))
            continue
        who = f"{users[taken]} uses it" if taken in users else f"{first[taken]} goes first"
        found[name] = in_use(taken.partition("/")[2], who)
    return found


def _users(claims: Set[str], waiting: Set[str], snapshot: Snapshot) -> dict[str, str]:
    """The running pods that have the claims and keep them: whoever leaves, or is to be placed anew, does not."""
    found: dict[str, str] = {}
    for pod in (pod for state in snapshot.nodes if not state.deleting for pod in state.pods):
        if not pod.spec.volumes or pod.finished or pod.terminating:
            continue
        name = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
        if name not in waiting:
            found |= {key: name for key, _ in claim_names(pod) if key in claims}
    return found
