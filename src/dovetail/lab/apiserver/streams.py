"""Streams into a container: exec, attach, port-forward, proxy. The lab's containers run no programs to speak to.

A pod that could not be reached on a real cluster either is refused in the real words; the others get an honest 501.
"""

from __future__ import annotations

from dovetail.lab.apiserver import status
from dovetail.lab.apiserver.call import Call
from dovetail.lab.apiserver.status import StatusError

STREAMS = frozenset(("attach", "exec", "portforward", "proxy"))


def refuse(call: Call) -> StatusError:
    """Why this stream cannot be opened."""
    store = call.server.store
    resource = call.resource
    record = store.get(call.table, call.key)
    if record is None:
        return status.not_found(resource.group, resource.plural, call.name)
    if call.subresource == "proxy":
        return status.bad_request("address not allowed")
    node = (record.obj.get("spec") or {}).get("nodeName")
    if not node:
        return status.bad_request(f"pod {call.name} does not have a host assigned")
    if store.get("/nodes", node) is None:
        return status.not_found("", "pods", node)
    return StatusError(501, "NotImplemented", unavailable(call.subresource), {})


def unavailable(stream: str) -> str:
    """What the lab says to those who want into a container."""
    return f"{stream} is not available: containers of the lab are simulated and run no programs"
