"""Things that work and have a better successor."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.language import message, source, translated
from dovetail.model.kinds.admission import Path
from dovetail.model.kinds.convert import generation
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.subject import LintSubject

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Z_][A-Z0-9_]+|\{\{.*?\}\}|<[A-Z][A-Z0-9_-]+>")
_FIELDS: dict[str, tuple[tuple[Path, str, str], ...]] = {
    "Provisioner": (
        (
            ("spec", "kubeletConfiguration", "containerRuntime"),
            source("containerd is the only runtime"),
            source("leave it out"),
        ),
        (
            ("spec", "provider"),
            source("the inline provider is deprecated since 0.7"),
            source("make it an EC2NodeClass"),
        ),
    ),
    "AWSNodeTemplate": (
        (
            ("spec", "launchTemplate"),
            source("launch templates of your own are gone in v1"),
            source("say what it said in the class"),
        ),
    ),
    "NodePool": (
        (
            ("metadata", "annotations", "compatibility.karpenter.sh/v1beta1-kubelet-conversion"),
            source("kubelet settings in an annotation are a bridge"),
            source("write them to the EC2NodeClass's spec.kubelet"),
        ),
    ),
}


def deprecated(subject: LintSubject) -> Iterator[LintFinding]:
    """Old generations, old fields, old images; and variables that were not filled in."""
    step = generation(subject.obj)
    if step is not None:
        hint = message("dovetail convert --to v1 writes it as {kind} {group}/v1", kind=step.v1_kind, group=step.group)
        text = message("{group}/{version} is an old generation", group=step.group, version=step.version)
        yield subject.finding("DV205", ("apiVersion",), text, hint=hint)
    for path, text, hint in _FIELDS.get(subject.kind, ()):
        if subject.get(*path) is not None:
            yield subject.finding("DV205", path, translated(text), hint=translated(hint), key=True)
    yield from _images(subject)
    yield from _variables(subject)


def _images(subject: LintSubject) -> Iterator[LintFinding]:
    hint = message("AL2023: alias al2023@latest")
    if subject.get("spec", "amiFamily") == "AL2":
        yield subject.finding("DV205", ("spec", "amiFamily"), message("AL2 ends with Kubernetes 1.32"), hint=hint)
    terms = subject.get("spec", "amiSelectorTerms")
    for index, term in enumerate(terms if isinstance(terms, list) else ()):
        alias = term.get("alias") if isinstance(term, dict) else None
        if isinstance(alias, str) and alias.startswith("al2@"):
            path = ("spec", "amiSelectorTerms", index, "alias")
            yield subject.finding("DV205", path, message("AL2 ends with Kubernetes 1.32"), hint=hint)


def _variables(subject: LintSubject) -> Iterator[LintFinding]:
    for path, value in _words(subject.obj.get("spec"), ("spec",)):
        if path[-1] == "userData":
            continue
        match = _VARIABLE.search(value)
        if match is not None:
            hint = message("envsubst fills it in: envsubst < FILE | kubectl apply -f -")
            yield subject.finding(
                "DV206", path, message("{found} is a variable that was not filled in", found=match[0]), hint=hint
            )


def _words(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _words(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _words(member, (*path, index))
