"""The horizontal autoscaler as one of the lab's controllers: it speaks with the controller manager's voice."""

from __future__ import annotations

from dovetail.autoscalers.hpa.controller import HorizontalAutoscaling
from dovetail.autoscalers.hpa.decision import HpaEvent
from dovetail.autoscalers.hpa.spec import HorizontalPodAutoscaler
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import HPAS


def horizontal(kube: Kube, clock: Clock, recorder: EventRecorder) -> HorizontalAutoscaling:
    """The controller, whose events `recorder` writes."""

    def record_event(autoscaler: HorizontalPodAutoscaler, saying: HpaEvent) -> None:
        about = InvolvedObject.of(HPAS.api_version, HPAS.kind, autoscaler.metadata)
        record = recorder.normal if saying.type == "Normal" else recorder.warning
        record(about, saying.reason, saying.message)

    return HorizontalAutoscaling(kube, clock, record_event)
