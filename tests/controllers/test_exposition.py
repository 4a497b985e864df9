"""Metrics are written in the Prometheus text format."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from dovetail.controllers.metrics.exposition import QUANTILE_WINDOW_S, ROWS_PER_PIECE, SummaryMetric, gauge, labelled


def test_a_gauge_reads_back_whatever_its_labels_say() -> None:
    odd = 'a "quoted" back\\slash\nline'
    (family,) = text_string_to_metric_families("".join(gauge("g", "Text.", [(labelled({"l": odd, "none": ""}), 2.5)])))
    (sample,) = family.samples
    assert (sample.name, sample.labels, sample.value) == ("g", {"l": odd}, 2.5)
    assert (family.type, family.documentation) == ("gauge", "Text.")


def test_many_rows_come_in_pieces() -> None:
    rows = [(f'n="{n}"', float(n)) for n in range(3 * ROWS_PER_PIECE)]
    pieces = list(gauge("g", "Text.", rows))
    assert len(pieces) == 4
    (family,) = text_string_to_metric_families("".join(pieces))
    assert [sample.value for sample in family.samples] == [value for _, value in rows]


def test_a_summary_has_quantiles_of_the_last_minutes_and_totals_of_all_time() -> None:
    now = 0.0
    summary = SummaryMetric("s", "Text.", ("pool",), lambda: now)
    summary.observe(1000.0, "a")
    now = QUANTILE_WINDOW_S + 1
    for value in range(1, 101):
        summary.observe(float(value), "a")
    (family,) = text_string_to_metric_families("".join(summary.pieces()))
    found = {(each.name, each.labels.get("quantile")): each.value for each in family.samples}
    assert found == {
        ("s", "0"): 1.0,
        ("s", "0.5"): 50.0,
        ("s", "0.9"): 90.0,
        ("s", "0.99"): 99.0,
        ("s", "1"): 100.0,
        ("s_sum", None): 6050.0,
        ("s_count", None): 101.0,
    }


def test_a_summary_of_nothing_lately_has_no_quantiles() -> None:
    now = 0.0
    summary = SummaryMetric("s", "Text.", (), lambda: now)
    summary.observe(1.0)
    now = QUANTILE_WINDOW_S + 1
    assert 's{quantile="0.5"} NaN' in "".join(summary.pieces())
