"""Another version of Dovetail on the same recording, and the decisions of a dry run, held beside a replay.

Another version is another installation: its program plays the same recording with the same options, in a process of
its own, and its JSON is read.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.errors import UserError
from dovetail.language import english, message
from dovetail.language.system_errors import system_error
from dovetail.model import wellknown
from dovetail.offline.recording import Recording
from dovetail.offline.timeline import CLAIM_KINDS, ScalingDecision, Timeline, labels_of, managed_by
from dovetail.studies.recorded.replay import DryRun, OtherVersion, PairedDecision, Replay, differing, pairs
from dovetail.view.prices import capacity_type

#: Lines of an error that are quoted.
QUOTED_LINES = 3


class VersionProcess:
    """Another version while it plays."""

    def __init__(self, program: str, arguments: Sequence[str]) -> None:
        self._program = program
        try:
            self.version = _version(program)
            self._process = subprocess.Popen(
                [program, "replay", *arguments, "-o", "json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as problem:
            raise UserError(f"--other-version {program}: {system_error(problem)}") from problem

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def beside(self, ours: Replay) -> OtherVersion:
        """Wait for it, and hold it beside this version's."""
        written, said = self._process.communicate()
        try:
            theirs = msgspec.convert(msgspec.json.decode(written)["replayed"], Timeline)
        except (msgspec.MsgspecError, KeyError, TypeError) as problem:
            quoted = " ".join(said.decode(errors="replace").split("\n")[-QUOTED_LINES - 1 :]).strip()
            raise UserError(
                message(
                    "--other-version {program}: {version} did not play it: {why}",
                    program=self._program,
                    version=self.version,
                    why=quoted or problem,
                )
            ) from problem
        return beside(ours, self.version, theirs)


def beside(ours: Replay, version: str, theirs: Timeline) -> OtherVersion:
    paired = pairs(ours.replayed.decisions, theirs.decisions)
    return OtherVersion(
        version=version,
        replayed=theirs,
        first_difference=_first_difference(ours.replayed, theirs),
        pairs=tuple(PairedDecision(pair.recorded, pair.replayed) for pair in paired),
    )


def _first_difference(ours: Timeline, theirs: Timeline) -> tuple[float, str] | None:
    """The first sample at which the versions differ, and how; data, so in English."""
    with english():
        for this, other in zip(ours.samples, theirs.samples, strict=False):
            if (apart := differing(this, other)) is not None:
                what, mine, other_amount = apart
                text = message(
                    "{what}: this version {mine}, the other {other}", what=what, mine=mine, other=other_amount
                )
                return this.at, text
    return None


def _version(program: str) -> str:
    done = subprocess.run([program, "version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    said = done.stdout.strip()
    if done.returncode or not said:
        raise UserError(
            message(
                "--other-version {program}: it is no program of Dovetail; name the `dovetail` of another installation",
                program=program,
            )
        )
    return said


def dry_run(recording: Recording, recorded: Timeline, decisions: Iterable[Decision], path: Path) -> DryRun:
    """The decisions of `dovetail run --dry-run` that were made while the recorder ran, beside what was recorded."""
    within = [decision for decision in decisions if recording.start <= _time(decision) <= recording.end]
    if not within:
        raise UserError(
            message(
                "--shadow {path}: no decision in it was made from {start} to {end}, while the recording was made",
                path=path,
                start=recording.start.isoformat(),
                end=recording.end.isoformat(),
            )
        )
    labels = _labels(recording)
    planned: list[ScalingDecision] = []
    for decision in within:
        planned += _scaling(decision, (_time(decision) - recording.start).total_seconds(), labels)
    return DryRun(pairs=tuple(pairs(recorded.decisions, planned)))


def _time(decision: Decision) -> datetime:
    return datetime.fromisoformat(decision.time)


def _labels(recording: Recording) -> dict[str, dict[str, Any]]:
    """Labels of every recorded node and NodeClaim by its name."""
    kinds = ("Node", *CLAIM_KINDS)
    sources = list(recording.objects_at(recording.start))
    sources += [event.object for event in recording.events(recording.start, recording.end)]
    return {source["metadata"]["name"]: labels_of(source) for source in sources if source["kind"] in kinds}


def _scaling(decision: Decision, seconds: float, labels: dict[str, dict[str, Any]]) -> Iterable[ScalingDecision]:
    """The launches and removals of a decision."""
    if decision.kind not in ("provision", "disrupt"):
        return
    for claim in decision.node_claims:
        yield ScalingDecision(
            at=seconds,
            action="launch",
            instance_type=claim.instance_type,
            zone=claim.zone,
            capacity_type=claim.capacity_type,
            pool=claim.pool,
            name=claim.claim,
        )
    for name in decision.removed:
        mine = labels.get(name, {})
        yield ScalingDecision(
            at=seconds,
            action="remove",
            instance_type=mine.get(wellknown.INSTANCE_TYPE, ""),
            zone=mine.get(wellknown.ZONE, ""),
            capacity_type=capacity_type(mine) or "",
            pool=managed_by(mine),
            name=name,
            reason=decision.reason,
        )
