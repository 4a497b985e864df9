"""Files of other tools, one or several, into one recording."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.offline.conversion import audit_log, cost_and_usage, prometheus, simkube
from dovetail.offline.conversion.entries import DeleteEntry, Entry, NotThisFormat, PutObject
from dovetail.offline.recording import Recording, Writer, kept, read
from dovetail.offline.recording.anonymity import Anonymiser
from dovetail.offline.recording.blocks import IDENTITY_BYTES
from dovetail.offline.recording.writer import check_absent

FORMATS = ("audit-log", "prometheus", "simkube", "cost-and-usage")


def convert(paths: Sequence[Path], target: Path, anonymiser: Anonymiser | None = None) -> Recording:
    """Read every file, put what they say in the order of time, and write it. Refuses what it cannot read."""
    check_absent(target)
    entries: list[Entry] = []
    formats: list[str] = []
    digest = hashlib.sha256()
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as problem:
            raise UserError(f"{path}: {system_error(problem)}") from problem
        digest.update(data)
        formats.append(format_of(path, data))
        try:
            entries += entries_of(formats[-1], data)
        except NotThisFormat as problem:
            raise UserError(f"{path}: {formats[-1]}: {problem}") from problem
    if not entries:
        raise UserError(message("nothing that can be recorded is in {paths}", paths=", ".join(map(str, paths))))
    entries.sort(key=lambda entry: entry.time)
    source = ",".join(dict.fromkeys(formats))
    identity = digest.digest()[:IDENTITY_BYTES]
    name = paths[0].name if anonymiser is None else anonymiser.name(paths[0].name)
    with Writer.create(
        target, entries[0].time, name, identity, anonymised=anonymiser is not None, source=source
    ) as writer:
        for entry in entries:
            if entry.time > entries[0].time and not writer.begun:
                writer.begin()
            _write(writer, entry, anonymiser)
    return read(target)


def _write(writer: Writer, entry: Entry, anonymiser: Anonymiser | None) -> None:
    if isinstance(entry, PutObject):
        recorded = kept(entry.source)
        writer.put(entry.time, recorded if anonymiser is None else anonymiser.object(recorded))
    elif isinstance(entry, DeleteEntry):
        key = entry.key
        if anonymiser is not None:
            key = key._replace(namespace=anonymiser.name(key.namespace), name=anonymiser.name(key.name))
        writer.delete(entry.time, key)
    else:
        writer.price(entry.time, entry.key, entry.dollars, entry.origin)


def format_of(path: Path, data: bytes) -> str:
    """By the content: what each of these files must contain."""
    head = data[:4096]
    if b"line_item_usage_type" in head or b"lineItem/UsageType" in head:
        return "cost-and-usage"
    if b'"auditID"' in head:
        return "audit-log"
    if b'"resultType"' in head:
        return "prometheus"
    if b"applied_objs" in data or path.suffix in (".sktrace", ".msgpack"):
        return "simkube"
    raise UserError(
        message("{path}: none of the formats that are read: {formats}", path=path, formats=", ".join(FORMATS))
    )


def entries_of(form: str, data: bytes) -> list[Entry]:
    if form == "audit-log":
        return list(audit_log.entries(data.splitlines()))
    if form == "prometheus":
        return list(prometheus.entries(data))
    if form == "simkube":
        return list(simkube.entries(data))
    try:
        return list(cost_and_usage.entries(data.decode("utf-8-sig").splitlines()))
    except UnicodeDecodeError as problem:
        raise NotThisFormat(str(problem)) from problem
