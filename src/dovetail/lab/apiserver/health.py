"""Health and version: the doors that everybody may knock at."""

from __future__ import annotations

import json

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import status

#: The release whose behaviour the server is held to.
VERSION = "v1.36.3"
_CHECKS = ("ping", "log", "etcd")
_ROOTS = ("/healthz", "/livez", "/readyz")


class Health:
    """Answers /healthz, /livez, /readyz and /version."""

    def public(self, path: str) -> bool:
        path = path.rstrip("/")
        return path in _ROOTS or path == "/version"

    def known(self, path: str) -> bool:
        """A single check below one of the roots."""
        root, _, check = path.rstrip("/").rpartition("/")
        return root in _ROOTS and check in _CHECKS

    def answer(self, request: Request) -> Response:
        path = request.path.rstrip("/")
        if path == "/version":
            if request.method not in ("GET", "HEAD"):
                raise status.method_not_allowed()
            text = json.dumps(version(), indent=2)
            return Response(status=200, headers={"content-type": "application/json"}, body=text.encode())
        headers = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
        text = "ok"
        if request.parameter("verbose") is not None:
            lines = [f"[+]{check} ok" for check in _CHECKS]
            text = "\n".join([*lines, f"{path[1:]} check passed", ""])
        return Response(status=200, headers=headers, body=text.encode())


def version() -> dict[str, str]:
    return {
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": "linux/amd64",
    }
