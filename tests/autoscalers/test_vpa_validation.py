"""What the webhook lets in: defaults, warnings and refusals of VerticalPodAutoscalers."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.vpa.admission import answer
from dovetail.autoscalers.vpa.api import Pod, VerticalPodAutoscaler
from dovetail.autoscalers.vpa.capping import NO_LIMITS, NamespaceLimits
from dovetail.autoscalers.vpa.validation import FeatureGates, validate
from dovetail.clock import run_virtual
from tests.autoscalers.vpa_objects import recommended, vpa

ALL = FeatureGates(cpu_startup_boost=True, in_place=True, per_vpa_config=True)
P = "spec.resourcePolicy.containerPolicies[0]"


def errors(asked: VerticalPodAutoscaler, old: VerticalPodAutoscaler | None = None, gates: Any = None) -> list[str]:
    return [str(error) for error in validate(asked, old, gates or FeatureGates())[0]]


def policy(**fields: Any) -> VerticalPodAutoscaler:
    return vpa(policies=[{"containerName": "app", **fields}])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            vpa(updatePolicy={}),
            "spec.updatePolicy.updateMode: Required value: updateMode is required if UpdatePolicy is used",
        ),
        (
            vpa(mode="Sometimes"),
            'spec.updatePolicy.updateMode: Unsupported value: "Sometimes": supported values: '
            '"InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"',
        ),
        (
            vpa(mode="InPlace"),
            "spec.updatePolicy.updateMode: Forbidden: in order to use UpdateMode InPlace, you must "
            "enable feature gate InPlace in the admission-controller args",
        ),
        (
            vpa(updatePolicy={"updateMode": "Off", "minReplicas": 0}),
            "spec.updatePolicy.minReplicas: Invalid value: 0: minReplicas has to be positive",
        ),
        (vpa(policies=[{}]), f"{P}.containerName: Required value"),
        (policy(mode="Maybe"), f'{P}.mode: Unsupported value: "Maybe": supported values: "Auto", "Off"'),
        (
            policy(minAllowed={"cpu": "2"}, maxAllowed={"cpu": "1"}),
            f'{P}.maxAllowed[cpu]: Invalid value: "1": max resource for cpu is lower than min of "2"',
        ),
        (
            policy(minAllowed={"cpu": "1500u"}),
            f'{P}.minAllowed[cpu]: Invalid value: "1500u": must be a whole number of milli CPUs',
        ),
        (
            policy(maxAllowed={"memory": "1500m"}),
            f'{P}.maxAllowed[memory]: Invalid value: "1500m": must be a whole number of bytes',
        ),
        (
            policy(mode="Off", controlledValues="RequestsAndLimits"),
            f"{P}.controlledValues: Forbidden: "
            "controlledValues shouldn't be specified if container scaling mode is off",
        ),
        (
            policy(controlledResources=["cpu", "storage"]),
            f'{P}.controlledResources[1]: Unsupported value: "storage": supported values: "cpu", "memory"',
        ),
        (
            policy(oomMinBumpUp="1"),
            f"{P}.oomMinBumpUp: Forbidden: not supported when feature flag PerVPAConfig is disabled",
        ),
        (
            vpa(startupBoost={"cpu": {"type": "Factor", "factor": 2}}),
            "spec.startupBoost: Forbidden: in order to use startupBoost, you must enable feature gate CPUStartupBoost "
            "in the admission-controller args",
        ),
        (vpa(recommenders=[{"name": "a"}, {"name": "b"}]), "spec.recommenders: Too many: 2: must have at most 1 item"),
    ],
)
def test_refusals_name_the_field(asked: VerticalPodAutoscaler, expected: str) -> None:
    assert errors(asked) == [expected]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (policy(oomBumpUpRatio="0.5"), f"{P}.oomBumpUpRatio: Invalid value: 0.5: must be greater than or equal to 1.0"),
        (
            policy(memoryAggregationIntervalSeconds=0),
            f"{P}.memoryAggregationIntervalSeconds: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            vpa(startupBoost={"cpu": {"type": "Factor"}}),
            "spec.startupBoost.cpu.factor: Required value: required when type is Factor",
        ),
        (
            vpa(startupBoost={"cpu": {"type": "Quantity", "quantity": "1500u"}}),
            'spec.startupBoost.cpu.quantity: Invalid value: "1500u": must be a whole number of milli CPUs',
        ),
        (
            vpa(startupBoost={"cpu": {"type": "Double"}}),
            'spec.startupBoost.cpu.type: Unsupported value: "Double": supported values: "Factor", "Quantity"',
        ),
    ],
)
def test_gated_fields_are_checked_with_their_gate(asked: VerticalPodAutoscaler, expected: str) -> None:
    assert errors(asked, gates=ALL) == [expected]


@pytest.mark.parametrize(
    "asked",
    [
        vpa(),
        vpa(mode="Recreate"),
        vpa(mode="Auto"),
        policy(mode="Off", controlledValues="RequestsOnly"),
        policy(minAllowed={"cpu": "100m", "memory": "50Mi"}, maxAllowed={"cpu": "1", "memory": "500Mi"}),
    ],
)
def test_good_objects_pass(asked: VerticalPodAutoscaler) -> None:
    assert errors(asked) == []


def test_what_an_object_uses_it_may_keep() -> None:
    policies = [{"containerName": "app", "oomMinBumpUp": "1", "controlledResources": ["storage"]}]
    held = vpa(mode="InPlace", startupBoost={"cpu": {"type": "Factor", "factor": 2}}, policies=policies)
    assert len(errors(held)) == 4
    refused, warnings = validate(held, held, FeatureGates())
    assert refused == []
    assert warnings == [
        f'{P}.controlledResources[0]: unsupported value "storage" is allowed only because it is present in the '
        'existing VPA object; supported values: "cpu", "memory"'
    ]


def test_refusals_come_in_upstreams_order() -> None:
    """The message lists them so; amounts of several resources, in any order there, come in that of the object."""
    fields = {
        "startupBoost": {"cpu": {"type": "Factor", "factor": 2}},
        "memoryAggregationIntervalCount": 2,
        "oomMinBumpUp": "1",
        "controlledResources": ["storage"],
        "minAllowed": {"cpu": "1n"},
        "mode": "Of",
    }
    named = [text.split(": ")[0].removeprefix(f"{P}.") for text in errors(vpa(policies=[fields]))]
    assert named == [
        "containerName",
        "mode",
        "minAllowed[cpu]",
        "controlledResources[0]",
        "oomMinBumpUp",
        "memoryAggregationIntervalCount",
        "startupBoost",
    ]


class OneVpa:
    """A matcher that answers this VPA for every pod."""

    def __init__(self, owner: VerticalPodAutoscaler | None = None) -> None:
        self.owner = owner

    async def matching(self, pod: Pod) -> VerticalPodAutoscaler | None:
        return self.owner

    def limits(self, namespace: str) -> NamespaceLimits:
        return NO_LIMITS


def review(resource: dict[str, str], obj: Any, **more: Any) -> bytes:
    request = {"uid": "7", "resource": resource, "object": obj, "operation": "CREATE", "namespace": "shop", **more}
    return msgspec.json.encode({"kind": "AdmissionReview", "request": request})


VPAS = {"group": "autoscaling.k8s.io", "version": "v1", "resource": "verticalpodautoscalers"}
PODS = {"group": "", "version": "v1", "resource": "pods"}


def answered(body: bytes, matcher: OneVpa | None = None) -> dict[str, Any]:
    reviewed = run_virtual(answer(body, matcher or OneVpa(), FeatureGates()))
    return dict(reviewed.review["response"])


def test_a_vpa_without_an_update_policy_gets_recreate() -> None:
    response = answered(review(VPAS, {"spec": {"targetRef": {"kind": "Deployment", "name": "web"}}}))
    assert response["allowed"]
    assert msgspec.json.decode(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/updatePolicy", "value": {"updateMode": "Recreate"}}
    ]


def test_a_bad_vpa_is_refused_with_causes() -> None:
    body = review(VPAS, {"spec": {"updatePolicy": {"updateMode": "Sometimes", "minReplicas": -1}}}, name="x")
    response = answered(body)
    assert not response["allowed"]
    assert response["status"]["code"] == 422
    assert response["status"]["message"].startswith('VerticalPodAutoscaler.autoscaling.k8s.io "x" is invalid: [spec.')
    assert [cause["reason"] for cause in response["status"]["details"]["causes"]] == [
        "FieldValueNotSupported",
        "FieldValueInvalid",
    ]


def test_auto_is_let_in_with_a_warning() -> None:
    response = answered(review(VPAS, {"spec": {"updatePolicy": {"updateMode": "Auto"}}}))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith('spec.updatePolicy: "Auto" mode is deprecated and will be removed in a future API')
    assert "[InPlace InPlaceOrRecreate Initial Off Recreate]" in warning


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"request": 5}', review({"group": "", "resource": "nodes"}, {})])
def test_what_cannot_be_read_is_allowed(body: bytes) -> None:
    response = answered(body)
    assert response["allowed"]
    assert "patch" not in response


def test_a_pod_is_never_refused() -> None:
    assert answered(review(PODS, {"spec": {"containers": "none"}}))["allowed"]
    owner = vpa(recommended(target={"cpu": "1"}))
    response = answered(review(PODS, {"spec": {"containers": [{"name": "app"}]}}), OneVpa(owner))
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
