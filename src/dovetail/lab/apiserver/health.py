"""Health and version: the paths that need no authentication."""

from __future__ import annotations

import json
from collections.abc import Callable

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import status_errors

#: The release whose behaviour the server is held to.
VERSION = "v1.36.3"
#: What a server does once after its start; each has a check of its own.
_HOOKS = (
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    "",
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
)
_STARTED = tuple(f"poststarthook/{hook}" if hook else "autoregister-completion" for hook in _HOOKS)
_ALIVE = ("ping", "log", "loopback-serving-certificate", "etcd", *_STARTED)
_CHECKS = {
    "/healthz": _ALIVE,
    "/livez": _ALIVE,
    "/readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", *_STARTED, "shutdown"),
}


#: Fail while the storage takes no writes.
_STORAGE_CHECKS = frozenset(("etcd", "etcd-readiness"))


class HealthEndpoints:
    """Answers /healthz, /livez, /readyz and /version."""

    def __init__(self) -> None:
        #: Why the storage takes no writes; empty while it does. Only readiness depends on it: a restart frees no disk.
        self.storage: Callable[[], str] = str
        #: The release that it says it is.
        self.release = VERSION

    def public(self, path: str) -> bool:
        path = path.rstrip("/")
        return path in _CHECKS or path == "/version"

    def known(self, path: str) -> bool:
        """A single check below one of the roots."""
        root, _, check = path.rstrip("/")[1:].partition("/")
        return check in _CHECKS.get(f"/{root}", ())

    def answer(self, request: Request) -> Response:
        path = request.path.rstrip("/")
        if path == "/version":
            if request.method not in ("GET", "HEAD"):
                raise status_errors.method_not_allowed()
            text = json.dumps(version(self.release), indent=2)
            return Response(status=200, headers={"content-type": "application/json"}, body=text.encode())
        headers = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
        if path.startswith("/readyz"):
            checks = _CHECKS.get(path, (path.rpartition("/")[2],))
            failure = self.storage() if _STORAGE_CHECKS & set(checks) else ""
            if failure:
                lines = [
                    f"[-]{check} failed: {failure}" if check in _STORAGE_CHECKS else f"[+]{check} ok"
                    for check in checks
                ]
                text = "\n".join([*lines, f"{path[1:]} check failed", ""])
                return Response(status=500, headers=headers, body=text.encode())
        text = "ok"
        if request.parameter("verbose") is not None:
            lines = [f"[+]{check} ok" for check in _CHECKS.get(path, (path.rpartition("/")[2],))]
            text = "\n".join([*lines, f"{path[1:]} check passed", ""])
        return Response(status=200, headers=headers, body=text.encode())


def version(release: str = VERSION) -> dict[str, str]:
    major, minor, _ = release.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": release,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": "linux/amd64",
    }
