"""Garbage collection rests during a plan and comes back after it, whatever happens."""

import gc

import pytest

from dovetail.planner.quiet import quiet


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
