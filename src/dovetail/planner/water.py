"""Water-filling: pods poured over domains rise evenly, the lowest first, to a top that no domain may pass."""

from __future__ import annotations

from collections.abc import Sequence


def lowest(counts: Sequence[int], domains: Sequence[int]) -> int:
    """The domain with the smallest count; of equal ones the one named first."""
    found = domains[0]
    for at in domains:
        if counts[at] < counts[found]:
            found = at
    return found


def quotas(counts: Sequence[int], domains: Sequence[int], count: int, top: int) -> dict[int, int]:
    """How many of `count` pods each of some domains gets; of equal ones those named first are served first."""
    if count == 1:
        at = lowest(counts, domains)
        return {at: 1} if counts[at] < top else {}
    rising = sorted(domains, key=counts.__getitem__)
    while rising and counts[rising[-1]] >= top:
        rising.pop()
    reached = below = 0
    for at in rising:
        if counts[at] * reached - below >= count:
            break
        reached += 1
        below += counts[at]
    if not reached:
        return {}
    level, over = divmod(count + below, reached)
    if level >= top:
        level, over = top, 0
    found: dict[int, int] = {}
    for place, at in enumerate(rising[:reached]):
        more = level + (place < over) - counts[at]
        if more:
            found[at] = more
    return found
