"""Go's `sort.Slice`, including the order in which it leaves equal elements.

Karpenter sorts its NodeClaims by their number of pods before each pod, with a sort that is not stable. Up to twelve
elements keep their order; of more, equal ones change places, and the next pod goes to the NodeClaim that is first
then. The result is deterministic, so this module repeats the steps of that sort.
"""

from __future__ import annotations

from operator import lt
from typing import Any, TypeVar

_T = TypeVar("_T")

#: Up to this many elements are sorted by insertion, which is stable.
_MAX_INSERTION_SORT = 12
#: From this many elements on, the pivot is the median of nine, and a few elements out of order are shifted.
_MIN_NINTHER = 50
_MAX_SHIFTS = 5
_MASK = (1 << 64) - 1


def go_sort(keys: list[int], items: list[_T]) -> None:
    """Sort items in place by their keys, and the keys with them, as `sort.Slice` does."""
    if keys != sorted(keys):  # a sorted list stays as it is
        _Sort(keys, items).run(0, len(keys), len(keys).bit_length())


class _Sort:
    """One sort of items by their keys; only keys are compared."""

    def __init__(self, keys: list[int], items: list[_T]) -> None:
        self.keys = keys
        self.items: list[Any] = items

    def swap(self, index: int, other: int) -> None:
        keys, items = self.keys, self.items
        keys[index], keys[other] = keys[other], keys[index]
        items[index], items[other] = items[other], items[index]

    def move(self, source: int, target: int) -> None:
        """Move an element to another position; those in between shift by one."""
        self.keys.insert(target, self.keys.pop(source))
        self.items.insert(target, self.items.pop(source))

    def run(self, start: int, end: int, bad_cuts_left: int) -> None:
        """Sort a range. After `bad_cuts_left` unbalanced partitions Go uses heapsort, which is not repeated here."""
        balanced = partitioned = True
        while end - start > _MAX_INSERTION_SORT and bad_cuts_left:
            length = end - start
            if not balanced:
                self._break_patterns(start, length)
                bad_cuts_left -= 1
            pivot, swaps = self._pivot(start, length)
            if swaps == _MAX_INSERTION_SORT:
                self.keys[start:end] = self.keys[start:end][::-1]
                self.items[start:end] = self.items[start:end][::-1]
                pivot, swaps = end - 1 - (pivot - start), 0
            if balanced and partitioned and not swaps and self._nearly_sorted(start, end):
                return
            if start and self.keys[start - 1] >= self.keys[pivot]:
                start = self._partition_equal(start, end, pivot)
                continue
            middle, partitioned = self._partition(start, end, pivot)
            balanced = min(middle - start, end - middle) >= length // 8
            if middle - start < end - middle:
                self.run(start, middle, bad_cuts_left)
                start = middle + 1
            else:
                self.run(middle + 1, end, bad_cuts_left)
                end = middle
        keys, items = self.keys, self.items
        order = sorted(range(start, end), key=keys.__getitem__)
        keys[start:end], items[start:end] = [keys[index] for index in order], [items[index] for index in order]

    def _pivot(self, start: int, length: int) -> tuple[int, int]:
        """The position of the pivot, and the number of swaps in choosing it."""
        places, swaps = [start + length // 4 * part for part in (1, 2, 3)], 0
        if length >= _MIN_NINTHER:
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
        """Whether a range is sorted, after a few shifts if it is long."""
        keys, index = self.keys, start + 1
        for _ in range(_MAX_SHIFTS):
            falls = list(map(lt, keys[index:end], keys[index - 1 : end]))
            if True not in falls:
                return True
            index += falls.index(True)
            if end - start < _MIN_NINTHER:
                return False
            self.swap(index, index - 1)
            self._shift(index, start, end)
        return False

    def _shift(self, index: int, start: int, end: int) -> None:
        """Shift two swapped elements, the smaller one left and the greater one right, to their positions."""
        keys, place = self.keys, index - 1
        if index - start >= 2:
            while place >= 1 and keys[index - 1] < keys[place - 1]:
                place -= 1
            self.move(index - 1, place)
        place = index + 1
        if end - index >= 2:
            while place < end and keys[place] < keys[index]:
                place += 1
            self.move(index, place - 1)

    def _partition(self, start: int, end: int, pivot: int) -> tuple[int, bool]:
        """Partition by the pivot; returns its final position, and whether the range was partitioned before."""
        self.swap(start, pivot)
        keys, pivot = self.keys, self.keys[start]
        left, right, partitioned = start + 1, end - 1, True
        while True:
            while left <= right and keys[left] < pivot:
                left += 1
            while left <= right and keys[right] >= pivot:
                right -= 1
            if left > right:
                self.swap(right, start)
                return right, partitioned
            self.swap(left, right)
            left, right, partitioned = left + 1, right - 1, False

    def _partition_equal(self, start: int, end: int, pivot: int) -> int:
        """Move elements equal to the pivot to the front; returns the position of the first greater one."""
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

    def _break_patterns(self, start: int, length: int) -> None:
        """Swap three elements in the middle with others, to break patterns that cause unbalanced partitions."""
        number, places = length, (1 << length.bit_length()) - 1
        for offset in (-1, 0, 1):
            number ^= number << 13 & _MASK
            number ^= number >> 7
            number ^= number << 17 & _MASK
            other = number & places
            self.swap(start + length // 4 * 2 + offset, start + (other if other < length else other - length))
