"""The Prometheus text format, written directly.

A cluster of thousands of nodes has a hundred thousand series, one or more for every pod, resource and condition.
The client library makes several objects of each, which would stop the loop for seconds at every scrape; so what
is computed at each scrape is written here. A label without a value is no label, for Prometheus too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

#: Rows that are written at a time: the server can do something else in between.
ROWS_PER_PIECE = 500
#: Quantiles of summaries, and the seconds of observations that they cover.
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
QUANTILE_WINDOW_S = 600.0

Row = tuple[str, float]


def labelled(labels: Mapping[str, str]) -> str:
    """Labels as they stand between the braces."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)


def gauge(name: str, text: str, rows: Iterable[Row]) -> Iterator[str]:
    """A gauge, in pieces: rows are the labels as `labelled` writes them, and the value."""
    yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
    left = iter(rows)
    while some := list(islice(left, ROWS_PER_PIECE)):
        yield "".join([f"{name}{{{labels}}} {value}\n" for labels, value in some])


class SummaryMetric:
    """A summary: count, sum, and the quantiles of the last ten minutes."""

    def __init__(self, name: str, text: str, labels: Sequence[str], now: Callable[[], float]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._now = now
        self._recent: dict[tuple[str, ...], deque[tuple[float, float]]] = {}
        self._total: dict[tuple[str, ...], tuple[int, float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        count, total = self._total.get(labels, (0, 0.0))
        self._total[labels] = (count + 1, total + value)
        recent = self._recent.setdefault(labels, deque())
        recent.append((self._now(), value))
        self._forget(recent)

    def pieces(self) -> Iterator[str]:
        yield f"# HELP {self._name} {self._text}\n# TYPE {self._name} summary\n"
        for labels, (count, total) in self._total.items():
            self._forget(self._recent[labels])
            values = sorted(value for _, value in self._recent[labels])
            text = labelled(dict(zip(self._labels, labels, strict=True)))
            for share in QUANTILES:
                quantile = values[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan
                yield f'{self._name}{{{text + "," if text else ""}quantile="{share:g}"}} {_written(quantile)}\n'
            yield f"{self._name}_sum{{{text}}} {total}\n{self._name}_count{{{text}}} {count}\n"

    def _forget(self, recent: deque[tuple[float, float]]) -> None:
        since = self._now() - QUANTILE_WINDOW_S
        while recent and recent[0][0] < since:
            recent.popleft()


def _written(value: float) -> str:
    return "NaN" if math.isnan(value) else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") if not value.isalnum() else value
