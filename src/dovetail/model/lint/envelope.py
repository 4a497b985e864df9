"""Finding our objects in documents, and the mistakes that hide them: apiVersion, kind and metadata."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.language import message
from dovetail.model.kinds.admission import Path
from dovetail.model.kinds.crds import KINDS, struct_of
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.source import Document
from dovetail.model.lint.subject import LintSubject
from dovetail.model.spelling import nearest

VERSIONS: dict[str, list[str]] = {}
for _kind in KINDS:
    VERSIONS.setdefault(_kind.kind, []).extend(f"{_kind.group}/{version.name}" for version in _kind.versions)
_GROUPS = ("karpenter.sh", "karpenter.k8s.aws")
_METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


def subjects(document: Document) -> list[LintSubject]:
    """The objects of a document that are ours, or would be but for a slip; items of a List too."""
    return [subject for subject in _objects(document, document.value, ()) if _ours(subject.obj)]


def pod_autoscalers(document: Document) -> list[LintSubject]:
    """The Horizontal and Vertical Pod Autoscalers of a document."""
    kinds = ("HorizontalPodAutoscaler", "VerticalPodAutoscaler")
    return [subject for subject in _objects(document, document.value, ()) if subject.obj.get("kind") in kinds]


def _objects(document: Document, value: object, path: Path) -> Iterator[LintSubject]:
    if not isinstance(value, dict):
        return
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            yield from _objects(document, item, (*path, "items", index))
    else:
        yield LintSubject(document, value, path)


def _ours(value: dict[str, object]) -> bool:
    words = [text for text in value.values() if isinstance(text, str)]
    in_group = any(word.partition("/")[0] in _GROUPS and "/" in word for word in words)
    return in_group or any(word in VERSIONS for word in words)


def is_known(subject: LintSubject) -> bool:
    return struct_of(subject.version, subject.kind) is not None


def unknown_kind(subject: LintSubject) -> Iterator[LintFinding]:
    """An object of ours whose kind or version does not exist, or whose field names are misspelt."""
    for field in ("apiVersion", "kind"):
        if field not in subject.obj:
            slip = nearest(field, [key for key in subject.obj if key not in ("metadata", "spec", "status")], cutoff=0.5)
            path: Path = (slip,) if slip is not None else ()
            edit = subject.rename_key(path, field) if slip else None
            hint = message("did you mean  {field} ?", field=field) if slip else message("add {field}", field=field)
            yield subject.finding(
                "DV101", path, message("{field} is missing", field=field), hint=hint, edit=edit, key=True
            )
            return
    served_versions = VERSIONS.get(subject.kind)
    if served_versions is not None:
        meant = nearest(subject.version, served_versions, cutoff=0.7)
        edit = subject.rewrite(("apiVersion",), meant) if meant else None
        hint = (
            message("did you mean  {meant} ?", meant=meant)
            if meant
            else message("there is {known}", known=", ".join(served_versions))
        )
        text = message("there is no {subject_kind} in {version}", subject_kind=subject.kind, version=subject.version)
        yield subject.finding("DV003", ("apiVersion",), text, hint=hint, edit=edit)
        return
    kinds = [kind for kind, versions in VERSIONS.items() if subject.version in versions]
    meant = nearest(subject.kind, kinds or VERSIONS)
    text = message("there is no kind {subject_kind} in {version}", subject_kind=subject.kind, version=subject.version)
    hint = (
        message("did you mean  {meant} ?", meant=meant)
        if meant
        else message("there is {kinds}", kinds=", ".join(kinds or VERSIONS))
    )
    edit = subject.rewrite(("kind",), meant) if meant else None
    yield subject.finding("DV003", ("kind",), text, hint=hint, edit=edit)


def metadata(subject: LintSubject) -> Iterator[LintFinding]:
    """Fields of the metadata that Kubernetes does not know, and a name that is missing."""
    metadata = subject.obj.get("metadata")
    if not isinstance(metadata, dict):
        if "metadata" not in subject.obj and nearest("metadata", subject.obj) is None:
            yield subject.finding(
                "DV103", ("metadata",), message("metadata is required"), hint=message("add metadata: and a name")
            )
        return
    for key in metadata:
        if key not in _METADATA:
            meant = nearest(key, [name for name in _METADATA if name not in metadata])
            edit = subject.rename_key(("metadata", key), meant) if meant else None
            hint = message("did you mean  {meant} ?", meant=meant) if meant else ""
            yield subject.finding("DV101", ("metadata", key), message("no such field"), hint=hint, edit=edit, key=True)
