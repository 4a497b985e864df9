"""Where the API server is and who we are: kubeconfig files, or the pod we run in.

Every complaint names the file, the field and the way out, because this is the first thing that goes wrong
on a new computer.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.kube.credentials import ConfigError, Exec, TokenFile, load_pair
from dovetail.kube.http import Anonymous, Bearer, Credentials, Http
from dovetail.language import message, source, translated
from dovetail.language.system_errors import system_error
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: The way out of a file that cannot be used.
#: The name of the connection that a pod's service account makes.
IN_CLUSTER = "in-cluster"
_ANOTHER = source("mend it, or set KUBECONFIG to another")


class Connection(msgspec.Struct, frozen=True):
    """All that is needed to speak to one API server."""

    server: str
    tls: ssl.SSLContext
    credentials: Credentials
    namespace: str = "default"
    context: str = ""
    proxy: str | None = None
    server_name: str | None = None

    def transport(self) -> Http:
        return Http(
            self.server,
            tls=self.tls,
            credentials=self.credentials,
            proxy=self.proxy,
            server_name=self.server_name,
        )


class _Entry(msgspec.Struct, frozen=True):
    """A named part of a kubeconfig, with the file it came from."""

    file: Path
    field: str
    value: Mapping[str, Any]

    def problem(self, field: str, text: str) -> ConfigError:
        return ConfigError(f"{self.file}: {self.field}.{field}: {text}")

    def text(self, field: str) -> str:
        value = self.value.get(field)
        if value is not None and not isinstance(value, str):
            raise self.problem(field, message("must be a string, not {value!r}", value=value))
        return value or ""

    def path(self, field: str) -> Path | None:
        """A file named here; relative to the kubeconfig it is named in."""
        text = self.text(field)
        return self.file.parent / text if text else None

    def data(self, field: str) -> bytes:
        """Inline base64 (`field`-data) or the content of the file `field` names; inline wins."""
        inline = self.text(f"{field}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, ValueError) as problem:
                raise self.problem(f"{field}-data", message("is not base64")) from problem
        path = self.path(field)
        if path is None:
            return b""
        try:
            return path.read_bytes()
        except OSError as problem:
            raise self.problem(
                field, message("{path} cannot be read: {system_error}", path=path, system_error=system_error(problem))
            ) from problem


def load(path: str | Path | None = None, context: str | None = None) -> Connection:
    """The connection kubectl would use: `path`, else KUBECONFIG, else ~/.kube/config, else the pod we run in."""
    if path is not None:
        file = Path(path).expanduser()
        if not file.exists():
            raise ConfigError(
                message("{file}: no such kubeconfig: choose another, or let `dovetail up` write one", file=file)
            )
        return from_kubeconfig([file], context)
    listed = [Path(name).expanduser() for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    files = [file for file in listed or [Path.home() / ".kube" / "config"] if file.exists()]
    if files:
        return from_kubeconfig(files, context)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    looked = ", ".join(str(file) for file in listed) or str(Path.home() / ".kube" / "config")
    raise ConfigError(
        message(
            "no kubeconfig at {looked}: set KUBECONFIG, or run `dovetail up` for a cluster of your own", looked=looked
        )
    )


def from_kubeconfig(files: list[Path], context: str | None = None) -> Connection:
    """Several files count as one; what the first says wins."""
    documents = [(file, _read(file)) for file in files]
    chosen = context or next((str(d["current-context"]) for _, d in documents if d.get("current-context")), "")
    if not chosen:
        raise ConfigError(
            message("{files}: current-context is empty: choose one with kubectl config use-context", files=files[0])
        )
    link = _find(documents, "contexts", "context", chosen)
    cluster = _find(documents, "clusters", "cluster", link.text("cluster"), link)
    user = (
        _find(documents, "users", "user", link.text("user"), link)
        if link.text("user")
        else _Entry(link.file, f"{link.field}.user", {})
    )
    server = cluster.text("server")
    if not server.startswith(("https://", "http://")):
        raise cluster.problem(
            "server", message("must be a URL such as https://host:6443, not {server!r}", server=server)
        )
    tls = _tls(cluster, user)
    return Connection(
        server=server,
        tls=tls,
        credentials=_credentials(cluster, user, tls),
        namespace=link.text("namespace") or "default",
        context=chosen,
        proxy=_proxy(cluster),
        server_name=cluster.text("tls-server-name") or None,
    )


def in_cluster(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Connection:
    """The service account of the pod we run in; its token is read again as the kubelet renews it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(message("KUBERNETES_SERVICE_HOST is not set: this is not a pod of a cluster"))
    for name in ("token", "ca.crt"):
        if not (folder / name).exists():
            raise ConfigError(
                message("{folder} is missing: set automountServiceAccountToken: true on the pod", folder=folder / name)
            )
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=_context((folder / "ca.crt").read_bytes(), f"{folder / 'ca.crt'}"),
        credentials=TokenFile(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        context=IN_CLUSTER,
    )


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml_document.load(file.read_text())
    except OSError as problem:
        raise ConfigError(
            message(
                "{file}: cannot be read: {system_error}; {another}",
                file=file,
                system_error=system_error(problem),
                another=translated(_ANOTHER),
            )
        ) from problem
    except RecursionError as problem:
        raise ConfigError(
            message("{file}: nested too deeply to be a kubeconfig; {another}", file=file, another=translated(_ANOTHER))
        ) from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ConfigError(
            message(
                "{file}: is not YAML: {yaml_problem}; {another}",
                file=file,
                yaml_problem=yaml_problem(problem),
                another=translated(_ANOTHER),
            )
        ) from problem
    if document is None:
        return {}
    if not isinstance(document, dict):
        text = message("is not a kubeconfig: a mapping with clusters, users and contexts is expected")
        raise ConfigError(f"{file}: {text}; {translated(_ANOTHER)}")
    return document


def _find(
    documents: list[tuple[Path, Mapping[str, Any]]], plural: str, singular: str, name: str, link: _Entry | None = None
) -> _Entry:
    names: list[str] = []
    for file, document in documents:
        listed = document.get(plural) or []
        if not isinstance(listed, list):
            raise ConfigError(
                message(
                    "{file}: {plural}: {listed!r} is not a list; {another}",
                    file=file,
                    plural=plural,
                    listed=str(listed)[:80],
                    another=translated(_ANOTHER),
                )
            )
        for entry in listed:
            if not isinstance(entry, dict) or "name" not in entry:
                raise ConfigError(
                    message(
                        "{file}: {plural}: every entry needs a name, and {entry!r} has none",
                        file=file,
                        plural=plural,
                        entry=entry,
                    )
                )
            names.append(str(entry["name"]))
            if names[-1] == name:
                return _entry(file, f"{plural}[{name}].{singular}", entry.get(singular))
    there = message("there are {names}", names=", ".join(names)) if names else message("there are none")
    if link is not None:
        raise link.problem(
            singular, message("no {singular} is named {name!r}: {there}", singular=singular, name=name, there=there)
        )
    raise ConfigError(
        message(
            "{documents}: {plural}: no {singular} is named {name!r}: {there}",
            documents=documents[0][0],
            plural=plural,
            singular=singular,
            name=name,
            there=there,
        )
    )


def _entry(file: Path, field: str, value: Any) -> _Entry:
    if not isinstance(value or {}, dict):
        raise ConfigError(
            message(
                "{file}: {field}: {value!r} is not a mapping; {another}",
                file=file,
                field=field,
                value=str(value)[:80],
                another=translated(_ANOTHER),
            )
        )
    return _Entry(file, field, value or {})


def _context(authority: bytes, where: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=authority.decode())
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as problem:
            raise ConfigError(
                message("{where}: is not a PEM certificate: {problem}", where=where, problem=problem)
            ) from problem
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the transport does without where an authority does not meet it
    return context


def _tls(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    field = f"{cluster.file}: {cluster.field}.certificate-authority"
    context = _context(cluster.data("certificate-authority"), field)
    if cluster.value.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise user.problem(missing, message("is missing: a certificate and its key go together"))
    if certificate:
        try:
            load_pair(context, certificate, key)
        except ssl.SSLError as problem:
            raise user.problem(
                "client-certificate", message("does not load with its key: {problem}", problem=problem)
            ) from problem
    return context


def _credentials(cluster: _Entry, user: _Entry, tls: ssl.SSLContext) -> Credentials:
    if user.value.get("exec"):
        return _exec(cluster, user, tls)
    if user.text("token"):
        return Bearer(user.text("token"))
    path = user.path("tokenFile")
    if path is not None:
        return TokenFile(path)
    if user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}".encode()
        return Bearer(base64.b64encode(pair).decode(), scheme="Basic")
    if user.value.get("auth-provider"):
        raise user.problem("auth-provider", message("is gone since Kubernetes 1.26: use an exec plugin"))
    return Anonymous()


def _exec(cluster: _Entry, user: _Entry, tls: ssl.SSLContext) -> Exec:
    entry = _entry(user.file, f"{user.field}.exec", user.value["exec"])
    version = entry.text("apiVersion")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise entry.problem(
            "apiVersion",
            message("{version!r} is not known: aws eks update-kubeconfig writes a newer one", version=version),
        )
    command = entry.text("command")
    if not command:
        raise entry.problem("command", message("is empty"))
    if os.sep in command and not Path(command).is_absolute():
        command = str((entry.file.parent / command).resolve())
    about: dict[str, Any] = {}
    if entry.value.get("provideClusterInfo"):
        authority = base64.b64encode(cluster.data("certificate-authority")).decode()
        about = {"server": cluster.text("server"), "certificate-authority-data": authority}
    arguments, variables = entry.value.get("args") or [], entry.value.get("env") or []
    if not isinstance(arguments, list):
        raise entry.problem("args", message("{arguments!r} is not a list", arguments=str(arguments)[:80]))
    if not isinstance(variables, list) or not all(isinstance(variable, dict) for variable in variables):
        raise entry.problem(
            "env", message("{variables!r} is not a list of names and values", variables=str(variables)[:80])
        )
    return Exec(
        [command, *map(str, arguments)],
        api_version=version,
        where=f"{entry.file}: {entry.field}",
        env={str(item.get("name", "")): str(item.get("value", "")) for item in variables},
        cluster=about,
        hint=entry.text("installHint"),
        tls=tls,
    )


def _proxy(cluster: _Entry) -> str | None:
    proxy = cluster.text("proxy-url")
    if proxy and not proxy.startswith(("http://", "https://")):
        raise cluster.problem(
            "proxy-url", message("{proxy!r}: only http:// and https:// proxies are supported", proxy=proxy)
        )
    return proxy or None
