"""An EC2NodeClass's status: what its selectors select now, and whether an instance could be made of it.

A selector that selects nothing is named with the selector, because that is what its owner can change.
An error while asking is not an answer: the condition goes Unknown and the old status stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dovetail.cloud.aws import ec2nodeclass
from dovetail.cloud.aws.amis import Images
from dovetail.cloud.aws.capacity import FAMILIES
from dovetail.cloud.aws.capacity_reservations import Reservations
from dovetail.cloud.aws.errors import code_of, explain, message_of
from dovetail.cloud.aws.instance_profiles import Profiles
from dovetail.cloud.aws.instances import CLAIM_TAG, CLASS_TAG, CLUSTER_TAG, POOL_TAG
from dovetail.cloud.aws.launch_templates import LaunchTemplates, own
from dovetail.cloud.aws.nodeclass_validation import DryRunLaunch
from dovetail.cloud.aws.placement_groups import PlacementGroups, missing, selector
from dovetail.cloud.aws.subnets import Network
from dovetail.cloud.provider import CloudError, NodeClassStatus, Remedy
from dovetail.language import source

#: What the vocabulary of reasons calls a class of which nothing can be launched.
_CODE = " (BAD_NODECLASS)"

Condition = tuple[str, str, str, str]
VALID = "ValidationSucceeded"
RESTRICTED_TAGS = (CLUSTER_TAG, POOL_TAG, CLAIM_TAG, CLASS_TAG)


class Resolver:
    """Without dry runs it is not known whether instances may be launched."""

    def __init__(
        self,
        network: Network,
        images: Images,
        profiles: Profiles,
        templates: LaunchTemplates,
        reservations: Reservations,
        placement: PlacementGroups,
        rehearsal: DryRunLaunch | None,
        version: Callable[[], Awaitable[str]],
        tags: Callable[[Mapping[str, Any]], Mapping[str, str]],
        *,
        iam: bool = True,
    ) -> None:
        """Without `iam`, nothing is asked of IAM: it has no endpoint in an isolated VPC."""
        self._network = network
        self._images = images
        self._profiles = profiles
        self._templates = templates
        self._reservations = reservations
        self._placement = placement
        self._rehearsal = rehearsal
        self._version = version
        self._tags = tags
        self._iam = iam

    async def resolve(
        self, node_class: Mapping[str, Any], node_pools: Sequence[Mapping[str, Any]] = ()
    ) -> NodeClassStatus:
        status: dict[str, Any] = {}
        conditions: list[Condition] = []
        made = (
            ("SecurityGroupsReady", self._groups),
            ("AMIsReady", self._amis),
            ("InstanceProfileReady", self._profile),
        )
        brought = tuple((kind, partial(self._launch_template_condition, kind)) for kind, _ in made)
        for kind, step in (
            ("SubnetsReady", self._subnets),
            *(brought if own(node_class) else made),
            ("PlacementGroupReady", self._group),
            ("CapacityReservationsReady", self._held),
        ):
            conditions.append(await self._attempt(kind, step, node_class, status))
        valid, detail = await self._valid(node_class, status, conditions, node_pools)
        details = {valid[0]: detail} if detail else {}
        return NodeClassStatus(status=status, conditions=(*conditions, valid), details=details)

    async def _valid(
        self,
        node_class: Mapping[str, Any],
        status: Mapping[str, Any],
        conditions: Sequence[Condition],
        node_pools: Sequence[Mapping[str, Any]],
    ) -> tuple[Condition, str]:
        """Whether a launch would go well, and all that was said of it. Where AWS is silent, what was known stands."""
        if wrong := _validation(node_class.get("spec") or {}, conditions):
            return wrong, ""
        fault = None
        if self._rehearsal is not None:
            try:
                fault = await self._rehearsal.fault({**node_class, "status": status}, node_pools)
            except CloudError as problem:
                unknown = (VALID, "Unknown", problem.reason, problem.message)
                return _known(node_class) or unknown, problem.detail
        if fault is not None:
            return (VALID, "False", fault.reason, fault.message), fault.detail
        return (VALID, "True", VALID, ""), ""

    async def _attempt(
        self,
        kind: str,
        step: Callable[[Mapping[str, Any], dict[str, Any]], Awaitable[Condition]],
        node_class: Mapping[str, Any],
        status: dict[str, Any],
    ) -> Condition:
        try:
            return await step(node_class, status)
        except CloudError as error:
            status_ = "False" if error.remedy is Remedy.OPERATOR else "Unknown"
            return (kind, status_, error.reason, error.message)
        except Exception as error:  # AWS failed to answer: not evidence, but to be shown
            meaning = explain(code_of(error), message_of(error))
            status_ = "False" if meaning.remedy is Remedy.OPERATOR else "Unknown"
            return (kind, status_, meaning.reason, meaning.message)

    async def _subnets(self, node_class: Mapping[str, Any], status: dict[str, Any]) -> Condition:
        terms: Sequence[Mapping[str, Any]] = node_class["spec"].get("subnetSelectorTerms") or ()
        subnets = await self._network.subnets(terms)
        status["subnets"] = [{"id": s.id, "zone": s.zone, "zoneID": s.zone_id} for s in subnets]
        if not subnets:
            return (
                "SubnetsReady",
                "False",
                "SubnetsNotFound",
                source("SubnetSelector did not match any Subnets: {terms}; tag the subnets or change the terms").format(
                    terms=_said(terms)
                )
                + _CODE,
            )
        return ("SubnetsReady", "True", "SubnetsReady", "")

    async def _groups(self, node_class: Mapping[str, Any], status: dict[str, Any]) -> Condition:
        terms: Sequence[Mapping[str, Any]] = node_class["spec"].get("securityGroupSelectorTerms") or ()
        groups = await self._network.groups(terms)
        status["securityGroups"] = [{"id": g.id, "name": g.name} for g in groups]
        if not groups:
            return (
                "SecurityGroupsReady",
                "False",
                "SecurityGroupsNotFound",
                source(
                    "SecurityGroupSelector did not match any SecurityGroups: {terms}; tag the groups or change the"
                    " terms"
                ).format(terms=_said(terms))
                + _CODE,
            )
        return ("SecurityGroupsReady", "True", "SecurityGroupsReady", "")

    async def _amis(self, node_class: Mapping[str, Any], status: dict[str, Any]) -> Condition:
        terms = node_class["spec"].get("amiSelectorTerms") or ()
        images = await self._images.select(terms, await self._version())
        status["amis"] = [
            {"id": image.id, "name": image.name, "requirements": [dict(need) for need in image.requirements]}
            | ({"deprecated": True} if image.deprecated else {})
            for image in images
        ]
        if not images:
            return (
                "AMIsReady",
                "False",
                "AMINotFound",
                source("AMISelector did not match any AMIs: {terms}; check ids, names, owners and tags").format(
                    terms=_said(terms)
                )
                + _CODE,
            )
        return ("AMIsReady", "True", "AMIsReady", "")

    async def _profile(self, node_class: Mapping[str, Any], status: dict[str, Any]) -> Condition:
        spec, meta = node_class["spec"], node_class["metadata"]
        if named := spec.get("instanceProfile"):
            # Trusted: where IAM is out of reach or forbidden this field is the way to run. EC2's dry run finds a
            # profile that does not exist, and the condition ValidationSucceeded names it.
            status["instanceProfile"] = named
        elif not self._iam:
            return (
                "InstanceProfileReady",
                "False",
                "InstanceProfileNotReady",
                source(
                    "spec.role: {role!r} needs an instance profile, and --isolated-vpc rules out IAM; create the"
                    " profile and name it in spec.instanceProfile"
                ).format(role=spec["role"])
                + _CODE,
            )
        else:
            status["instanceProfile"] = await self._profiles.ensure(
                meta["name"], meta.get("uid", ""), spec["role"], self._tags(node_class)
            )
        return ("InstanceProfileReady", "True", "InstanceProfileReady", "")

    async def _launch_template_condition(
        self, kind: str, node_class: Mapping[str, Any], status: dict[str, Any]
    ) -> Condition:
        """What a launch template of the owner's decides is theirs to say; only its absence is ours to tell."""
        name = own(node_class)
        if await self._templates.exists(name):
            return (kind, "True", kind, f"by launch template {name!r}")
        return (
            kind,
            "False",
            "LaunchTemplateNotFound",
            source("EC2 has no launch template {name!r}; create it, or say in the class what it said").format(name=name)
            + _CODE,
        )

    async def _group(self, node_class: Mapping[str, Any], status: dict[str, Any]) -> Condition:
        if selector(node_class) and await self._placement.of(node_class) is None:
            return ("PlacementGroupReady", "False", "PlacementGroupNotFound", f"{missing(node_class)} (BAD_NODECLASS)")
        return ("PlacementGroupReady", "True", "PlacementGroupReady", "")

    async def _held(self, node_class: Mapping[str, Any], status: dict[str, Any]) -> Condition:
        """Reservations that are not there are no fault of the class: instances are launched without them."""
        terms = node_class["spec"].get("capacityReservationSelectorTerms") or ()
        reservations = await self._reservations.select(terms)
        if terms or (node_class.get("status") or {}).get("capacityReservations"):
            status["capacityReservations"] = [reservation.status() for reservation in reservations]
        return ("CapacityReservationsReady", "True", "CapacityReservationsReady", "")


def _said(terms: Sequence[Mapping[str, Any]]) -> str:
    """The terms as their owner wrote them."""

    def described(term: Mapping[str, Any]) -> str:
        return ", ".join(
            "tags " + " and ".join(f"{k}={v}" for k, v in value.items()) if key == "tags" else f"{key} {value}"
            for key, value in term.items()
        )

    return " or ".join(described(term) for term in terms) or "no terms"


def _known(node_class: Mapping[str, Any]) -> Condition | None:
    """What was last found of the class as it is now."""
    generation = node_class["metadata"].get("generation")
    for condition in (node_class.get("status") or {}).get("conditions") or ():
        if condition["type"] == VALID and condition.get("observedGeneration") == generation:
            return (condition["type"], condition["status"], condition.get("reason", ""), condition.get("message", ""))
    return None


def _validation(spec: Mapping[str, Any], conditions: Sequence[Condition]) -> Condition | None:
    """What is wrong with a class before anything is tried."""
    bad = [key for key in spec.get("tags") or {} if key in RESTRICTED_TAGS or key.startswith("kubernetes.io/cluster")]
    if bad:
        return (
            VALID,
            "False",
            "TagValidationFailed",
            source("spec.tags: {tags} are written by the autoscaler; remove them").format(tags=", ".join(sorted(bad)))
            + _CODE,
        )
    waiting = [kind for kind, condition, *_ in conditions if condition != "True"]
    if waiting:
        sure = "False" if any(condition == "False" for _, condition, *_ in conditions) else "Unknown"
        return (VALID, sure, "DependenciesNotReady", f"Awaiting {', '.join(waiting)}")
    if ec2nodeclass.family_name(spec) not in FAMILIES:
        return (VALID, "False", "UnsupportedAMIFamily", f"spec.amiFamily: {spec.get('amiFamily')!r}")
    return None
