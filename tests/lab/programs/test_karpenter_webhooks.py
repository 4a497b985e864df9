"""Answers to the reviews of webhooks that Karpenter's charts up to 1.0 register."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dovetail.clock import run_virtual
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.programs.karpenter_webhooks import respond
from dovetail.lab.webhook_services import joined
from tests.conformance.backends import core

Json = dict[str, Any]
GOOD = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]


def provisioner(**spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": "default"},
        "spec": {"providerRef": {"name": "default"}, **spec},
    }


def asked(obj: Json, path: str = "/", **request: Any) -> Json:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    body = json.dumps({**review, "request": {"uid": "u", "operation": "CREATE", "object": obj, **request}})
    status, answer = respond(path, body.encode())
    assert status == 200
    parsed: Json = json.loads(answer)
    assert parsed["kind"] == "AdmissionReview" and parsed["response"]["uid"] == "u"
    response: Json = parsed["response"]
    return response


def test_a_provisioner_gets_the_requirements_of_the_defaulting_webhook() -> None:
    response = asked(provisioner(requirements=GOOD), "/default/karpenter.k8s.aws")
    assert response["allowed"] is True
    (patch,) = json.loads(base64.b64decode(response["patch"]))
    assert patch["path"] == "/spec/requirements"
    assert [item["key"] for item in patch["value"]] == [
        "karpenter.sh/capacity-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "karpenter.k8s.aws/instance-category",
        "karpenter.k8s.aws/instance-generation",
    ]
    complete = asked(provisioner(requirements=patch["value"]), "/default/karpenter.k8s.aws")
    assert "patch" not in complete


@pytest.mark.parametrize("path", ["/", "/validate/karpenter.sh", "/config-validation"])
def test_valid_objects_and_settings_are_admitted(path: str) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "karpenter-global-settings"}}
    for obj in (provisioner(requirements=GOOD), settings):
        assert asked(obj, path) == {"uid": "u", "allowed": True}


def test_an_invalid_requirement_is_refused_with_its_field() -> None:
    wrong = [{"key": "karpenter.sh/capacity-type", "operator": "Near", "values": ["spot"]}]
    response = asked(provisioner(requirements=wrong), "/validate/karpenter.sh")
    assert response["allowed"] is False
    assert "requirements[0].operator" in response["status"]["message"]
    assert asked(provisioner(requirements=wrong), operation="DELETE")["allowed"] is True


def test_a_conversion_review_is_answered() -> None:
    pool = {"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {}}
    request = {"uid": "u", "desiredAPIVersion": "karpenter.sh/v1", "objects": [pool]}
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    status, answer = respond("/conversion/karpenter.sh", json.dumps(review).encode())
    (converted,) = json.loads(answer)["response"]["convertedObjects"]
    assert (status, converted["apiVersion"]) == (200, "karpenter.sh/v1")


def test_a_service_answers_while_one_of_its_programs_runs() -> None:
    async def answer(path: str, body: bytes) -> tuple[int, bytes]:
        return 200, b""

    async def other(path: str, body: bytes) -> tuple[int, bytes]:
        return 500, b""

    async def main() -> None:
        server: ApiServer = core()
        key = ("karpenter", "karpenter")
        first, second = joined(server, *key, answer), joined(server, *key, other)
        with first:
            second.__enter__()
            assert (await server.local_services[key]("/", b""))[0] == 500
            second.__exit__(None, None, None)
            assert (await server.local_services[key]("/", b""))[0] == 200
        assert key not in server.local_services

    run_virtual(main())
