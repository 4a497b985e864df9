"""Third-party client libraries work against the lab, unmodified."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from typing import Any

import pytest

from tests.clients.conftest import Served

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}


@pytest.mark.filterwarnings("ignore")
def test_the_official_client_reads_writes_and_watches(server: Served) -> None:
    import kubernetes

    kubernetes.config.load_kube_config(str(server.kubeconfig))
    v1 = kubernetes.client.CoreV1Api()
    apps = kubernetes.client.AppsV1Api()
    v1.create_namespace({"metadata": {"name": "official"}})
    made = v1.create_namespaced_pod("official", POD)
    assert made.spec.containers[0].image_pull_policy == "Always"
    v1.patch_namespaced_pod("p", "official", {"metadata": {"labels": {"a": "b"}}})
    assert [pod.metadata.name for pod in v1.list_namespaced_pod("official", label_selector="a=b").items] == ["p"]
    deployment = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"x": "y"}},
            "template": {"metadata": {"labels": {"x": "y"}}, "spec": POD["spec"]},
        },
    }
    apps.create_namespaced_deployment("official", deployment)
    apps.patch_namespaced_deployment_scale("d", "official", {"spec": {"replicas": 3}})
    assert apps.read_namespaced_deployment_scale("d", "official").spec.replicas == 3
    watch = kubernetes.watch.Watch()
    kinds = [event["type"] for event in watch.stream(v1.list_namespaced_pod, "official", timeout_seconds=1)]
    assert kinds == ["ADDED"]
    with pytest.raises(kubernetes.client.ApiException) as caught:
        v1.create_namespaced_pod("official", POD)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    v1.create_namespaced_pod_eviction("p", "official", {"metadata": {"name": "p"}})
    assert v1.list_namespaced_pod("official").items == []
    assert kubernetes.client.VersionApi().get_code().git_version.startswith("v1.")


@pytest.mark.filterwarnings("ignore")
def test_the_dynamic_client_discovers_and_applies(server: Served) -> None:
    import kubernetes
    from kubernetes import dynamic

    kubernetes.config.load_kube_config(str(server.kubeconfig))
    client = dynamic.DynamicClient(kubernetes.client.ApiClient())
    configmaps = client.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn"}, "data": {"a": "b"}}
    made = configmaps.server_side_apply(body=body, namespace="default", field_manager="dyn")
    assert made.data.a == "b"
    assert made.metadata.managedFields[0].operation == "Apply"


@pytest.mark.filterwarnings("ignore")
def test_lightkube_reads_writes_applies_and_watches(server: Served) -> None:
    import lightkube
    from lightkube.models.autoscaling_v1 import ScaleSpec
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.apps_v1 import Deployment
    from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod

    client = lightkube.Client(config=lightkube.KubeConfig.from_file(str(server.kubeconfig)), field_manager="light")
    client.create(Namespace(metadata=ObjectMeta(name="light")))
    client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="light"), data={"a": "1"}))
    client.patch(ConfigMap, "c", {"data": {"b": "2"}}, namespace="light")
    assert client.get(ConfigMap, "c", namespace="light").data == {"a": "1", "b": "2"}
    applied = client.apply(ConfigMap(metadata=ObjectMeta(name="s", namespace="light"), data={"x": "y"}))
    assert applied.metadata.managedFields[0].operation == "Apply"  # type: ignore[index]
    for number in range(5):
        client.create(Node(metadata=ObjectMeta(name=f"light-{number}", labels={"by": "light"})))
    assert len(list(client.list(Node, labels={"by": "light"}, chunk_size=2))) == 5
    deployment = {
        "metadata": {"name": "d", "namespace": "light"},
        "spec": {
            "selector": {"matchLabels": {"x": "y"}},
            "template": {"metadata": {"labels": {"x": "y"}}, "spec": POD["spec"]},
        },
    }
    client.create(Deployment.from_dict(deployment))  # type: ignore[call-overload]
    scaled = client.replace(  # type: ignore[call-overload]
        Deployment.Scale(metadata=ObjectMeta(name="d", namespace="light"), spec=ScaleSpec(replicas=4))
    )
    assert scaled.spec.replicas == 4
    client.create(Pod.from_dict(POD), namespace="light")  # type: ignore[call-overload]
    for kind, obj in client.watch(Pod, namespace="light"):
        assert (kind, obj.metadata.name) == ("ADDED", "p")
        break
    with pytest.raises(lightkube.ApiError) as caught:
        client.get(Pod, "none", namespace="light")
    assert caught.value.status.reason == "NotFound"


@pytest.mark.filterwarnings("ignore")
def test_kr8s_reads_writes_and_scales(server: Served) -> None:
    import kr8s
    from kr8s.objects import ConfigMap, Deployment

    api = kr8s.api(kubeconfig=str(server.kubeconfig))
    made = ConfigMap({"metadata": {"name": "kr", "namespace": "default"}, "data": {"a": "b"}}, api=api)
    made.create()
    made.patch({"data": {"c": "d"}})
    assert ConfigMap.get("kr", namespace="default", api=api).data == {"a": "b", "c": "d"}
    deployment = Deployment(
        {
            "metadata": {"name": "kr", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"x": "y"}},
                "template": {"metadata": {"labels": {"x": "y"}}, "spec": POD["spec"]},
            },
        },
        api=api,
    )
    deployment.create()
    deployment.patch({"spec": {"replicas": 2}}, subresource="scale")
    deployment.refresh()
    assert deployment.replicas == 2
    assert "kr" in [one.name for one in api.get("configmaps", namespace="default")]
    assert made.exists()
    made.delete()
    assert not made.exists()


_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCHEMA = {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}
KOPFS = {
    "metadata": {"name": "kopfs.clients.example.com"},
    "spec": {
        "group": "clients.example.com",
        "scope": "Namespaced",
        "names": {"plural": "kopfs", "singular": "kopf", "kind": "Kopf"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}
KOPF = {
    "apiVersion": "clients.example.com/v1",
    "kind": "Kopf",
    "metadata": {"name": "k"},
    "spec": {"a": "hello"},
}


@pytest.mark.filterwarnings("ignore")
def test_a_kopf_operator_handles_custom_resources(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    import kopf
    import kubernetes

    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    kubernetes.config.load_kube_config(str(server.kubeconfig))
    kubernetes.client.ApiextensionsV1Api().create_custom_resource_definition(KOPFS)
    registry = kopf.OperatorRegistry()

    @kopf.on.create("clients.example.com", "v1", "kopfs", id="created", registry=registry)
    def created(spec: Any, **_: Any) -> dict[str, Any]:
        return {"seen": spec["a"]}

    @kopf.on.login(registry=registry)
    def login(**about: Any) -> Any:
        return kopf.login_with_kubeconfig(**about)

    objects = kubernetes.client.CustomObjectsApi()
    at = ("clients.example.com", "v1", "default", "kopfs")

    async def main() -> dict[str, Any]:
        stop, ready = asyncio.Event(), asyncio.Event()
        operator = asyncio.create_task(
            kopf.operator(registry=registry, standalone=True, namespace="default", stop_flag=stop, ready_flag=ready)
        )
        await ready.wait()
        await asyncio.to_thread(objects.create_namespaced_custom_object, *at, KOPF)
        found: dict[str, Any] = {}
        async with asyncio.timeout(20):
            while "created" not in found.get("status", {}):
                found = await asyncio.to_thread(objects.get_namespaced_custom_object, *at, "k")
                await asyncio.sleep(0.05)
        stop.set()
        with contextlib.suppress(asyncio.CancelledError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await operator
        return found

    found = asyncio.run(main())
    assert found["status"]["created"] == {"seen": "hello"}
    assert "kopf.zalando.org/last-handled-configuration" in found["metadata"]["annotations"]
