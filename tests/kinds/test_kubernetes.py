"""Our definitions on a real API server: they accept and refuse what Karpenter's own do, in the same words."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.cli.webhook import application
from dovetail.kube.transport import Request, Transport
from dovetail.lab.real_control_plane import RealControlPlane
from dovetail.model.kinds.convert import mending
from dovetail.model.kinds.crds import KINDS, definitions, render
from tests.kinds import kinds_cases as cases
from tests.kinds import kinds_manifests as m

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
DATA = Path(__file__).parents[1] / "data" / "kinds"
ANSWERS = json.loads((DATA / "answers.json").read_text())
PLURAL = {kind.kind: kind.plural for kind in KINDS}
KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or "kubectl"


class Server:
    def __init__(self, plane: RealControlPlane, transport: Transport) -> None:
        self._plane = plane
        self._transport = transport

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request(method=method, path=path, query=tuple(query.items()), headers=headers, body=data)
        response = await self._transport.send(request)
        return response.status, json.loads(response.body)

    async def patch(self, path: str, body: Any) -> tuple[int, Any]:
        headers = {"content-type": "application/merge-patch+json", "accept": "application/json"}
        request = Request(method="PATCH", path=path, headers=headers, body=json.dumps(body).encode())
        response = await self._transport.send(request)
        return response.status, json.loads(response.body)

    async def kubectl(self, *words: str, stdin: str = "") -> tuple[int, str]:
        command = [KUBECTL, "--kubeconfig", str(self._plane.kubeconfig), *words]
        done = await asyncio.to_thread(subprocess.run, command, input=stdin, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    async def install(self, conversion: dict[str, Any] | None = None) -> None:
        code, said = await self.kubectl("apply", "-f", "-", stdin=render(definitions(conversion)))
        assert code == 0, said
        for _ in range(20):  # kubectl gives up at once on a definition that has no conditions yet
            code, said = await self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            if code == 0:
                break
            await asyncio.sleep(0.25)
        assert code == 0, said
        _, crds = await self.ask("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        conditions = [each["type"] for crd in crds["items"] for each in crd["status"]["conditions"]]
        assert "NonStructuralSchema" not in conditions


@asynccontextmanager
async def server() -> AsyncIterator[Server]:
    async with RealControlPlane() as plane:
        transport = plane.transport()
        try:
            yield Server(plane, transport)
        finally:
            await transport.close()


def on_a_server(test: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with server() as real:
            await test(real)

    asyncio.run(run())


def path_of(obj: Any) -> str:
    return f"/apis/{obj['apiVersion']}/{PLURAL[obj['kind']]}"


def test_every_recorded_answer_is_given_with_our_definitions() -> None:
    async def run(real: Server) -> None:
        await real.install()
        wrong = []
        for name, obj in cases.cases():
            code, said = await real.ask("POST", path_of(obj), obj, dryRun="All", fieldValidation="Strict")
            answer = ANSWERS["cases"][name]
            if (code, said.get("message") if code != 201 else None) != (answer["code"], answer.get("message")):
                wrong.append((name, said.get("message")))
            elif code == 201 and said.get("spec") != answer.get("spec"):
                wrong.append((name, said.get("spec")))
        assert wrong == []
        for name, before, after in cases.moves():
            _, made = await real.ask("POST", path_of(before), before)
            after = {**after, "metadata": {**after["metadata"], "resourceVersion": made["metadata"]["resourceVersion"]}}
            code, said = await real.ask("PUT", path_of(before) + "/case", after)
            assert code == ANSWERS["moves"][name]["code"], name
            assert (said.get("message") if code != 200 else None) == ANSWERS["moves"][name].get("message")
            await real.ask("DELETE", path_of(before) + "/case")

    on_a_server(run)


def test_the_seeds_apply_as_they_stand_or_are_refused_with_the_reason() -> None:
    async def run(real: Server) -> None:
        await real.install()
        for seed in sorted((DATA / "seeds").glob("*.yaml")):
            if seed.stem == "provisioner-stray":
                obj = yaml.safe_load(seed.read_text())
                code, said = await real.ask("POST", path_of(obj), obj, dryRun="All", fieldValidation="Strict")
                assert code == 400
                assert said["message"].endswith('unknown field "spec.requirements[2].requirements"')
            code, said = await real.kubectl("apply", "-f", str(seed))  # kubectl leaves the empty field out
            assert code == 0, said
        code, table = await real.kubectl("get", "provisioners,awsnodetemplates,nodepools,ec2nodeclasses,machines")
        assert code == 0, table
        assert "TEMPLATE" in table
        code, table = await real.kubectl("get", "nodepools.v1.karpenter.sh")
        assert table.split()[:5] == ["NAME", "NODECLASS", "NODES", "READY", "AGE"]
        code, text = await real.kubectl("explain", "nodepool.spec.disruption.budgets")
        assert code == 0
        assert "Caps on how many nodes may be disrupted at once" in text
        assert "rounded up" in text
        # without a webhook the server relabels and prunes; what is left can be mended in place
        for plural in ("karpenter.sh/v1/nodepools", "karpenter.k8s.aws/v1/ec2nodeclasses"):
            await mended(real, f"/apis/{plural}/default")
        _, pool = await real.ask("GET", "/apis/karpenter.sh/v1/nodepools/default")
        assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
        assert pool["spec"]["template"]["spec"]["expireAfter"] == "720h"
        assert pool["spec"]["template"]["spec"]["nodeClassRef"]["kind"] == "EC2NodeClass"
        _, found = await real.ask("GET", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/default")
        assert found["spec"]["amiSelectorTerms"] == [{"alias": "al2023@latest"}]

    on_a_server(run)


async def mended(real: Server, path: str) -> None:
    """The mending is accepted, and afterwards status and metadata can be written."""
    _, stored = await real.ask("GET", path)
    patch = mending(stored)
    assert patch is not None
    code, said = await real.patch(path, patch)
    assert code == 200, said
    assert mending(said) is None
    for where, body in (("/status", {"status": {}}), ("", {"metadata": {"annotations": {"a": "b"}}})):
        code, said = await real.patch(path + where, body)
        assert code == 200, said


def test_installing_twice_changes_nothing() -> None:
    async def run(real: Server) -> None:
        await real.install()
        code, said = await real.kubectl("apply", "-f", "-", stdin=render(definitions()))
        assert code == 0
        assert said and all(line.endswith("unchanged") for line in said.splitlines()), said

    on_a_server(run)


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A certificate for the loopback that is its own authority, and its PEM in base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dovetail")])
    start = datetime.now(UTC) - timedelta(minutes=5)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.crt").write_bytes(pem)
    (folder / "tls.key").write_bytes(secret)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context, base64.b64encode(pem).decode()


@asynccontextmanager
async def converter(folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The conversion webhook, and the clientConfig that reaches it."""

    context, pem = certificate(folder)
    runner = web.AppRunner(application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield {"url": f"https://127.0.0.1:{port}/convert", "caBundle": pem}
    finally:
        await runner.cleanup()


def test_with_the_webhook_both_generations_are_read_and_written(tmp_path: Path) -> None:
    pool = json.loads(json.dumps(m.SEED_POOL))
    pool["spec"]["template"]["spec"]["kubelet"] = {"maxPods": 20}

    async def run(real: Server) -> None:
        async with converter(tmp_path) as client:
            await real.install(client)
            for obj in (pool, m.SEED_CLASS):
                code, said = await real.ask("POST", path_of(obj), obj)
                assert code == 201, said
            _, new = await real.ask("GET", "/apis/karpenter.sh/v1/nodepools/default")
            assert new["spec"]["template"]["spec"]["expireAfter"] == "720h"
            assert new["metadata"]["annotations"]["compatibility.karpenter.sh/v1beta1-kubelet-conversion"] == (
                '{"maxPods":20}'
            )
            _, old = await real.ask("GET", "/apis/karpenter.sh/v1beta1/nodepools/default")
            reference = old["spec"]["template"]["spec"].pop("nodeClassRef")
            assert reference == {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
            assert old["spec"]["template"]["spec"]["kubelet"] == {"maxPods": 20}
            wanted = pool["spec"]["template"]["spec"]
            assert old["spec"]["template"]["spec"]["requirements"] == wanted["requirements"]
            assert old["spec"]["disruption"]["expireAfter"] == "720h"
            assert "annotations" not in old["metadata"]
            new["spec"]["template"]["spec"]["terminationGracePeriod"] = "1h"
            code, said = await real.ask("PUT", "/apis/karpenter.sh/v1/nodepools/default", new)
            assert code == 200, said
            patch = json.dumps({"spec": {"weight": 7}})
            code, said = await real.kubectl(
                "patch", "nodepools.v1beta1.karpenter.sh", "default", "--type=merge", "-p", patch
            )
            assert code == 0, said
            _, new = await real.ask("GET", "/apis/karpenter.sh/v1/nodepools/default")
            assert new["spec"]["template"]["spec"]["terminationGracePeriod"] == "1h"
            assert new["spec"]["weight"] == 7
            _, found = await real.ask("GET", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/default")
            assert found["spec"]["amiSelectorTerms"] == [{"alias": "al2023@latest"}]

    on_a_server(run)


def test_the_first_generation_is_refused_what_its_webhook_refused() -> None:
    def provisioner(**spec: Any) -> Any:
        return {**m.SEED_PROVISIONER, "spec": {**m.SEED_PROVISIONER["spec"], **spec}}

    async def run(real: Server) -> None:
        await real.install()
        for obj, text in (
            (provisioner(ttlSecondsAfterEmpty=30), "ttlSecondsAfterEmpty, consolidation.enabled"),
            (provisioner(provider={"subnetSelector": {"a": "b"}}), "provider, providerRef"),
            (provisioner(weight=101), "less than or equal to 100"),
            ({**m.SEED_TEMPLATE, "spec": {"subnetSelector": {"a": "b"}}}, "missing field(s): securityGroupSelector"),
        ):
            code, said = await real.ask("POST", path_of(obj), obj, dryRun="All")
            assert code == 422, said
            assert text in said["message"]
        inline = provisioner(provider={"subnetSelector": {"a": "b"}, "anything": [1]})
        del inline["spec"]["providerRef"]
        assert (await real.ask("POST", path_of(inline), inline, dryRun="All", fieldValidation="Strict"))[0] == 201
        documents = list(yaml.safe_load_all((DATA / "seeds" / "provisioner-categories.yaml").read_text()))
        assert [(await real.ask("POST", path_of(obj), obj))[0] for obj in documents] == [201, 201]

    on_a_server(run)
