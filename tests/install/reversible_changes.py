"""Changes that an operator makes with kubectl and aws, each undone when its block ends."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from dovetail.kube.resources import Resource
from tests.install.install_site import Site

Break = Callable[[Site], AbstractAsyncContextManager[None]]
Edit = Callable[[dict[str, Any]], None]


def edited(kind: Resource, name: str, edit: Edit, namespace: str | None = None) -> Break:
    """`kubectl edit`, and back."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        before = await site.kube.get(kind, name, namespace)
        after = copy.deepcopy(before)
        edit(after)
        await site.kube.update(kind, after)
        yield
        now = await site.kube.get(kind, name, namespace)
        before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
        await site.kube.update(kind, before)

    return block


def applied(*objects: tuple[Resource, dict[str, Any]]) -> Break:
    """`kubectl apply`, with the status where the object has one, and `kubectl delete`."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        for kind, body in objects:
            namespace = body["metadata"].get("namespace")
            await site.kube.create(kind, body, namespace)
            if "status" in body:
                await site.kube.patch(
                    kind, body["metadata"]["name"], {"status": body["status"]}, namespace, subresource="status"
                )
        yield
        for kind, body in reversed(objects):
            await site.kube.delete(kind, body["metadata"]["name"], body["metadata"].get("namespace"))

    return block


def at_aws(act: Callable[[Site], Any], undo: Callable[[Site, Any], Any]) -> Break:
    """Calls of aws; what the first returns, the second gets."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        kept = act(site)
        yield
        undo(site, kept)

    return block


def both(*parts: Break) -> Break:
    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        if not parts:
            yield
            return
        async with parts[0](site), both(*parts[1:])(site):
            yield

    return block


def put(path: str, value: Any) -> Edit:
    """Sets a field, given as `spec.limits`."""

    def edit(obj: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for part in parents:
            obj = obj.setdefault(part, {})
        obj[last] = value

    return edit


def variable(name: str, value: str) -> Edit:
    """`kubectl set env`."""

    def edit(obj: dict[str, Any]) -> None:
        rows = obj["spec"]["template"]["spec"]["containers"][0].setdefault("env", [])
        rows[:] = [row for row in rows if row["name"] != name] + [{"name": name, "value": value}]

    return edit
