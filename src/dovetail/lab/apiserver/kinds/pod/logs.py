"""The log subresource: which container, and which options. The text comes from the kubelets."""

from __future__ import annotations

from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.gocompat import gotime
from dovetail.lab.apiserver.options import integer
from dovetail.lab.apiserver.registry import Object, Reply, RequestContext, RequestRefused
from dovetail.model.validation.field_errors import invalid

_GROUPS = ("initContainers", "containers", "ephemeralContainers")
#: The options that are numbers, with the least each may be, in the order they are checked.
_LEAST = {"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}


def read(pod: Object | None, body: Object, ctx: RequestContext) -> Reply:
    _check_options(ctx)
    if pod is None:
        raise status_errors.not_found("", "pods", ctx.name)
    container = _container(pod, ctx.options.get("container", ""))
    node = pod["spec"].get("nodeName")
    if not node:
        return Reply(code=204)  # no container can have written any
    if ctx.cluster.get("", "nodes", None, node) is None:
        raise status_errors.not_found("", "pods", node)
    content = ctx.logs(pod, container, ctx.options)
    if content is None:
        raise RequestRefused(500, "", "no preferred addresses found; known addresses: []")
    return Reply(text=content) if isinstance(content, bytes) else Reply(stream=content)


def _check_options(ctx: RequestContext) -> None:
    given = {field: integer(ctx.options.get(field)) for field in _LEAST}
    if "sinceTime" in ctx.options:
        try:
            gotime.parse(ctx.options["sinceTime"])
        except ValueError as error:
            raise RequestRefused(400, "BadRequest", str(error)) from None
    errors = [
        invalid(field, number, "must be greater than 0" if _LEAST[field] else "must be greater than or equal to 0")
        for field, number in given.items()
        if number is not None and number < _LEAST[field]
    ]
    if errors:
        raise status_errors.invalid("", "PodLogOptions", ctx.name, errors)


def _container(pod: Object, container_name: str) -> str:
    names = [c["name"] for group in _GROUPS for c in pod["spec"].get(group) or ()]
    name = pod["metadata"]["name"]
    if container_name:
        if container_name not in names:
            raise RequestRefused(400, "BadRequest", f"container {container_name} is not valid for pod {name}")
        return container_name
    main = [c["name"] for c in pod["spec"]["containers"]]
    annotated = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if annotated in names:
        return str(annotated)
    if len(main) == 1:
        return str(main[0])
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    raise RequestRefused(400, "BadRequest", text)
