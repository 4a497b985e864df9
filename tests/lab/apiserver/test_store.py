"""The store: versions only grow, the past is what it was, a watch replays to the listed state."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.lab.apiserver import store as store_module
from dovetail.lab.apiserver.store import COMPACTION_SECONDS, ObjectStore, StoreEvent, TransientVersion

Json = dict[str, Any]
_steps = st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 3))), max_size=40)


def _store() -> ObjectStore:
    loop = asyncio.new_event_loop()
    loop.close()
    return ObjectStore(Clock(loop, EPOCH))


def _play(store: ObjectStore, steps: list[tuple[str, int | None]]) -> list[tuple[int, dict[str, int]]]:
    """Run puts and deletes; the state after each, under its version."""
    state: dict[str, int] = {}
    past: list[tuple[int, dict[str, int]]] = [(store.rv, {})]
    for key, value in steps:
        if value is None:
            if key not in state:
                continue
            store.delete("t", key)
            del state[key]
        else:
            store.put("t", key, {"metadata": {"name": key}, "value": value})
            state[key] = value
        past.append((store.rv, dict(state)))
    return past


@given(_steps)
@settings(deadline=None)
def test_versions_grow_and_the_past_stays_readable(steps: list[tuple[str, int | None]]) -> None:
    store = _store()
    past = _play(store, steps)
    assert [version for version, _ in past] == sorted({version for version, _ in past})
    for version, state in past:
        assert {key: record.obj["value"] for key, record in store.at("t", version).items()} == state


@given(_steps, st.integers(0, 40))
@settings(deadline=None)
def test_a_watch_from_any_version_replays_to_the_listed_state(steps: list[tuple[str, int | None]], cut: int) -> None:
    store = _store()
    past = _play(store, steps)
    version, state = past[min(cut, len(past) - 1)]
    replayed = dict(state)
    for event in store.since("t", version):
        _replay(replayed, event)
    listed = {record.key: record.obj["value"] for record in store.table("t").under("")}
    assert replayed == listed
    assert list(store.table("t").keys) == sorted(listed)


def _replay(state: dict[str, int], event: StoreEvent) -> None:
    if event.record is None:
        del state[event.key]
    else:
        state[event.key] = event.record.obj["value"]


def test_keys_are_listed_as_etcd_would_order_them() -> None:
    store = _store()
    for key in ("a/z", "a-b/a", "a/b"):
        store.put("t", key, {"metadata": {}})
    assert [record.key for record in store.table("t").under("")] == ["a-b/a", "a/b", "a/z"]
    assert [record.key for record in store.table("t").under("a/")] == ["a/b", "a/z"]


def test_what_went_is_not_kept_decoded_once_its_going_is_past() -> None:
    async def main() -> None:
        store = ObjectStore(Clock(asyncio.get_running_loop(), EPOCH))
        store.put("t", "gone", {"metadata": {"name": "gone"}})
        store.delete("t", "gone")
        last = store.since("t", 0)[-1].gone
        assert last.obj["metadata"]["resourceVersion"] == str(store.rv)
        assert last in store_module._recent
        for _ in range(3):
            await asyncio.sleep(COMPACTION_SECONDS)
            store.put("t", "other", {"metadata": {"name": "other"}})
        assert "gone" not in {record.key for record in store_module._recent}

    store_module._recent.clear()
    run_virtual(main())


def test_what_is_only_answered_with_is_not_among_the_recently_used() -> None:
    shown = TransientVersion("a", 1, obj={"metadata": {"name": "a"}})
    assert shown.obj == shown.fresh()
    assert shown not in store_module._recent
