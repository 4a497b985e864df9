"""Did you mean: the nearest of a set of words, if it is near enough to be meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice most likely meant: fewest slips of the finger, where swapping two letters is one slip."""
    folded = _fold(word)
    best: tuple[float, str] | None = None
    for choice in sorted(set(choices) - {word}):
        other = _fold(choice)
        longest = max(len(folded), len(other), 1)
        if abs(len(folded) - len(other)) / longest > 1 - cutoff:
            continue
        likeness = 1 - edit_distance(folded, other) / longest
        if likeness >= cutoff and (best is None or likeness > best[0]):
            best = (likeness, choice)
    return None if best is None else best[1]


def edit_distance(word: str, other: str) -> int:
    """Insertions, deletions, changes and swaps of neighbours that turn one word into the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        after = [i]
        for j, b in enumerate(other, 1):
            cost = min(row[j] + 1, after[j - 1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and word[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            after.append(cost)
        before, row = row, after
    return row[-1]


def _fold(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def listed(words: Iterable[str], most: int = 6) -> str:
    """Words in a row, the rest counted."""
    words_ = list(words)
    shown = ", ".join(words_[:most])
    return shown if len(words_) <= most else f"{shown} and {len(words_) - most} more"
