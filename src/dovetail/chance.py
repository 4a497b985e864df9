"""The randomness interface: a seeded stream that is handed in, split by name so that its users stay independent."""

from __future__ import annotations

import hashlib
import random


class Chance(random.Random):
    """A seeded stream. `child("kubelet", "node-1")` is an independent stream that depends on names alone."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.root = seed

    def child(self, *names: str) -> Chance:
        text = "\0".join((str(self.root), *names)).encode()
        return Chance(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big"))

    def uid(self) -> str:
        """A UUID (version 4) of this stream."""
        bits = self.getrandbits(128)
        bits = bits & ~(0xF << 76) | 0x4 << 76
        bits = bits & ~(0x3 << 62) | 0x2 << 62
        h = f"{bits:032x}"
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def suffix(self, length: int = 5) -> str:
        """The tail Kubernetes puts behind a generateName."""
        return "".join(self.choices("bcdfghjklmnpqrstvwxz2456789", k=length))


def system_seed() -> int:
    """A seed that cannot be guessed, for processes that need not be repeatable."""
    return random.SystemRandom().getrandbits(48)
