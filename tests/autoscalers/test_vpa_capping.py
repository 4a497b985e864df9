"""Recommendations fitted to pods, proportional limits, and the patches that come of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.vpa.api import LimitRange, Pod, VerticalPodAutoscaler, amounts, texts
from dovetail.autoscalers.vpa.capping import NamespaceLimits, fit
from dovetail.autoscalers.vpa.patches import admission_patches, resize_annotation_patches, resize_patches
from dovetail.autoscalers.vpa.proportions import limit_bounds, proportional_limits
from dovetail.autoscalers.vpa.startup_boost import BoostError, boost_remaining_s, expired_boosts
from dovetail.model.quantity import parse
from tests.autoscalers.vpa_objects import container, pod, recommended, vpa

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


def limits(*items: dict[str, Any]) -> NamespaceLimits:
    ranges = [msgspec.convert({"spec": {"limits": list(items)}}, LimitRange)]
    return NamespaceLimits(container=limit_bounds(ranges, "Container"), pod=limit_bounds(ranges, "Pod"))


def targets(asked: VerticalPodAutoscaler, of: Pod, *items: dict[str, Any]) -> dict[str, dict[str, str]]:
    fitted = fit(asked, of, limits(*items))
    assert fitted is not None
    return {item.container: texts(item.target or {}) for item in fitted.items}


@pytest.mark.parametrize(
    ("limit", "request_", "recommended_", "default", "expected"),
    [
        ({"cpu": "200m"}, {"cpu": "100m"}, {"cpu": "182m"}, {}, {"cpu": "364m"}),
        ({"memory": "512Mi"}, {"memory": "128Mi"}, {"memory": "250Mi"}, {}, {"memory": "1000Mi"}),
        ({"cpu": "200m"}, {"cpu": "200m"}, {"cpu": "182m"}, {}, {"cpu": "182m"}),
        ({"cpu": "200m"}, {}, {"cpu": "182m"}, {}, {"cpu": "182m"}),
        ({}, {"cpu": "100m"}, {"cpu": "182m"}, {"cpu": "300m"}, {"cpu": "546m"}),
        ({}, {"cpu": "100m"}, {"cpu": "182m"}, {}, None),
        ({"cpu": "300m"}, {"cpu": "100m"}, {}, {}, None),
        ({"memory": "1"}, {"memory": "3"}, {"memory": "10"}, {}, {"memory": "3"}),
    ],
)
def test_limits_keep_their_proportion(
    limit: Any, request_: Any, recommended_: Any, default: Any, expected: dict[str, str] | None
) -> None:
    scaled, _ = proportional_limits(amounts(limit), amounts(request_), amounts(recommended_), amounts(default))
    assert (None if scaled is None else texts(scaled)) == expected


def test_a_limit_beyond_int64_is_capped_and_noted() -> None:
    scaled, notes = proportional_limits(
        amounts({"memory": "8Ei"}), amounts({"memory": "1"}), amounts({"memory": "8Ei"}), {}
    )
    assert scaled is not None
    assert scaled["memory"].whole == 2**63 - 1
    assert "memory: failed to keep limit to request ratio; capping limit to int64" in notes


def test_no_recommendation_and_no_policy_is_nothing() -> None:
    assert fit(vpa(), pod(container())) is None
    fitted = fit(vpa(policies=[{"containerName": "app", "minAllowed": {"cpu": "1"}}]), pod(container()))
    assert fitted is not None
    assert fitted.items == []


def test_notes_say_what_changed_the_target() -> None:
    asked = vpa(
        recommended(target={"cpu": "224m", "memory": "10Mi"}),
        policies=[{"containerName": "app", "controlledValues": "RequestsOnly", "minAllowed": {"memory": "20Mi"}}],
    )
    fitted = fit(asked, pod(container(limits={"cpu": "200m"})))
    assert fitted is not None
    assert fitted.notes == {"app": ["memory capped to minAllowed", "cpu capped to container limit"]}
    assert texts(fitted.items[0].target or {}) == {"cpu": "200m", "memory": "20Mi"}


def test_a_container_range_bounds_requests_through_the_ratio() -> None:
    asked, of = (
        vpa(recommended(target={"cpu": "300m"})),
        pod(container(requests={"cpu": "100m"}, limits={"cpu": "200m"})),
    )
    assert targets(asked, of, {"type": "Container", "max": {"cpu": "400m"}}) == {"app": {"cpu": "200m"}}
    assert targets(asked, of, {"type": "Container", "min": {"cpu": "800m"}}) == {"app": {"cpu": "800m"}}
    assert targets(asked, of, {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"}}) == {
        "app": {"cpu": "300m"}
    }


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"max": {"memory": "1Gi"}}, {"a": "357913941", "b": "715827882"}),
        ({"min": {"memory": "4Gi"}}, {"a": "1431655765", "b": "2863311530"}),
        ({"min": {"memory": "1Gi"}, "max": {"memory": "8Gi"}}, {"a": "1Gi", "b": "2Gi"}),
    ],
)
def test_a_pod_range_scales_all_containers_alike(bounds: dict[str, Any], expected: dict[str, str]) -> None:
    asked = vpa(recommended("a", {"memory": "1Gi"}), recommended("b", {"memory": "2Gi"}))
    same = {"memory": "1Gi"}
    of = pod(container("a", same, same), container("b", same, same))
    fitted = targets(asked, of, {"type": "Pod", **bounds})
    assert {name: parse(target["memory"]) for name, target in fitted.items()} == {
        name: parse(text) for name, text in expected.items()
    }


def test_a_container_without_recommendation_joins_the_sum_of_a_pod_range() -> None:
    """Two containers of 1 core, one of them unknown to the VPA: both give way."""
    asked = vpa(recommended("a", {"cpu": "1"}))
    of = pod(container("a", {"cpu": "1"}, {"cpu": "1"}), container("b", {"cpu": "1"}, {"cpu": "1"}))
    assert targets(asked, of, {"type": "Pod", "max": {"cpu": "1"}}) == {"a": {"cpu": "500m"}, "b": {"cpu": "500m"}}


def test_a_pod_range_invents_no_resource_that_the_vpa_does_not_control() -> None:
    asked = vpa(recommended("a", {"memory": "2Gi"}), recommended("b", {"cpu": "1"}))
    of = pod(container("a", limits={"memory": "1Gi"}), container("b", limits={"memory": "1Gi"}))
    fitted = targets(asked, of, {"type": "Pod", "max": {"memory": "1Gi"}})
    assert fitted == {"a": {"memory": "1Gi"}, "b": {"cpu": "1"}}


def test_several_ranges_combine_to_the_tightest() -> None:
    ranges = [
        msgspec.convert({"spec": {"limits": [item]}}, LimitRange)
        for item in (
            {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "10m"}, "default": {"cpu": "1"}},
            {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}, "min": {"cpu": "20m"}},
            {"type": "Pod", "max": {"cpu": "100m"}},
        )
    ]
    bounds = limit_bounds(ranges, "Container")
    assert bounds is not None
    assert texts(bounds.max or {}) == {"cpu": "1", "memory": "1Gi"}
    assert texts(bounds.min or {}) == {"cpu": "20m"}
    assert texts(bounds.default or {}) == {"cpu": "1"}
    assert limit_bounds(ranges, "PersistentVolumeClaim") is None


# Patches


def test_a_new_pod_gets_maps_values_and_annotations() -> None:
    asked = vpa(recommended(target={"cpu": "587m", "memory": "250Mi"}))
    assert admission_patches(pod(container()), asked) == [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/spec/containers/0/resources", "value": {}},
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {}},
        {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "587m"},
        {"op": "add", "path": "/spec/containers/0/resources/requests/memory", "value": "250Mi"},
        {
            "op": "add",
            "path": "/metadata/annotations/vpaUpdates",
            "value": "Pod resources updated by web-vpa: container 0: cpu request, memory request",
        },
        {"op": "add", "path": "/metadata/annotations/vpaObservedContainers", "value": "app"},
    ]


def test_a_pod_without_recommendation_is_only_noted() -> None:
    patches = admission_patches(pod(container(requests={"cpu": "1"}), annotations={}), vpa())
    assert [patch["path"] for patch in patches] == ["/metadata/annotations/vpaObservedContainers"]


def test_limits_follow_unless_only_requests_are_controlled() -> None:
    of = pod(container(requests={"cpu": "100m"}, limits={"cpu": "200m"}), annotations={})
    item = recommended(target={"cpu": "150m"})
    paths = {patch["path"]: patch["value"] for patch in admission_patches(of, vpa(item))}
    assert paths["/spec/containers/0/resources/limits/cpu"] == "300m"
    only = vpa(item, policies=[{"containerName": "*", "controlledValues": "RequestsOnly"}])
    paths = {patch["path"]: patch["value"] for patch in admission_patches(of, only)}
    assert "/spec/containers/0/resources/limits/cpu" not in paths
    assert paths["/spec/containers/0/resources/requests/cpu"] == "150m"


BOOST = {"cpu": {"type": "Factor", "factor": 3, "durationSeconds": 60}}


@pytest.mark.parametrize(
    ("asked", "of", "most", "cpu", "limit"),
    [
        (
            vpa(recommended(target={"cpu": "63m"}), startupBoost=BOOST),
            pod(container(requests={"cpu": "10m"})),
            "0",
            "189m",
            None,
        ),
        (
            vpa(mode="Off", startupBoost={"cpu": {"type": "Quantity", "quantity": "500m"}}),
            pod(container(requests={"cpu": "100m"}, limits={"cpu": "200m"})),
            "0",
            "600m",
            "1200m",
        ),
        (
            vpa(
                recommended(target={"cpu": "100m"}),
                startupBoost=BOOST,
                policies=[{"containerName": "app", "controlledValues": "RequestsOnly"}],
            ),
            pod(container(requests={"cpu": "10m"}, limits={"cpu": "150m"})),
            "0",
            "149m",
            None,
        ),
        (vpa(recommended(target={"cpu": "63m"}), startupBoost=BOOST), pod(container()), "100m", "100m", None),
    ],
)
def test_a_startup_boost_raises_cpu(
    asked: VerticalPodAutoscaler, of: Pod, most: str, cpu: str, limit: str | None
) -> None:
    patches = admission_patches(of, asked, startup_boost=True, max_cpu_boost=parse(most))
    paths = {patch["path"]: patch["value"] for patch in patches}
    assert paths["/spec/containers/0/resources/requests/cpu"] == cpu
    assert paths.get("/spec/containers/0/resources/limits/cpu") == limit
    assert "/metadata/annotations/vpaCpuStartupBoost~1app" in paths
    plain = admission_patches(of, asked)
    assert plain and not [patch for patch in plain if "Boost" in patch["path"]]


def boost(kind: str = "Factor", **cpu: Any) -> dict[str, Any]:
    return {"cpu": {"type": kind, "durationSeconds": 10, **cpu}}


def boost_of_app(**policy: Any) -> list[dict[str, Any]]:
    return [{"containerName": "app", **policy}]


ONE = {"cpu": "1m"}


@pytest.mark.parametrize(
    ("spec", "target", "requests", "limits", "set_"),
    [
        ({"startupBoost": boost(factor=2)}, "100m", ONE, ONE, ("200m", "200m")),
        ({"startupBoost": boost(factor=2, durationSeconds=0)}, "100m", ONE, ONE, ("200m", "200m")),
        ({"startupBoost": boost("Quantity", quantity="500m")}, "100m", ONE, ONE, ("600m", "600m")),
        ({"startupBoost": boost("Quantity", quantity="200m")}, "500m", {"cpu": "400m"}, {"cpu": "400m"}, ("700m",) * 2),
        ({"startupBoost": boost("", factor=2)}, "100m", ONE, None, ("200m", None)),
        # without a recommendation the request of the spec is the base
        ({"startupBoost": boost(factor=2)}, None, {"cpu": "100m"}, {"cpu": "100m"}, ("200m", "200m")),
        # the limit keeps its proportion to the request of the spec, not to what is recommended
        ({"startupBoost": boost(factor=2)}, "150m", {"cpu": "100m"}, {"cpu": "300m"}, ("300m", "900m")),
        # a boost of the container's own replaces the one of all
        (
            {"startupBoost": boost(factor=2), "policies": boost_of_app(startupBoost=boost(factor=3))},
            "100m",
            ONE,
            ONE,
            ("300m", "300m"),
        ),
        # of requests alone: below the limit, so that the pod keeps its class
        (
            {"startupBoost": boost(factor=2), "policies": boost_of_app(controlledValues="RequestsOnly")},
            "100m",
            {"cpu": "100m"},
            {"cpu": "300m"},
            ("200m", None),
        ),
        # a container in mode Off is left alone
        ({"startupBoost": boost(factor=2), "policies": boost_of_app(mode="Off")}, None, {"cpu": "100m"}, None, None),
    ],
)
def test_what_a_boost_sets(
    spec: dict[str, Any], target: str | None, requests: Any, limits: Any, set_: tuple[str, str | None] | None
) -> None:
    asked = vpa(*([recommended(target={"cpu": target})] if target else []), **spec)
    of = pod(container(requests=requests, limits=limits), annotations={})
    patches = {patch["path"]: patch["value"] for patch in admission_patches(of, asked, startup_boost=True)}
    before = {"requests": requests, "limits": limits or {}}
    annotation = patches.get("/metadata/annotations/vpaCpuStartupBoost~1app")
    assert (annotation is None) if set_ is None else (msgspec.json.decode(annotation) == before)
    cpu, limit = set_ or (None, None)
    assert patches.get("/spec/containers/0/resources/requests/cpu") == cpu
    assert patches.get("/spec/containers/0/resources/limits/cpu") == limit


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (boost(factor=0), "factor"),
        (boost(), "factor"),
        (boost("Quantity"), "quantity"),
        (boost("Half", factor=2), "neither Factor nor Quantity"),
    ],
)
def test_a_boost_that_says_nothing_is_refused(wrong: dict[str, Any], text: str) -> None:
    asked = vpa(recommended(target={"cpu": "100m"}), startupBoost=wrong)
    with pytest.raises(BoostError, match=text):
        admission_patches(pod(container(requests=ONE)), asked, startup_boost=True)


@pytest.mark.parametrize(
    ("conditions", "expired"),
    [
        ([], []),
        ([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}], []),
        ([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:59:50Z"}], ["none"]),
        ([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:58:00Z"}], ["none", "short"]),
    ],
)
def test_a_boost_is_over_so_long_after_the_pod_is_ready(conditions: Any, expired: list[str]) -> None:
    policies = [
        {"containerName": "short", "startupBoost": boost(factor=2, durationSeconds=60)},
        {"containerName": "long", "startupBoost": boost(factor=2, durationSeconds=6000)},
    ]
    names = ("short", "long", "none")
    of = pod(
        *(container(name) for name in names),
        annotations={f"vpaCpuStartupBoost/{name}": "{}" for name in names},
        conditions=conditions,
    )
    assert expired_boosts(of, vpa(policies=policies), NOW) == [f"vpaCpuStartupBoost/{name}" for name in expired]


def boosted(original: str, ready: str = "2026-01-01T00:00:00Z") -> Pod:
    return pod(
        container(requests={"cpu": "300m"}),
        annotations={"vpaCpuStartupBoost/app": original},
        conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": ready}],
    )


def test_a_boost_ends_with_the_recommendation_or_with_what_was_before() -> None:
    original = '{"requests":{"cpu":"100m"},"limits":{}}'
    asked = vpa(recommended(target={"cpu": "63m"}), startupBoost=BOOST)
    (patch,) = resize_patches(boosted(original), asked, NOW)
    assert patch["value"] == "63m"
    (patch,) = resize_patches(boosted(original), vpa(mode="Off", startupBoost=BOOST), NOW)
    assert patch["value"] == "100m"
    assert resize_patches(boosted(original, "2026-01-01T00:59:30Z"), asked, NOW) == []
    notes = resize_annotation_patches(boosted(original), asked, NOW)
    assert {"op": "remove", "path": "/metadata/annotations/vpaCpuStartupBoost~1app", "value": None} in notes


def test_the_next_boost_to_end_is_one_that_has_not_ended() -> None:
    boost = {"cpu": {"type": "Factor", "factor": 2, "durationSeconds": 5000}}
    policies = [{"containerName": "b", "startupBoost": {"cpu": {**boost["cpu"], "durationSeconds": 60}}}]
    asked = vpa(startupBoost=boost, resourcePolicy={"containerPolicies": policies})
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    both = {f"vpaCpuStartupBoost/{name}": "{}" for name in "ab"}
    of = pod(container("a"), container("b"), annotations=both, conditions=ready)
    assert boost_remaining_s(of, asked, NOW) == 1400
    assert boost_remaining_s(of, vpa(), NOW) == 0


def test_a_resize_sets_every_container_and_makes_no_annotation_of_resources() -> None:
    asked = vpa(recommended("a", {"cpu": "1"}), recommended("b", {"memory": "1Gi"}))
    of = pod(container("a", {"cpu": "500m"}), container("b"))
    assert [(patch["path"], patch["value"]) for patch in resize_patches(of, asked, NOW)] == [
        ("/spec/containers/0/resources/requests/cpu", "1"),
        ("/spec/containers/1/resources", {}),
        ("/spec/containers/1/resources/requests", {}),
        ("/spec/containers/1/resources/requests/memory", "1Gi"),
    ]
