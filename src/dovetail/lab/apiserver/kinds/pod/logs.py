"""The log door. A server without kubelets has no logs to show; the lab's kubelets put theirs behind `SOURCE`."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.lab.apiserver.registry import Context, Object, Refusal, Reply

LogSource = Callable[[Object, str, Object], bytes | None]


class LogDoor:
    """Where logs come from: a function from (pod, container, query options) to text, None where there are none."""

    source: LogSource | None = None


DOOR = LogDoor()


def read(pod: Object | None, body: Object, ctx: Context) -> Reply:
    if pod is None:
        raise Refusal(404, "NotFound", f'pods "{ctx.name}" not found', {"name": ctx.name, "kind": "pods"})
    container = _container(pod, ctx.options.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Reply(text=b"")
    text = DOOR.source(pod, container, ctx.options) if DOOR.source is not None else None
    if text is None:
        raise Refusal(500, "", "no preferred addresses found; known addresses: []")
    return Reply(text=text)


def _container(pod: Object, wanted: str) -> str:
    groups = ("initContainers", "containers", "ephemeralContainers")
    names = [c["name"] for group in groups for c in pod["spec"].get(group) or ()]
    name = pod["metadata"]["name"]
    if wanted:
        if wanted not in names:
            raise Refusal(400, "BadRequest", f"container {wanted} is not valid for pod {name}")
        return wanted
    main = [c["name"] for c in pod["spec"]["containers"]]
    annotated = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if annotated in names:
        return str(annotated)
    if len(main) == 1:
        return str(main[0])
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(main)}]"
    inits = [c["name"] for c in pod["spec"].get("initContainers") or ()]
    if inits:
        text += f" or one of the init containers: [{' '.join(inits)}]"
    raise Refusal(400, "BadRequest", text)
