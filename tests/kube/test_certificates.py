"""Certificates of webhooks: one for all replicas, renewed before the end, and the former authority stays trusted."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta

from dovetail.chance import Chance
from dovetail.cli.webhook import CERTIFICATE_SECRET, keep_certificate
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.certificates import (
    LIFETIME,
    RENEWAL_MARGIN,
    SharedCertificate,
    make_certificate,
    newest_authority,
    service_names,
)
from dovetail.kube.client import Kube
from dovetail.kube.resources import CRDS, NAMESPACES, SECRETS
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.model.kinds import crds

NAMES = service_names("karpenter-webhook", "karpenter")


def connected() -> Kube:
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    return Kube(InProcess(ApiServer(clock, Chance(1))), clock)


def test_replicas_that_start_together_share_one_certificate() -> None:
    async def main() -> None:
        kube = connected()
        await kube.create(NAMESPACES, {"metadata": {"name": "karpenter"}})
        shared = [SharedCertificate(kube, "tls", "karpenter", NAMES) for _ in range(3)]
        certificates = await asyncio.gather(*(replica.current() for replica in shared))
        assert len({certificate.certificate for certificate in certificates}) == 1
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificates[0].load_into(context)

    run_virtual(main())


def test_a_certificate_is_renewed_in_time_and_its_former_authority_stays_trusted() -> None:
    async def main() -> None:
        kube = connected()
        shared = SharedCertificate(kube, "tls", "default", NAMES)
        first = await shared.current()
        await asyncio.sleep((LIFETIME - RENEWAL_MARGIN - timedelta(days=1)).total_seconds())
        assert await shared.current() == first
        await asyncio.sleep(timedelta(days=2).total_seconds())
        second = await shared.current()
        assert second.certificate != first.certificate
        assert second.expires() > kube.clock.now() + RENEWAL_MARGIN
        assert first.authorities in second.authorities
        await asyncio.sleep(LIFETIME.total_seconds())
        third = await shared.current()
        assert newest_authority(second.authorities) in third.authorities
        assert first.authorities not in third.authorities, "the bundle does not grow for ever"

    run_virtual(main())


def test_a_damaged_secret_is_replaced() -> None:
    async def main() -> None:
        kube = connected()
        shared = SharedCertificate(kube, "tls", "default", NAMES)
        await shared.current()
        await kube.patch(SECRETS, "tls", {"data": {"tls.crt": "bm9uc2Vuc2U="}}, "default")
        again = await shared.current()
        assert b"BEGIN CERTIFICATE" in again.certificate

    run_virtual(main())


def test_the_webhook_points_the_definitions_at_its_service() -> None:
    async def main() -> None:
        kube = connected()
        for definition in crds.definitions():
            await kube.create(CRDS, definition)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        keeping = asyncio.ensure_future(keep_certificate(kube, context, "default", "karpenter-webhook", 8443))
        await asyncio.sleep(1.0)
        bundles = set()
        for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):
            written = await kube.get(CRDS, name)
            client = written["spec"]["conversion"]["webhook"]["clientConfig"]
            assert client["service"]["name"] == "karpenter-webhook"
            bundles.add(client["caBundle"])
        assert len(bundles) == 1
        version = written["metadata"]["resourceVersion"]
        await asyncio.sleep(2 * 3600.0)
        assert (await kube.get(CRDS, name))["metadata"]["resourceVersion"] == version, "nothing is written twice"
        assert (await kube.get(SECRETS, CERTIFICATE_SECRET, "default"))["type"] == "kubernetes.io/tls"
        keeping.cancel()

    run_virtual(main())


def test_names_of_a_certificate() -> None:
    from cryptography import x509

    parsed = x509.load_pem_x509_certificate(make_certificate(NAMES, EPOCH).certificate)
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "karpenter-webhook.karpenter.svc" in names.get_values_for_type(x509.DNSName)
