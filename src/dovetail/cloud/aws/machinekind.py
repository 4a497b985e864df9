"""What an EC2NodeClass makes of instance types: how much of them is left for pods, and which labels they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.cloud.aws import capacity, nodeclass, typelabels
from dovetail.cloud.aws.spec import Spec
from dovetail.model.labels import WINDOWS_BUILD


class MachineKind(msgspec.Struct, frozen=True):
    """Machines of a class, whatever their type."""

    family: capacity.Family
    kubelet: capacity.Kubelet
    disk: capacity.Disk
    settings: capacity.Settings

    def capacity(self, spec: Spec) -> dict[str, int]:
        return capacity.capacity(spec, self.family, self.kubelet, self.disk, self.settings)

    def overhead(self, spec: Spec) -> dict[str, int]:
        return capacity.overhead(spec, self.family, self.kubelet, self.disk, self.settings)

    def labels(self, spec: Spec) -> dict[str, tuple[str, ...]]:
        """A type that the images are not made for has no operating system."""
        system = ("windows" if self.family.windows else "linux",) if self.family.runs_on(spec) else ()
        found = typelabels.labels(spec, system)
        if self.family.windows:
            found[WINDOWS_BUILD] = (typelabels.WINDOWS_BUILDS[self.family.name.removeprefix("Windows")],)
        return found


def machine_kind(asked: Mapping[str, Any], settings: capacity.Settings) -> MachineKind:
    """`asked` is the class's spec, `settings` what holds for all classes."""
    interfaces = asked.get("networkInterfaces")
    own = [nic for nic in interfaces or () if nic.get("interfaceType") == "efa-only"]
    settings = msgspec.structs.replace(
        settings,
        efa_only_interfaces=sum(nic["networkCardIndex"] == 0 for nic in own),
        efa=None if interfaces is None else len(own),
    )
    return MachineKind(nodeclass.family(asked), nodeclass.kubelet(asked), nodeclass.disk(asked), settings)
