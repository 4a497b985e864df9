"""Auto Scaling in the lab: moto keeps the groups; this launches and ends their instances as AWS does.

Instances come one by one, of the type and in the zone that the group's policy and the market allow; a refusal is a
failed scaling activity and is tried again. A mixed instances policy splits on-demand and spot and honours its maximum
price. An instance that was ended elsewhere is replaced. What `aws autoscaling suspend-processes` names does not happen.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import msgspec

from dovetail.clock import wall
from dovetail.lab.aws.http_forms import Answer, Environ, body_of, one
from dovetail.lab.aws.offerings import LabOfferings

NAMESPACE = 'xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"'
#: Between two tries of a group that gets no instance.
RETRY_S = 30.0
MAX_ACTIVITIES = 100
GROUP_TAG = "aws:autoscaling:groupName"
_GONE = ("shutting-down", "terminated", "stopping", "stopped")
_NO_CAPACITY = (
    "We currently do not have sufficient {type} capacity in the Availability Zone you requested ({zone}). "
    "Launching EC2 instance failed."
)
_TOO_DEAR = (
    "Your Spot request price of {most} is lower than the minimum required Spot request fulfillment price of {price}."
)


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """One scaling activity, as DescribeScalingActivities shows it."""

    id: str
    group: str
    description: str
    cause: str
    start: datetime
    status: str = "Successful"
    message: str = ""

    def shown(self) -> str:
        facts = {
            "ActivityId": self.id,
            "AutoScalingGroupName": self.group,
            "Description": self.description,
            "Cause": self.cause,
            "StartTime": f"{self.start:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            "EndTime": f"{self.start:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            "StatusCode": self.status,
            "Progress": "100",
            **({"StatusMessage": self.message} if self.message else {}),
        }
        return "".join(f"<{name}>{escape(value)}</{name}>" for name, value in facts.items())


class NextLaunch(msgspec.Struct, frozen=True):
    """What a group would launch next."""

    instance_type: str
    zone: str
    subnet: str
    kind: str


class AutoScaling:
    """Shared by the threads that serve AWS. `now` stamps activities: the lab's time where it is not the wall's."""

    def __init__(self, market: LabOfferings) -> None:
        self._market = market
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._activities: dict[str, list[Activity]] = {}
        self._tried: dict[str, datetime] = {}
        self.now: Callable[[], datetime] = wall

    def around(self, inner: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """A WSGI application that answers what moto does not."""

        def application(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
            answer = self.answer(environ)
            if answer is None:
                return inner(environ, start)
            status, kind, body = answer
            start(f"{status} OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
            return [body]

        return application

    def answer(self, environ: Environ) -> Answer | None:
        if environ.get("REQUEST_METHOD") != "POST" or "form" not in environ.get("CONTENT_TYPE", ""):
            return None
        form = parse_qs(body_of(environ).decode(errors="replace"))
        if one(form, "Action") != "DescribeScalingActivities":
            return None
        name = one(form, "AutoScalingGroupName")
        with self._lock:
            names = [name] if name else list(self._activities)
            activities = [activity for group in names for activity in self._activities.get(group, ())]
        activities.sort(key=lambda activity: activity.start, reverse=True)
        members = "".join(f"<member>{activity.shown()}</member>" for activity in activities[:MAX_ACTIVITIES])
        action = "DescribeScalingActivities"
        result = f"<{action}Result><Activities>{members}</Activities></{action}Result>"
        return 200, "text/xml", f"<{action}Response {NAMESPACE}>{result}</{action}Response>".encode()

    # Groups

    def resize(self, group: Any, size: int | None) -> None:
        """Moto's group gets another desired capacity."""
        with self._lock:
            group.desired_capacity = group.min_size if size is None else size
            self._tried.pop(group.name, None)
            self._forget_dead(group)
            self._balance(group)

    def reconcile(self, groups: Iterable[Any]) -> None:
        """Replace what was lost and try again what failed; called every few seconds."""
        with self._lock:
            for group in groups:
                self._forget_dead(group)
                self._balance(group)

    def rebalance(self, group: Any) -> str | None:
        """AZRebalance: an instance of the group's own choice ends, and another is launched for it."""
        with self._lock:
            living = list(group.instance_states)
            if not living or _suspended(group) & {"AZRebalance", "Launch", "Terminate"}:
                return None
            zones = [state.instance.placement.zone for state in living]
            fullest = max(living, key=lambda state: (zones.count(state.instance.placement.zone), state.instance.id))
            self._end(group, fullest, "an instance was taken out of service in response to a rebalancing of zones.")
            self._balance(group)
            return str(fullest.instance.id)

    def _forget_dead(self, group: Any) -> None:
        if _suspended(group) & {"HealthCheck", "ReplaceUnhealthy"}:
            return
        dead = [state for state in group.instance_states if state.instance.state in _GONE]
        for state in dead:
            group.instance_states.remove(state)

    def _balance(self, group: Any) -> None:
        suspended = _suspended(group)
        excess = 0 if "Terminate" in suspended else len(group.instance_states) - int(group.desired_capacity or 0)
        for state in self._first_to_go(group)[: max(0, excess)]:
            self._end(group, state, "the desired capacity was lowered, shrinking the capacity.")
        if "Launch" in suspended:
            return
        tried = self._tried.get(group.name)
        if tried is not None and self.now() - tried < timedelta(seconds=RETRY_S):
            return
        while len(group.instance_states) < int(group.desired_capacity or 0):
            if not self._launch(group):
                self._tried[group.name] = self.now()
                return
        self._tried.pop(group.name, None)

    def _first_to_go(self, group: Any) -> list[Any]:
        """The default termination policy: of the fullest zone, the oldest."""
        states = [state for state in group.instance_states if not state.protected_from_scale_in]
        zones = [state.instance.placement.zone for state in states]
        return sorted(
            states, key=lambda state: (-zones.count(state.instance.placement.zone), state.instance.launch_time)
        )

    def _end(self, group: Any, state: Any, why: str) -> None:
        group.instance_states.remove(state)
        group.autoscaling_backend.ec2_backend.terminate_instances([state.instance.id])
        self._record(group, f"Terminating EC2 instance: {state.instance.id}", why)

    def _launch(self, group: Any) -> bool:
        cause = f"an instance was started in response to a desired capacity of {group.desired_capacity}."
        refusal = ""
        for offer in self._offers(group):
            refused = self._refusal(group, offer)
            if refused is None:
                instance = self._run(group, offer)
                self._record(group, f"Launching a new EC2 instance: {instance.id}", cause)
                return True
            refusal = refusal or refused
        self._record(
            group, "Launching a new EC2 instance.  Status Reason: " + refusal, cause, status="Failed", message=refusal
        )
        return False

    def _offers(self, group: Any) -> list[NextLaunch]:
        """In the order in which AWS would try them."""
        policy = group.mixed_instances_policy or {}
        overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or ()
        types = [override["InstanceType"] for override in overrides if override.get("InstanceType")]
        types = types or [group.instance_type]
        kind = self._next_kind(group, policy.get("InstancesDistribution") or {})
        counts: dict[str, int] = {}
        for state in group.instance_states:
            zone = state.instance.placement.zone
            counts[zone] = counts.get(zone, 0) + 1
        places = sorted(self._places(group), key=lambda place: counts.get(place[0], 0))
        offers = [NextLaunch(name, zone, subnet, kind) for zone, subnet in places for name in types]
        if kind == "spot":
            offers.sort(key=lambda offer: self._market.price(offer.instance_type, offer.zone, kind))
        return offers

    def _next_kind(self, group: Any, distribution: Mapping[str, Any]) -> str:
        """On-demand up to the base and its share of what is above it, spot beyond."""
        if not distribution:
            return "on-demand"
        base = int(distribution.get("OnDemandBaseCapacity") or 0)
        share = distribution.get("OnDemandPercentageAboveBaseCapacity")
        percent = 100 if share is None else int(share)
        there = len(group.instance_states) + 1
        on_demand = sum(state.instance.lifecycle != "spot" for state in group.instance_states)
        on_demand_target = min(there, base) + -(-max(0, there - base) * percent // 100)
        return "on-demand" if on_demand < on_demand_target else "spot"

    def _places(self, group: Any) -> list[tuple[str, str]]:
        if group.vpc_zone_identifier:
            backend = group.autoscaling_backend.ec2_backend
            subnets = group.vpc_zone_identifier.split(",")
            return [(backend.get_subnet(subnet.strip()).availability_zone, subnet.strip()) for subnet in subnets]
        return [(zone, "") for zone in group.availability_zones]

    def _refusal(self, group: Any, offer: NextLaunch) -> str | None:
        code = self._market.refusal(offer.instance_type, offer.zone, offer.kind)
        if code is not None:
            return _NO_CAPACITY.format(type=offer.instance_type, zone=offer.zone)
        if offer.kind == "spot":
            distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution") or {}
            most = distribution.get("SpotMaxPrice")
            price = self._market.price(offer.instance_type, offer.zone, "spot")
            if most not in (None, "") and price > float(str(most)):
                return _TOO_DEAR.format(most=most, price=f"{price:.4f}")
        return None

    def _run(self, group: Any, offer: NextLaunch) -> Any:
        from moto.autoscaling.models import InstanceState

        backend = group.autoscaling_backend.ec2_backend
        tags = {**group.get_propagated_tags(), **group.instance_tags, GROUP_TAG: group.name}
        data = _template_data(group)
        interface: Mapping[str, Any] = (data.get("NetworkInterfaces") or [{}])[0]
        subnet = offer.subnet or _default_subnet(backend, offer.zone)
        reservation = backend.run_instances(
            image_id=group.image_id, count=1, user_data=group.user_data, security_group_names=[],
            security_group_ids=list(interface.get("Groups") or data.get("SecurityGroupIds") or ()),
            instance_type=offer.instance_type, is_instance_type_default=False, region_name=backend.region_name,
            subnet_id=subnet, tags={"instance": tags}, client_token=None,
            block_device_mappings=data.get("BlockDeviceMappings") or [],
            metadata_options=dict(data.get("MetadataOptions") or {}), associate_public_ip=False,
            lifecycle="spot" if offer.kind == "spot" else None, nics={}, key_name=None, placement=offer.zone,
        )  # fmt: skip
        instance = reservation.instances[0]
        profile = data.get("IamInstanceProfile") or {}
        name = profile.get("Name") or str(profile.get("Arn", "")).rpartition("/")[2]
        if name:
            backend.associate_iam_instance_profile(instance.id, name)
        instance.autoscaling_group = group
        protected = group.new_instances_protected_from_scale_in
        group.instance_states.append(InstanceState(instance, protected_from_scale_in=protected))
        return instance

    def _record(self, group: Any, description: str, cause: str, status: str = "Successful", message: str = "") -> None:
        now = self.now()
        made = Activity(
            id=f"00000000-0000-0000-0000-{next(self._numbers):012d}", group=group.name, description=description,
            cause=f"At {now:%Y-%m-%dT%H:%M:%SZ} {cause}", start=now, status=status, message=message,
        )  # fmt: skip
        kept = self._activities.setdefault(group.name, [])
        kept.append(made)
        del kept[:-MAX_ACTIVITIES]


_LAUNCH_ARGUMENTS = ("mixed_instances_policy", "launch_template", "launch_config_name")
_scaling: AutoScaling | None = None


def install(scaling: AutoScaling) -> None:
    """Moto's groups launch and end through `scaling` from now on."""
    global _scaling
    first = _scaling is None
    _scaling = scaling
    if not first:
        return
    from moto.autoscaling.models import FakeAutoScalingGroup

    def set_desired_capacity(self: Any, new_capacity: int | None) -> None:
        assert _scaling is not None
        _scaling.resize(self, new_capacity)

    FakeAutoScalingGroup.set_desired_capacity = set_desired_capacity
    moto_update = FakeAutoScalingGroup.update
    parameters = inspect.signature(moto_update)

    def update(self: Any, *arguments: Any, **named: Any) -> None:
        """Without a new source of instances the present one stays, also where it is a mixed instances policy."""
        bound = parameters.bind(self, *arguments, **named)
        if self.mixed_instances_policy and not any(bound.arguments.get(field) for field in _LAUNCH_ARGUMENTS):
            bound.arguments["mixed_instances_policy"] = policy = deepcopy(self.mixed_instances_policy)
            policy["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)  # the id is enough
        moto_update(*bound.args, **bound.kwargs)

    FakeAutoScalingGroup.update = update


def _suspended(group: Any) -> set[str]:
    return {str(process["ProcessName"]) for process in group.suspended_processes}


def _template_data(group: Any) -> Mapping[str, Any]:
    if not group.ec2_launch_template:
        return {}
    data: Mapping[str, Any] = group.ec2_launch_template.get_version(group.launch_template_version).data
    return data


def _default_subnet(backend: Any, zone: str) -> str | None:
    subnets = backend.describe_subnets(filters={"availability-zone": zone})
    return str(subnets[0].id) if subnets else None
