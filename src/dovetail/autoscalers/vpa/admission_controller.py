"""The admission controller: a webhook that gives new pods what their VPA recommends.

It registers itself, keeps that registration and its certificates, and renews a lease that tells the updater that
evicted pods will come back changed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from dovetail import __version__
from dovetail.autoscalers.vpa.admission import MAX_REVIEW_BYTES, answer
from dovetail.autoscalers.vpa.api import (
    LIMITRANGES,
    OFF,
    VPAS,
    WEBHOOKS,
    LimitRange,
    Pod,
    VerticalPodAutoscaler,
)
from dovetail.autoscalers.vpa.capping import NamespaceLimits
from dovetail.autoscalers.vpa.loops import at_intervals
from dovetail.autoscalers.vpa.metrics import AdmissionMetrics
from dovetail.autoscalers.vpa.proportions import ZERO, limit_bounds
from dovetail.autoscalers.vpa.settings import AdmissionSettings
from dovetail.autoscalers.vpa.targets import Selected, TargetError, Workloads, owner_of, strongest
from dovetail.clock import Clock
from dovetail.kube.backoff import Retries
from dovetail.kube.certificates import ServingCertificate, SharedCertificate, service_names
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.log import Log
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import LEASES
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.model.meta import micro
from dovetail.model.quantity import parse
from dovetail.runtime.http_log import http_log

log = Log("vpa-admission-controller")
T = TypeVar("T")

#: Where certificates are kept that no file holds; upstream's script keeps its own in vpa-tls-certs.
SECRET = "vpa-webhook-certs"
CONFIGURATION = "vpa-webhook-config"
WEBHOOK = "vpa.k8s.io"
#: From the start of the server to the registration: the API server shall not call in vain.
REGISTRATION_DELAY_S = 10.0
#: Between two looks at the registration and the certificates.
UPKEEP_INTERVAL_S = 60.0

#: Answers the body of a review with a status and a body.
Review = Callable[[bytes, str], Awaitable[tuple[int, bytes]]]
#: Makes a review function reachable for the API server with these certificates, while its block runs.
Serve = Callable[[Review, ServingCertificate], AbstractAsyncContextManager[Callable[[ServingCertificate], None]]]


async def run(
    settings: AdmissionSettings,
    kube: Kube,
    clock: Clock,
    *,
    identity: str = "vpa-admission-controller",
    metrics: AdmissionMetrics | None = None,
    serve: Serve | None = None,
    certificate: ServingCertificate | None = None,
) -> None:
    """Serve the webhook until cancelled.

    `serve` replaces the HTTPS server, for an API server in the same process; `certificate` replaces the files and the
    Secret.
    """
    log.info("Vertical Pod Autoscaler Admission Controller", version=__version__)
    measured = metrics or AdmissionMetrics(clock)
    controller = AdmissionController(settings, kube, clock, measured, identity, certificate)
    await controller.run(serve or https(settings))


class CertificateError(Exception):
    """Certificate files that cannot be read."""


class AdmissionController:
    """The watches, the webhook, its registration and its lease."""

    def __init__(
        self,
        settings: AdmissionSettings,
        kube: Kube,
        clock: Clock,
        metrics: AdmissionMetrics,
        identity: str,
        certificate: ServingCertificate | None = None,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._clock = clock
        self._metrics = metrics
        self._identity = identity
        namespace = settings.common.namespace or None
        self._workloads = Workloads(kube, settings.common.namespace)
        self._vpas = Reflector(kube, VPAS, VerticalPodAutoscaler, namespace=namespace, indices={"target": _target})
        self._limit_ranges = Reflector(
            kube, LIMITRANGES, LimitRange, namespace=namespace, indices={"namespace": _namespace}
        )
        self._max_boost = parse(settings.max_cpu_boost) if settings.max_cpu_boost else ZERO
        self._given = certificate
        self._held = certificate

    async def run(self, serve: Serve) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in (self._vpas.run, self._limit_ranges.run, self._workloads.run):
                tasks.create_task(watch())
            for watched in (self._vpas, self._limit_ranges):
                await watched.synced.wait()
            await self._workloads.synced()
            self._held = await self._retry(self._certificate)
            async with serve(self.review, self._held) as renew:
                await asyncio.sleep(REGISTRATION_DELAY_S if self._settings.register else 0.0)
                await self._retry(self._keep_registered)
                tasks.create_task(at_intervals(self._clock, UPKEEP_INTERVAL_S, lambda: self._maintain(renew)))
                await at_intervals(self._clock, self._settings.status_lease_interval_s, self._renew_lease)

    async def _retry(self, act: Callable[[], Awaitable[T]]) -> T:
        """Try until the API server lets it be done: a webhook that gives up at a passing refusal serves no pod."""
        pauses, failures = Retries(base=1.0, cap=30.0), 0
        while True:
            try:
                return await act()
            except KubeError as problem:
                failures += 1
                log.error("Webhook not registered yet", problem=str(problem), failures=failures)
                await asyncio.sleep(pauses.pause(failures, self._kube.chance))

    # Reviews

    async def review(self, body: bytes, content_type: str) -> tuple[int, bytes]:
        """The answer to a request of the API server: a status and a body."""
        began = self._clock.monotonic()
        if content_type != "application/json":
            self._metrics.latency.labels("error", "unknown").observe(0.0)
            return 200, b""
        if len(body) > MAX_REVIEW_BYTES:
            self._metrics.latency.labels("error", "unknown").observe(0.0)
            return 413, b"request payload too large\n"
        with self._metrics.step("total"), self._metrics.step("admit"):
            reviewed = await answer(body, self, self._settings.common.gates, self._max_boost)
        if reviewed.resource == "Pod":
            self._metrics.pods.labels(str(reviewed.status == "applied").lower()).inc()
        self._metrics.latency.labels(reviewed.status, reviewed.resource).observe(self._clock.monotonic() - began)
        return 200, msgspec.json.encode(reviewed.review)

    async def matching(self, pod: Pod) -> VerticalPodAutoscaler | None:
        """The VPA of a pod. One in mode Off counts only for its startup boost."""
        namespace = pod.metadata.namespace
        try:
            parent = await self._workloads.topmost(owner_of(namespace, pod.metadata.owner_references))
        except TargetError as problem:
            log.error("Failed to get parent controller for pod", pod=pod.metadata.name, problem=str(problem))
            return None
        if parent is None:
            return None
        candidates = []
        for vpa in self._vpas.store.by("target", (namespace, parent.kind, parent.name)):
            if vpa.update_mode == OFF and not vpa.has_startup_boost:
                continue
            try:
                candidates.append(Selected(vpa, await self._workloads.selector(vpa)))
            except TargetError as problem:
                log.debug("Skipping VPA object because we cannot fetch selector", problem=str(problem))
        owner = strongest(pod, parent, candidates)
        return owner.vpa if owner is not None else None

    def limits(self, namespace: str) -> NamespaceLimits:
        ranges = self._limit_ranges.store.by("namespace", namespace)
        return NamespaceLimits(container=limit_bounds(ranges, "Container"), pod=limit_bounds(ranges, "Pod"))

    # Registration

    async def _certificate(self) -> ServingCertificate:
        settings = self._settings
        if self._given is not None:
            return self._given
        files = [Path(name) for name in (settings.ca_file, settings.cert_file, settings.key_file)]
        if all(file.exists() for file in files) or not settings.generate_certs:
            try:
                authorities, certificate, key = (file.read_bytes() for file in files)
            except OSError as error:
                how = message("mount the secret vpa-tls-certs, or leave --generate-certs on")
                raise CertificateError(f"{error.filename}: {system_error(error)}; {how}") from error
            return ServingCertificate(authorities=authorities, certificate=certificate, key=key)
        names = service_names(settings.service, settings.pod_namespace)
        return await SharedCertificate(self._kube, SECRET, settings.pod_namespace, names).current()

    async def _maintain(self, renew: Callable[[ServingCertificate], None]) -> None:
        """Follow changed certificates, and put the registration back if it is gone or has another authority."""
        try:
            follow = self._settings.reload_cert or self._settings.generate_certs
            fresh = await self._certificate() if follow else self._held
            if fresh is not None and fresh != self._held:
                renew(fresh)
                self._held = fresh
            await self._keep_registered()
        except (KubeError, CertificateError, ssl.SSLError) as problem:
            log.error("Webhook upkeep failed", problem=str(problem))

    async def _keep_registered(self) -> None:
        if not self._settings.register:
            return
        assert self._held is not None
        desired = configuration(self._settings, self._held.bundle)
        try:
            held = await self._kube.get(WEBHOOKS, CONFIGURATION)
        except NotFound:
            try:
                await self._kube.create(WEBHOOKS, desired)
                log.info("Self registration as MutatingWebhook succeeded.")
            except AlreadyExists:
                log.info("Another replica registered the webhook")
            return
        if _differs(desired["webhooks"][0], (held.get("webhooks") or [{}])[0]):
            await self._kube.patch(WEBHOOKS, CONFIGURATION, {"webhooks": desired["webhooks"]})
            log.info("Self registration as MutatingWebhook succeeded.")

    async def _renew_lease(self) -> None:
        """Say that the webhook works; a failure is only logged: the updater then waits.

        With an expired certificate no API server calls it, and evicted pods would come back as they were.
        """
        if self._held is not None and self._held.is_expired(self._clock.now()):
            log.error("Status not updated, the serving certificate has expired", holderIdentity=self._identity)
            return
        try:
            async with asyncio.timeout(self._settings.status_lease_interval_s):
                await self._put_lease()
        except (KubeError, TimeoutError) as problem:
            log.error("Status update failed", holderIdentity=self._identity, problem=str(problem))

    async def _put_lease(self) -> None:
        """By GET and PUT: upstream's role does not let the admission controller patch leases."""
        settings = self._settings
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(settings.status_lease_interval_s)),
        }
        metadata = {"name": settings.status_lease_name, "namespace": settings.status_lease_namespace}
        try:
            lease = await self._kube.get(LEASES, metadata["name"], metadata["namespace"])
        except NotFound:
            await self._kube.create(LEASES, {"metadata": metadata, "spec": spec})
            return
        spec["renewTime"] = micro(self._clock.now())
        await self._kube.update(LEASES, {**lease, "spec": {**(lease.get("spec") or {}), **spec}})


def configuration(settings: AdmissionSettings, bundle: str) -> dict[str, Any]:
    """The MutatingWebhookConfiguration by which the API server calls us."""
    client: dict[str, Any] = {"caBundle": bundle} if bundle else {}
    if settings.url is not None:
        client["url"] = settings.url
    else:
        client["service"] = {"namespace": settings.pod_namespace, "name": settings.service}
    ignored = sorted(settings.common.ignored_namespaces) or [""]
    selector = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ignored}
    webhook = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "rules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["autoscaling.k8s.io"],
                "apiVersions": ["*"],
                "resources": ["verticalpodautoscalers"],
            },
        ],
        "failurePolicy": "Fail" if settings.fail_closed else "Ignore",
        "clientConfig": client,
        "sideEffects": "None",
        "timeoutSeconds": settings.webhook_timeout_s,
        "namespaceSelector": {"matchExpressions": [selector]},
    }
    labels = {"labels": dict(settings.webhook_labels)} if settings.webhook_labels else {}
    return {"metadata": {"name": CONFIGURATION, **labels}, "webhooks": [webhook]}


def _differs(desired: Any, held: Any) -> bool:
    """Whether a registration lacks something of ours; what the API server adds by default does not matter."""
    if isinstance(desired, dict):
        return not isinstance(held, dict) or any(_differs(value, held.get(key)) for key, value in desired.items())
    if isinstance(desired, list):
        return (
            not isinstance(held, list)
            or len(desired) != len(held)
            or any(_differs(*pair) for pair in zip(desired, held, strict=True))
        )
    return bool(desired != held)


def https(settings: AdmissionSettings) -> Serve:
    """Serve over HTTPS at the port of the settings."""

    @asynccontextmanager
    async def serve(
        review: Review, certificate: ServingCertificate
    ) -> AsyncIterator[Callable[[ServingCertificate], None]]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        newest = settings.min_tls_version == "tls1_3"
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
        if settings.tls_ciphers:
            context.set_ciphers(settings.tls_ciphers)
        certificate.load_into(context)

        async def handle(request: web.Request) -> web.Response:
            length = request.content_length
            if length is not None and length > MAX_REVIEW_BYTES:
                return web.Response(status=413, text="request payload too large\n")
            status, body = await review(await request.read(), request.content_type)
            return web.Response(status=status, body=body, content_type="application/json")

        app = web.Application(client_max_size=2 * MAX_REVIEW_BYTES)
        app.router.add_post("/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, logger=http_log)
        await runner.setup()
        try:
            # Every address, IPv4 and IPv6: a pod of an IPv6 cluster has none of the other.
            await web.TCPSite(runner, None, settings.port, ssl_context=context).start()
            yield lambda fresh: fresh.load_into(context)
        finally:
            await runner.cleanup()

    return serve


def _target(vpa: VerticalPodAutoscaler) -> tuple[tuple[str, str, str], ...]:
    ref = vpa.spec.target_ref
    return () if ref is None else ((vpa.metadata.namespace, ref.kind, ref.name),)


def _namespace(item: LimitRange) -> tuple[str]:
    return (item.metadata.namespace,)
