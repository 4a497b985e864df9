"""Karpenter's decisions, emulated: its scheduler, its batches, its disruption methods, with kube-scheduler in the loop.

What carries decisions out (launch, registration, drain, termination) is the same as Dovetail's, so a comparison shows
the decisions alone.
"""

from __future__ import annotations

from dovetail.controllers.disruption.controller import DisruptionController
from dovetail.controllers.manager import CONTROLLERS, MakeController
from dovetail.controllers.provisioning.provisioner import Provisioner
from dovetail.studies.karpenter.disruption import KarpenterDisruption
from dovetail.studies.karpenter.nominations import NodeNominations
from dovetail.studies.karpenter.provisioner import KarpenterProvisioner

#: Settings of the controllers: Karpenter binds no pod, and takes the first answer of its scheduler.
SETTINGS = {"place": "off", "plan_deadline": 0.0}


def controllers() -> tuple[MakeController, ...]:
    """Our controllers, with Karpenter's decisions in place of ours."""
    nominations = NodeNominations()

    def replaced(make: MakeController) -> MakeController:
        if make is Provisioner:
            return lambda context: KarpenterProvisioner(context, nominations)
        if make is DisruptionController:
            return lambda context: KarpenterDisruption(context, nominations)
        return make

    return tuple(replaced(make) for make in CONTROLLERS)
