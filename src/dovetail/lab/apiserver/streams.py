"""Streams into a container: exec, attach, port-forward, proxy. The lab's containers run no programs to speak to.

Admission sees such a request as CONNECT, with the stream's options as its object. A pod that could not be reached on a
real cluster either is refused in the real words; the others get an honest 501.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.webhooks import chain

Json = dict[str, Any]
_SERVICE_LABEL = "kubernetes.io/service-name"
NAMES = frozenset(("attach", "exec", "portforward", "proxy"))


def connect(call: RequestCall) -> Response:
    """Ask admission, then say why the stream cannot be opened."""
    subresource = call.subresource_type
    assert subresource is not None
    kind = (subresource.group, subresource.version or "v1", subresource.kind)
    chain.admit_body(call, _options(call), call.context("CONNECT"), kind=kind)
    raise _refusal(call)


def unavailable(stream: str) -> str:
    """The answer to requests for exec, attach and port-forward."""
    return f"{stream} is not available: containers of the lab are simulated and run no programs"


def _is_set(values: list[str]) -> bool | None:
    """A parameter that stands alone is true; one that is not given is left out."""
    return values[0].lower() not in ("false", "0") or None


_READERS: dict[str, Callable[[list[str]], Any]] = {
    "stdin": _is_set,
    "stdout": _is_set,
    "stderr": _is_set,
    "tty": _is_set,
    "container": lambda values: values[0] or None,
    "command": list,
    "ports": lambda values: [int(value) for value in values if value.isdigit()],
}
_FIELDS = {
    "exec": ("stdin", "stdout", "stderr", "tty", "container", "command"),
    "attach": ("stdin", "stdout", "stderr", "tty", "container"),
    "portforward": ("ports",),
    "proxy": (),
}


def _options(call: RequestCall) -> Json:
    """The query as the object of the stream's kind; that of a proxy is the path."""
    given: dict[str, list[str]] = {}
    for name, value in call.request.query:
        given.setdefault(name, []).append(value)
    read = {name: _READERS[name](given[name]) for name in _FIELDS[call.subresource] if name in given}
    if call.subresource == "proxy" and call.route.tail:
        read["path"] = "/" + "/".join(call.route.tail)
    return {name: value for name, value in read.items() if value is not None}


def _refusal(call: RequestCall) -> StatusError:
    store, resource = call.server.store, call.resource
    if resource.plural == "services":
        return _service_refusal(call)
    record = store.get(call.table, call.key)
    if record is None:
        return status_errors.not_found(resource.group, resource.plural, call.name)
    if call.subresource == "proxy":
        return status_errors.bad_request("address not allowed")
    node = (record.obj.get("spec") or {}).get("nodeName")
    if not node:
        return status_errors.bad_request(f"pod {call.name} does not have a host assigned")
    if store.get("/nodes", node) is None:
        return status_errors.not_found("", "pods", node)
    return StatusError(501, "NotImplemented", unavailable(call.subresource), {})


def _service_refusal(call: RequestCall) -> StatusError:
    """`scheme:name:port` names a port of a Service; without endpoints it is as if it were not there."""
    parts = call.name.split(":")
    name = parts[1] if len(parts) == 3 else parts[0]
    slices = call.server.cluster.list("discovery.k8s.io", "endpointslices", call.namespace)
    owned = [item for item in slices if (item["metadata"].get("labels") or {}).get(_SERVICE_LABEL) == name]
    if call.server.cluster.get("", "services", call.namespace, name) is None or not owned:
        return status_errors.not_found("", "services", name)
    return status_errors.bad_request("address not allowed")
