"""Particles follow the sound before them, and columns line up whatever the script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.language import columns
from dovetail.language.korean import FORMATTER


@pytest.mark.parametrize(
    ("template", "fact", "text"),
    [
        ("{x:을} 찾을 수 없습니다", "노드", "노드를 찾을 수 없습니다"),
        ("{x:을} 찾을 수 없습니다", "노드풀", "노드풀을 찾을 수 없습니다"),
        ("{x:이} 없습니다", "default", "default가 없습니다"),
        ("{x:은}", "gpu-pool", "gpu-pool은"),
        ("{x:과}", "ip-10-0-32-4", "ip-10-0-32-4와"),
        ("{x:과}", "m5.24xlarge", "m5.24xlarge과(와)"),
        ("{x:으로}", "3", "3으로"),
        ("{x:으로}", "서울", "서울로"),
        ("{x:으로}", "2", "2로"),
        ("{x:으로}", "batch-nightly-fast", "batch-nightly-fast(으)로"),
        ("{x:을}", "CPU", "CPU를"),
        ("{x:을}", "VPN", "VPN을"),
        ('"{x}"{x:-을}', "web", '"web"을'),
        ("{x:.2f|을}", 1.5, "1.50을"),
        ("{x:.1f}", 1.25, "1.2"),
        ("{x!r:을}", "노드", "'노드'를"),
        ("{x:을}", "???", "???을(를)"),
        ("{x:.0%|을}", 0.5, "50%를"),
    ],
)
def test_particles_follow_the_last_sound(template: str, fact: object, text: str) -> None:
    assert FORMATTER.format(template, x=fact) == text


def test_moments_and_counts_are_written_as_korean_readers_write_them() -> None:
    assert FORMATTER.format("만료: {time}", time="2026-12-08T12:46:41Z") == "만료: 2026년 12월 8일 12:46:41 UTC"
    assert FORMATTER.format("{start}부터", start="2026-01-31T00:00:00+00:00") == "2026년 1월 31일 00:00:00 UTC부터"
    assert FORMATTER.format("{time}", time="30m") == "30m"
    assert FORMATTER.format("제안 {n}개", n=4898) == "제안 4,898개"
    assert FORMATTER.format("파드 {count}개", count="30000") == "파드 30,000개"
    assert FORMATTER.format("{n:,}개, {n:은}", n=1000) == "1,000개, 1,000은"
    assert FORMATTER.format("{port}, {pid}", port=36401, pid=22404) == "36401, 22404"
    assert FORMATTER.format("{text!r}: 시각이 아닙니다", text="2026-01-31T14:05:00Z").startswith(
        "'2026-01-31T14:05:00Z'"
    )


def test_a_hangul_syllable_takes_two_columns() -> None:
    assert columns.width_of("노드 3") == 6
    assert list(columns.table([("이름", "PODS"), ("default", "12")])) == ["이름     PODS", "default  12"]


@given(st.lists(st.tuples(st.text("가나다abc -", max_size=9), st.text("가xyz", min_size=1, max_size=9)), min_size=1))
def test_second_columns_begin_at_one_column(rows: list[tuple[str, str]]) -> None:
    starts = {columns.width_of(line[: -len(cell)]) for line, (_, cell) in zip(columns.table(rows), rows, strict=True)}
    assert len(starts) == 1
