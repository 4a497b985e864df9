"""What goes wrong at AWS, on request: `dovetail fault` with one of these kinds, in a lab that has an account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from dovetail.clock import Clock
from dovetail.lab.aws.ec2 import Ec2
from dovetail.lab.aws.endpoint import Endpoint
from dovetail.lab.aws.eventbridge import SPOT_WARNING, Bridge
from dovetail.lab.aws.injected_errors import Rule
from dovetail.lab.faults.injection import Faults
from dovetail.lab.faults.kinds import Fault, UnknownFault

EVERYTHING = ("*", "*", "*")
#: Seconds from the warning until EC2 terminates a spot instance.
NOTICE = 120.0


class AwsFaults:
    """`instances` knows the instance behind a node, `faults` the node that is meant; `kinds` are added to its own."""

    def __init__(self, endpoint: Endpoint, bridge: Bridge, clock: Clock, instances: Ec2, faults: Faults) -> None:
        self._endpoint = endpoint
        self._bridge = bridge
        self._clock = clock
        self._instances = instances
        self._faults = faults
        self._lose = faults.strikes["instance-gone"]

    @property
    def kinds(self) -> dict[str, Callable[[Fault], str]]:
        return {
            "aws-denied": self._deny,
            "aws-throttled": self._throttle,
            "az-rebalance": self._rebalance,
            "instance-gone": self._vanish,
            "sold-out": self._exhaust_offering,
            "spot-interruption": self._call_back,
            "status-checks": self._ail,
        }

    def _deny(self, fault: Fault) -> str:
        text = "You are not authorized to perform this operation."
        self._trouble(fault, Rule("ec2", "*", "UnauthorizedOperation", text, status=403))
        return f"EC2 refuses every call as unauthorised {fault.spell}"

    def _throttle(self, fault: Fault) -> str:
        every = max(1, round(1 / (fault.amount or 0.5)))
        self._trouble(fault, Rule("ec2", "*", "RequestLimitExceeded", "Request limit exceeded.", every=every))
        return f"EC2 turns one of {every} call(s) away as too many {fault.spell}"

    def _trouble(self, fault: Fault, rule: Rule) -> None:
        self._faults.end(fault.kind)
        self._endpoint.trouble.add(rule)
        self._faults.last(fault, partial(self._endpoint.trouble.remove, rule))

    def _exhaust_offering(self, fault: Fault) -> str:
        self._endpoint.market.refuse(EVERYTHING)
        self._faults.last(fault, partial(self._endpoint.market.allow, EVERYTHING))
        return f"EC2 has no capacity of any kind {fault.spell}"

    def _rebalance(self, fault: Fault) -> str:
        """Every Auto Scaling group ends an instance of its own choice and launches another."""
        groups = list(self._endpoint.backend("autoscaling").autoscaling_groups.values())
        ended = [instance for group in groups if (instance := self._endpoint.scaling.rebalance(group)) is not None]
        if not ended:
            raise UnknownFault("no Auto Scaling group has an instance; create one first")
        return f"rebalancing of zones ended {', '.join(ended)}"

    def _call_back(self, fault: Fault) -> str:
        node, instance = self._struck(fault)
        self._bridge.tell(SPOT_WARNING, {"instance-id": instance, "instance-action": "terminate"})
        asyncio.get_running_loop().call_later(NOTICE, self._terminate, instance)
        return f"the instance of {node} ({instance}) is interrupted"

    def _vanish(self, fault: Fault) -> str:
        """A launched instance ends at EC2 too; the lab's own have none there."""
        node = self._faults.node(fault)
        if node in (node_instances := self._instances.node_instances()):
            self._terminate(node_instances[node])
        return self._lose(fault)

    def _terminate(self, instance: str) -> None:
        self._endpoint.backend("ec2").terminate_instances([instance])

    def _ail(self, fault: Fault) -> str:
        node, instance = self._struck(fault)
        impaired = self._endpoint.market.impaired
        impaired[instance] = self._clock.now()
        self._faults.last(fault, partial(impaired.pop, instance, None), node)
        return f"the instance of {node} ({instance}) fails its status checks {fault.spell}"

    def _struck(self, fault: Fault) -> tuple[str, str]:
        """The node that is meant and the instance behind it; the first launched one by default."""
        node_instances = self._instances.node_instances()
        if not node_instances:
            raise UnknownFault("no instance was launched yet")
        node = self._faults.node(fault) if fault.node else min(node_instances)
        if node not in node_instances:
            raise UnknownFault(f"{node} is no EC2 instance; name one that was launched")
        return node, node_instances[node]
