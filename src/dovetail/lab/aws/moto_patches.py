"""Everything the lab changes about moto, in one list.

Each correction replaces one method of moto by one that answers as AWS does. They are put in once, for
the life of the process: `install` may be called again with another context.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dovetail.clock import wall
from dovetail.lab.aws.create_fleet import FleetContext, create
from dovetail.lab.aws.eks_images import with_images
from dovetail.lab.aws.offerings import LabOfferings

#: A method of moto's: the object in, its answer out.
Method = Callable[[Any], Any]

_context: FleetContext | None = None


def install(context: FleetContext) -> None:
    """Correct moto; the context decides which launches succeed."""
    global _context
    first = _context is None
    _context = context
    if first:
        _correct()


def _installed() -> FleetContext:
    assert _context is not None, "moto_patches.install comes first"
    return _context


def _lab_offerings() -> LabOfferings:
    return _installed().market


def _correct() -> None:
    from moto.ec2.models.elastic_block_store import EBSBackend
    from moto.ec2.models.instances import Instance, InstancePlacement
    from moto.ec2.models.launch_templates import LaunchTemplateBackend
    from moto.ec2.models.route_tables import Route
    from moto.ec2.responses.fleets import Fleets
    from moto.ec2.responses.instances import InstanceResponse
    from moto.ec2.responses.spot_instances import SpotInstances
    from moto.ec2.responses.vpcs import VPCs
    from moto.ec2.utils import filter_dict_attribute_mapping
    from moto.eks.models import EKSBackend
    from moto.iam.models import SERVICE_NAME_CONVERSION
    from moto.iam.responses import IamResponse
    from moto.sqs.models import SQSBackend
    from moto.sts.responses import TokenResponse

    SERVICE_NAME_CONVERSION.update({"spot": "EC2Spot", "spotfleet": "EC2SpotFleet"})
    TokenResponse.get_session_token = _with_own_key(TokenResponse.get_session_token)
    TokenResponse.get_federation_token = _with_own_key(TokenResponse.get_federation_token)
    IamResponse.add_client_id_to_open_id_connect_provider = _add_client_id
    IamResponse.remove_client_id_from_open_id_connect_provider = _remove_client_id
    SQSBackend.set_queue_attributes = _with_kept_policy(SQSBackend.set_queue_attributes)
    EKSBackend.create_nodegroup = with_images(EKSBackend.create_nodegroup)
    LaunchTemplateBackend.delete_launch_template = _with_its_tags(LaunchTemplateBackend.delete_launch_template)
    Route.state = property(_route_state)
    EBSBackend.delete_volume = _with_its_tags(EBSBackend.delete_volume)
    Fleets.create_fleet = _at_once(Fleets.create_fleet)
    SpotInstances.describe_spot_price_history = _spot_prices
    InstanceResponse.describe_instances = _with_every_tag(InstanceResponse.describe_instances)
    InstanceResponse.describe_instance_types = _with_offered_types(InstanceResponse.describe_instance_types)
    InstanceResponse.describe_instance_status = _with_ailments(InstanceResponse.describe_instance_status)
    VPCs.modify_vpc_endpoint = _with_policy_reset(VPCs.modify_vpc_endpoint)
    Instance.private_dns = property(_private_dns)
    Instance.private_dns_name = property(_private_dns)
    Instance.spot_instance_request_id = None
    Instance.capacity_reservation_id = None
    Instance.capacity_reservation_specification = None
    InstancePlacement.group_id = None
    InstancePlacement.partition_number = None
    filter_dict_attribute_mapping.setdefault("iam-instance-profile.arn", "iam_instance_profile.Arn")


def _at_once(plain: Method) -> Method:
    """Fleets of the type instant are answered with their instances."""

    def create_fleet(self: Any) -> Any:
        from moto.core.responses import ActionResult

        if self._get_param("Type") != "instant":
            return plain(self)
        self.error_on_dryrun()
        names = (
            "LaunchTemplateConfigs",
            "TargetCapacitySpecification",
            "TagSpecifications",
            "ClientToken",
            "OnDemandOptions",
            "SpotOptions",
        )
        parameters = {name: self._get_param(name) for name in names}
        return ActionResult(create(self.ec2_backend, _installed(), parameters))

    return create_fleet


def _with_kept_policy(plain: Callable[[Any, str, dict[str, Any]], Any]) -> Callable[[Any, str, dict[str, Any]], Any]:
    """A queue's policy stays where other attributes are set."""

    def set_queue_attributes(self: Any, queue_name: str, attributes: dict[str, Any]) -> Any:
        policy = self.get_queue(queue_name).policy
        kept = attributes if "Policy" in attributes or policy is None else {**attributes, "Policy": policy}
        return plain(self, queue_name, kept)

    return set_queue_attributes


def _with_its_tags(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The tags of a deleted resource go with it."""

    def delete(self: Any, *arguments: Any, **named: Any) -> Any:
        deleted = plain(self, *arguments, **named)
        self.tags.pop(deleted.id, None)
        return deleted

    return delete


def _add_client_id(self: Any) -> Any:
    audiences, client = _audiences(self)
    audiences[:] = [*audiences, *([] if client in audiences else [client])]
    return _nothing()


def _remove_client_id(self: Any) -> Any:
    audiences, client = _audiences(self)
    audiences[:] = [audience for audience in audiences if audience != client]
    return _nothing()


def _audiences(self: Any) -> tuple[list[str], str]:
    """The audiences of the identity provider that the request names, and the one in question."""
    provider = self.backend.get_open_id_connect_provider(self._get_param("OpenIDConnectProviderArn"))
    return provider.client_id_list, str(self._get_param("ClientID"))


def _nothing() -> Any:
    from moto.core.responses import EmptyResult

    return EmptyResult()


def _with_own_key(plain: Method) -> Method:
    """Sessions have keys of their own; moto gives all of them the one in AWS's documentation."""

    def answer(self: Any) -> Any:
        from moto.backends import get_backend
        from moto.sts.utils import random_session_token

        answer = plain(self)
        given = answer.result["Credentials"]
        key = get_backend("iam")[self.current_account][self.partition].create_temp_access_key()
        key.session = random_session_token(), given["Expiration"].replace(tzinfo=UTC)
        given |= {
            "AccessKeyId": key.access_key_id,
            "SecretAccessKey": key.secret_access_key,
            "SessionToken": key.session[0],
        }
        return answer

    return answer


def _with_offered_types(plain: Method) -> Method:
    """Only what the region sells; moto shows every type everywhere."""

    def describe_instance_types(self: Any) -> Any:
        answer = plain(self)
        if not self._get_param("InstanceTypes", []):
            every = answer.result["InstanceTypes"]
            answer.result["InstanceTypes"] = [row for row in every if _lab_offerings().offers(row["InstanceType"])]
        return answer

    return describe_instance_types


def _with_ailments(plain: Method) -> Method:
    """Failed status checks of impaired instances, and since when; moto's are always healthy."""

    def describe_instance_status(self: Any) -> Any:
        from moto.core.responses import ActionResult

        impaired, filters = _lab_offerings().impaired, self._filters_from_querystring()
        rows = []
        for instance in plain(self).result["InstanceStatuses"]:
            ill = instance.id in impaired
            statuses = {"instance-status.status": "impaired" if ill else "ok", "system-status.status": "ok"}
            if all(statuses.get(name, "") in filters[name] for name in (*statuses, "event.code") if name in filters):
                rows.append(_impaired_status(instance, impaired[instance.id]) if ill else instance)
        return ActionResult({"InstanceStatuses": rows})

    return describe_instance_status


def _impaired_status(instance: Any, since: datetime) -> dict[str, Any]:
    failed = {"Status": "impaired", "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}]}
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance._placement.zone,
        "Events": [],
        "InstanceState": {"Name": instance.state, "Code": instance._state.code},
        "InstanceStatus": failed,
        "SystemStatus": {"Status": "ok", "Details": []},
    }


def _spot_prices(self: Any) -> Any:
    """The market's prices, of what it sells."""
    from moto.core.responses import ActionResult

    instance_types = self._get_param("InstanceTypes", [])
    rows = self.ec2_backend.describe_spot_price_history(instance_types, self._filters_from_querystring())
    now = wall().strftime("%Y-%m-%dT%H:%M:%S.000Z")
    history = []
    for row in rows:
        if not _lab_offerings().offers(row["InstanceType"]):
            continue
        price = _lab_offerings().spot(row["InstanceType"], row["Location"])
        if price is not None:
            history.append(
                {
                    "InstanceType": row["InstanceType"],
                    "AvailabilityZone": row["Location"],
                    "Timestamp": now,
                    "ProductDescription": "Linux/UNIX",
                    "SpotPrice": f"{price:.6f}",
                }
            )
    return ActionResult({"SpotPriceHistory": history})


def _with_every_tag(plain: Method) -> Method:
    """moto lets the last of two filters of one name win; EC2 wants both."""

    def describe_instances(self: Any) -> Any:
        keys = [entry["Values"] for entry in self._get_param("Filters", []) if entry["Name"] == "tag-key"]
        answer = plain(self)
        if len(keys) > 1:
            for reservation in answer.result["Reservations"]:
                reservation.instances[:] = [
                    i
                    for i in reservation.instances
                    if all(any(tag["key"] in values for tag in i.get_tags()) for values in keys)
                ]
        return answer

    return describe_instances


def _with_policy_reset(plain: Method) -> Method:
    """`--reset-policy` gives an endpoint of the VPC the policy that allows all."""

    def modify_vpc_endpoint(self: Any) -> Any:
        from moto.ec2.models.vpcs import VPCEndPoint

        answered = plain(self)
        if self._get_bool_param("ResetPolicy"):
            endpoint = self.ec2_backend.vpc_end_points[self._get_param("VpcEndpointId")]
            endpoint.policy_document = json.dumps(VPCEndPoint.DEFAULT_POLICY)
        return answered

    return modify_vpc_endpoint


def _route_state(self: Any) -> str:
    """A route whose gateway is detached, or gone, is a blackhole; moto says that it is active."""
    detached = self.gateway is not None and getattr(self.gateway, "vpc", self.gateway) is None
    deleted = self.nat_gateway is not None and self.nat_gateway.state != "available"
    return "blackhole" if detached or deleted else "active"


def _private_dns(self: Any) -> str:
    address = str(self.private_ip).replace(".", "-")
    region = self.region_name
    return f"ip-{address}.ec2.internal" if region == "us-east-1" else f"ip-{address}.{region}.compute.internal"
