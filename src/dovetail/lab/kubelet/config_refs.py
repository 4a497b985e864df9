"""ConfigMaps and Secrets that pods name: a container starts, and a volume is mounted, only when they are there."""

from __future__ import annotations

import asyncio

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.resources import CONFIGMAPS, SECRETS
from dovetail.lab.controllers.informer import Informer
from dovetail.lab.controllers.views import KeySource, Meta
from dovetail.lab.kubelet.views import ContainerSpec, KubeletPod


class _Kept(msgspec.Struct, frozen=True, rename="camel"):
    """A ConfigMap or a Secret: its keys are all that is read."""

    metadata: Meta = Meta()
    data: dict[str, msgspec.Raw] = {}
    binary_data: dict[str, msgspec.Raw] = {}


def _keys(item: _Kept, old: _Kept | None) -> _Kept:
    names = dict.fromkeys((*item.data, *item.binary_data), msgspec.Raw(b"0"))
    return msgspec.structs.replace(item, data=names, binary_data={})


class Configs:
    """What is there of both kinds."""

    def __init__(self, kube: Kube) -> None:
        self._maps = Informer(kube, CONFIGMAPS, _Kept, keep=_keys)
        self._secrets = Informer(kube, SECRETS, _Kept, keep=_keys)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._maps.run(), name="kubelet configmaps")
            tasks.create_task(self._secrets.run(), name="kubelet secrets")

    def unset(self, namespace: str, container: ContainerSpec) -> str | None:
        """What a container's environment lacks, in the kubelet's words."""
        named = [(whole.config_map_ref, whole.secret_ref) for whole in container.env_from]
        named += [
            (variable.value_from.config_map_key_ref, variable.value_from.secret_key_ref)
            for variable in container.env
            if variable.value_from is not None
        ]
        problems = (self._absent(namespace, a_map, secret) for a_map, secret in named)
        return next((problem for problem in problems if problem is not None), None)

    def unmounted(self, pod: KubeletPod) -> str | None:
        """What keeps a volume from being mounted, in the kubelet's words."""
        for volume in pod.spec.volumes:
            secret = volume.secret
            named = KeySource(secret.secret_name, optional=secret.optional) if secret is not None else None
            problem = self._absent(pod.metadata.namespace, volume.config_map, named)
            if problem is not None:
                return f'MountVolume.SetUp failed for volume "{volume.name}" : {problem}'
        return None

    def _absent(self, namespace: str, a_map: KeySource | None, secret: KeySource | None) -> str | None:
        for store, kind, reference in ((self._maps, "ConfigMap", a_map), (self._secrets, "Secret", secret)):
            if reference is None or reference.optional or not store.synced.is_set():
                continue
            obj = store.get(f"{namespace}/{reference.name}")
            if obj is None:
                return f'{kind.lower()} "{reference.name}" not found'
            if reference.key and reference.key not in obj.data:
                return f"couldn't find key {reference.key} in {kind} {namespace}/{reference.name}"
        return None
