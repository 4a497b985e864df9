"""Things that work and have a better successor."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.model.kinds.admission import Path
from dovetail.model.kinds.convert import generation
from dovetail.model.lint.findings import Finding
from dovetail.model.lint.subject import Subject

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Z_][A-Z0-9_]+|\{\{.*?\}\}|<[A-Z][A-Z0-9_-]+>")
_FIELDS: dict[str, tuple[tuple[Path, str, str], ...]] = {
    "Provisioner": (
        (("spec", "kubeletConfiguration", "containerRuntime"), "containerd is the only runtime", "leave it out"),
        (("spec", "provider"), "the inline provider is deprecated since 0.7", "make it an EC2NodeClass"),
    ),
    "AWSNodeTemplate": (
        (("spec", "launchTemplate"), "launch templates of your own are gone in v1", "say what it said in the class"),
    ),
    "NodePool": (
        (
            ("metadata", "annotations", "compatibility.karpenter.sh/v1beta1-kubelet-conversion"),
            "kubelet settings in an annotation are a bridge",
            "write them to the EC2NodeClass's spec.kubelet",
        ),
    ),
}


def deprecated(subject: Subject) -> Iterator[Finding]:
    """Old generations, old fields, old images; and variables that were not filled in."""
    step = generation(subject.obj)
    if step is not None:
        hint = f"dovetail convert --to v1 writes it as {step.v1_kind} {step.group}/v1"
        text = f"{step.group}/{step.version} is an old generation"
        yield subject.finding("DV205", ("apiVersion",), text, hint=hint)
    for path, text, hint in _FIELDS.get(subject.kind, ()):
        if subject.get(*path) is not None:
            yield subject.finding("DV205", path, text, hint=hint, key=True)
    yield from _images(subject)
    yield from _variables(subject)


def _images(subject: Subject) -> Iterator[Finding]:
    hint = "AL2023: alias al2023@latest"
    if subject.get("spec", "amiFamily") == "AL2":
        yield subject.finding("DV205", ("spec", "amiFamily"), "AL2 ends with Kubernetes 1.32", hint=hint)
    terms = subject.get("spec", "amiSelectorTerms")
    for index, term in enumerate(terms if isinstance(terms, list) else ()):
        alias = term.get("alias") if isinstance(term, dict) else None
        if isinstance(alias, str) and alias.startswith("al2@"):
            path = ("spec", "amiSelectorTerms", index, "alias")
            yield subject.finding("DV205", path, "AL2 ends with Kubernetes 1.32", hint=hint)


def _variables(subject: Subject) -> Iterator[Finding]:
    for path, value in _words(subject.obj.get("spec"), ("spec",)):
        if path[-1] == "userData":
            continue
        match = _VARIABLE.search(value)
        if match is not None:
            hint = "envsubst fills it in: envsubst < FILE | kubectl apply -f -"
            yield subject.finding("DV206", path, f"{match[0]} is a variable that was not filled in", hint=hint)


def _words(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _words(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _words(member, (*path, index))
