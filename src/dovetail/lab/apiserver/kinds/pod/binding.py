"""Binding: a pod gets its node, once."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.admission import topology
from dovetail.lab.apiserver.kinds.pod.strategy import set_condition
from dovetail.lab.apiserver.registry import Object, Reply, RequestContext, RequestRefused, RestStrategy
from dovetail.model.validation.field_errors import quoted


def success() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _conflict(name: str, text: str) -> RequestRefused:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {text}'
    return RequestRefused(409, "Conflict", message, {"name": name, "kind": "pods/binding"})


def bind(pod: Object | None, body: Object, ctx: RequestContext) -> Reply:
    meta, target = body.get("metadata") or {}, body.get("target") or {}
    if meta.get("name", "") != ctx.name:
        raise RequestRefused(400, "BadRequest", "name in URL does not match name in Binding object")
    problems = []
    if target.get("kind", "") not in ("", "Node"):
        kind = quoted(target["kind"])
        problems.append(f'target.kind: Unsupported value: {kind}: supported values: "Node", "<empty>"')
    if not target.get("name"):
        problems.append("target.name: Required value")
    if problems:
        raise RequestRefused(500, "", problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    if pod is None:
        raise RequestRefused(404, "NotFound", f'pods "{ctx.name}" not found', {"name": ctx.name, "kind": "pods"})
    _check(pod, meta, ctx)
    if not ctx.dry_run:
        _assign(pod, meta, target["name"], ctx)
    return Reply(body=success(), code=201)


def _check(pod: Object, meta: Object, ctx: RequestContext) -> None:
    name = ctx.name
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        given = meta.get(field)
        if given and given != pod["metadata"].get(field):
            key = f"/registry/pods/{ctx.namespace}/{name}"
            text = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: {word} in precondition: {given}, {word} in object meta: "
                f"{pod['metadata'].get(field)}"
            )
            message = f'Operation cannot be fulfilled on pods "{name}": {text}'
            raise RequestRefused(409, "Conflict", message, {"name": name, "kind": "pods"})
    if "deletionTimestamp" in pod["metadata"]:
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise _conflict(name, f"pod {name} is already assigned to node {quoted(pod['spec']['nodeName'])}")
    if pod["spec"].get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _assign(pod: Object, meta: Object, node: str, ctx: RequestContext) -> None:
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    set_condition(status, {"type": "PodScheduled", "status": "True"}, ctx.now)
    own = dict(pod["metadata"])
    if meta.get("annotations"):
        own["annotations"] = (own.get("annotations") or {}) | meta["annotations"]
    labels = (meta.get("labels") or {}) | topology.node_labels(node, ctx)
    if labels:
        own["labels"] = (own.get("labels") or {}) | labels
    spec = {**pod["spec"], "nodeName": node}
    ctx.cluster.update("", "pods", {**pod, "metadata": own, "spec": spec, "status": status})


class LegacyBindingStrategy(RestStrategy):
    """POST of a Binding to its own resource: the same as to the pod's subresource."""

    def answer(self, obj: Object, ctx: RequestContext) -> Object:
        ctx.name = (obj.get("metadata") or {}).get("name", "")
        pod = ctx.cluster.get("", "pods", ctx.namespace, ctx.name)
        return bind(pod, obj, ctx).body or {}
