"""The order in which Go's `sort.Slice` leaves those that compare equal.

Karpenter sorts its claims by how many pods they hold, again and again, with a sort that is quick and not stable.
Up to a dozen keep their order; of more, equals change places, and the next pod goes to a pod that has come first. It
looks
like chance and is not: the same claims end in the same order. So this does, step by step, what that sort does.
"""

from __future__ import annotations

from operator import lt
from typing import Any, TypeVar

_T = TypeVar("_T")

#: Up to this many are sorted by insertion, which is stable.
_SHORT = 12
#: From this many on the pivot is chosen among nine, and a few that stand out of order are shifted.
_LONG = 50
_SHIFTS = 5
_MASK = (1 << 64) - 1


def go_sort(keys: list[int], items: list[_T]) -> None:
    """Sort items in place by their keys, and the keys with them, as `sort.Slice` does."""
    if keys != sorted(keys):  # else no pod is moved
        _Sort(keys, items).run(0, len(keys), len(keys).bit_length())


class _Sort:
    """One sort of items by their keys; only keys are compared."""

    def __init__(self, keys: list[int], items: list[_T]) -> None:
        self.keys = keys
        self.items: list[Any] = items

    def swap(self, pod_class: int, other: int) -> None:
        keys, items = self.keys, self.items
        keys[pod_class], keys[other] = keys[other], keys[pod_class]
        items[pod_class], items[other] = items[other], items[pod_class]

    def move(self, source: int, target: int) -> None:
        """A pod goes elsewhere, and those in between move up."""
        self.keys.insert(target, self.keys.pop(source))
        self.items.insert(target, self.items.pop(source))

    def run(self, start: int, end: int, clock_slack: int) -> None:
        """Sort a stretch. `clock slack` is how many lopsided cuts are borne; what comes after that is not retraced."""
        balanced = parted = True
        while end - start > _SHORT and clock_slack:
            length = end - start
            if not balanced:
                self._scatter(start, length)
                clock_slack -= 1
            pivot, swaps = self._pivot(start, length)
            if swaps == _SHORT:
                self.keys[start:end] = self.keys[start:end][::-1]
                self.items[start:end] = self.items[start:end][::-1]
                pivot, swaps = end - 1 - (pivot - start), 0
            if balanced and parted and not swaps and self._nearly_sorted(start, end):
                return
            if start and self.keys[start - 1] >= self.keys[pivot]:
                start = self._past_equals(start, end, pivot)
                continue
            middle, parted = self._cut(start, end, pivot)
            balanced = min(middle - start, end - middle) >= length // 8
            if middle - start < end - middle:
                self.run(start, middle, clock_slack)
                start = middle + 1
            else:
                self.run(middle + 1, end, clock_slack)
                end = middle
        keys, items = self.keys, self.items
        order = sorted(range(start, end), key=keys.__getitem__)
        keys[start:end], items[start:end] = [keys[index] for index in order], [items[index] for index in order]

    def _pivot(self, start: int, length: int) -> tuple[int, int]:
        """The place of the pivot, and how many of those looked at stood the wrong way round."""
        places, swaps = [start + length // 4 * part for part in (1, 2, 3)], 0
        if length >= _LONG:
            for index, place in enumerate(places):
                places[index], more = self._median(place - 1, place, place + 1)
                swaps += more
        middle, more = self._median(*places)
        return middle, swaps + more

    def _median(self, first: int, second: int, third: int) -> tuple[int, int]:
        keys, swaps = self.keys, 0
        if keys[second] < keys[first]:
            first, second, swaps = second, first, swaps + 1
        if keys[third] < keys[second]:
            second, swaps = third, swaps + 1
        if keys[second] < keys[first]:
            second, swaps = first, swaps + 1
        return second, swaps

    def _nearly_sorted(self, start: int, end: int) -> bool:
        """Whether a stretch is sorted, after a few shifts if it is long."""
        keys, index = self.keys, start + 1
        for _ in range(_SHIFTS):
            falls = list(map(lt, keys[index:end], keys[index - 1 : end]))
            if True not in falls:
                return True
            index += falls.index(True)
            if end - start < _LONG:
                return False
            self.swap(index, index - 1)
            self._shift(index, start, end)
        return False

    def _shift(self, node: int, start: int, end: int) -> None:
        """The smaller one goes left and the greater one right, as far as they must."""
        keys, place = self.keys, node - 1
        if node - start >= 2:
            while place >= 1 and keys[node - 1] < keys[place - 1]:
                place -= 1
            self.move(node - 1, place)
        place = node + 1
        if end - node >= 2:
            while place < end and keys[place] < keys[node]:
                place += 1
            self.move(node, place - 1)

    def _cut(self, start: int, end: int, pivot: int) -> tuple[int, bool]:
        """Smaller ones before the pivot, the others behind it; where it ends, and whether they stood so before."""
        self.swap(start, pivot)
        keys, pivot = self.keys, self.keys[start]
        left, right, parted = start + 1, end - 1, True
        while True:
            while left <= right and keys[left] < pivot:
                left += 1
            while left <= right and keys[right] >= pivot:
                right -= 1
            if left > right:
                self.swap(right, start)
                return right, parted
            self.swap(left, right)
            left, right, parted = left + 1, right - 1, False

    def _past_equals(self, start: int, end: int, pivot: int) -> int:
        """Those equal to the pivot come first; where the greater ones begin."""
        self.swap(start, pivot)
        keys, pivot = self.keys, self.keys[start]
        left, right = start + 1, end - 1
        while True:
            while left <= right and keys[left] <= pivot:
                left += 1
            while left <= right and keys[right] > pivot:
                right -= 1
            if left > right:
                return left
            self.swap(left, right)
            left, right = left + 1, right - 1

    def _scatter(self, start: int, length: int) -> None:
        """Three in the middle change places with others, so that no pattern cuts off little again and again."""
        number, places = length, (1 << length.bit_length()) - 1
        for offset in (-1, 0, 1):
            number ^= number << 13 & _MASK
            number ^= number >> 7
            number ^= number << 17 & _MASK
            other = number & places
            self.swap(start + length // 4 * 2 + offset, start + (other if other < length else other - length))
