"""A change to a cluster: manifests, deletions, replicas, prices, capacity, zones, images; checked against it."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.spelling import nearest
from dovetail.offline.diff.cluster import KINDS, DiffInput, Json, Key, current, flat, key_of, label_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: Groups whose every kind is known here; kinds of other groups are custom resources.
_OWN_GROUPS = frozenset(
    {"", "apps", "batch", "policy", "storage.k8s.io", "scheduling.k8s.io", "node.k8s.io", "karpenter.sh"}
    | {"karpenter.k8s.aws"}
)
#: Kinds of these groups that decide nothing about nodes.
_IRRELEVANT = frozenset(
    {
        "Service",
        "ServiceAccount",
        "Endpoints",
        "Event",
        "CronJob",
        "ReplicationController",
        "PodTemplate",
        "ControllerRevision",
        "VolumeAttachment",
        "CSIDriver",
        "CSIStorageCapacity",
        "Binding",
        "KWOKNodeClass",
        "VolumeAttributesClass",
    }
)
_SCALABLE = ("Deployment", "StatefulSet", "ReplicaSet")
#: What `kubectl` calls kinds for short.
_SHORT = {
    "deploy": "Deployment",
    "sts": "StatefulSet",
    "rs": "ReplicaSet",
    "ds": "DaemonSet",
    "pdb": "PodDisruptionBudget",
    "no": "Node",
    "po": "Pod",
    "ns": "Namespace",
    "pc": "PriorityClass",
    "sc": "StorageClass",
}
#: Fields by which the members of a list are distinguished, as kubectl merges them.
_LIST_KEYS = ("name", "containerPort", "mountPath", "key", "topologyKey", "ip")
#: Lists whose members have such a field and that are replaced as a whole nevertheless.
_ATOMIC = frozenset({"requirements", "tolerations", "taints", "startupTaints", "matchExpressions", "budgets"})
#: Annotations that controllers and conversion write.
_SILENT_ANNOTATIONS = (
    LAST_APPLIED,
    "compatibility.karpenter.sh/",
    "karpenter.sh/nodepool-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash",
    "deployment.kubernetes.io/",
)
_SILENT_METADATA = frozenset(
    {"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink", "finalizers"}
)


class PriceOverride(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars an hour of some offerings; `*` matches any."""

    instance_type: str
    zone: str = "*"
    capacity_type: str = "*"
    dollars: float


class Offerings(msgspec.Struct, frozen=True, kw_only=True):
    """Some offerings; `*` matches any."""

    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    namespace: str
    name: str
    count: int


class ProposedChange(msgspec.Struct, frozen=True, kw_only=True):
    """All that is asked for. `images` are AMIs by NodeClass; `market` has what is not an object, in words.

    `notes` say what was left out.
    """

    manifests: tuple[Json, ...] = ()
    deletions: tuple[Key, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    prices: tuple[PriceOverride, ...] = ()
    sold_out: tuple[Offerings, ...] = ()
    lost_zones: tuple[str, ...] = ()
    images: Mapping[str, str] = {}
    market: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not any(
            (
                self.manifests,
                self.deletions,
                self.replicas,
                self.prices,
                self.sold_out,
                self.lost_zones,
                self.images,
            )
        )


# -- manifests


def read_manifests(documents: Iterable[Any]) -> tuple[tuple[Json, ...], tuple[str, ...]]:
    """The manifests that decide something about nodes, and notes on the others."""
    kept: dict[Key, Json] = {}
    left_out: dict[str, int] = {}
    for document in flat(documents):
        for item in current(document):
            kind = str(item["kind"])
            if kind not in KINDS:
                _check_kind(item)
                left_out[kind] = left_out.get(kind, 0) + 1
                continue
            if not (item.get("metadata") or {}).get("name"):
                raise UserError(message("{kind} without a name; every object needs metadata.name", kind=kind))
            kept[key_of(item)] = item
    notes: tuple[str, ...] = ()
    if left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
        notes = (message("left out, since they decide nothing about nodes: {kinds}", kinds=kinds),)
    return tuple(kept.values()), notes


def _check_kind(item: Json) -> None:
    """A kind of a group that is known here and does not exist is a slip of the pen."""
    kind, version = str(item["kind"]), str(item.get("apiVersion") or "")
    group = version.rpartition("/")[0]
    if version and group not in _OWN_GROUPS:
        return
    if kind in _IRRELEVANT or (not version and kind == "List"):
        return
    label = f"{kind} {(item.get('metadata') or {}).get('name') or ''}".rstrip()
    near = nearest(kind, [*KINDS, *_IRRELEVANT])
    if near is None:
        text = message("{object}: kind: {version} has no {kind}", object=label, version=version, kind=kind)
    else:
        text = message(
            "{object}: kind: {version} has no {kind}; did you mean {near}?",
            object=label,
            version=version or "v1",
            kind=kind,
            near=near,
        )
    raise UserError(text)


def applied(live: Json, manifest: Json) -> Json:
    """The object after `kubectl apply`: fields of the manifest are set, those it had when last applied are removed."""
    last = _last_applied(live)
    new = {name: value for name, value in manifest.items() if name not in ("status", "metadata")}
    result: Json = _merged({**live}, last, new, "")
    metadata = manifest.get("metadata") or {}
    merged = _merged(
        copy.deepcopy(live["metadata"]),
        {name: (last.get("metadata") or {}).get(name) or {} for name in ("labels", "annotations")},
        {name: metadata.get(name) or {} for name in ("labels", "annotations")},
        "metadata",
    )
    result["metadata"] = merged
    if "status" in live:
        result["status"] = live["status"]
    return result


def _last_applied(live: Json) -> Json:
    """What the object was last applied as, in the API version of today; empty where nothing says so."""
    annotation = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = json.loads(annotation) if annotation else {}
        return current(last)[0] if isinstance(last, dict) and last.get("kind") else {}
    except (ValueError, UserError):
        return {}


def _merged(live: Any, last: Any, new: Any, field: str) -> Any:
    if isinstance(new, dict):
        live = live if isinstance(live, dict) else {}
        last = last if isinstance(last, dict) else {}
        result = {name: copy.deepcopy(value) for name, value in live.items() if name not in last or name in new}
        if not field:  # what stands beside spec was never the manifest's to remove
            result = {name: copy.deepcopy(value) for name, value in live.items()}
        for name, value in new.items():
            if value is None:
                result.pop(name, None)
            else:
                result[name] = _merged(live.get(name), last.get(name), value, name)
        return result
    if isinstance(new, list):
        return _merged_list(live, last, new, field)
    return copy.deepcopy(new)


def _merged_list(live: Any, last: Any, new: list[Any], field: str) -> list[Any]:
    """Members are matched by the field that names them; those that were added by others stay."""
    key = next((name for name in _LIST_KEYS if new and all(isinstance(m, dict) and name in m for m in new)), None)
    if key is None or field in _ATOMIC or not isinstance(live, list):
        return copy.deepcopy(new)
    current_members = {member.get(key): member for member in live if isinstance(member, dict)}
    former = {member.get(key): member for member in last or () if isinstance(member, dict)}
    result = [_merged(current_members.get(m[key]), former.get(m[key]), m, "member") for m in new]
    names = {member[key] for member in new}
    result += [copy.deepcopy(m) for name, m in current_members.items() if name not in names and name not in former]
    return result


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ, with both values; None is a field that is not there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            if not path and name in ("status", "kind", "apiVersion"):
                continue
            if path == "metadata" and name in _SILENT_METADATA:
                continue
            if path == "metadata.annotations" and name.startswith(_SILENT_ANNOTATIONS):
                continue
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}[{number}]")
    elif old != new and not (old in (None, {}, []) and new in (None, {}, [])):
        yield path, old, new


# -- options


class DiffOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command, as they were written."""

    deletions: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    price_lines: tuple[str, ...] = ()
    sold_out: tuple[str, ...] = ()
    lost_zones: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    kubernetes_version: str | None = None


def read_change(
    documents: Iterable[Any], options: DiffOptions, cluster: DiffInput, types: Mapping[str, InstanceType]
) -> ProposedChange:
    """The change that manifests and options ask for; a Problem says which of them cannot be."""
    manifests, notes = read_manifests(documents)
    images = new_images(cluster, manifests) | read_images(options.images, options.kubernetes_version, cluster)
    market = [message("sold out: {what}", what=text) for text in options.sold_out]
    market += [message("price: {what}", what=text) for text in (*options.prices, *options.price_lines)]
    market += [message("zone lost: {what}", what=zone) for zone in options.lost_zones]
    market += [
        message("AMI of EC2NodeClass {name}: {image}", name=name, image=image) for name, image in sorted(images.items())
    ]
    return ProposedChange(
        manifests=manifests,
        deletions=read_deletions(options.deletions, cluster),
        replicas=read_replicas(options.replicas, cluster),
        prices=(
            *read_prices(options.price_lines, types, "--price-file"),
            *read_prices(options.prices, types, "--price"),
        ),
        sold_out=read_sold_out(options.sold_out, types),
        lost_zones=read_zones(options.lost_zones, types),
        images=images,
        market=tuple(market),
        notes=(*notes, *_never_applied(manifests, cluster)),
    )


def _never_applied(manifests: Iterable[Json], cluster: DiffInput) -> Iterator[str]:
    """Objects of which nothing says how kubectl applied them, as in a recording."""
    there = [(item, cluster.get(*key_of(item))) for item in manifests]
    labels = [label_of(item) for item, live in there if live is not None and not _last_applied(live)]
    if labels:
        yield message(
            "how {objects} was applied before is not known here: fields that its manifest leaves out stay as they are",
            objects=", ".join(labels),
        )


def _subject(option: str, text: str, cluster: DiffInput, among: Sequence[str] = ()) -> Key:
    """An object that is there, named as kind/name or kind/namespace/name."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UserError(
            message("{option} {value}: is not kind/name or kind/namespace/name", option=option, value=repr(text))
        )
    kind = _kind(option, text, parts[0], among or tuple(KINDS))
    same = [key_of(item) for item in cluster.of(kind)]
    matches = [key for key in same if key[2] == parts[-1] and (len(parts) == 2 or key[1] == parts[1])]
    if len(matches) > 1:
        places = ", ".join(f"{kind.lower()}/{namespace}/{name}" for _, namespace, name in matches)
        raise UserError(
            message("{option} {value}: there are several; say {names}", option=option, value=repr(text), names=places)
        )
    if not matches:
        near = nearest(parts[-1], [name for *_, name in same])
        if near:
            raise UserError(
                message(
                    "{option} {value}: the cluster has no such {kind}; did you mean {near}?",
                    option=option,
                    value=repr(text),
                    kind=kind,
                    near=near,
                )
            )
        raise UserError(
            message(
                "{option} {value}: the cluster has no such {kind}; name one that is there",
                option=option,
                value=repr(text),
                kind=kind,
            )
        )
    return matches[0]


def _kind(option: str, text: str, name: str, among: Sequence[str]) -> str:
    by_name = {kind.lower(): kind for kind in among} | {short: kind for short, kind in _SHORT.items() if kind in among}
    by_name |= {f"{lower}s": kind for lower, kind in tuple(by_name.items())}
    instance_type = by_name.get(name.lower())
    if instance_type is None:
        raise UserError(
            message(
                "{option} {value}: kind {name} is none of {kinds}",
                option=option,
                value=repr(text),
                name=name,
                kinds=", ".join(among),
            )
        )
    return instance_type


def read_deletions(texts: Sequence[str], cluster: DiffInput) -> tuple[Key, ...]:
    return tuple(_subject("--delete", text, cluster) for text in texts)


def read_replicas(texts: Sequence[str], cluster: DiffInput) -> tuple[Replicas, ...]:
    """`deployment/web=50`."""
    replicas = []
    for text in texts:
        name, separator, count = text.rpartition("=")
        if not separator or not count.isdigit():
            raise UserError(
                message("--scale {value}: is not kind/name=REPLICAS, such as deployment/web=50", value=repr(text))
            )
        kind, namespace, own = _subject("--scale", name, cluster, _SCALABLE)
        replicas.append(Replicas(kind=kind, namespace=namespace, name=own, count=int(count)))
    return tuple(replicas)


def _offerings(option: str, text: str, types: Mapping[str, InstanceType]) -> Offerings:
    """`TYPE[/ZONE][/capacity-type]`; any part may be `*`."""
    parts = text.split("/")
    name, rest = parts[0], parts[1:]
    if name != "*" and name not in types:
        near = nearest(name, types)
        raise UserError(
            message(
                "{option} {value}: no instance type {name}; did you mean {near}?", **_words(option, text, name, near)
            )
            if near
            else message("{option} {value}: no instance type {name}", **_words(option, text, name, near))
        )
    sold = types.values() if name == "*" else (types[name],)
    zones = {offering.zone for kind in sold for offering in kind.offerings}
    kinds = {offering.capacity_type for kind in sold for offering in kind.offerings}
    zone = capacity_type = "*"
    for part in rest:
        if part in kinds and capacity_type == "*":
            capacity_type = part
        elif part in zones and zone == "*":
            zone = part
        elif part != "*":
            raise UserError(
                message(
                    "{option} {value}: {part} is neither a zone ({zones}) nor a capacity type ({kinds})",
                    option=option,
                    value=repr(text),
                    part=part,
                    zones=", ".join(sorted(zones)),
                    kinds=", ".join(sorted(kinds)),
                )
            )
    return Offerings(instance_type=name, zone=zone, capacity_type=capacity_type)


def _words(option: str, text: str, name: str, near: str | None) -> dict[str, Any]:
    return {"option": option, "value": repr(text), "name": name, "near": near}


def read_sold_out(texts: Sequence[str], types: Mapping[str, InstanceType]) -> tuple[Offerings, ...]:
    return tuple(_offerings("--sold-out", text, types) for text in texts)


def read_prices(texts: Iterable[str], types: Mapping[str, InstanceType], option: str) -> tuple[PriceOverride, ...]:
    """`TYPE[/ZONE][/capacity-type]=DOLLARS`, on demand where no capacity type is named; `+10%` is relative."""
    prices: list[PriceOverride] = []
    for text in texts:
        name, separator, amount = text.rpartition("=")
        offerings = _offerings(option, name, types) if separator else Offerings()
        relative = amount.endswith("%") and amount[:1] in "+-"
        try:
            number = float(amount.removesuffix("%")) if separator else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (number < 0 and not relative) or (relative and number <= -100):
            raise UserError(
                message(
                    "{option} {value}: is not TYPE=DOLLARS an hour, such as m5.large=0.12 or m5.large/spot=+10%",
                    option=option,
                    value=repr(text),
                )
            )
        if offerings.capacity_type == "*" and not relative:
            offerings = msgspec.structs.replace(offerings, capacity_type="on-demand")
        prices += _priced(offerings, types, number, relative=relative)
    return tuple(prices)


def _priced(
    offerings: Offerings, types: Mapping[str, InstanceType], number: float, *, relative: bool
) -> Iterator[PriceOverride]:
    """A price for each offering: they may cost something else each."""
    for kind in types.values() if offerings.instance_type == "*" else (types[offerings.instance_type],):
        for offering in kind.offerings:
            covered = offerings.zone in ("*", offering.zone) and offerings.capacity_type in (
                "*",
                offering.capacity_type,
            )
            if covered and offering.price:
                yield PriceOverride(
                    instance_type=kind.name,
                    zone=offering.zone,
                    capacity_type=offering.capacity_type,
                    dollars=offering.price * (1 + number / 100) if relative else number,
                )


def read_zones(names: Sequence[str], types: Mapping[str, InstanceType]) -> tuple[str, ...]:
    zones = {offering.zone for kind in types.values() for offering in kind.offerings}
    for name in names:
        if name not in zones:
            raise UserError(
                message(
                    "--lose-zone {value}: no such zone; there are {zones}",
                    value=repr(name),
                    zones=", ".join(sorted(zones)),
                )
            )
    return tuple(names)


def read_images(texts: Sequence[str], version: str | None, cluster: DiffInput) -> dict[str, str]:
    """AMIs by NodeClass: `ami-1` for all of them, `NODECLASS=ami-1` for one, or those of another Kubernetes version."""
    classes = {item["metadata"]["name"]: item for item in cluster.of("EC2NodeClass")}
    images: dict[str, str] = {}
    if version is not None:
        if not version.replace(".", "", 1).isdigit() or "." not in version:
            raise UserError(message("--kubernetes-version {value}: is not a version such as 1.34", value=repr(version)))
        images |= {name: f"{alias}-{version}" for name, item in classes.items() if (alias := _alias(item))}
    for text in texts:
        name, separator, image = text.rpartition("=")
        if separator and name not in classes:
            raise UserError(
                message(
                    "--ami {value}: the cluster has no EC2NodeClass {name}; there are {names}",
                    value=repr(text),
                    name=name,
                    names=", ".join(sorted(classes)) or "-",
                )
            )
        images |= {name: image} if separator else dict.fromkeys(classes, image)
    if (texts or version) and not classes:
        raise UserError(message("--ami and --kubernetes-version need an EC2NodeClass in the cluster, and it has none"))
    return images


def _alias(node_class: Json) -> str:
    """The alias by which a NodeClass selects its AMIs; they are of the cluster's Kubernetes version."""
    terms = (node_class.get("spec") or {}).get("amiSelectorTerms") or ()
    return next((str(term["alias"]) for term in terms if term.get("alias")), "")


def new_images(cluster: DiffInput, manifests: Sequence[Json]) -> dict[str, str]:
    """NodeClasses whose AMI selectors a manifest changes: they resolve to other images."""
    images = {}
    for item in manifests:
        live = cluster.get("EC2NodeClass", "", item["metadata"]["name"]) if item["kind"] == "EC2NodeClass" else None
        new = (item.get("spec") or {}).get("amiSelectorTerms")
        if live is None or new is None or new == (live.get("spec") or {}).get("amiSelectorTerms"):
            continue
        term = new[0] if new else {}
        images[item["metadata"]["name"]] = str(term.get("id") or term.get("alias") or json.dumps(new))
    return images
