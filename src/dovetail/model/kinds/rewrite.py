"""Manifests rewritten in another generation, as a person would: comments kept, a note for each change of meaning.

The annotations that make a conversion reversible are for nodes; a rewritten file does not carry them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from dovetail.language import message
from dovetail.model.kinds import convert_v1beta1
from dovetail.model.kinds.conversion_annotations import annotation, copied, take
from dovetail.model.kinds.convert import ConversionError, expand, from_v1, generation
from dovetail.model.kinds.crds import struct_of
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION
from dovetail.model.kinds.notes import ConversionNote, Notes
from dovetail.model.kinds.schema import Json
from dovetail.model.kinds.yaml_merge import graft, plain
from dovetail.model.labels import PROVISIONER_NAME

_DIVIDER = re.compile(r"^---(?:[ \t].*)?(?:\n|\Z)", re.MULTILINE)
_INDENTED = re.compile(r"^( *)[^\s#][^\n]*:[ \t]*(?:#[^\n]*)?\n\1 +- ", re.MULTILINE)


class Remark(msgspec.Struct, frozen=True):
    """A note about an object that was rewritten."""

    subject: str
    note: ConversionNote


class Rewritten(msgspec.Struct, frozen=True):
    text: str
    remarks: tuple[Remark, ...]
    changed: int


def rewrite(text: str, version: str) -> Rewritten:
    """A file with every object of ours in that generation (`v1` or `v1beta1`); everything else as it was."""
    pieces = _pieces(text)
    trees = list(_trees(pieces))
    kubelets = _kubelets(trees) if version == "v1" else {}
    written, remarks, changed = [], [], 0
    for (divider, piece), tree in zip(pieces, trees, strict=True):
        if tree is None or not _due(tree, version):
            written.append(divider + piece)
            continue
        new, said = _object(tree, version, kubelets)
        remarks.extend(said)
        changed += 1
        style = _style(piece)
        written.append(divider + "---\n".join(_dump(document, style) for document in new))
    return Rewritten("".join(written), tuple(remarks), changed)


def _pieces(text: str) -> list[tuple[str, str]]:
    """The documents of a stream, each with the divider before it."""
    pieces, position, divider = [], 0, ""
    for mark in _DIVIDER.finditer(text):
        pieces.append((divider, text[position : mark.start()]))
        divider, position = mark[0], mark.end()
    return [*pieces, (divider, text[position:])]


def _yaml(indented: bool) -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4 if indented else 2, offset=2 if indented else 0)
    return yaml


def _style(piece: str) -> bool:
    return _INDENTED.search(piece) is not None


def _trees(pieces: Sequence[tuple[str, str]]) -> Iterator[CommentedMap | None]:
    above = 0
    for divider, piece in pieces:
        above += divider.count("\n")
        try:
            tree = _yaml(False).load(piece)
        except MarkedYAMLError as error:
            line = above + (error.problem_mark.line if error.problem_mark else 0) + 1
            raise ConversionError(
                message("line {line}: not YAML: {problem}", line=line, problem=error.problem or error.context)
            ) from error
        except YAMLError as error:
            raise ConversionError(message("not YAML: {problem}", problem=str(error).splitlines()[0])) from error
        except RecursionError as error:
            raise ConversionError(message("nested too deeply to be a manifest")) from error
        yield tree if isinstance(tree, CommentedMap) else None
        above += piece.count("\n")


def _dump(tree: CommentedMap, indented: bool) -> str:
    out = StringIO()
    _yaml(indented).dump(tree, out)
    return out.getvalue().rstrip("\n") + "\n"


def _due(tree: Mapping[str, Any], version: str) -> bool:
    """Whether the object is ours and not in that generation yet."""
    api_version, kind = str(tree.get("apiVersion")), str(tree.get("kind"))
    if struct_of(api_version, kind) is None or api_version.endswith(f"/{version}"):
        return False
    return generation(tree) is not None or (version != "v1" and api_version.endswith("/v1"))


def _object(tree: CommentedMap, version: str, kubelets: Mapping[str, Json]) -> tuple[list[CommentedMap], list[Remark]]:
    old, notes = plain(tree), Notes([])
    subject = f'{old.get("kind")} "{convert_v1beta1.member(old, "metadata").get("name")}"'
    first, *more = [_presentable(obj, version, kubelets, notes) for obj in expand(old, notes)]
    written = [graft(tree, first), *(graft(CommentedMap(), written_object) for written_object in more)]
    return written, [Remark(subject, note) for note in notes.found]


def _presentable(obj: Json, version: str, kubelets: Mapping[str, Json], notes: Notes) -> Json:
    """The object as it should stand in a file."""
    converted = copied(obj)
    for older_version in ("v1alpha5", "v1alpha1", "v1beta1"):
        take(converted, annotation(older_version))
    if version != "v1":
        converted = from_v1(converted, version)
        _losses(converted, notes)
        return converted
    take(converted, convert_v1beta1.CLASS_ANNOTATION)
    labels = convert_v1beta1.member(converted, "spec", "template", "metadata", "labels")
    if labels.pop(PROVISIONER_NAME, None) is not None:
        notes.meaning(
            "spec.labels",
            message(
                "nodes no longer carry {provisioner_name}; select karpenter.sh/nodepool instead",
                provisioner_name=PROVISIONER_NAME,
            ),
        )
        if not labels:
            convert_v1beta1.member(converted, "spec", "template", "metadata").pop("labels")
        if not convert_v1beta1.member(converted, "spec", "template", "metadata"):
            convert_v1beta1.member(converted, "spec", "template").pop("metadata", None)
    name = str(convert_v1beta1.member(converted, "metadata").get("name"))
    if converted.get("kind") == "EC2NodeClass" and name in kubelets:
        converted["spec"]["kubelet"] = kubelets[name]
        notes.added("spec.kubelet", message("the kubelet settings of the pools that use this class"))
    reference = str(convert_v1beta1.member(converted, "spec", "template", "spec", "nodeClassRef").get("name"))
    if converted.get("kind") == "NodePool" and reference in kubelets:
        take(converted, KUBELET_ANNOTATION)
    return converted


def _losses(converted: Json, notes: Notes) -> None:
    """Say what the older generation cannot, from what the conversion would have remembered."""
    remembered = take(converted, annotation("v1"))
    for loss in json.loads(remembered) if remembered else ():
        path = ".".join(str(part) for part in loss["at"])
        if "is" in loss and not path.startswith("metadata.annotations"):
            notes.meaning(path, message("v1beta1 cannot say this; it is left out or stands as its nearest"))


def _kubelets(trees: Sequence[CommentedMap | None]) -> dict[str, Json]:
    """Kubelet settings that can move to their class: it is in the file, and all its pools agree."""
    classes, referrers = set(), dict[str, list[Json]]()
    for tree in trees:
        if tree is None or not _due(tree, "v1"):
            continue
        for obj in expand(plain(tree)):
            if obj.get("kind") == "EC2NodeClass":
                classes.add(str(convert_v1beta1.member(obj, "metadata").get("name")))
            elif obj.get("kind") == "NodePool":
                text = convert_v1beta1.member(obj, "metadata", "annotations").get(KUBELET_ANNOTATION)
                name = str(convert_v1beta1.member(obj, "spec", "template", "spec", "nodeClassRef").get("name"))
                referrers.setdefault(name, []).append(json.loads(text) if text else {})
    return {
        name: settings[0]
        for name, settings in referrers.items()
        if name in classes and settings[0] and all(kubelet == settings[0] for kubelet in settings)
    }
