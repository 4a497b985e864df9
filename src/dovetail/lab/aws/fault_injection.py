"""What goes wrong at AWS, on request: `dovetail fault` with one of these kinds, in a lab that has an account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from dovetail.clock import Clock
from dovetail.install.iam import NODEPOOL
from dovetail.lab.aws.ec2 import Ec2
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.eventbridge import SPOT_WARNING, Bridge
from dovetail.lab.aws.injected_errors import ErrorRule
from dovetail.lab.faults.injection import Faults
from dovetail.lab.faults.kinds import InjectedFault, UnknownFault
from dovetail.language import message

EVERYTHING = ("*", "*", "*")
#: Seconds from the warning until EC2 terminates a spot instance.
NOTICE = 120.0


class AwsFaults:
    """`instances` knows the instance behind a node, `faults` the node that is meant; `kinds` are added to its own."""

    def __init__(self, endpoint: AwsEndpoint, bridge: Bridge, clock: Clock, instances: Ec2, faults: Faults) -> None:
        self._endpoint = endpoint
        self._bridge = bridge
        self._clock = clock
        self._instances = instances
        self._faults = faults
        self._lose = faults.handlers["instance-gone"]

    @property
    def kinds(self) -> dict[str, Callable[[InjectedFault], str]]:
        return {
            "aws-denied": self._deny,
            "aws-throttled": self._throttle,
            "az-rebalance": self._rebalance,
            "instance-gone": self._vanish,
            "sold-out": self._exhaust_offering,
            "spot-interruption": self._call_back,
            "status-checks": self._impair_instance,
        }

    def _deny(self, fault: InjectedFault) -> str:
        text = "You are not authorized to perform this operation."
        self._inject_errors(fault, ErrorRule("ec2", "*", "UnauthorizedOperation", text, status=403))
        return message("EC2 refuses every call as unauthorised {spell}", spell=fault.spell)

    def _throttle(self, fault: InjectedFault) -> str:
        every = max(1, round(1 / (fault.amount or 0.5)))
        self._inject_errors(
            fault, ErrorRule("ec2", "*", "RequestLimitExceeded", "Request limit exceeded.", every=every)
        )
        return message("EC2 turns one of {n} call(s) away as too many {spell}", n=every, spell=fault.spell)

    def _inject_errors(self, fault: InjectedFault, rule: ErrorRule) -> None:
        self._faults.end(fault.kind)
        self._endpoint.trouble.add(rule)
        self._faults.last(fault, partial(self._endpoint.trouble.remove, rule))

    def _exhaust_offering(self, fault: InjectedFault) -> str:
        self._endpoint.market.refuse(EVERYTHING)
        self._faults.last(fault, partial(self._endpoint.market.allow, EVERYTHING))
        return message("EC2 has no capacity of any kind {spell}", spell=fault.spell)

    def _rebalance(self, fault: InjectedFault) -> str:
        """Every Auto Scaling group ends an instance of its own choice and launches another."""
        groups = list(self._endpoint.backend("autoscaling").autoscaling_groups.values())
        ended = [instance for group in groups if (instance := self._endpoint.scaling.rebalance(group)) is not None]
        if not ended:
            raise UnknownFault(
                message("no Auto Scaling group has an instance and its process AZRebalance; create or resume one first")
            )
        return message("rebalancing of zones ended {instances}", instances=", ".join(ended))

    def _call_back(self, fault: InjectedFault) -> str:
        node, instance = self._target(fault, spot=True)
        self._bridge.publish(SPOT_WARNING, {"instance-id": instance, "instance-action": "terminate"})
        asyncio.get_running_loop().call_later(NOTICE, self._terminate, instance)
        return message("the instance of {node} ({instance}) is interrupted", node=node, instance=instance)

    def _vanish(self, fault: InjectedFault) -> str:
        """A launched instance ends at EC2 too; the lab's own have none there."""
        node_instances = self._instances.node_instances()
        launched = self._launched(node_instances)
        if not fault.node and launched:
            fault = msgspec.structs.replace(fault, node=launched[0])
        node = self._faults.node(fault)
        if node in node_instances:
            self._terminate(node_instances[node])
        return self._lose(fault)

    def _terminate(self, instance: str) -> None:
        self._endpoint.backend("ec2").terminate_instances([instance])

    def _impair_instance(self, fault: InjectedFault) -> str:
        node, instance = self._target(fault)
        impaired = self._endpoint.market.impaired
        impaired[instance] = self._clock.now()
        self._faults.last(fault, partial(impaired.pop, instance, None), node)
        return message(
            "the instance of {node} ({instance}) fails its status checks {spell}",
            node=node,
            instance=instance,
            spell=fault.spell,
        )

    def _launched(self, node_instances: Mapping[str, str], *, spot: bool = False) -> list[str]:
        """The nodes whose instances were launched for a NodePool, then those of node groups; spot instances alone."""
        described = {instance.id: instance for instance in self._endpoint.instances()}
        chosen = []
        for node, instance_id in sorted(node_instances.items()):
            instance = described.get(instance_id)
            if spot and (instance is None or instance.lifecycle != "spot"):
                continue
            tags = {tag["key"] for tag in instance.get_tags()} if instance is not None else set()
            chosen.append((NODEPOOL not in tags, node))
        return [node for _, node in sorted(chosen)]

    def _target(self, fault: InjectedFault, *, spot: bool = False) -> tuple[str, str]:
        """The node that is meant and the instance behind it; one that was launched for a NodePool by default."""
        node_instances = self._instances.node_instances()
        if not node_instances:
            raise UnknownFault(message("no instance was launched yet"))
        launched = self._launched(node_instances, spot=spot)
        if not fault.node and not launched:
            raise UnknownFault(
                message(
                    "no spot instance runs here; allow spot in a NodePool's karpenter.sh/capacity-type, or name an "
                    "instance with --node"
                )
            )
        node = self._faults.node(fault) if fault.node else launched[0]
        if node not in node_instances:
            raise UnknownFault(message("{node} is no EC2 instance; name one that was launched", node=node))
        return node, node_instances[node]
