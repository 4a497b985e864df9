"""Notes that a conversion leaves: what was moved, added or renamed, and above all what changed its meaning."""

from __future__ import annotations

import msgspec

from dovetail.language import message


class ConversionNote(msgspec.Struct, frozen=True):
    """`meaning` is set where the manifest, converted, does not do quite what it did."""

    path: str
    text: str
    meaning: bool = False


class Notes(msgspec.Struct):
    found: list[ConversionNote] = []

    def moved(self, source: str, target: str) -> None:
        self.found.append(ConversionNote(source, message("moved to {target}", target=target)))

    def renamed(self, path: str, old: str, new: str) -> None:
        self.found.append(ConversionNote(path, message("{old} is called {new} in v1", old=old, new=new)))

    def added(self, path: str, text: str) -> None:
        self.found.append(ConversionNote(path, f"added {text}"))

    def meaning(self, path: str, text: str) -> None:
        self.found.append(ConversionNote(path, text, meaning=True))
