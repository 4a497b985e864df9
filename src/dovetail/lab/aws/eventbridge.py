"""EventBridge in the lab: instance state changes go to the cluster's queue, by the rules the installer makes."""

from __future__ import annotations

import json
from typing import Any

from dovetail.clock import Clock
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint

STATE_CHANGE = "EC2 Instance State-change Notification"
SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
#: moto ends and stops instances at once; EC2 sends the intermediate states too.
_BEFORE = {"terminated": "shutting-down", "stopped": "stopping"}


class Bridge:
    """Puts messages on the queue, each with the lab's time; with `by_rules` only those that an enabled rule sends."""

    def __init__(self, endpoint: AwsEndpoint, queue: str, clock: Clock, *, by_rules: bool = False) -> None:
        self._endpoint = endpoint
        self._queue = queue
        self._clock = clock
        self._by_rules = by_rules

    def state(self, instance: str, state: str) -> None:
        """An instance is in another state than before."""
        for reported in filter(None, (_BEFORE.get(state), state)):
            self.publish(STATE_CHANGE, {"instance-id": instance, "state": reported})

    def publish(self, kind: str, detail: dict[str, Any], source: str = "aws.ec2") -> None:
        body = {
            "version": "0",
            "source": source,
            "detail-type": kind,
            "account": ACCOUNT,
            "detail": detail,
            "region": self._endpoint.market.region,
            "time": f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}",
            "resources": [],
        }
        sqs = self._endpoint.backend("sqs")
        if self._queue not in sqs.queues:  # a fresh account has none before an installation makes it
            return
        if not self._by_rules or self._is_sent(body):
            sqs.send_message(self._queue, json.dumps(body))

    def _is_sent(self, event: dict[str, Any]) -> bool:
        """Whether an enabled rule matches the event and has the queue as its target, and the queue admits it."""
        policy = self._endpoint.backend("sqs").queues[self._queue].policy
        if "events.amazonaws.com" not in json.dumps(policy or {}):
            return False
        for rule in list(self._endpoint.backend("events").event_buses["default"].rules.values()):
            targets = [str(target["Arn"]).rsplit(":", 1)[-1] for target in rule.targets]
            if rule.state == "ENABLED" and self._queue in targets and rule.event_pattern.matches_event(event):
                return True
        return False
