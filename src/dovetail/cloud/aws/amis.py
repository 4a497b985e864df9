"""Machine images: by alias and SSM parameter, by id, by name, by tags; newest first, with what each is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import is_not_found
from dovetail.cloud.aws.instance_type_labels import ARCHES, WINDOWS_BUILDS
from dovetail.cloud.aws.subnets import Term, filters
from dovetail.cloud.aws.ttl_cache import ConfirmedListCache, TtlCache
from dovetail.cloud.provider import CloudError, Remedy
from dovetail.language import source
from dovetail.model.labels import ACCELERATOR_COUNT, ARCH, GPU_COUNT, OS, WELL_KNOWN, WINDOWS_BUILD

#: The architecture of an image that does not say.
_USUAL = "x86_64"
_NO_IMAGE = source(
    "alias {alias!r} has no image for Kubernetes {kubernetes}: none of its SSM parameters exists; pin a version that"
    " AWS still publishes, or another family"
)
_NO_IMAGE_OF_AL2 = source(
    "alias {alias!r} has no image for Kubernetes {kubernetes}: none of its SSM parameters exists; AL2 ends with"
    " Kubernetes 1.32, its successor is al2023@latest; pin a version that AWS still publishes, or another family"
)

Requirement = Mapping[str, Any]


class Ami(msgspec.Struct, frozen=True, kw_only=True):
    """`requirements` say which instances the image is for, as they appear in the node class's status."""

    id: str
    name: str
    created: str
    deprecated: bool
    requirements: tuple[Requirement, ...]

    def suits(self, labels: Mapping[str, Sequence[str]]) -> bool:
        for need in self.requirements:
            values = labels.get(need["key"])
            match need["operator"]:
                case "In":
                    if not values or not set(values) & set(need["values"]):
                        return False
                case "Exists":
                    if not values:
                        return False
                case "DoesNotExist":
                    if values:
                        return False
        return True


def of_status(status: Mapping[str, Any]) -> tuple[Ami, ...]:
    """The images that a node class's status shows."""
    return tuple(
        Ami(
            id=ami["id"],
            name=ami.get("name", ""),
            created="",
            deprecated=bool(ami.get("deprecated")),
            requirements=tuple(ami.get("requirements") or ()),
        )
        for ami in status.get("amis") or ()
    )


class Variant(msgspec.Struct, frozen=True):
    """One SSM parameter and the instances its image is for."""

    parameter: str
    requirements: tuple[Requirement, ...]


def _in(key: str, *values: str) -> Requirement:
    return {"key": key, "operator": "In", "values": list(values)}


def _plain(arch: str) -> tuple[Requirement, ...]:
    return (_in(ARCH, arch), *({"key": key, "operator": "DoesNotExist"} for key in (ACCELERATOR_COUNT, GPU_COUNT)))


def _with(arch: str, key: str) -> tuple[Requirement, ...]:
    return (_in(ARCH, arch), {"key": key, "operator": "Exists"})


def variants(family: str, version: str, kubernetes: str) -> tuple[Variant, ...]:
    """The parameters of an alias `family@version` for a Kubernetes version."""
    linux = {"al2": _al2, "al2023": _al2023, "bottlerocket": _bottlerocket}.get(family)
    return linux(version, kubernetes) if linux else _windows(family.removeprefix("windows"), kubernetes)


def _al2(version: str, kubernetes: str) -> tuple[Variant, ...]:
    def path(kind: str) -> str:
        tail = "recommended" if version == "latest" else f"amazon-eks{kind}-node-{kubernetes}-{version}"
        return f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{kind}/{tail}/image_id"

    return (
        Variant(path(""), _plain("amd64")),
        Variant(path("-arm64"), _plain("arm64")),
        Variant(path("-gpu"), _with("amd64", ACCELERATOR_COUNT)),
        Variant(path("-gpu"), _with("amd64", GPU_COUNT)),
    )


def _al2023(version: str, kubernetes: str) -> tuple[Variant, ...]:
    def path(arch: str, kind: str) -> str:
        named = f"amazon-eks-node-al2023-{arch}-{kind}-{kubernetes}-{version}"
        tail = "recommended" if version == "latest" else named
        return f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{arch}/{kind}/{tail}/image_id"

    return (
        Variant(path("x86_64", "standard"), _plain("amd64")),
        Variant(path("arm64", "standard"), _plain("arm64")),
        Variant(path("x86_64", "neuron"), _with("amd64", ACCELERATOR_COUNT)),
        Variant(path("x86_64", "nvidia"), _with("amd64", GPU_COUNT)),
        Variant(path("arm64", "nvidia"), _with("arm64", GPU_COUNT)),
    )


def _bottlerocket(version: str, kubernetes: str) -> tuple[Variant, ...]:
    release = version.removeprefix("v")

    def path(flavour: str, arch: str) -> str:
        return f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavour}/{arch}/{release}/image_id"

    return (
        Variant(path("", "x86_64"), _plain("amd64")),
        Variant(path("", "arm64"), _plain("arm64")),
        Variant(path("", "x86_64"), _with("amd64", ACCELERATOR_COUNT)),
        Variant(path("-nvidia", "x86_64"), _with("amd64", GPU_COUNT)),
        Variant(path("-nvidia", "arm64"), _with("arm64", GPU_COUNT)),
    )


def _windows(year: str, kubernetes: str) -> tuple[Variant, ...]:
    name = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
    return (Variant(name, (_in(OS, "windows"), _in(WINDOWS_BUILD, WINDOWS_BUILDS[year]))),)


class Images:
    def __init__(self, calls: Calls, clock: Clock, refresh: float = 60.0) -> None:
        self._calls = calls
        self._clock = clock
        self._found: ConfirmedListCache[Ami] = ConfirmedListCache(clock, refresh)
        self._parameters: TtlCache[str | None] = TtlCache(clock, 24 * 3600.0)
        self._mutable: TtlCache[str | None] = TtlCache(clock, 300.0)

    async def select(self, terms: Sequence[Term], kubernetes: str) -> tuple[Ami, ...]:
        """The images of the terms; for each kind of instance the newest that is not deprecated comes first."""
        key = (msgspec.json.encode(list(terms), order="sorted"), kubernetes)
        return await self._found.get(key, lambda: self._select(terms, kubernetes))

    async def _select(self, terms: Sequence[Term], kubernetes: str) -> tuple[Ami, ...]:
        needs: dict[str, list[tuple[Requirement, ...]]] = {}
        rows: dict[str, Mapping[str, Any]] = {}
        ids: list[str] = []
        for term in terms:
            if alias := term.get("alias"):
                for image_id, requirements in await self._alias(alias, kubernetes):
                    needs.setdefault(image_id, []).append(requirements)
                    ids.append(image_id)
            elif parameter := term.get("ssmParameter"):
                recommended = await self._parameter(parameter, self._mutable)
                ids += [recommended] if recommended and recommended.startswith("ami-") else []
            elif term.get("id"):
                ids.append(term["id"])
            else:
                rows |= {row["ImageId"]: row for row in await self._search(term)}
        if ids:
            rows |= {row["ImageId"]: row for row in await self._describe([{"Name": "image-id", "Values": ids}])}
        images = [
            self._image(row, requirements)
            for image_id, row in rows.items()
            if row.get("Architecture", _USUAL) in ARCHES
            for requirements in needs.get(image_id) or [_requirements(row)]
        ]
        return _newest(images)

    async def _alias(self, alias: str, kubernetes: str) -> list[tuple[str, tuple[Requirement, ...]]]:
        family, _, version = alias.partition("@")
        images = []
        for variant in variants(family, version or "latest", kubernetes):
            image_id = await self._parameter(variant.parameter, self._parameters)
            if image_id:
                images.append((image_id, variant.requirements))
        if not images:
            text = _NO_IMAGE_OF_AL2 if family == "al2" else _NO_IMAGE
            said = f"{text.format(alias=alias, kubernetes=kubernetes)} (BAD_NODECLASS)"
            raise CloudError("AMINotFound", said, Remedy.OPERATOR)
        return images

    async def _parameter(self, name: str, memory: TtlCache[str | None]) -> str | None:
        async def ask() -> str | None:
            try:
                answer = await self._calls("ssm", "get_parameter", Name=name)
            except Exception as error:
                if is_not_found(error):
                    return None
                raise
            return str(answer["Parameter"]["Value"])

        parameter = await memory.get(name, ask)
        if parameter is None:
            memory.forget(name)  # one that is not there yet may come any time
        return parameter

    async def _search(self, term: Term) -> list[Mapping[str, Any]]:
        search = filters(term, names="name")
        owners = [term["owner"]] if term.get("owner") else ["self", "amazon"] if term.get("name") else []
        return await self._describe(search, owners)

    async def _describe(self, search: list[dict[str, Any]], owners: Sequence[str] = ()) -> list[Mapping[str, Any]]:
        arguments: dict[str, Any] = {"Filters": [*search, {"Name": "state", "Values": ["available"]}]}
        if owners:
            arguments["Owners"] = list(owners)
        return await self._calls.all("ec2", "describe_images", "Images", IncludeDeprecated=True, **arguments)

    def _image(self, row: Mapping[str, Any], requirements: tuple[Requirement, ...]) -> Ami:
        end = row.get("DeprecationTime")
        ended = bool(end) and datetime.fromisoformat(str(end).replace("Z", "+00:00")) <= self._clock.now()
        return Ami(
            id=row["ImageId"],
            name=row.get("Name", ""),
            created=str(row.get("CreationDate", "")),
            deprecated=ended,
            requirements=tuple(sorted(requirements, key=lambda need: (len(need["key"]), need["key"]))),
        )


def _requirements(row: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """What an image says of itself: its architecture, and tags that are labels we know."""
    requirements = [_in(ARCH, ARCHES[row.get("Architecture", _USUAL)])]
    requirements += [_in(tag["Key"], tag["Value"]) for tag in row.get("Tags", ()) if tag["Key"] in WELL_KNOWN - {ARCH}]
    return tuple(requirements)


def _newest(images: Sequence[Ami]) -> tuple[Ami, ...]:
    """One image for each set of requirements; the list newest first."""
    ranked = sorted(images, key=lambda image: (not image.deprecated, image.created, image.name), reverse=True)
    best: dict[bytes, Ami] = {}
    for image in ranked:
        best.setdefault(msgspec.json.encode(image.requirements, order="sorted"), image)
    return tuple(best.values())
