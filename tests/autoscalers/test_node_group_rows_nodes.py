"""Similar nodes, balancing, utilisation, eligibility and backoff, for the cases that upstream's own tests fix."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.node_groups.annotations import SCALE_DOWN_DISABLED, TO_BE_DELETED, gpu_resource
from dovetail.autoscalers.node_groups.backoff import BackoffTimes, GroupBackoff
from dovetail.autoscalers.node_groups.balancing import balance
from dovetail.autoscalers.node_groups.eligibility import EligibilityRules, eligible
from dovetail.autoscalers.node_groups.similarity import AWS_IGNORED_LABELS, aws_comparator, label_comparator
from dovetail.autoscalers.node_groups.unremovable import UnremovableNodes
from dovetail.autoscalers.node_groups.utilization import UnknownUtilization, utilization
from dovetail.cloud.node_groups import ErrorClass, InstanceError
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import NOW, group, info, node, pod

MINUTE = timedelta(minutes=1)
GPU = "nvidia.com/gpu"
KI = 1024


def shaped(
    cpu: int = 1000,
    memory: int = 2000,
    *pods: Pod,
    capacity: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    name: str = "n",
) -> NodeInfo:
    plain = node(name, cpu, memory, labels=labels)
    status = msgspec.structs.replace(
        plain.status,
        capacity={**plain.status.capacity, **(capacity or {})},
        allocatable={**plain.status.allocatable, **(allocatable or {})},
    )
    return info(msgspec.structs.replace(plain, status=status), *pods)


READY = "example.com/ready"
CHARACTER = {"test-label": "test-value", "character": "bear"}


@pytest.mark.parametrize(
    ("first", "other", "similar"),
    [
        (shaped(), shaped(), True),
        (shaped(), shaped(capacity={"cpu": "1001m"}), False),
        (shaped(), shaped(allocatable={"cpu": "999m"}), True),
        (shaped(), shaped(allocatable={"cpu": "500m"}), False),
        (shaped(), shaped(capacity={GPU: "1"}, allocatable={GPU: "1"}), False),
        (shaped(1000, 2000, pod("a", 500, 1000)), shaped(allocatable={"cpu": "500m", "memory": "1000"}), False),
        (shaped(1000, 2000, pod("a", 500, 1000)), shaped(1000, 2000, pod("b", 500, 1000)), True),
        (
            shaped(1000, 2000, pod("a", 500, 1000)),
            shaped(1000, 2000, pod("b", 501, 1001), allocatable={"cpu": "999m"}),
            True,
        ),
        (shaped(1000, 1000), shaped(1000, 1000, capacity={"memory": "986"}), True),
        (shaped(1000, 1000), shaped(1000, 1000, capacity={"memory": "984"}), False),
        (shaped(1000, 16116152 * KI), shaped(1000, 15944120 * KI), True),
        (shaped(1000, 16116152 * KI), shaped(1000, 16438475 * KI), False),
        (shaped(1000, 259970052 * KI), shaped(1000, 257217528 * KI), True),
        (shaped(1000, 259970052 * KI), shaped(1000, 265169453 * KI), False),
        (shaped(labels=CHARACTER), shaped(labels={"test-label": "test-value"}), False),
        (shaped(labels=CHARACTER), shaped(labels=CHARACTER), True),
        (shaped(labels=CHARACTER, name="a"), shaped(labels=CHARACTER, name="b"), True),
        (shaped(labels={READY: "true"}), shaped(labels={READY: "false"}), True),
        (shaped(labels={READY: "true"}), shaped(), True),
    ],
)
def test_similar_nodes(first: NodeInfo, other: NodeInfo, similar: bool) -> None:
    same = aws_comparator([READY])
    assert same(first, other) is similar
    assert same(other, first) is similar


@pytest.mark.parametrize("values", [("", ""), ("foo", "bar"), ("foo", None)], ids=["empty", "differ", "one"])
@pytest.mark.parametrize(
    "label",
    [
        *sorted(AWS_IGNORED_LABELS),
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
    ],
)
def test_labels_that_name_a_place_or_a_group_do_not_count(label: str, values: tuple[str, str | None]) -> None:
    first, other = (shaped(labels={} if value is None else {label: value}) for value in values)
    assert aws_comparator()(first, other)


TYPE, ARCH = "node.kubernetes.io/instance-type", "kubernetes.io/arch"
BOTH = {TYPE: "m5.4xlarge", ARCH: "amd64"}


@pytest.mark.parametrize(
    ("first", "other", "similar"),
    [
        (BOTH, BOTH, True),
        (BOTH, {**BOTH, ARCH: "i386"}, False),
        ({**BOTH, "x": "1"}, {**BOTH, "x": "2"}, True),
        ({}, {}, False),
        (BOTH, {ARCH: "amd64"}, False),
        ({ARCH: "amd64"}, BOTH, False),
        ({TYPE: "", ARCH: ""}, {TYPE: "", ARCH: ""}, True),
        ({TYPE: "", ARCH: "amd64"}, {TYPE: "", ARCH: "amd64"}, True),
    ],
)
def test_similar_by_chosen_labels_alone(first: dict[str, str], other: dict[str, str], similar: bool) -> None:
    same = label_comparator([TYPE, ARCH])
    assert same(shaped(labels=first), shaped(500, 10, labels=other)) is similar


FOUR = {"a": (1, 10), "b": (3, 10), "c": (5, 10), "d": (5, 10)}
LIMITED = {"full": (1, 1), "three": (1, 3), "ten": (3, 10), "seven": (5, 7), "above": (6, 3)}


@pytest.mark.parametrize(
    ("groups", "count", "expected"),
    [
        ({"a": (1, 10)}, 1, {"a": 2}),
        ({"a": (1, 10)}, 4, {"a": 5}),
        (FOUR, 1, {"a": 2}),
        (FOUR, 2, {"a": 3}),
        (FOUR, 4, {"a": 4, "b": 4}),
        (FOUR, 5, {"a": 5, "b": 4}),
        (FOUR, 10, {"a": 6, "b": 6, "c": 6, "d": 6}),
        ({"full": LIMITED["full"]}, 1, {}),
        ({name: LIMITED[name] for name in ("full", "three")}, 1, {"three": 2}),
        ({name: LIMITED[name] for name in ("full", "three")}, 5, {"three": 3}),
        ({name: LIMITED[name] for name in ("three", "ten")}, 4, {"three": 3, "ten": 5}),
        ({name: LIMITED[name] for name in ("three", "ten", "seven")}, 9, {"three": 3, "ten": 8, "seven": 7}),
        ({name: LIMITED[name] for name in ("three", "ten", "seven")}, 900, {"three": 3, "ten": 10, "seven": 7}),
        ({name: LIMITED[name] for name in ("three", "above")}, 1, {"three": 2}),
    ],
)
def test_balancing(groups: dict[str, tuple[int, int]], count: int, expected: dict[str, int]) -> None:
    made = [group(name, 1, most, target) for name, (target, most) in groups.items()]
    assert {increase.group.id: increase.new_size for increase in balance(made, count)} == expected


PLAIN = pod("p", 100, 200000)
DAEMON = pod("d", 100, 200000, owner="DaemonSet/ds")
CUSTOM_DAEMON = pod(
    "c",
    100,
    200000,
    owner="CustomDaemonSet/ds",
    owner_api="crd/v1",
    annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
)
STATIC = pod("m", 100, 200000, owner=None, annotations={"kubernetes.io/config.mirror": ""})
ENDED = pod("e", 100, 200000, deleted=NOW - 10 * MINUTE)
NOTHING = pod("z", spec={"containers": [{"name": "c"}]})


def twice(of: Pod) -> tuple[Pod, Pod]:
    return of, msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, name="again", uid="again"))


def with_init(name: str, *containers: dict[str, Any]) -> Pod:
    main = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "200000"}}}
    return pod(name, spec={"containers": [main], "initContainers": list(containers)})


def init(cpu: str, memory: str, **more: str) -> dict[str, Any]:
    return {"name": f"i{cpu}", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


@pytest.mark.parametrize(
    ("pods", "ignore_daemonsets", "ignore_mirrors", "highest"),
    [
        ((*twice(PLAIN), NOTHING), False, False, 0.2),
        ((*twice(PLAIN), NOTHING, DAEMON, CUSTOM_DAEMON), True, False, 0.25),
        ((PLAIN, NOTHING, DAEMON), False, False, 0.2),
        ((*twice(PLAIN), NOTHING, ENDED), False, False, 0.2),
        ((*twice(PLAIN), NOTHING, STATIC), False, True, 2 / 9),
        ((PLAIN, NOTHING, STATIC), False, False, 0.2),
        ((PLAIN, STATIC, DAEMON), True, True, 1 / 8),
        (
            (
                PLAIN,
                with_init("sidecar", init("50m", "100000", restartPolicy="Always"), init("5m", "100")),
                with_init("large", init("50000m", "100000000")),
            ),
            False,
            False,
            50.25,
        ),
    ],
)
def test_utilisation(pods: tuple[Pod, ...], ignore_daemonsets: bool, ignore_mirrors: bool, highest: float) -> None:
    found = utilization(
        info(node("n", 2000, 2000000), *pods), NOW, ignore_daemonsets=ignore_daemonsets, ignore_mirrors=ignore_mirrors
    )
    assert found.highest == pytest.approx(highest)


def test_utilisation_of_what_is_not_reported() -> None:
    assert utilization(info(node("n", 2000, 2000000), *twice(PLAIN)), NOW).cpu == 0.1
    with pytest.raises(UnknownUtilization):
        utilization(info(node("n", 2000, 0), PLAIN), NOW)


def test_utilisation_of_a_gpu_node() -> None:
    label = {"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"}
    full = info(node("g", 2000, 2000000, labels=label, nvidia_com__gpu=1), PLAIN, pod("x", requests={GPU: "1"}))
    assert gpu_resource(full.node) == GPU
    assert utilization(full, NOW, gpu=GPU).highest == 1.0
    unready = info(node("g", 2000, 2000000, labels=label), *twice(PLAIN))
    assert gpu_resource(unready.node) == GPU
    assert utilization(unready, NOW, gpu=GPU).highest == 0.0


def taken(ago_s: int) -> list[dict[str, str]]:
    return [{"key": TO_BE_DELETED, "value": str(int(NOW.timestamp()) - ago_s), "effect": "NoSchedule"}]


REGULAR = node("regular", 1000, 10)
BIG, SMALL, ON_EVERY_NODE = pod("big", 600, 0), pod("small", 100, 0), pod("ds", 500, 0, owner="DaemonSet/ds")


@pytest.mark.parametrize(
    ("of", "ignore_daemonsets", "unready_enabled", "stays"),
    [
        *[
            (of, ignore, unready_enabled, stays)
            for ignore in (False, True)
            for of, unready_enabled, stays in (
                (info(REGULAR), True, False),
                (info(node("just-taken", 1000, 10, taints=taken(30))), True, True),
                (info(node("kept", 1000, 10, annotations={SCALE_DOWN_DISABLED: "true"})), True, True),
                (info(REGULAR, BIG), True, True),
                (info(REGULAR, SMALL), True, False),
                (info(REGULAR, pod("half", 500, 0)), True, False),  # exactly the threshold
                (info(node("unready", 1000, 10, ready=False), BIG), True, True),
                (info(node("unready", 1000, 10, ready=False)), True, False),
                (info(node("unready", 1000, 10, ready=False)), False, True),
            )
        ],
        (info(REGULAR, SMALL, ON_EVERY_NODE), False, True, True),
        (info(REGULAR, SMALL, ON_EVERY_NODE), True, True, False),
    ],
)
def test_eligibility(of: NodeInfo, ignore_daemonsets: bool, unready_enabled: bool, stays: bool) -> None:
    member = group("ng1", 1, 10, 2, of.node, ignore_daemonsets_utilization=ignore_daemonsets)

    def is_ready(asked: Node) -> bool:
        return asked.ready

    found = eligible(
        [of], lambda _: member, EligibilityRules(unready_enabled=unready_enabled), UnremovableNodes(), is_ready, NOW
    )
    assert found.nodes == (() if stays else (of.name,))


ERROR = InstanceError(ErrorClass.OTHER, "x")


def test_groups_back_off_apart() -> None:
    backoff = GroupBackoff(BackoffTimes(600, 3600, 10800))
    assert backoff.status("a", NOW) is None
    backoff.fail("a", ERROR, NOW + MINUTE)
    assert backoff.status("a", NOW + 2 * MINUTE) is not None
    assert backoff.status("b", NOW) is None
    assert backoff.status("a", NOW + 11 * MINUTE) is None


def test_backoff_grows_to_its_maximum() -> None:
    backoff = GroupBackoff(BackoffTimes(60, 180, 10800))
    for failed, ended in ((0, 1), (1, 3), (3, 6)):
        backoff.fail("a", ERROR, NOW + failed * MINUTE)
        assert backoff.status("a", NOW + failed * MINUTE) is not None
        assert backoff.status("a", NOW + ended * MINUTE) is None


def test_a_removed_backoff_is_over() -> None:
    backoff = GroupBackoff(BackoffTimes(60, 180, 10800))
    backoff.fail("a", ERROR, NOW)
    backoff.remove("a")
    assert backoff.status("a", NOW) is None


@pytest.mark.parametrize(
    ("failed", "cleaned", "remembered"),
    [(0, 60, True), (60, 60, True), (0, 240, False), (60, 240, True), (60, 300, False)],
)
def test_backoff_is_forgotten_three_hours_after_the_last_failure(failed: int, cleaned: int, remembered: bool) -> None:
    backoff = GroupBackoff(BackoffTimes(60, 180, 10800))
    backoff.fail("a", ERROR, NOW + failed * MINUTE)
    backoff.remove_stale(NOW + cleaned * MINUTE)
    again = NOW + (failed + 400) * MINUTE
    assert backoff.fail("a", ERROR, again) - again == (2 if remembered else 1) * MINUTE
