"""The launch templates of an order: one for each sort of instance among its options, with the offerings it is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws import create_fleet, ec2nodeclass, instances
from dovetail.cloud.aws.amis import Images
from dovetail.cloud.aws.eks import ClusterFacts
from dovetail.cloud.aws.errors import asked, explain
from dovetail.cloud.aws.launch_templates import LaunchTemplateContent, LaunchTemplates, own
from dovetail.cloud.aws.placement_groups import InstancePlacement
from dovetail.cloud.aws.subnets import Subnet
from dovetail.cloud.aws.userdata import BadUserData, Boot, render
from dovetail.cloud.provider import CloudError, LaunchOption, LaunchRequest, NodeClassNotReady, Remedy
from dovetail.language import source
from dovetail.model import labels as keys

#: What the vocabulary of reasons calls a class of which nothing can be launched.
_CODE = " (BAD_NODECLASS)"

#: How much user data is kept for the next instance that starts alike.
REMEMBERED = 100
EFA = "vpc.amazonaws.com/efa"
ENCLAVE = "eks.amazonaws.com/nitro-sandbox"


class TemplateKey(msgspec.Struct, frozen=True):
    """What instances must have in common to share a launch template; `fabric` counts its interfaces."""

    image_id: str
    pods: int
    fabric: int
    reservation_id: str | None


def full(node_class: Mapping[str, Any], zones: Iterable[str]) -> CloudError:
    """No address is left in these zones for instances of a class."""
    name = node_class["metadata"]["name"]
    text = source("no subnet of EC2NodeClass {name!r} in {zones} has free addresses").format(
        name=name, zones=", ".join(sorted(zones))
    )
    return explain("InsufficientFreeAddressesInSubnet", text)


def tenancy(claim: Mapping[str, Any]) -> str:
    """Hardware shared with others, unless the claim insists on its own."""
    asked_for = ec2nodeclass.wanted(claim, keys.TENANCY)
    return "default" if asked_for is None or asked_for.has("default") else "dedicated"


def has_fabric(launch: LaunchRequest) -> bool:
    """Whether instances get fabric interfaces: if pods ask for them, or the class lists interfaces of its own."""
    return EFA in _requests(launch) or bool(launch.node_class["spec"].get("networkInterfaces"))


class LaunchConfigs:
    """`tags` are those of everything made for a node class."""

    def __init__(
        self,
        images: Images,
        templates: LaunchTemplates,
        facts: Callable[[], Awaitable[ClusterFacts]],
        tags: Callable[[Mapping[str, Any]], dict[str, str]],
        *,
        open_reservations: bool = False,
    ) -> None:
        self._images = images
        self._templates = templates
        self._facts = facts
        self._tags = tags
        self._open_reservations = open_reservations
        self._user_data: dict[tuple[str, bytes], str] = {}

    async def of(
        self,
        launch: LaunchRequest,
        kind: str,
        options: Sequence[LaunchOption],
        subnets: Mapping[str, Subnet],
        place: InstancePlacement,
    ) -> list[dict[str, Any]]:
        """Templates with their overrides, as CreateFleet takes them."""
        if not any(option.offering.zone in subnets for option in options):
            raise full(launch.node_class, {option.offering.zone for option in options})
        if template := own(launch.node_class):
            return [_config(template, create_fleet.overrides(options, subnets))]
        configs = []
        for mould, members in (await self._options_by_template(launch, options)).items():
            if listed := create_fleet.overrides(members, subnets, mould.image_id):
                market = create_fleet.market(members[0].offering)
                configs.append(_config(await self._template(launch, kind, mould, market, place), listed))
        return configs

    async def _options_by_template(
        self, launch: LaunchRequest, options: Sequence[LaunchOption]
    ) -> dict[TemplateKey, list[LaunchOption]]:
        terms = launch.node_class["spec"].get("amiSelectorTerms") or ()
        images = await asked(self._images.select(terms, (await self._facts()).version))
        fabric = EFA in _requests(launch)
        moulds: dict[TemplateKey, list[LaunchOption]] = {}
        for option in options:
            image = next((i for i in images if i.suits(option.instance_type.labels)), None)
            if image is not None:
                room = option.instance_type.capacity
                efa = room.get(EFA, 0) if fabric else 0
                mould = TemplateKey(image.id, room.get("pods", 0), efa, option.offering.reservation_id)
                moulds.setdefault(mould, []).append(option)
        if not moulds:
            raise CloudError(
                "AMINotFound",
                source(
                    "no image of EC2NodeClass {name!r} suits any of the requested instance types; select images for"
                    " their architecture and accelerators"
                ).format(name=launch.node_class["metadata"]["name"])
                + _CODE,
                Remedy.OPERATOR,
            )
        return moulds

    async def _template(
        self, launch: LaunchRequest, kind: str, mould: TemplateKey, market: str, place: InstancePlacement
    ) -> str:
        node_class = launch.node_class
        name, spec, status = node_class["metadata"]["name"], node_class["spec"], node_class.get("status") or {}
        groups = tuple(group["id"] for group in status.get("securityGroups") or ())
        profile = status.get("instanceProfile")
        if not groups or not profile:
            lacking = (
                source("EC2NodeClass {name!r} has no instance profile in its status yet")
                if groups
                else source("EC2NodeClass {name!r} has no security groups in its status yet")
            )
            raise NodeClassNotReady(lacking.format(name=name))
        facts = await self._facts()
        if facts.service_cidr is None and ec2nodeclass.family_name(spec) == "AL2023":
            raise NodeClassNotReady(
                source(
                    "EC2NodeClass {name!r}: AL2023 needs the cluster's service range, and neither EKS nor the API"
                    " server tells it; allow eks:DescribeCluster or reading ServiceCIDRs to the controller"
                ).format(name=name)
            )
        blueprint = LaunchTemplateContent(
            family=ec2nodeclass.family_name(spec),
            image_id=mould.image_id,
            profile=profile,
            groups=groups,
            user_data=self._rendered(ec2nodeclass.family_name(spec), _boot(launch, kind, mould.pods, facts)),
            spec=spec,
            tags=self._tags(node_class) | {instances.POOL_TAG: instances.pool_of(launch.claim)},
            capacity_type=kind,
            efa=mould.fabric,
            enclave=ENCLAVE in _requests(launch),
            tenancy=tenancy(launch.claim),
            ipv6=facts.ipv6,
            place=place,
            reservation_id=mould.reservation_id,
            market=market,
            open_reservations=self._open_reservations,
        )
        return await asked(self._templates.ensure(blueprint, name))

    def _rendered(self, family: str, boot: Boot) -> str:
        """User data; instances of a burst start alike, and writing it takes longer than asking for them."""
        key = (family, msgspec.json.encode(boot, order="sorted"))
        if key not in self._user_data:
            if len(self._user_data) >= REMEMBERED:
                self._user_data.clear()
            try:
                self._user_data[key] = render(family, boot)
            except BadUserData as problem:
                raise CloudError("LaunchFailed", f"{problem} (BAD_NODECLASS)", Remedy.OPERATOR) from problem
        return self._user_data[key]


def _boot(launch: LaunchRequest, kind: str, pods: int, facts: ClusterFacts) -> Boot:
    spec = launch.node_class["spec"]
    return Boot(
        cluster_name=facts.name,
        endpoint=facts.endpoint,
        ca_bundle=facts.ca_bundle,
        service_cidr=facts.service_cidr,
        cluster_dns=facts.cluster_dns,
        ipv6=facts.ipv6,
        labels=dict(launch.labels) | {keys.CAPACITY_TYPE: kind, keys.DO_NOT_SYNC_TAINTS: "true"},
        taints=launch.taints,
        kubelet=spec.get("kubelet") or {},
        max_pods=pods,
        raid0=spec.get("instanceStorePolicy") == "RAID0",
        image_version=ec2nodeclass.image_version(launch.node_class),
        custom=spec.get("userData"),
    )


def _requests(launch: LaunchRequest) -> Mapping[str, Any]:
    requests: Mapping[str, Any] = ((launch.claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return requests


def _config(template: str, overrides: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
        "Overrides": list(overrides),
    }
