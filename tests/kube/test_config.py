"""Kubeconfigs: what kubectl would do, and complaints that name the file, the field and the way out."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.kube import config
from dovetail.kube.credentials import ConfigError, Exec, TokenFile
from dovetail.kube.http import Anonymous

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def pair() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(START - dt.timedelta(days=1))
        .not_valid_after(START + dt.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


CERTIFICATE, KEY = pair()


def write(
    path: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any
) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "current-context": "x",
        **more,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def headers(connection: config.Connection) -> dict[str, str]:
    return dict(asyncio.run(_headers(connection)))


async def _headers(connection: config.Connection) -> Any:
    return await connection.credentials.headers()


def test_a_plain_kubeconfig_gives_server_namespace_and_token(tmp_path: Path) -> None:
    found = config.load(write(tmp_path / "k", user={"token": "secret"}))
    assert (found.server, found.namespace, found.context) == ("https://10.0.0.1:6443", "ns", "x")
    assert headers(found) == {"authorization": "Bearer secret"}


def test_certificates_may_be_inline_or_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CERTIFICATE)
    (tmp_path / "key.pem").write_bytes(KEY)
    user = {"client-certificate-data": base64.b64encode(CERTIFICATE).decode(), "client-key": "key.pem"}
    found = config.load(write(tmp_path / "k", cluster={"certificate-authority": "ca.pem"}, user=user))
    assert len(found.tls.get_ca_certs()) == 1
    assert found.tls.verify_mode == ssl.CERT_REQUIRED


def test_verification_can_be_switched_off_and_the_server_name_set(tmp_path: Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    found = config.load(write(tmp_path / "k", cluster=cluster))
    assert found.tls.verify_mode == ssl.CERT_NONE
    assert (found.server_name, found.proxy) == ("kubernetes", "http://proxy:3128")
    assert isinstance(found.credentials, Anonymous)


def test_several_files_count_as_one_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"current-context": "x", "users": [{"name": "u", "user": {"token": "one"}}]}))
    second = write(tmp_path / "second", user={"token": "two"}, **{"current-context": "other"})
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'missing'}:{second}")
    assert headers(config.load()) == {"authorization": "Bearer one"}


def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u", "namespace": name}} for name in ("x", "y")]
    assert config.load(write(tmp_path / "k", contexts=contexts), context="y").namespace == "y"


def test_passwords_are_sent_as_basic(tmp_path: Path) -> None:
    found = config.load(write(tmp_path / "k", user={"username": "a", "password": "b"}))
    assert headers(found) == {"authorization": "Basic YTpi"}


EXEC = {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current-context": "nope"}, r"contexts: no context is named 'nope': there are x"),
        ({"current-context": ""}, r"current-context is empty: choose one with kubectl config use-context"),
        ({"clusters": []}, r"contexts\[x\].context.cluster: no cluster is named 'c': there are none"),
        ({"cluster": {"server": "10.0.0.1"}}, r"clusters\[c\].cluster.server: must be a URL such as"),
        ({"cluster": {"server": 5}}, r"cluster.server: must be a string, not 5"),
        ({"cluster": {"certificate-authority": "gone.pem"}}, r"certificate-authority: .*gone.pem cannot be read"),
        ({"cluster": {"certificate-authority-data": "%%"}}, r"certificate-authority-data: is not base64"),
        ({"cluster": {"certificate-authority-data": "aGVsbG8="}}, r"certificate-authority: is not a PEM certificate"),
        ({"cluster": {"proxy-url": "socks5://p:1"}}, r"proxy-url: 'socks5://p:1': only http:// and https://"),
        ({"user": {"client-certificate-data": "aGVsbG8="}}, r"users\[u\].user.client-key: is missing"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, r"auth-provider: is gone since Kubernetes 1.26"),
        ({"user": {"exec": {"command": "x", "apiVersion": "v1alpha1"}}}, r"exec.apiVersion"),
        ({"users": [{"user": {}}]}, r"users: every entry needs a name"),
        ({"contexts": 1.5}, r"contexts: '1.5' is not a list; mend it"),
        ({"clusters": {"name": "c"}}, r"clusters: .* is not a list"),
        ({"contexts": [{"name": "x", "context": "c"}]}, r"contexts\[x\].context: 'c' is not a mapping"),
        ({"user": {"exec": "aws"}}, r"users\[u\].user.exec: 'aws' is not a mapping"),
        ({"user": {"exec": {**EXEC, "args": 7}}}, r"exec.args: '7' is not a list"),
        ({"user": {"exec": {**EXEC, "env": ["A=b"]}}}, r"exec.env: .* is not a list of names and values"),
    ],
)
def test_complaints_name_file_field_and_fix(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "config.yaml", **change)
    with pytest.raises(ConfigError, match=words) as caught:
        config.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"), [("a: [", r"is not YAML: line 1, column \d+: [^\n]+"), ("- a", "is not a kube.*")]
)
def test_a_file_that_is_no_kubeconfig_says_so(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(ConfigError, match=f"{words}; mend it, or set KUBECONFIG to another$"):
        config.load(tmp_path / "k")


def test_no_configuration_at_all_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match=r"no kubeconfig at .*none: set KUBECONFIG, or run `dovetail up`"):
        config.load()


def test_in_cluster_reads_the_service_account_and_its_new_tokens(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_bytes(CERTIFICATE)
    (tmp_path / "namespace").write_text("dovetail")
    found = config.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "dovetail")
    assert headers(found) == {"authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert found.credentials.rejected()
    assert headers(found) == {"authorization": "Bearer two"}


def test_in_cluster_without_a_token_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        config.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_a_token_file_is_read_again_as_time_passes(tmp_path: Path) -> None:
    now = [START]
    (tmp_path / "t").write_text("one")
    source = TokenFile(tmp_path / "t", now=lambda: now[0])
    assert asyncio.run(source.headers()) == {"authorization": "Bearer one"}
    (tmp_path / "t").write_text("two")
    assert asyncio.run(source.headers()) == {"authorization": "Bearer one"}
    now[0] += dt.timedelta(minutes=2)
    assert asyncio.run(source.headers()) == {"authorization": "Bearer two"}


def plugin(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "get-token"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_exec_plugin_is_asked_again_shortly_before_its_token_expires(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    path = plugin(
        tmp_path,
        f'echo x >> {counter}; n=$(wc -l < {counter} | tr -d " ")\n'
        'echo "{\\"kind\\": \\"ExecCredential\\", \\"status\\": {\\"token\\": \\"$WHO-$n\\",'
        ' \\"expirationTimestamp\\": \\"2026-01-01T00:14:00Z\\"}}"',
    )
    now = [START]

    async def main() -> None:
        source = Exec(
            [str(path)],
            api_version="client.authentication.k8s.io/v1",
            where="here",
            env={"WHO": "me"},
            now=lambda: now[0],
        )
        assert await source.headers() == {"authorization": "Bearer me-1"}
        assert await source.headers() == {"authorization": "Bearer me-1"}
        now[0] += dt.timedelta(minutes=13, seconds=30)
        assert await source.headers() == {"authorization": "Bearer me-2"}
        now[0] -= dt.timedelta(minutes=10)
        source.rejected()
        assert await source.headers() == {"authorization": "Bearer me-3"}

    asyncio.run(main())


def test_an_exec_plugin_of_a_kubeconfig_hears_about_the_cluster(tmp_path: Path) -> None:
    path = plugin(
        tmp_path,
        'echo "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/info"; echo "{\\"status\\": {\\"token\\": \\"$1\\"}}"',
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": f"./{path.name}",
            "args": ["eks"],
            "provideClusterInfo": True,
        }
    }
    assert headers(config.load(write(tmp_path / "k", user=user))) == {"authorization": "Bearer eks"}
    info = (tmp_path / "info").read_text()
    assert "https://10.0.0.1:6443" in info


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo broken >&2; exit 3", r"failed \(3\): broken"),
        ("echo hello", "did not print an ExecCredential"),
        ("echo '{\"status\": {}}'", "neither a token nor a certificate"),
    ],
)
def test_a_failing_exec_plugin_is_quoted(tmp_path: Path, script: str, words: str) -> None:
    async def main() -> None:
        path = plugin(tmp_path, script)
        await Exec([str(path)], api_version="client.authentication.k8s.io/v1", where="k: users[u]").headers()

    with pytest.raises(ConfigError, match=words) as caught:
        asyncio.run(main())
    assert "k: users[u]" in str(caught.value)


def test_a_missing_exec_plugin_gives_its_install_hint() -> None:
    async def main() -> None:
        version = "client.authentication.k8s.io/v1"
        await Exec(["no-such-plugin"], api_version=version, where="k", hint="get it at example.com").headers()

    with pytest.raises(ConfigError, match=r"'no-such-plugin' cannot be run .*\nget it at example.com"):
        asyncio.run(main())
