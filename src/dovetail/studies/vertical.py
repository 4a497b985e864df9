"""The Vertical Pod Autoscaler in a lab in virtual time: its definitions and its three programs."""

from __future__ import annotations

import asyncio

from dovetail.autoscalers.vpa import admission_controller, crds, recommender, updater
from dovetail.autoscalers.vpa.settings import AdmissionSettings, CommonSettings, RecommenderSettings, UpdaterSettings
from dovetail.kube.resources import CRDS
from dovetail.lab.cluster import Lab
from dovetail.lab.webhook_services import NO_CERTIFICATE, in_process

_NAMESPACE, _SERVICE = "kube-system", "vpa-webhook"


async def run(lab: Lab) -> None:
    """Until cancelled."""
    assert lab.server is not None
    for definition in crds.definitions():
        await lab.kube.create(CRDS, definition)
    common = CommonSettings(address="")
    serve = in_process(lab.server, _NAMESPACE, _SERVICE)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            recommender.run(RecommenderSettings(common=common), lab.client("vpa-recommender"), lab.clock),
            name="vpa recommender",
        )
        group.create_task(
            updater.run(UpdaterSettings(common=common), lab.client("vpa-updater"), lab.clock), name="vpa updater"
        )
        group.create_task(
            admission_controller.run(
                AdmissionSettings(common=common),
                lab.client("vpa-admission-controller"),
                lab.clock,
                serve=serve,
                certificate=NO_CERTIFICATE,
            ),
            name="vpa admission controller",
        )
