"""What EKS adds to pods whose service account has an IAM role, as `kubectl describe pod` shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from dovetail.clock import run_virtual
from dovetail.kube.resources import CONFIGMAPS, PODS
from dovetail.lab.aws.pod_identity_webhook import PodIdentityWebhook, registered
from dovetail.lab.cluster import Lab, LabParts

ROLE = "arn:aws:iam::123456789012:role/controller"
TOKENS = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
AGENT_TOKENS = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
REGION = {"AWS_STS_REGIONAL_ENDPOINTS": "regional", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-1"}


def pod(annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    whole = {"serviceAccountName": "app", "containers": [{"name": "main"}], **spec}
    return {"metadata": {"name": "a", "annotations": dict(annotations or {})}, "spec": whole}


def admitted(
    created: dict[str, Any], annotations: Mapping[str, str] | None = None, associated: str = ""
) -> dict[str, Any]:
    """The spec of a pod after the webhook; `annotations` of its service account, and the role associated with that."""

    async def read(namespace: str, name: str) -> Mapping[str, str]:
        assert namespace == "apps"
        return annotations or {}

    webhook = PodIdentityWebhook("eu-west-1", lambda namespace, name: associated, read)
    spec = dict(created["spec"])
    for operation in asyncio.run(webhook.patch(created, "apps")):
        assert operation["op"] == "add"
        spec[operation["path"].removeprefix("/spec/")] = operation["value"]
    return spec


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in container.get("env") or ()}


def token(spec: dict[str, Any]) -> dict[str, Any]:
    (source,) = spec["volumes"][0]["projected"]["sources"]
    projected: dict[str, Any] = source["serviceAccountToken"]
    return projected


def test_a_role_in_the_annotation_gives_its_variables_and_a_token() -> None:
    created = pod(volumes=[{"name": "own", "emptyDir": {}}], initContainers=[{"name": "first"}])
    spec = admitted(created, {"eks.amazonaws.com/role-arn": ROLE})
    mount = {"name": "aws-iam-token", "mountPath": TOKENS, "readOnly": True}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert variables(container) == {
            **REGION,
            "AWS_ROLE_ARN": ROLE,
            "AWS_WEB_IDENTITY_TOKEN_FILE": f"{TOKENS}/token",
        }
        assert container["volumeMounts"] == [mount]
    assert [volume["name"] for volume in spec["volumes"]] == ["aws-iam-token", "own"]
    assert token(spec) == {"audience": "sts.amazonaws.com", "expirationSeconds": 86400, "path": "token"}


def test_an_association_goes_before_an_annotation() -> None:
    spec = admitted(pod(), {"eks.amazonaws.com/role-arn": ROLE}, associated=ROLE)
    assert variables(spec["containers"][0]) == {
        **REGION,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{AGENT_TOKENS}/eks-pod-identity-token",
    }
    assert spec["volumes"][0]["name"] == "eks-pod-identity-token"
    assert token(spec)["audience"] == "pods.eks.amazonaws.com"


def test_a_service_account_without_a_role_leaves_its_pods_alone() -> None:
    assert admitted(pod()) == pod()["spec"]


def test_what_a_container_has_stays() -> None:
    env = [{"name": "AWS_REGION", "value": "us-east-1"}, {"name": "AWS_ROLE_ARN", "value": "own"}]
    spec = admitted(pod(containers=[{"name": "main", "env": env}]), {"eks.amazonaws.com/role-arn": ROLE})
    assert variables(spec["containers"][0]) == {
        "AWS_REGION": "us-east-1", "AWS_ROLE_ARN": "own", "AWS_STS_REGIONAL_ENDPOINTS": "regional",
    }  # fmt: skip
    again = admitted({"metadata": {}, "spec": spec}, {"eks.amazonaws.com/role-arn": ROLE})
    assert again == spec, "a second call changes nothing"


@pytest.mark.parametrize(("seconds", "lifetime"), [("3600", 3600), ("60", 600), ("soon", 86400)])
def test_annotations_of_the_service_account_choose_the_token(seconds: str, lifetime: int) -> None:
    annotations = {
        "eks.amazonaws.com/role-arn": ROLE,
        "eks.amazonaws.com/audience": "mine",
        "eks.amazonaws.com/token-expiration": seconds,
        "eks.amazonaws.com/sts-regional-endpoints": "false",
    }
    spec = admitted(pod(), annotations)
    assert token(spec) == {"audience": "mine", "expirationSeconds": lifetime, "path": "token"}
    assert "AWS_STS_REGIONAL_ENDPOINTS" not in variables(spec["containers"][0])


def test_containers_that_the_pod_names_are_left_out() -> None:
    created = pod({"eks.amazonaws.com/skip-containers": "side, other"}, containers=[{"name": "main"}, {"name": "side"}])
    spec = admitted(created, {"eks.amazonaws.com/role-arn": ROLE})
    assert variables(spec["containers"][0])["AWS_ROLE_ARN"] == ROLE
    assert spec["containers"][1] == {"name": "side"}


def test_a_pod_without_a_service_account_has_the_default_one() -> None:
    spec = admitted(pod(serviceAccountName=""), {"eks.amazonaws.com/role-arn": ROLE})
    assert spec["serviceAccountName"] == "default"


SKIP_LABEL = {"eks.amazonaws.com/skip-pod-identity-webhook": "true"}


def replaced(
    *,
    earlier_run: bool = False,
    reviewed: bool = False,
    owned: bool = True,
    phase: str = "Running",
    **metadata: Any,
) -> bool:
    """Whether the webhook's start deletes a pod that has nothing of its account's role.

    `reviewed`: the webhook let it pass at its creation, as its account had no role yet.
    """

    async def main() -> bool:
        async with Lab.embedded(1, LabParts(controllers=False, scheduler=False, check=False)) as lab:
            if owned:
                owner = await lab.kube.create(CONFIGMAPS, {"metadata": {"name": "owner", "namespace": "default"}})
                reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
                metadata["ownerReferences"] = [reference]
            body = pod(serviceAccountName="default", containers=[{"name": "main", "image": "a"}])
            body["metadata"] |= {"namespace": "default", **metadata}

            async def create() -> None:
                await lab.kube.create(PODS, body)
                await lab.kube.patch(PODS, "a", {"status": {"phase": phase}}, "default", subresource="status")
                await asyncio.sleep(5)
                assert len((await lab.kube.list(PODS)).items) == 1

            def started(role: str) -> AbstractAsyncContextManager[None]:
                return registered(lab.client("eks"), lab.server, lab.clock, "eu-west-1", lambda *account: role)

            if reviewed:
                async with started(""):
                    await create()
            else:
                await create()
            if earlier_run:
                lab.clock.start += timedelta(hours=1)
            async with started(ROLE):
                left = (await lab.kube.list(PODS)).items
            return not left or "deletionTimestamp" in left[0]["metadata"]

    return run_virtual(main())


def test_pods_that_came_before_the_webhook_answered_are_replaced() -> None:
    assert replaced()


def test_pods_of_an_earlier_run_of_the_lab_keep_what_they_got() -> None:
    """A role that comes later is for the pods after it."""
    assert not replaced(earlier_run=True, reviewed=True)


def test_pods_of_a_lab_that_had_no_webhook_are_replaced() -> None:
    assert replaced(earlier_run=True)


def test_pods_that_the_webhook_would_not_review_are_left_alone() -> None:
    assert not replaced(labels=SKIP_LABEL)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_are_left_alone(phase: str) -> None:
    assert not replaced(phase=phase)


def test_pods_that_no_controller_would_replace_are_left_alone() -> None:
    assert not replaced(owned=False)
