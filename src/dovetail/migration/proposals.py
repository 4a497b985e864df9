"""NodePools and EC2NodeClasses that fit node groups: their labels, taints, types, zones, network and images.

Groups that differ only in name and size become one NodePool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws import catalog
from dovetail.language import message
from dovetail.migration.groups import LAUNCH, Group
from dovetail.model.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, OS, ZONE, domain, normalise, restricted
from dovetail.model.nodes import Node, Taint
from dovetail.model.pods import Pod

Json = dict[str, Any]
CATEGORY, GENERATION = "karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-generation"
#: On what the migration makes: the groups that it was made for.
MADE_FOR = "dovetail.sh/migrated-from"
#: A NodePool may hold so many times what its groups could: replacements run beside what they replace.
LIMIT_FACTOR = 2
#: Pods that prefer nothing else go to the NodePools of the migration first.
WEIGHT = 10
GENERAL_CATEGORIES = ("c", "m", "r")
#: Generations from 3 on, or from the group's own if that is older.
OLDEST_GENERATION = 3
MAX_NAME_CHARACTERS = 63
#: Labels of these domains say which group a node is of; they are taken over only where a pod asks for them.
_GROUP_DOMAINS = ("eks.amazonaws.com", "alpha.eksctl.io")
_GROUP_LABELS = frozenset({"amiType", "capacityType", "diskSize", "k8sVersion", "cluster-name", "nodegroup-name"})
_PROVIDER_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "karpenter.sh",
    "karpenter.k8s.aws",
    "k8s.aws",
    "csi.aws.com",
    "dovetail.sh",
)
_TRANSIENT_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "dovetail.sh/")
_AUTOSCALER_TAINTS = frozenset({"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"})
_FAMILIES = {"AL2023": "al2023", "AL2": "al2", "BOTTLEROCKET": "bottlerocket"}
_OS_IMAGES = (("amazon linux 2023", "al2023"), ("amazon linux 2", "al2"), ("bottlerocket", "bottlerocket"))
#: EKS publishes images of Amazon Linux 2 up to this version of Kubernetes.
LAST_AL2_MINOR = 32
_VERSION = re.compile(r"v1\.(\d+)")
_TYPE = re.compile(r"([a-z]+)(\d+)")


class NodePoolProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool for some groups, and its EC2NodeClass where none is named."""

    groups: tuple[str, ...]
    node_pool: Mapping[str, Any]
    node_class: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def objects(self) -> tuple[Mapping[str, Any], ...]:
        return (*([self.node_class] if self.node_class is not None else []), self.node_pool)


class ProposalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`node_class` is one that exists; without it each NodePool gets its own, in the role that `role` names.

    With `same_types` a NodePool launches only the types of its groups. `taken` are names that exist.
    """

    node_class: str = ""
    role: str = ""
    instance_profile: str = ""
    same_types: bool = False
    taken: frozenset[str] = frozenset()


def image_family(ami_type: str) -> str:
    """The alias of images that EKS's AMI type stands for; empty for CUSTOM and for what is not known."""
    return _FAMILIES.get(ami_type.partition("_")[0], "")


def described_by_nodes(group: Group, nodes: Sequence[Node], pods: Iterable[Pod]) -> Group:
    """The group with the labels, taints, types, zones and images that its nodes have in common."""
    requested_keys = _asked_keys(pods)
    mine = [node for node in nodes if node.spec.provider_id in group.instances]
    labels = {**_common([node.metadata.labels for node in mine]), **group.labels}
    taints = group.taints or (_common_taints(mine) if mine else ())
    family, notes = _current_family(group.family or (_family_of(mine[0]) if mine else ""), nodes)
    types = (*group.instance_types, *(node.metadata.labels.get(INSTANCE_TYPE, "") for node in mine))
    zones = (*group.zones, *(node.metadata.labels.get(ZONE, "") for node in mine))
    return msgspec.structs.replace(
        group,
        labels={key: text for key, text in labels.items() if _is_kept_label(key, requested_keys)},
        taints=tuple(taint for taint in taints if not _transient(taint)),
        family=family,
        notes=(*group.notes, *notes),
        instance_types=tuple(dict.fromkeys(filter(None, types))),
        zones=tuple(sorted({*filter(None, zones)})),
    )


def _asked_keys(pods: Iterable[Pod]) -> frozenset[str]:
    """Labels that pods require or prefer of nodes."""
    keys: set[str] = set()
    for pod in pods:
        keys.update(pod.spec.node_selector)
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        if affinity is None:
            continue
        required = affinity.required
        terms = list(required.node_selector_terms) if required is not None else []
        terms += [term.preference for term in affinity.preferred]
        keys.update(expression.key for term in terms for expression in term.match_expressions)
    return frozenset(keys)


def _common(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    if not maps:
        return {}
    return {key: text for key, text in maps[0].items() if all(other.get(key) == text for other in maps)}


def _common_taints(nodes: Sequence[Node]) -> tuple[Taint, ...]:
    first = [msgspec.structs.replace(taint, time_added=None) for taint in nodes[0].spec.taints]
    sets = [{(taint.key, taint.value, taint.effect) for taint in node.spec.taints} for node in nodes]
    return tuple(taint for taint in first if all((taint.key, taint.value, taint.effect) in keys for keys in sets))


def _transient(taint: Taint) -> bool:
    return taint.key.startswith(_TRANSIENT_TAINTS) or taint.key in _AUTOSCALER_TAINTS


def _is_kept_label(key: str, requested_keys: frozenset[str]) -> bool:
    if key in _GROUP_LABELS or domain(key) in _GROUP_DOMAINS:
        return key in requested_keys
    owner = domain(key)
    if any(owner == name or owner.endswith(f".{name}") for name in _PROVIDER_DOMAINS):
        return key in requested_keys and restricted(key) is None and normalise(key) not in _PROVIDED
    return True


#: Every node has these, whatever its NodePool says.
_PROVIDED = frozenset({ARCH, OS, ZONE, INSTANCE_TYPE, CAPACITY_TYPE, "topology.kubernetes.io/region"})


def _family_of(node: Node) -> str:
    image = node.status.node_info.os_image.lower()
    return next((family for text, family in _OS_IMAGES if text in image), "")


def _current_family(family: str, nodes: Sequence[Node]) -> tuple[str, list[str]]:
    """The family in which images of the cluster's version are published, and a note if it is another."""
    versions = [_VERSION.match(node.status.node_info.kubelet_version) for node in nodes]
    newest = max((int(match[1]) for match in versions if match), default=0)
    if family != "al2" or newest <= LAST_AL2_MINOR:
        return family, []
    note = message("AL2 has no images of Kubernetes 1.{minor}; the EC2NodeClass takes AL2023", minor=newest)
    return "al2023", [note]


def proposals(groups: Sequence[Group], settings: ProposalSettings) -> list[NodePoolProposal]:
    """One NodePool for all groups that are alike, in the order of the groups."""
    alike: dict[bytes, list[Group]] = {}
    for group in groups:
        alike.setdefault(_key(group, settings), []).append(group)
    taken = set(settings.taken)
    made = []
    for members in alike.values():
        name = _free_name(members[0].title, taken)
        taken.add(name)
        made.append(_proposal(name, members, settings))
    return made


def _key(group: Group, settings: ProposalSettings) -> bytes:
    fields = (
        dict(sorted(group.labels.items())),
        sorted((taint.key, taint.value, taint.effect) for taint in group.taints),
        sorted(group.capacity_types),
        sorted(group.zones),
        sorted(group.subnets),
        sorted(group.security_groups),
        group.family,
        _arches([group]),
        sorted(group.instance_types) if settings.same_types else _categories([group]),
        dict(group.node_class_fields),
    )
    return msgspec.json.encode(fields)


def _free_name(title: str, taken: set[str]) -> str:
    """A name as Kubernetes allows it, that no NodePool or EC2NodeClass has."""
    base = re.sub(r"[^a-z0-9-]+", "-", title.lower()).strip("-")[: MAX_NAME_CHARACTERS - 4] or "node-group"
    names = (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _proposal(name: str, groups: Sequence[Group], settings: ProposalSettings) -> NodePoolProposal:
    first = groups[0]
    marks = {MADE_FOR: ",".join(group.name for group in groups)}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": settings.node_class or name}
    template: Json = {
        "spec": {"nodeClassRef": reference, "requirements": _requirements(groups, settings), "expireAfter": "720h"}
    }
    if first.labels:
        template["metadata"] = {"labels": dict(sorted(first.labels.items()))}
    if first.taints:
        template["spec"]["taints"] = [_taint(taint) for taint in first.taints]
    pool: Json = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "annotations": marks},
        "spec": {
            "template": template,
            "limits": _limits(groups),
            "weight": WEIGHT,
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m"},
        },
    }
    node_class = None if settings.node_class else _node_class(name, first, settings, marks)
    notes = tuple(dict.fromkeys(note for group in groups for note in (*group.notes, *_notes(group))))
    return NodePoolProposal(
        groups=tuple(group.name for group in groups), node_pool=pool, node_class=node_class, notes=notes
    )


def _taint(taint: Taint) -> Json:
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})


def _notes(group: Group) -> list[str]:
    notes = []
    if len(group.capacity_types) > 1:
        text = message(
            "group {group} splits on-demand and spot by percentage; the NodePool takes whichever is cheaper for each "
            "node",
            group=group.title,
        )
        notes.append(text)
    if LAUNCH in group.suspended:
        text = message(
            "the process Launch of group {group} is suspended; --back brings no nodes until it is resumed",
            group=group.title,
        )
        notes.append(text)
    return notes


def _requirements(groups: Sequence[Group], settings: ProposalSettings) -> list[Json]:
    types = tuple(dict.fromkeys(name for group in groups for name in group.instance_types))
    rows = [
        _one_of(ARCH, _arches(groups)),
        _one_of(OS, ["linux"]),
        _one_of(CAPACITY_TYPE, sorted({kind for group in groups for kind in group.capacity_types})),
    ]
    zones = sorted({zone for group in groups for zone in group.zones})
    if zones:
        rows.append(_one_of(ZONE, zones))
    if settings.same_types:
        rows.append(_one_of(INSTANCE_TYPE, sorted(types)))
        return rows
    rows.append(_one_of(CATEGORY, _categories(groups)))
    generations = [int(match[2]) for name in types if (match := _TYPE.match(name))]
    oldest = min([OLDEST_GENERATION, *generations])
    rows.append({"key": GENERATION, "operator": "Gt", "values": [str(oldest - 1)]})
    return rows


def _one_of(key: str, values: Sequence[str]) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def _arches(groups: Sequence[Group]) -> list[str]:
    """The architectures of the groups' types, in Kubernetes' names."""
    arches = set()
    for group in groups:
        for name in group.instance_types:
            spec = catalog.specs().get(name)
            arches.add("arm64" if spec is not None and spec.arches[:1] == ("arm64",) else "amd64")
    return sorted(arches) or ["amd64"]


def _categories(groups: Sequence[Group]) -> list[str]:
    """General types may be replaced by general types; accelerated ones only by their own kind."""
    own = {catalog.category(name) for group in groups for name in group.instance_types}
    general = own & {*GENERAL_CATEGORIES, "t"}
    return sorted(own | ({*GENERAL_CATEGORIES} if general or not own else set()))


def _limits(groups: Sequence[Group]) -> Json:
    cores = memory_mib = 0
    for group in groups:
        specs = [catalog.specs()[name] for name in group.instance_types if name in catalog.specs()]
        if not specs:
            return {}
        largest = max(group.sizes.most, group.sizes.desired)
        cores += largest * max(spec.vcpus for spec in specs)
        memory_mib += largest * max(spec.memory_mib for spec in specs)
    return {"cpu": str(cores * LIMIT_FACTOR), "memory": f"{memory_mib * LIMIT_FACTOR}Mi"}


def _node_class(name: str, group: Group, settings: ProposalSettings, marks: Mapping[str, str]) -> Json:
    spec: Json = {
        "amiSelectorTerms": [{"alias": f"{group.family}@latest"}],
        "subnetSelectorTerms": [{"id": subnet} for subnet in group.subnets],
        "securityGroupSelectorTerms": [{"id": security_group} for security_group in group.security_groups],
        **group.node_class_fields,
    }
    if settings.instance_profile:
        spec["instanceProfile"] = settings.instance_profile
    else:
        spec["role"] = settings.role
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name, "annotations": dict(marks)},
        "spec": spec,
    }
