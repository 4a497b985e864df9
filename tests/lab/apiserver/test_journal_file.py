"""The data folder's files: whatever happens to their bytes, no sound record is dropped without a word."""

from __future__ import annotations

from dovetail.lab.apiserver.journal_file import MAGIC, Entry, ForeignFile, contents, packed

ENTRIES: list[Entry] = [
    ("/configmaps", "default/a", 2, b'{"metadata":{"name":"a"}}'),
    ("/pods", "default/b", 3, b'{"metadata":{"name":"b"},"spec":{}}'),
    ("/configmaps", "default/a", 4, None),
    ("/configmaps", "default/c", 5, b'{"metadata":{"name":"c"}}'),
]
DATA = MAGIC + b"".join(packed(*entry) for entry in ENTRIES)


def test_what_was_written_is_read() -> None:
    assert contents(DATA) == (ENTRIES, len(DATA), (), 0)


def test_every_flipped_bit_is_noticed() -> None:
    flips = 0
    for index in range(len(DATA)):
        for bit in range(8):
            flipped = bytearray(DATA)
            flipped[index] ^= 1 << bit
            try:
                held = contents(bytes(flipped))
            except ForeignFile:
                raise AssertionError(f"bit {bit} of byte {index}: sound records were taken for another file") from None
            assert held.damage, f"bit {bit} of byte {index}"
            assert len(held.entries) >= len(ENTRIES) - 1
            flips += 1
    assert flips == 8 * len(DATA)


def test_a_file_that_was_cut_anywhere_has_a_torn_tail_and_no_damage() -> None:
    ends = [len(MAGIC)]
    for entry in ENTRIES:
        ends.append(ends[-1] + len(packed(*entry)))
    for size in range(ends[0], len(DATA)):
        whole = max(end for end in ends if end <= size)
        for zeros in (b"", bytes(7), bytes(5000)):
            held = contents(DATA[:size] + zeros)
            assert held.entries == ENTRIES[: ends.index(whole)], (size, len(zeros))
            assert (held.end, held.damage) == (whole, ()), (size, len(zeros))
            assert held.torn == size + len(zeros) - whole


def test_a_file_that_was_only_begun_is_empty() -> None:
    assert contents(DATA[: len(MAGIC) - 3]) == ([], 0, (), 0)
    assert contents(DATA[: len(MAGIC)]) == ([], len(MAGIC), (), 0)
