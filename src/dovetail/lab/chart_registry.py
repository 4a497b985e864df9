"""Our charts and definitions where walk-throughs fetch Karpenter's: an OCI registry, a chart repository, plain files.

    helm upgrade --install karpenter oci://$DOVETAIL_CHARTS/karpenter/karpenter --version 1.2.1 --plain-http …
    helm upgrade --install karpenter karpenter --repo http://$DOVETAIL_CHARTS --version v0.16.0 …
    kubectl create -f http://$DOVETAIL_CHARTS/aws/karpenter/v0.30.0/pkg/apis/crds/karpenter.sh_provisioners.yaml

Every version resolves to the one chart there is, which carries the version that was asked for. Nothing can be pushed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import yaml

from dovetail.install.chart import chart_directory
from dovetail.kube.resources import (
    AWSNODETEMPLATES,
    EC2NODECLASSES,
    MACHINES,
    NODECLAIMS,
    NODEPOOLS,
    PROVISIONERS,
    Resource,
)

#: Repositories and the chart that each serves.
CHARTS: Mapping[str, str] = {
    "karpenter/karpenter": "dovetail",
    "karpenter/karpenter-crd": "dovetail-crd",
    "dovetail/dovetail": "dovetail",
    "dovetail/dovetail-crd": "dovetail-crd",
}
#: Versions of Karpenter that are listed beside our own; all others resolve too.
LISTED_VERSIONS = ("v0.16.0", "v0.30.0", "1.2.1")


def _file_name(resource: Resource) -> str:
    """Of a definition, as controller-gen names it."""
    return f"{resource.group}_{resource.plural}"


#: Definitions that an old kind cannot work without here: it is carried out through the newer ones.
_RELATED: Mapping[str, tuple[str, ...]] = {
    _file_name(PROVISIONERS): tuple(_file_name(resource) for resource in (MACHINES, NODEPOOLS, NODECLAIMS)),
    _file_name(AWSNODETEMPLATES): (_file_name(EC2NODECLASSES),),
}
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
_CONTENT_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+_][0-9A-Za-z.+_-]+)?")
_V2 = re.compile(r"/v2/(?P<name>[a-z0-9/_.-]+)/(?P<what>manifests|blobs|tags)/(?P<reference>[^/]+)")
_ARCHIVE = re.compile(r"/(?P<chart>karpenter|karpenter-crd|dovetail|dovetail-crd)-(?P<version>v?\d.*)\.tgz")
_DEFINITION = re.compile(r"/(?:[^/]+/){2}[^/]+/(?:pkg|charts)/(?:[^/]+/)*crds/(?P<name>[a-z0-9._-]+)\.yaml")


class RegistryResponse(msgspec.Struct, frozen=True):
    status: int
    content_type: str
    body: bytes
    digest: str = ""


class Blob(msgspec.Struct, frozen=True):
    """Content of the registry, by its digest."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    @property
    def descriptor(self) -> dict[str, str | int]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data)}


@cache
def metadata(chart: str) -> Mapping[str, object]:
    """Chart.yaml."""
    text = (chart_directory(chart) / "Chart.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


@cache
def archive(chart: str, version: str) -> bytes:
    """The chart as `helm package` would write it, with a version; the same bytes every time."""
    folder = chart_directory(chart)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(item for item in folder.rglob("*") if item.is_file()):
            relative = path.relative_to(folder).as_posix()
            data = path.read_bytes()
            if relative == "Chart.yaml":
                data = yaml.safe_dump({**metadata(chart), "version": version}, sort_keys=False).encode()
            entry = tarfile.TarInfo(f"{chart}/{relative}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


@cache
def manifest(chart: str, version: str) -> tuple[Blob, Blob, Blob]:
    """Manifest, configuration and content."""
    described = {**metadata(chart), "version": version}
    config = Blob(_CONFIG_TYPE, json.dumps(described, sort_keys=True).encode())
    content = Blob(_CONTENT_TYPE, archive(chart, version))
    body = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "config": config.descriptor,
        "layers": [content.descriptor],
        "annotations": {"org.opencontainers.image.title": chart, "org.opencontainers.image.version": version},
    }
    return Blob(_MANIFEST_TYPE, json.dumps(body, sort_keys=True).encode()), config, content


def versions(chart: str) -> list[str]:
    return [str(metadata(chart)["version"]), *LISTED_VERSIONS]


class ChartRegistry:
    """Listens on the loopback in a thread of its own; `address` is host and port."""

    def __init__(self, port: int = 0) -> None:
        self._blobs: dict[str, Blob] = {}
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(with_body=True)

            def do_HEAD(self) -> None:
                self._send(with_body=False)

            def do_POST(self) -> None:
                self.close_connection = True  # its body is not read
                self._write(_error(405, "UNSUPPORTED", f"{self.command}: charts are only read"), with_body=True)

            do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST

            def _send(self, with_body: bool) -> None:
                self._write(answer(self.path.partition("?")[0]), with_body)

            def _write(self, response: RegistryResponse, with_body: bool) -> None:
                self.send_response(response.status)
                self.send_header("Content-Type", response.content_type)
                self.send_header("Content-Length", str(len(response.body)))
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                if response.digest:
                    self.send_header("Docker-Content-Digest", response.digest)
                self.end_headers()
                if with_body:
                    self.wfile.write(response.body)

            def log_message(self, *arguments: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="chart-registry", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(timeout=5)
        self._server.server_close()

    def answer(self, path: str) -> RegistryResponse:
        if path in ("/v2", "/v2/"):
            return RegistryResponse(200, "application/json", b"{}")
        if path == "/index.yaml":
            return RegistryResponse(200, "application/x-yaml", self._index())
        if match := _V2.fullmatch(path):
            return self._distribution(match["name"], match["what"], match["reference"])
        if (match := _ARCHIVE.fullmatch(path)) and _VERSION.fullmatch(match["version"]):
            chart = match["chart"].replace("karpenter", "dovetail")
            return RegistryResponse(200, "application/gzip", archive(chart, match["version"]))
        if match := _DEFINITION.fullmatch(path):
            return _definitions(match["name"])
        return RegistryResponse(404, "text/plain", f"{path}: not served; see /index.yaml and /v2/\n".encode())

    def _distribution(self, name: str, what: str, reference: str) -> RegistryResponse:
        chart = CHARTS.get(name)
        if chart is None:
            return _error(404, "NAME_UNKNOWN", f"{name}: is none of {', '.join(sorted(CHARTS))}")
        if what == "tags":
            body = json.dumps({"name": name, "tags": versions(chart)}).encode()
            return RegistryResponse(200, "application/json", body)
        if what == "manifests" and _VERSION.fullmatch(reference):
            blobs = manifest(chart, reference.replace("_", "+"))
            self._blobs |= {blob.digest: blob for blob in blobs}
            reference = blobs[0].digest
        blob = self._blobs.get(reference)
        if blob is None:
            return _error(404, "MANIFEST_UNKNOWN" if what == "manifests" else "BLOB_UNKNOWN", f"{name}: {reference}")
        kind = blob.media_type if what == "manifests" else "application/octet-stream"
        return RegistryResponse(200, kind, blob.data, blob.digest)

    def _index(self) -> bytes:
        """What `helm repo add` reads."""
        entries = {
            alias: [
                {
                    **metadata(chart),
                    "name": alias,
                    "version": version,
                    "urls": [f"http://{self.address}/{alias}-{version}.tgz"],
                    "digest": hashlib.sha256(archive(chart, version)).hexdigest(),
                }
                for version in versions(chart)
            ]
            for alias, chart in ((name.rpartition("/")[2], chart) for name, chart in CHARTS.items())
        }
        return yaml.safe_dump({"apiVersion": "v1", "entries": entries}, sort_keys=False).encode()


def _definitions(name: str) -> RegistryResponse:
    """A definition, and those that it cannot work without."""
    folder = chart_directory("dovetail-crd") / "definitions"
    files = [folder / f"{part}.yaml" for part in (name, *_RELATED.get(name, ()))]
    if not files[0].is_file():
        names = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
        return RegistryResponse(404, "text/plain", f"{name}: is none of {names}\n".encode())
    return RegistryResponse(200, "application/x-yaml", b"---\n".join(file.read_bytes() for file in files))


def _error(status: int, code: str, message: str) -> RegistryResponse:
    return RegistryResponse(
        status, "application/json", json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    )
