"""The randomness interface: seeded, split by name."""

from __future__ import annotations

import re
import uuid

from dovetail.chance import Chance, system_seed


def test_the_same_seed_gives_the_same_stream() -> None:
    assert [Chance(3).random() for _ in range(3)] == [Chance(3).random() for _ in range(3)]


def test_a_child_depends_on_names_alone_and_not_on_what_others_drew() -> None:
    one, two = Chance(1), Chance(1)
    one.random()
    assert one.child("kubelet", "a").random() == two.child("kubelet", "a").random()
    assert one.child("kubelet", "a").random() != one.child("kubelet", "b").random()
    assert one.child("a", "b").random() != one.child("a/b").random()


def test_a_uid_is_a_uuid_of_version_4() -> None:
    assert uuid.UUID(Chance(5).uid()).version == 4
    assert len({Chance(5).child(str(n)).uid() for n in range(1000)}) == 1000


def test_a_suffix_uses_the_letters_kubernetes_uses() -> None:
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", Chance(9).suffix())


def test_the_system_seed_is_not_repeatable() -> None:
    assert system_seed() != system_seed()
