"""Where a workload comes from: a built-in one by name, a scenario file, or a recording."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from dovetail.lab.scenario.schema import ScenarioError, read
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.spelling import nearest
from dovetail.offline.recording import read as read_recording
from dovetail.studies.recorded.workload import build as build_recorded
from dovetail.studies.recorded.workload import with_groups
from dovetail.studies.workloads import node_groups
from dovetail.studies.workloads.built_in import BUILT_IN, build
from dovetail.studies.workloads.workload import Workload, check_groups, manifests_of

#: What is compared when nothing is named.
DEFAULT = "web"


class WorkloadSource(msgspec.Struct, frozen=True):
    """The name of a built-in workload, or the path of a scenario or a recording."""

    name: str
    recorded: bool = False

    def workload(self, seed: int) -> Workload:
        """The workload with the load of a seed; a file has the same load for every seed."""
        if self.recorded:
            return _recorded(Path(self.name))
        return build(self.name, seed) if self.name in BUILT_IN else _read(Path(self.name))


def source(name: str) -> WorkloadSource:
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
    return WorkloadSource(name)


@cache
def _recorded(path: Path) -> Workload:
    """What happened in a recording, on an empty fleet."""
    made = build_recorded(read_recording(path), warm=False)
    return with_groups(msgspec.structs.replace(made.workload, recording=path), path)


def _read(path: Path) -> Workload:
    scenario = read(path)
    manifests = manifests_of(scenario, path.parent)
    title = scenario.name or path.stem
    workload = Workload(
        name=path.stem,
        title=title,
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
