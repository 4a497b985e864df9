"""A lab that runs programs in pods, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from dovetail.clock import run_virtual
from dovetail.install.kubernetes_parts import resource_of
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.resources import DEPLOYMENTS, PODS
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.cluster import Lab, LabParts

Json = dict[str, Any]


class ProgramLab:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kube = lab.kube

    async def apply(self, objects: Iterable[Json]) -> None:
        for body in objects:
            resource = resource_of(body)
            namespace = body["metadata"].get("namespace", "default") if resource.namespaced else None
            try:
                await self.kube.create(resource, body, namespace)
            except AlreadyExists:
                continue

    async def scale(self, name: str, replicas: int, namespace: str = "kube-system") -> None:
        await self.kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, namespace, kind="merge")

    async def pods(self, namespace: str = "kube-system", labels: str = "") -> list[Json]:
        items: list[Json] = (await self.kube.list(PODS, namespace, labels=labels)).items
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    async def until(self, fact: Callable[[], Awaitable[bool]], seconds: float = 120.0) -> None:
        async def holds() -> bool:
            return await fact()

        await self.lab.until(holds, seconds)

    async def ready(self, count: int, labels: str, namespace: str = "kube-system") -> list[Json]:
        """Wait until so many pods are ready, and there is no other."""

        async def counted() -> bool:
            pods = await self.pods(namespace, labels)
            return len(pods) == count == sum(is_ready(pod) for pod in pods)

        await self.until(counted)
        return await self.pods(namespace, labels)

    async def request_log(self, pod: str, namespace: str = "kube-system", **options: str) -> Response:
        assert self.lab.server is not None
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        request = Request(method="GET", path=path, query=tuple(options.items()), headers={}, body=b"")
        return await self.lab.server.handle(request)

    async def log(self, pod: str, namespace: str = "kube-system", **options: str) -> str:
        response = await self.request_log(pod, namespace, **options)
        assert response.status == 200, response.body
        return response.body.decode()


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def deployment(name: str, image: str, replicas: int = 1, **container: Any) -> Json:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image, **container}]},
            },
        },
    }


def play(body: Callable[[ProgramLab], Awaitable[None]], nodes: int = 2) -> None:
    async def main() -> None:
        async with Lab.embedded(1, LabParts(programs=True)) as lab:
            assert lab.server is not None
            seed_defaults(lab.server, lab.clock.now())  # with the default roles, roles decide
            await lab.nodes(nodes)
            await body(ProgramLab(lab))

    run_virtual(main())
