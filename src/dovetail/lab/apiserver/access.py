"""Access: who asks, and the refusal of those who did not say.

Roles are stored and served, and decide nothing here: a known token may do everything, nobody else anything.
"""

from __future__ import annotations

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver import status
from dovetail.lab.apiserver.routes import Route
from dovetail.lab.apiserver.status import StatusError


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def authenticate(request: Request, tokens: dict[str, User] | None) -> User:
    if tokens is None:
        return ADMIN
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        return ANONYMOUS
    user = tokens.get(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise status.unauthorized()
    return user


def authorize(user: User, route: Route, verb: str) -> None:
    if user is not ANONYMOUS:
        return
    plural = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    scope = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {verb} resource "{plural}" in API group "{route.group}" {scope}'
    raise status.forbidden(route.group, route.plural, route.name, why)


def authorize_path(user: User, path: str, method: str) -> None:
    if user is ANONYMOUS:
        verb = {"GET": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}.get(
            method, method.lower()
        )
        raise StatusError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"', {})
