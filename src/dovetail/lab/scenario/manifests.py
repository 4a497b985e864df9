"""Manifests in a scenario: files or objects, applied as kubectl would, any kind the cluster serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.kube.client import Kube
from dovetail.kube.resources import Resource
from dovetail.lab.scenario.schema import ScenarioError
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem

Json = dict[str, Any]


def load(source: str | Json | tuple[Json, ...], folder: Path) -> list[Json]:
    """The objects of a file, of a list, or the object itself."""
    if isinstance(source, str):
        path = folder / source
        try:
            documents = yaml_document.load_all(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ScenarioError(f"{path}: {system_error(error)}") from error
        except RecursionError as error:
            raise ScenarioError(message("{path}: nested too deeply to be a manifest", path=path)) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{path}: " + message("not YAML: {problem}", problem=yaml_problem(error))) from error
        return [item for document in documents if document for item in _flat(document)]
    if isinstance(source, tuple):
        return [item for document in source for item in _flat(document)]
    return list(_flat(source))


def _flat(document: Json) -> Iterator[Json]:
    if str(document.get("kind", "")).endswith("List") and "items" in document:
        yield from document["items"]
    else:
        yield document


class Kinds:
    """Finds the resource of a kind by asking the server, once a group version."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._known: dict[str, list[Json]] = {}
        self._groups: list[str] = []

    async def find(self, api_version: str, kind: str) -> Resource:
        group, _, version = api_version.rpartition("/")
        for item in await self._resources(api_version):
            if item["kind"] == kind and "/" not in item["name"]:
                return Resource(group, version, item["name"], kind, bool(item["namespaced"]))
        raise ScenarioError(
            message("the cluster serves no {kind} in {api_version}", kind=kind, api_version=api_version)
        )

    async def by_kind(self, kind: str) -> Resource:
        """The resource of a kind named without its group."""
        if not self._groups:
            body = msgspec.json.decode((await self._kube.request("GET", "/apis")).body)
            self._groups = ["v1", *(group["preferredVersion"]["groupVersion"] for group in body["groups"])]
        for api_version in self._groups:
            for item in await self._resources(api_version):
                if item["kind"].lower() == kind.lower() and "/" not in item["name"]:
                    group, _, version = api_version.rpartition("/")
                    return Resource(group, version, item["name"], item["kind"], bool(item["namespaced"]))
        raise ScenarioError(message("the cluster serves no {kind}", kind=kind))

    async def _resources(self, api_version: str) -> list[Json]:
        if api_version not in self._known:
            path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            body = msgspec.json.decode((await self._kube.request("GET", path)).body)
            self._known[api_version] = body["resources"]
        return self._known[api_version]


async def apply(kube: Kube, kinds: Kinds, item: Json) -> str:
    """Create or change an object; returns how it is called."""
    resource = await kinds.find(item.get("apiVersion", ""), item.get("kind", ""))
    metadata = dict(item.get("metadata", {}))
    if resource.namespaced:
        metadata.setdefault("namespace", "default")
    body = {**item, "metadata": metadata}
    await kube.apply(resource, body, manager="scenario")
    return f"{resource.kind.lower()}/{metadata.get('name', '')}"
