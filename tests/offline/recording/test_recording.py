"""Recordings: what is read is what was written, at every instant, and a damaged file says where."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import UserError
from dovetail.offline.recording import RecordingError, Writer, key_of, read
from dovetail.offline.recording import writer as writer_module
from dovetail.offline.recording.differences import BadDifference, apply, difference
from dovetail.offline.recording.records import USAGE_STEP, usage_amount, usage_step
from tests.offline.recording.small import IDENTITY, M5, START, later, node, pod, write

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=1), inner, max_size=3)
)


@given(VALUES, VALUES)
def test_a_difference_leads_from_the_old_version_to_the_new(old: Any, new: Any) -> None:
    change = difference(old, new)
    assert (new if change is None else apply(old, change)) == new
    assert change is not None or repr(old) == repr(new) or old == new


@given(VALUES, VALUES)
def test_a_hostile_difference_is_refused(old: Any, change: Any) -> None:
    """It either fits or raises: no other error, whatever it is."""
    try:
        apply(old, change)
    except BadDifference:
        return


def test_true_is_not_one() -> None:
    """Python takes them for equal, JSON does not."""
    assert apply({"a": 1}, difference({"a": 1}, {"a": True}))["a"] is True


def test_objects_prices_and_usage_at_an_instant(tmp_path: Path) -> None:
    recording = read(write(tmp_path / "day.dvrec"))
    assert (recording.start, recording.end, recording.closed) == (START, later(60), True)
    assert recording.header.cluster == "test"
    assert [source["metadata"]["name"] for source in recording.objects_at(START)] == ["a", "web-0"]
    assert recording.objects_at(later(15)) == [node("a"), pod("web-0", "a", "Running")]
    assert recording.objects_at(later(25)) == [node("a"), pod("web-0", "a", "Running"), pod("web-1", app="web")]
    assert recording.objects_at(later(60)) == [node("a"), pod("web-0", "a", "Running")]
    assert recording.prices_at(START) == {M5: (0.096, "list")}
    assert recording.prices_at(later(40)) == {M5: (0.1, "list")}
    assert recording.usage_at(START) == {}
    cpu, memory = recording.usage_at(later(30))[key_of(node("a"))]
    assert abs(cpu / 500_000_000 - 1) < 0.04 and abs(memory / (1 << 30) - 1) < 0.04


def test_events_are_those_after_the_first_instant_until_the_second(tmp_path: Path) -> None:
    recording = read(write(tmp_path / "day.dvrec"))
    events = list(recording.events(START, recording.end))
    assert [(event.type, event.object["metadata"]["name"], event.time) for event in events] == [
        ("MODIFIED", "web-0", later(10)),
        ("ADDED", "web-1", later(20)),
        ("DELETED", "web-1", later(50)),
    ]
    assert events[0].old == pod("web-0")
    assert [event.time for event in recording.events(later(10), later(20))] == [later(20)]
    with pytest.raises(UserError, match="starts at 2026-01-01"):
        list(recording.events(datetime(2025, 1, 1, tzinfo=UTC), later(1)))


def test_another_uid_is_another_object(tmp_path: Path) -> None:
    path = tmp_path / "day.dvrec"
    with Writer.create(path, START, "test", IDENTITY) as writer:
        writer.put(START, pod("web-0"))
        writer.begin()
        writer.put(later(1), pod("web-0", uid="second"))
    assert [event.type for event in read(path).events(START, later(1))] == ["DELETED", "ADDED"]


def test_what_is_equal_is_not_written(tmp_path: Path) -> None:
    with Writer.create(tmp_path / "day.dvrec", START, "test", IDENTITY) as writer:
        assert writer.put(START, pod("web-0"))
        writer.begin()
        assert not writer.put(later(1), pod("web-0"))
        assert not writer.delete(later(1), key_of(pod("absent")))
        assert writer.events == 0


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2"]), st.sampled_from(["put", "del"])
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_state_and_events_agree_at_every_instant(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, str, str]]
) -> None:
    """The state at a moment and the events until another lead to the state at that: with bookmarks at every block."""
    path = tmp_path_factory.mktemp("recording") / "day.dvrec"
    truth: dict[str, dict[str, Any]] = {}
    states: list[tuple[float, dict[str, dict[str, Any]]]] = [(0.0, {})]
    now = 0.0
    patched = pytest.MonkeyPatch()
    patched.setattr(writer_module, "BLOCK_BYTES", 200)
    patched.setattr(writer_module, "BOOKMARK_MIN_BYTES", 0)
    patched.setattr(writer_module, "BOOKMARK_RATIO", 0)
    with patched.context(), Writer.create(path, START, "test", IDENTITY) as writer:
        writer.begin()
        for seconds, name, where, act in steps:
            now += seconds
            if act == "put":
                truth[name] = pod(name, where)
                writer.put(later(now), truth[name])
            else:
                truth.pop(name, None)
                writer.delete(later(now), key_of(pod(name)))
            states.append((now, dict(truth)))
    patched.undo()
    recording = read(path)
    by_time = dict(states)
    for moment, expected in by_time.items():
        assert recording.objects_at(later(moment)) == [expected[name] for name in sorted(expected)]
    replayed: dict[str, dict[str, Any]] = {o["metadata"]["name"]: o for o in recording.objects_at(START)}
    for event in recording.events(START, recording.end):
        name = event.object["metadata"]["name"]
        assert replayed.get(name) == event.old
        if event.type == "DELETED":
            del replayed[name]
        else:
            replayed[name] = event.object
    assert replayed == truth


def test_a_flipped_byte_is_an_error_with_its_offset(tmp_path: Path) -> None:
    """Every byte of a small recording: an error at or before it, never other numbers."""
    path = write(tmp_path / "day.dvrec")
    data, broken = path.read_bytes(), tmp_path / "broken.dvrec"
    for offset in range(len(data)):
        flipped = bytearray(data)
        flipped[offset] ^= 1 << (offset % 8)
        broken.write_bytes(flipped)
        with pytest.raises(RecordingError) as caught:
            read(broken)
        assert caught.value.offset <= offset
        assert f"byte {caught.value.offset}:" in caught.value.message


def test_a_file_cut_at_any_byte_is_read_until_its_last_whole_block(tmp_path: Path) -> None:
    path = write(tmp_path / "day.dvrec")
    whole = read(path)
    expected = [(event.time, event.type) for event in whole.events(START, whole.end)]
    data, cut = path.read_bytes(), tmp_path / "cut.dvrec"
    first_state = whole._index.blocks[1].end
    lengths: set[int] = set()
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        if length < first_state:
            with pytest.raises(RecordingError):
                read(cut)
            continue
        part = read(cut)
        events = [(event.time, event.type) for event in part.events(START, part.end)]
        assert events == expected[: len(events)]
        assert not part.closed
        assert (part.interrupted_at is None) == (length in {block.end for block in whole._index.blocks})
        lengths.add(len(events))
    assert lengths == {0, 2, 3}


def test_zeros_at_the_end_are_an_interruption(tmp_path: Path) -> None:
    """What a file system leaves of a block that was being written when power was lost."""
    path = write(tmp_path / "day.dvrec")
    end = read(path)._index.blocks[-1].offset
    path.write_bytes(path.read_bytes()[:end] + bytes(300))
    assert read(path).interrupted_at == end
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(RecordingError):
        read(path)


def test_missing_doubled_and_foreign_blocks_are_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "day.dvrec")
    data, blocks = path.read_bytes(), read(path)._index.blocks
    second, third = (data[block.offset : block.end] for block in blocks[2:4])
    broken = tmp_path / "broken.dvrec"
    other = tmp_path / "other.dvrec"
    with Writer.create(other, START, "test", bytes(reversed(IDENTITY))) as writer:
        writer.put(START, node("a"))
    foreign = read(other)._index.blocks[1]
    foreign_block = other.read_bytes()[foreign.offset : foreign.end]
    for wrong in (
        data.replace(second, b""),
        data.replace(second, second + second),
        data.replace(second, third),
        data.replace(second, foreign_block),
        data + second,
    ):
        broken.write_bytes(wrong)
        with pytest.raises(RecordingError) as caught:
            read(broken)
        assert caught.value.offset > 0


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_other_file_is_no_recording(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("other") / "file"
    path.write_bytes(data)
    with pytest.raises(RecordingError, match="not a recording"):
        read(path)


def test_a_hostile_payload_with_sound_checksums_is_an_error(tmp_path: Path) -> None:
    """Sound checksums do not make sense of what cannot be."""
    import msgspec

    from dovetail.offline.recording.blocks import RESET, Appender, BlockKind, head

    encode = msgspec.msgpack.encode
    payloads = [
        b"",
        b"\xdd\xff\xff\xff\xff",
        encode([[9, 0]]),
        encode([[0, 0, 5, 3, None]]),
        encode([[0, 0, 0, -1, [1, {"kind": "Pod"}]]]),
        encode([[0, 0, 0, -1, [0, 7]]]),
        encode([[1, 0, 7, None]]),
        encode([[0, -5, 1, 0, None]]),
        encode([[3, 0, [0], [[1, 10**9]]]]),
        b"\xdd\x00\x00\x00\x01" + b"\x91" * 5000,
    ]
    for payload in payloads:
        path = tmp_path / "hostile.dvrec"
        with path.open("wb") as file:
            file.write(head(IDENTITY))
            appender = Appender(file, IDENTITY)
            header = encode({"cluster": "x", "start_ms": 0, "writer": "x"})
            appender.append(BlockKind.HEADER, header, 0, 0, RESET)
            state = [[0, 0, 0, -1, [0, node("a")]]]
            appender.append(BlockKind.BOOKMARK, encode(state), 0, 0, RESET | 2)
            appender.append(BlockKind.EVENTS, payload, 0, 10)
        with pytest.raises(RecordingError) as caught:
            list(read(path).events(datetime(1970, 1, 1, tzinfo=UTC), START))
        assert caught.value.offset > 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), 7),
        (("spec",), "x"),
        (("spec", "nodeName"), ["a"]),
        (("status", "conditions"), "x"),
        (("status", "conditions"), [7]),
        (("metadata", "labels"), ["app"]),
        (("metadata", "annotations"), {"a": 7}),
        (("metadata", "ownerReferences"), [{"kind": 7}]),
        (("metadata", "uid"), [1]),
        (("metadata", "creationTimestamp"), "yesterday"),
        (("status", "conditions"), [{"type": "Ready", "lastTransitionTime": "-5"}]),
        (("status", "allocatable"), {"cpu": []}),
        (("spec", "containers"), [{"name": "web", "resources": "x"}]),
        (("spec", "containers"), [{"name": "web", "resources": {"requests": {"cpu": True}}}]),
    ],
)
def test_an_object_of_another_form_is_an_error_with_its_offset(
    tmp_path: Path, path: tuple[str, ...], value: object
) -> None:
    """What reads a recording looks into these fields: a wrong type must not surface there."""
    hostile = pod("web-0")
    target: Any = hostile
    for field in path[:-1]:
        target = target[field]
    target[path[-1]] = value
    _assert_hostile(tmp_path, hostile, r"byte \d+: block 2: Pod web-0: (Expected|Invalid)")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "containers"), [{"name": "web", "resources": {"requests": {"cpu": "-1"}}}]),
        (("spec", "containers"), [{"name": "web", "resources": {"limits": {"memory": "8 Gi"}}}]),
        (("spec", "overhead"), {"cpu": "-1m"}),
        (("status", "allocatable"), {"cpu": "two"}),
        (("status", "capacity"), {"memory": -5}),
    ],
)
def test_an_amount_that_cannot_be_is_an_error_with_its_offset(
    tmp_path: Path, path: tuple[str, ...], value: object
) -> None:
    """Otherwise utilisation, the lower bound and what fits would be wrong."""
    hostile = pod("web-0")
    hostile[path[0]][path[1]] = value
    _assert_hostile(tmp_path, hostile, r"byte \d+: block 2: Pod web-0: .*(below zero|quantities must match)")


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ({"containers": 7}, "Expected"),
        ({"containers": [{"env": [{"valueFrom": {"secretKeyRef": "x"}}]}]}, "Expected"),
        ({"containers": [{"envFrom": [{"configMapRef": 7}]}]}, "Expected"),
        ({"volumes": [{"secret": "x"}]}, "Expected"),
        ({"initContainers": [{"resources": {"requests": {"cpu": "-1"}}}]}, "cpu: -1 is below zero"),
    ],
)
def test_a_template_of_another_form_is_an_error_with_its_offset(
    tmp_path: Path, template: dict[str, Any], error: str
) -> None:
    hostile = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-web"},
        "spec": {"template": {"spec": template}},
    }
    _assert_hostile(tmp_path, hostile, rf"byte \d+: block 2: Deployment web: {error}")


@pytest.mark.parametrize("labels", [{"topology.kubernetes.io/zone": "-5"}, {"a b": "c"}])
def test_a_label_that_cannot_be_is_an_error_with_its_offset(tmp_path: Path, labels: dict[str, str]) -> None:
    """The lab's API server would refuse the Node in the middle of a replay."""
    hostile = node("a")
    hostile["metadata"]["labels"] = labels
    _assert_hostile(tmp_path, hostile, r"byte \d+: block 2: Node a: metadata.labels: Invalid value")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "template", "spec", "nodeClassRef"), 7),
        (("spec", "template", "spec", "requirements"), ["a"]),
        (("spec", "disruption", "budgets"), [None]),
        (("spec", "limits"), {"cpu": "many"}),
    ],
)
def test_a_nodepool_of_another_form_is_an_error_with_its_offset(
    tmp_path: Path, path: tuple[str, ...], value: object
) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    hostile: Any = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "uid": "uid-default"},
        "spec": {"template": {"spec": {"nodeClassRef": reference}}, "disruption": {}},
    }
    target = hostile
    for field in path[:-1]:
        target = target[field]
    target[path[-1]] = value
    _assert_hostile(tmp_path, hostile, r"byte \d+: block 2: NodePool default: (Expected|quantities)")


def _assert_hostile(folder: Path, hostile: dict[str, Any], error: str) -> None:
    with Writer.create(folder / "hostile.dvrec", START, "test", IDENTITY) as writer:
        writer.begin()
        writer.put(later(10), hostile)
        writer.close(later(60))
    with pytest.raises(RecordingError, match=error):
        read(folder / "hostile.dvrec").objects_at(later(60))


@pytest.mark.parametrize("dollars", [math.nan, math.inf, -1.0, 1e300])
def test_a_price_that_cannot_be_is_an_error(tmp_path: Path, dollars: float) -> None:
    """Otherwise the cost of the whole recording would be wrong."""
    with Writer.create(tmp_path / "hostile.dvrec", START, "test", IDENTITY) as writer:
        writer.begin()
        writer.price(later(10), M5, dollars, "list")
        writer.close(later(60))
    recording = read(tmp_path / "hostile.dvrec")
    with pytest.raises(RecordingError, match="dollars an hour"):
        recording.prices_at(later(60))
    with pytest.raises(RecordingError, match="dollars an hour"):
        list(recording.price_records())


def test_a_recording_goes_on_after_an_interruption_with_a_gap(tmp_path: Path) -> None:
    path = write(tmp_path / "day.dvrec")
    path.write_bytes(path.read_bytes()[:-20])
    with Writer.resume(path, later(600)) as writer:
        writer.put(later(600), pod("web-0", "a", "Succeeded"))
    recording = read(path)
    assert recording.gaps() == [(later(50), later(600))]
    assert recording.objects_at(later(599)) == [node("a"), pod("web-0", "a", "Running")]
    assert recording.objects_at(later(600)) == [node("a"), pod("web-0", "a", "Succeeded")]
    assert recording.prices_at(later(600)) == {M5: (0.1, "list")}
    Writer.resume(path, later(700)).close()
    assert len(read(path).gaps()) == 2


@given(st.integers(1, 1 << 50))
def test_usage_is_kept_to_four_percent(amount: int) -> None:
    assert abs(usage_amount(usage_step(amount)) - amount) <= amount * (USAGE_STEP - 1) / 2 + 0.5
