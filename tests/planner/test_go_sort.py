"""Equals end where Go's own sort leaves them; the orders below were printed by it."""

from __future__ import annotations

import pytest

from dovetail.planner.baseline.go_sort import go_sort

SEEN = (
    ([1] * 6 + [2] * 8, list(range(14))),
    ([2] + [1] * 13, [6, 12, 2, 3, 4, 5, 8, 13, 1, 9, 10, 11, 7, 0]),
    ([3, 1, 2] * 6, [7, 1, 16, 13, 4, 10, 8, 5, 11, 14, 2, 17, 6, 0, 9, 12, 3, 15]),
    (
        [2, 1, 3, 0, 0, 0, 2, 0, 1, 0, 0, 3, 3, 0, 1, 0, 3, 0, 0, 1, 0, 3, 0, 1, 0, 1],
        [22, 10, 18, 9, 4, 5, 24, 7, 17, 20, 3, 15, 13, 19, 14, 23, 8, 1, 25, 6, 0, 16, 21, 12, 11, 2],
    ),
    ([1] * 55 + [0], [55, *range(55)]),
    ([2, 1] * 6, [*range(1, 12, 2), *range(0, 12, 2)]),
)


@pytest.mark.parametrize(("keys", "order"), SEEN)
def test_equals_end_where_go_leaves_them(keys: list[int], order: list[int]) -> None:
    items = list(range(len(keys)))
    go_sort(list(keys), items)
    assert items == order
