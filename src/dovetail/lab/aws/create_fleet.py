"""CreateFleet as EC2 does it: the cheapest offering that can be had, errors for those that cannot.

moto takes the first override and forgets most of the launch template. Here the template's network,
profile, devices and metadata options reach the instance, an offering without capacity is an entry in `Errors`,
what the cheapest cannot give comes from the next, and a client token that was seen before is answered as it was, or
refused if anything else is asked for with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.lab.aws.capacity_reservations import Book
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.placement_groups import LabPlacementGroups

_MESSAGES = {
    "InsufficientInstanceCapacity": "There is no {kind} capacity available that matches your request.",
    "UnfulfillableCapacity": "Unable to fulfill capacity due to your request configuration.",
    "Unsupported": "Your requested instance type ({type}) is not supported in your requested Availability Zone"
    " ({zone}).",
    "InsufficientFreeAddressesInSubnet": "There are not enough free addresses in subnet '{subnet}' to satisfy the"
    " requested number of instances.",
    "VcpuLimitExceeded": "You have requested more vCPU capacity than your current vCPU limit allows.",
    "InvalidParameterValue": "Value for parameter iamInstanceProfile.name is invalid: Invalid IAM Instance Profile",
    "MaxSpotInstanceCountExceeded": "Max spot instance count exceeded",
    "ReservationCapacityExceeded": "The requested reservation does not have sufficient compatible and available"
    " capacity for this request.",
    "InvalidCapacityReservationId.NotFound": "The capacity reservation is not active.",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": "The provided credentials do not have permission to create"
    " the service-linked role for EC2 Spot Instances.",
}


#: Requests come on threads of their own; instances are launched one at a time.
_till = threading.Lock()


class FleetContext(msgspec.Struct, frozen=True):
    """Offerings and prices, capacity reservations, and placement groups."""

    market: LabOfferings
    book: Book
    groups: LabPlacementGroups


class FleetOverride(msgspec.Struct, frozen=True):
    """One override of one launch template."""

    template: Any
    named: Mapping[str, Any]
    override: Mapping[str, Any]
    price: float


def create(backend: Any, context: FleetContext, fleet_request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to an instant fleet request. `fleet_request` has the request's members by their API names."""
    with _till:
        return _replayed(backend, context, fleet_request)


def _replayed(backend: Any, context: FleetContext, fleet_request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that a client token had before, failures included; without one, or for a new one, a fresh answer."""
    token = fleet_request.get("ClientToken")
    if not token:
        return _create(backend, context, fleet_request)
    answers: dict[str, tuple[bytes, dict[str, Any]]] = backend.__dict__.setdefault("fleets_by_client_token", {})
    request = msgspec.json.encode(fleet_request, order="sorted", enc_hook=str)
    if token in answers:
        first, answer = answers[token]
        if request != first:
            from moto.ec2.exceptions import EC2ClientError

            raise EC2ClientError(
                "IdempotentParameterMismatch", "The client token has already been used for a different request."
            )
        return answer
    answer = _create(backend, context, fleet_request)
    answers[token] = (request, answer)
    return answer


def _create(backend: Any, context: FleetContext, fleet_request: Mapping[str, Any]) -> dict[str, Any]:
    target = fleet_request.get("TargetCapacitySpecification") or {}
    kind = target.get("DefaultTargetCapacityType") or "on-demand"
    choices = sorted(_choices(backend, context.market, fleet_request, kind), key=_rank(fleet_request))
    tags = _tags(fleet_request.get("TagSpecifications") or ())
    token, capacity = fleet_request.get("ClientToken"), int(target.get("TotalTargetCapacity", 1))
    launched: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for choice in choices:
        while len(launched) < capacity:
            refusal = _refusal(backend, context, choice, kind)
            if refusal is not None:
                errors.append(_error(choice, kind, *refusal))
                break
            launched.append(_launched_entry([choice], _run(backend, context, choice, kind, tags, token), kind))
    return {
        "FleetId": f"fleet-{backend.account_id}-{len(backend.reservations)}",
        "Instances": launched,
        "Errors": errors,
    }


def _rank(fleet_request: Mapping[str, Any]) -> Callable[[FleetOverride], tuple[float, str]]:
    """By price, or by the priorities that the request gives."""
    strategies = (
        (fleet_request.get(name) or {}).get("AllocationStrategy", "") for name in ("OnDemandOptions", "SpotOptions")
    )
    ranked = any("prioritized" in strategy for strategy in strategies)

    def rank(choice: FleetOverride) -> tuple[float, str]:
        order = float(choice.override.get("Priority", 0.0)) if ranked else choice.price
        return order, choice.override["InstanceType"]

    return rank


def _choices(backend: Any, market: LabOfferings, fleet_request: Mapping[str, Any], kind: str) -> list[FleetOverride]:
    choices = []
    for config in fleet_request.get("LaunchTemplateConfigs") or ():
        named = config["LaunchTemplateSpecification"]
        template = (
            backend.get_launch_template(named["LaunchTemplateId"])
            if "LaunchTemplateId" in named
            else backend.get_launch_template_by_name(named["LaunchTemplateName"])
        )
        for override in config.get("Overrides") or [{}]:
            zone = override.get("AvailabilityZone") or backend.get_subnet(override["SubnetId"]).availability_zone
            full = {"InstanceType": "m5.large", **override, "AvailabilityZone": zone}
            choices.append(FleetOverride(template, named, full, market.price(full["InstanceType"], zone, kind)))
    return choices


def _refusal(backend: Any, context: FleetContext, choice: FleetOverride, kind: str) -> tuple[str, str] | None:
    """Why an instance cannot be launched: code, and message where the code does not imply it."""
    data, override = choice.template.get_version("$Latest").data, choice.override
    profile = (data.get("IamInstanceProfile") or {}).get("Name")
    if profile and not profile_exists(backend.account_id, profile):
        return "InvalidParameterValue", ""
    subnet = override.get("SubnetId")
    if subnet and backend.get_subnet(subnet).available_ip_address_count <= 0:
        return "InsufficientFreeAddressesInSubnet", ""
    where = override["InstanceType"], override["AvailabilityZone"]
    if outside := context.groups.refusal(data.get("Placement") or {}, *where):
        return outside
    held = _reservation(data)
    code = context.book.refusal(held, *where) if held else context.market.refusal(*where, kind)
    return (code, "") if code else None


def _reservation(data: Mapping[str, Any]) -> str | None:
    """The capacity reservation a launch template names."""
    specification: Mapping[str, Any] = data.get("CapacityReservationSpecification") or {}
    capacity_reservation_id: str | None = (specification.get("CapacityReservationTarget") or {}).get(
        "CapacityReservationId"
    )
    return capacity_reservation_id


def _error(choice: FleetOverride, kind: str, code: str, message: str) -> dict[str, Any]:
    message = message or _MESSAGES.get(code, code).format(
        kind=kind,
        type=choice.override["InstanceType"],
        zone=choice.override["AvailabilityZone"],
        subnet=choice.override.get("SubnetId", ""),
    )
    return {
        "LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": dict(choice.named), "Overrides": choice.override},
        "Lifecycle": kind,
        "ErrorCode": code,
        "ErrorMessage": message,
    }


def _launched_entry(choices: Sequence[FleetOverride], instance: Any, kind: str) -> dict[str, Any]:
    """An instance as an entry of the answer, with the choice that it came from."""
    where = (instance.instance_type, instance.subnet_id)
    by_place = {(choice.override["InstanceType"], choice.override.get("SubnetId")): choice for choice in choices}
    choice = by_place.get(where, choices[0])
    return {
        "LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": dict(choice.named), "Overrides": choice.override},
        "Lifecycle": kind,
        "InstanceIds": [instance.id],
        "InstanceType": instance.instance_type,
    }


def _run(
    backend: Any, context: FleetContext, choice: FleetOverride, kind: str, tags: Mapping[str, Any], token: str | None
) -> Any:
    data: Mapping[str, Any] = choice.template.get_version("$Latest").data
    interface: Mapping[str, Any] = (data.get("NetworkInterfaces") or [{}])[0]
    groups = list(interface.get("Groups") or data.get("SecurityGroupIds") or ())
    reservation = backend.run_instances(
        image_id=choice.override.get("ImageId") or data.get("ImageId"),
        count=1,
        user_data=data.get("UserData"),
        security_group_names=[],
        security_group_ids=groups,
        instance_type=choice.override["InstanceType"],
        is_instance_type_default=False,
        region_name=backend.region_name,
        subnet_id=choice.override.get("SubnetId"),
        tags=tags,
        client_token=token,
        block_device_mappings=data.get("BlockDeviceMappings") or [],
        metadata_options=dict(data.get("MetadataOptions") or {}),
        associate_public_ip=interface.get("AssociatePublicIpAddress", False),
        lifecycle="spot" if kind == "spot" else None,
        nics={},
        key_name=None,
        placement=None,
    )
    instance = reservation.instances[0]
    if profile := (data.get("IamInstanceProfile") or {}).get("Name"):
        backend.associate_iam_instance_profile(instance.id, profile)
    if kind == "spot":
        instance.spot_instance_request_id = f"sir-{instance.id[2:10]}"
    instance.capacity_reservation_id = _reservation(data)
    instance.capacity_reservation_specification = data.get("CapacityReservationSpecification")
    context.groups.enter(instance, data.get("Placement") or {})
    _fail_at_once(instance, data, context.market)
    return instance


def _fail_at_once(instance: Any, data: Mapping[str, Any], market: LabOfferings) -> None:
    """An instance whose volume cannot be decrypted starts and ends within a moment."""
    keys = {(device.get("Ebs") or {}).get("KmsKeyId") for device in data.get("BlockDeviceMappings") or ()}
    if keys & market.denied_keys:
        instance.terminate()
        instance._state.name, instance._state.code = "terminated", 48
        instance.state_reason.code = "Client.InternalError"
        instance.state_reason.message = "Client.InternalError: Client error on launch"


def profile_exists(account: str, name: str) -> bool:
    from moto.iam.models import iam_backends

    return any(p.name == name for p in iam_backends[account]["aws"].instance_profiles.values())


def _tags(specifications: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        spec["ResourceType"]: {tag["Key"]: tag.get("Value", "") for tag in spec.get("Tags") or ()}
        for spec in specifications
    }
