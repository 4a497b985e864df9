"""Garbage collection rests during a plan and comes back after it, whatever happens."""

import gc
from weakref import ref

import pytest

from dovetail.runtime.gc_pause import quiet, settle, settling


def test_collection_rests_inside_and_comes_back_after_the_last_one() -> None:
    assert gc.isenabled()
    with quiet():
        with quiet():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_comes_back_after_an_error() -> None:
    with pytest.raises(RuntimeError), quiet():
        raise RuntimeError
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with quiet():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class _Knot:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.self = self


def test_what_is_settled_is_looked_through_again_only_thoroughly() -> None:
    knot = _Knot()
    seen = ref(knot)
    try:
        settle()
        del knot
        settle()
        assert seen() is not None
        settle(thorough=True)
        assert seen() is None
    finally:
        gc.unfreeze()


def test_nothing_looks_through_everything_by_itself_while_settling() -> None:
    before = gc.get_threshold()
    try:
        with settling():
            assert gc.get_threshold()[2] > 1_000_000
        assert gc.get_threshold() == before
    finally:
        gc.unfreeze()
