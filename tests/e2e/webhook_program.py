"""A program with webhooks, as policy engines have them: HTTPS under the name of a Service, answers by path."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from dovetail.kube.certificates import make_certificate, service_names

Json = dict[str, Any]
NAMESPACE, SERVICE = "policies", "policy-engine"


def admitted(path: str, request: Json) -> Json:
    """The response of an admission webhook."""
    obj = request["object"]
    response: Json = {"uid": request["uid"], "allowed": True}
    if path == "/label":
        labels = (obj["metadata"].get("labels") or {}) | {"policy": "applied"}
        patch = json.dumps([{"op": "add", "path": "/metadata/labels", "value": labels}])
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    elif path == "/team" and "team" not in (obj["metadata"].get("labels") or {}):
        response |= {"allowed": False, "status": {"message": "label team is required", "code": 403}}
    elif path == "/weight" and obj["spec"].get("weight", 1) > 50:
        response |= {"allowed": False, "status": {"message": "weight must be at most 50"}}
    return response


def converted(request: Json) -> Json:
    """The response of a conversion webhook: `size` of v1 is `spec.width` of v2."""
    objects = []
    for obj in request["objects"]:
        spec = obj.get("spec") or {}
        value = spec.get("size") or spec.get("width")
        field = "width" if request["desiredAPIVersion"].endswith("/v2") else "size"
        objects.append({**obj, "apiVersion": request["desiredAPIVersion"], "spec": {field: value}})
    return {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.partition("?")[0]
        made = converted(review["request"]) if path == "/convert" else admitted(path, review["request"])
        body = json.dumps({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": made}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Requests are not logged."""


class WebhookProgram:
    """Serves while its block runs; a Service of type ExternalName leads there."""

    def __init__(self) -> None:
        self._certificate = make_certificate(service_names(SERVICE, NAMESPACE), datetime.now(UTC))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate.load_into(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def client(self, path: str) -> Json:
        """A clientConfig."""
        port = self._server.server_address[1]
        service = {"namespace": NAMESPACE, "name": SERVICE, "path": path, "port": port}
        return {"service": service, "caBundle": self._certificate.bundle}
