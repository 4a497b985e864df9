"""What is wrong between objects: names that collide, classes that are missing, pools that overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from dovetail.language import message
from dovetail.model.kinds import NodePool
from dovetail.model.kinds.convert import generation
from dovetail.model.kinds.convert_v1beta1 import member
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.subject import LintSubject
from dovetail.model.pod_autoscalers import conflicting_resources
from dovetail.model.requirements import Requirements

_CLASSES = ("EC2NodeClass", "AWSNodeTemplate")
_POOLS = ("NodePool", "Provisioner")


def fleet(subjects: Sequence[LintSubject], shop: InstanceCatalog | None) -> Iterator[LintFinding]:
    yield from _collisions(subjects)
    yield from _classes(subjects)
    yield from _overlaps(subjects, shop)


def _collisions(subjects: Sequence[LintSubject]) -> Iterator[LintFinding]:
    for family, kind in ((_POOLS, "NodePool"), (_CLASSES, "EC2NodeClass")):
        seen: dict[str, LintSubject] = {}
        for subject in sorted(
            (subject for subject in subjects if subject.kind in family),
            key=lambda subject: generation(subject.obj) is not None,
        ):
            first = seen.setdefault(subject.name, subject)
            if first is subject or not subject.name:
                continue
            place = first.place(("metadata", "name"))
            position = f"{first.document.file}:{place.line}"
            text = message(
                '{title} ({at}) is the same {kind} "{subject}" in v1',
                title=first.title,
                at=position,
                kind=kind,
                subject=subject.name,
            )
            if first.kind == subject.kind:
                text = message("{title} stands at {at} too; the one applied last wins", title=first.title, at=position)
            yield subject.finding(
                "DV301", ("metadata", "name"), text, hint=message("rename one of them, or drop the older")
            )


def _reference(subject: LintSubject) -> tuple[tuple[str, ...], str] | None:
    """Where a pool says its class, and which."""
    if subject.kind == "Provisioner":
        path: tuple[str, ...] = ("spec", "providerRef", "name")
        return None if member(subject.obj, "spec").get("provider") else (path, str(subject.get(*path) or ""))
    path = ("spec", "template", "spec", "nodeClassRef", "name")
    return path, str(subject.get(*path) or "")


def _classes(subjects: Sequence[LintSubject]) -> Iterator[LintFinding]:
    classes = [subject for subject in subjects if subject.kind in _CLASSES]
    pools = [subject for subject in subjects if subject.kind in _POOLS]
    used = set()
    for pool in pools:
        reference = _reference(pool)
        if reference is None or not reference[1]:
            continue
        path, name = reference
        used.add(name)
        if classes and name not in {node_class.name for node_class in classes}:
            names = ", ".join(sorted(node_class.name for node_class in classes))
            text = message('no node class "{name}" in these files', name=name)
            yield pool.finding("DV302", path, text, hint=message("there is {names}", names=names))
    for node_class in classes:
        if pools and node_class.name not in used:
            yield node_class.finding("DV304", ("metadata", "name"), message("no pool of these files uses it"))


def _overlaps(subjects: Sequence[LintSubject], shop: InstanceCatalog | None) -> Iterator[LintFinding]:
    pools = [(subject, pool) for subject in subjects if (pool := subject.pool()) is not None and not pool.static]
    for (_, first), (subject, second) in combinations(pools, 2):
        if first.name == second.name or (first.spec.weight or 0) != (second.spec.weight or 0):
            continue
        if _distinguishable(first, second) or not _share_types(first, second, shop):
            continue
        text = message(
            'takes the same pods as NodePool "{first}": same taints, same weight, nodes in common', first=first.name
        )
        yield subject.finding(
            "DV303", ("metadata", "name"), text, hint=message("give one of them a weight, or a taint")
        )


def _distinguishable(first: NodePool, second: NodePool) -> bool:
    """NodePools are distinguished by taints, or by labels and requirements that exclude one another."""
    taints = [
        {(taint.key, taint.value, taint.effect) for taint in pool.spec.template.spec.taints} for pool in (first, second)
    ]
    if taints[0] != taints[1]:
        return True
    return not _asked(first).intersects(_asked(second))


def _asked(pool: NodePool) -> Requirements:
    labels = {key: value for key, value in pool.spec.template.metadata.labels.items() if "provisioner-name" not in key}
    terms = Requirements.of_entries(pool.spec.template.spec.requirements)
    return terms.merge(Requirements.of_labels(labels))


def _share_types(first: NodePool, second: NodePool, shop: InstanceCatalog | None) -> bool:
    if shop is None:
        return True
    return bool(shop.meeting(_asked(first).merge(_asked(second))))


def contradictions(autoscalers: Sequence[LintSubject]) -> Iterator[LintFinding]:
    """HPAs that hold a percentage of requests which a VPA of these files changes."""
    for hpa in autoscalers:
        for vpa in autoscalers:
            if (hpa.kind, vpa.kind) != ("HorizontalPodAutoscaler", "VerticalPodAutoscaler"):
                continue
            shared = conflicting_resources(hpa.obj, vpa.obj)
            if shared:
                text = f"holds a percentage of the {' and '.join(shared)} requests that {vpa.title} changes"
                hint = "give it an averageValue, or leave the resource out of the VPA's controlledResources"
                yield hpa.finding("DV305", ("spec", "scaleTargetRef"), text, hint=hint)
