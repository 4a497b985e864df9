"""Where a workload comes from: a built-in one by name, or a scenario file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dovetail.lab.scenario.schema import ScenarioError, read
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.spelling import nearest
from dovetail.studies.workloads import node_groups
from dovetail.studies.workloads.built_in import BUILT_IN, build
from dovetail.studies.workloads.workload import Workload, check_groups, manifests_of

#: What is compared when nothing is named.
DEFAULT = "web"


class Source(msgspec.Struct, frozen=True):
    """The name of a built-in workload, or the path of a scenario."""

    name: str

    def workload(self, seed: int) -> Workload:
        """The workload with the load of a seed; a file has the same load for every seed."""
        return build(self.name, seed) if self.name in BUILT_IN else _read(Path(self.name))


def source(name: str) -> Source:
    """A source that exists; raises ScenarioError with a hint."""
    if name not in BUILT_IN and not Path(name).exists():
        hint = nearest(name, BUILT_IN)
        meant = message("; did you mean `{hint}`?", hint=hint) if hint else ""
        raise ScenarioError(
            message(
                "{name}: neither a file nor a built-in workload ({built_in}){meant}",
                name=name,
                built_in=", ".join(BUILT_IN),
                meant=meant,
            )
        )
    return Source(name)


def _read(path: Path) -> Workload:
    scenario = read(path)
    manifests = manifests_of(scenario, path.parent)
    title = scenario.name or path.stem
    workload = Workload(
        name=path.stem,
        title={"en": title, "ko": title},
        scenario=scenario,
        manifests=manifests,
        groups=(),
        folder=path.parent,
    )
    types: tuple[InstanceType, ...] = tuple(workload.types().values())
    if not workload.node_pools():
        raise ScenarioError(
            message(
                "{path}: manifests: there is no NodePool; a comparison needs to know what may be launched", path=path
            )
        )
    groups = node_groups.derived(manifests, types)
    check_groups(groups, workload.types(), str(path))
    return msgspec.structs.replace(workload, groups=groups)
