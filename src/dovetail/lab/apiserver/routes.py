"""Routes: what a path asks for, as the real server reads it before anything else."""

from __future__ import annotations

import msgspec

#: Second segments that make `namespaces/x/...` a subresource of the namespace instead of a scope.
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Route(msgspec.Struct, frozen=True):
    """A path inside the API: `/api/v1/...` or `/apis/group/version/...`."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    tail: tuple[str, ...] = ()
    old_watch: bool = False

    def verb(self, method: str, watch: bool) -> str:
        """The verb authorisation and messages speak of."""
        verb = _VERBS.get(method, method.lower())
        if not self.name:
            if verb == "get":
                return "watch" if watch or self.old_watch else "list"
            if verb == "delete":
                return "deletecollection"
        elif verb == "get" and self.old_watch and not self.subresource:
            return "watch"
        return verb


def parse(path: str) -> Route | None:
    """The route of a path that names a resource; None for discovery and everything else."""
    path = path.replace("/namespaces//", "/")  # no namespace is all of them
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _resource("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _resource(parts[1], parts[2], parts[3:])
    return None


def _resource(group: str, version: str, parts: list[str]) -> Route | None:
    old_watch = parts[0] == "watch"
    if old_watch:
        parts = parts[1:]
        if not parts:
            return None
    namespace = ""
    if parts[0] == "namespaces" and len(parts) >= 3 and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace = parts[1]
        parts = parts[2:]
    elif parts[0] == "namespaces" and len(parts) >= 2:
        namespace = parts[1]
    plural = parts[0]
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    return Route(group, version, plural, namespace, name, subresource, tuple(parts[3:]), old_watch)
