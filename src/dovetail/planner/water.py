"""Water-filling: pods poured over domains rise evenly, the lowest first, to a top that no domain may pass."""

from __future__ import annotations

from collections.abc import Sequence


def quotas(counts: Sequence[int], domains: Sequence[int], count: int, top: int) -> dict[int, int]:
    """How many of `count` pods each of some domains gets; of equal ones those named first are served first."""
    if count == 1:
        lowest_of_all = min(domains, key=counts.__getitem__)
        return {lowest_of_all: 1} if counts[lowest_of_all] < top else {}
    heights = {at: counts[at] for at in sorted(domains, key=counts.__getitem__) if counts[at] < top}
    found: dict[int, int] = {}
    while count and heights:
        low = min(heights.values())
        lowest = [at for at, height in heights.items() if height == low]
        above = min((height for height in heights.values() if height > low), default=top)
        rise = min(above - low, count // len(lowest))
        for at in lowest if rise else lowest[:count]:
            heights[at] += rise or 1
            found[at] = found.get(at, 0) + (rise or 1)
            count -= rise or 1
            if heights[at] >= top:
                del heights[at]
        if not rise:
            break
    return found
