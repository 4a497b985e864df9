"""The environment of a container: what its spec says, with every `valueFrom` and `$(NAME)` resolved."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS, SECRETS, Resource
from dovetail.lab.controllers.views import KeySource
from dovetail.lab.kubelet.views import ContainerSpec, KubeletPod, ResourceFieldRef, ValueSource
from dovetail.model.quantity import parse

_USE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


async def environment(kube: Kube, pod: KubeletPod, container: ContainerSpec, pod_ip: str) -> dict[str, str]:
    """Variables by name. Later ones win, and may use those before them."""
    namespace = pod.metadata.namespace
    variables: dict[str, str] = {}
    for source in container.env_from:
        for resource, reference in ((CONFIGMAPS, source.config_map_ref), (SECRETS, source.secret_ref)):
            if reference is not None:
                data = await _data(kube, resource, namespace, reference)
                variables |= {f"{source.prefix}{name}": value for name, value in data.items()}
    for variable in container.env:
        if variable.value_from is None:
            variables[variable.name] = expand(variable.value, variables)
            continue
        value = await _value(kube, variable.value_from, pod, container, pod_ip)
        if value is not None:
            variables[variable.name] = value
    return variables


async def mounted_files(kube: Kube, pod: KubeletPod, container: ContainerSpec) -> dict[str, dict[str, str]]:
    """Where the container's volumes are mounted, with the files of those that are ConfigMaps."""
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    mounted: dict[str, dict[str, str]] = {}
    for mount in container.volume_mounts:
        volume = volumes.get(mount.name)
        reference = volume.config_map if volume is not None else None
        files = await _data(kube, CONFIGMAPS, pod.metadata.namespace, reference) if reference is not None else {}
        mounted[mount.mount_path] = files
    return mounted


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` is the variable, `$$` a dollar; what names no variable stays as it is."""

    def use(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _USE.sub(use, text)


async def _value(kube: Kube, source: ValueSource, pod: KubeletPod, container: ContainerSpec, pod_ip: str) -> str | None:
    if source.field_ref is not None:
        return pod_field(pod, source.field_ref.field_path, pod_ip)
    if source.resource_field_ref is not None:
        return container_resource(pod, container, source.resource_field_ref)
    for resource, reference in ((CONFIGMAPS, source.config_map_key_ref), (SECRETS, source.secret_key_ref)):
        if reference is not None:
            return (await _data(kube, resource, pod.metadata.namespace, reference)).get(reference.key)
    return None


async def _data(kube: Kube, resource: Resource, namespace: str, reference: KeySource) -> dict[str, str]:
    try:
        body: dict[str, Any] = await kube.get(resource, reference.name, namespace, type=dict)
    except NotFound:
        return {}  # optional: the kubelet starts no container that lacks what it needs
    data = body.get("data") or {}
    if resource is SECRETS:
        return {name: base64.b64decode(value).decode(errors="replace") for name, value in data.items()}
    return dict(data)


def pod_field(pod: KubeletPod, path: str, pod_ip: str) -> str:
    """A field that a variable may name."""
    meta, spec = pod.metadata, pod.spec
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return (meta.labels if keyed[1] == "labels" else meta.annotations).get(keyed[2], "")
    return {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": spec.node_name,
        "spec.serviceAccountName": spec.service_account_name,
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
    }.get(path, "")


def container_resource(pod: KubeletPod, container: ContainerSpec, reference: ResourceFieldRef) -> str:
    """A request or limit in units of the divisor, rounded up; 0 where there is none."""
    spec = next((item for item in pod.containers if item.name == reference.container_name), container)
    kind, _, resource = reference.resource.partition(".")
    amount = (spec.resources.get(kind) or {}).get(resource)
    if amount is None:
        return "0"
    divisor = str(reference.divisor)
    unit = parse("1" if divisor in ("0", "") else divisor)
    return str(-(-parse(str(amount)).nano // unit.nano))
