"""Authentication, impersonation and authorization of requests.

A known token may do everything, other clients nothing; RBAC decides for impersonated users and service accounts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver import rbac, status_errors
from dovetail.lab.apiserver.registry import StoredObjects
from dovetail.lab.apiserver.routes import Route
from dovetail.lab.apiserver.status_errors import StatusError


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    #: Impersonated, or by a token that was issued: RBAC decides.
    borrowed: bool = False


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def service_account(namespace: str, name: str, uid: str) -> User:
    user = f"system:serviceaccount:{namespace}:{name}"
    return User(user, rbac.groups_of(user, ()), uid, borrowed=True)


def authenticate(request: Request, user_of: Callable[[str], User | None] | None) -> User:
    """The user behind the request's token; an administrator where the server asks for none."""
    if user_of is None:
        return ADMIN
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        return ANONYMOUS
    user = user_of(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise status_errors.unauthorized()
    return user


def impersonate(request: Request, user: User) -> User:
    """The impersonated user, where the request names one."""
    name = request.headers.get("impersonate-user")
    if not name or user is ANONYMOUS:
        return user
    given = request.headers.get("impersonate-group", "")
    groups = rbac.groups_of(name, (group.strip() for group in given.split(",") if group.strip()))
    return User(name, groups, request.headers.get("impersonate-uid", ""), borrowed=True)


def authorize(user: User, route: Route, verb: str, cluster: StoredObjects) -> None:
    if user is not ANONYMOUS and not (user.borrowed and not _may(user, route, verb, cluster)):
        return
    plural = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    scope = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {verb} resource "{plural}" in API group "{route.group}" {scope}'
    raise status_errors.forbidden(route.group, route.plural, route.name, why)


def _may(user: User, route: Route, verb: str, cluster: StoredObjects) -> bool:
    plural = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    ask = rbac.Ask(verb=verb, group=route.group, resource=plural, namespace=route.namespace, name=route.name)
    return rbac.allowed(cluster, user.name, user.groups, ask)


def authorize_path(user: User, path: str, method: str) -> None:
    if user is ANONYMOUS:
        verb = {"GET": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}.get(
            method, method.lower()
        )
        raise StatusError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"', {})
