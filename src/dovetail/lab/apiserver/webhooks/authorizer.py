"""The `authorizer` of admission expressions: may the requesting user do this or that?"""

from __future__ import annotations

from typing import Any, Self

import msgspec

from dovetail.lab.apiserver import rbac
from dovetail.lab.apiserver.crd.cel import CelError
from dovetail.lab.apiserver.crd.cel.values import Fields, Members
from dovetail.lab.apiserver.registry import StoredObjects
from dovetail.model import formats


class AuthorizerDecision(Members):
    """What a check says."""

    CALLABLE = frozenset(("allowed", "reason", "errored", "error"))

    def __init__(self, allowed: bool, reason: str = "") -> None:
        self._allowed = allowed
        self._reason = reason

    def allowed(self) -> bool:
        return self._allowed

    def reason(self) -> str:
        return self._reason

    def errored(self) -> bool:
        return False

    def error(self) -> str:
        return ""


class Authorizer(Fields, Members):
    """Checks for one user; a user that is not impersonated may do everything, as everywhere in this server."""

    CALLABLE = frozenset(("group", "path", "serviceAccount"))

    def __init__(self, cluster: StoredObjects, user: str, groups: tuple[str, ...], borrowed: bool) -> None:
        self._cluster = cluster
        self._user, self._groups, self._borrowed = user, groups, borrowed
        self._request_resource: ResourceCheck | None = None

    def with_request_resource(self, check: ResourceCheck) -> Self:
        self._request_resource = check
        return self

    def field(self, name: str) -> Any:
        if name == "requestResource" and self._request_resource is not None:
            return self._request_resource
        raise CelError(f"no such key: {name}")

    def has(self, name: str) -> bool:
        return name == "requestResource"

    def group(self, group: str) -> GroupCheck:
        return GroupCheck(self, group)

    def path(self, path: str) -> PathCheck:
        if not path:
            raise CelError("path must not be empty")
        return PathCheck(self, path)

    def serviceAccount(self, namespace: str, name: str) -> Authorizer:
        for word, text in (("namespace", formats.label(namespace)), ("name", formats.subdomain(name))):
            if text:
                raise CelError(f"Invalid service account {word}")
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return Authorizer(self._cluster, f"system:serviceaccount:{namespace}:{name}", groups, True)

    def decide(self, ask: rbac.Ask) -> AuthorizerDecision:
        if not self._borrowed:
            return AuthorizerDecision(True)
        may = rbac.allowed(self._cluster, self._user, self._groups, ask)
        return AuthorizerDecision(may, rbac.reason(self._cluster, self._user, self._groups, ask))

    def decide_path(self, verb: str, path: str) -> AuthorizerDecision:
        may = rbac.path_allowed(self._cluster, self._user, self._groups, verb, path)
        return AuthorizerDecision(not self._borrowed or may)


class PathCheck(Members):
    """A path that is no resource."""

    CALLABLE = frozenset(("check",))

    def __init__(self, authorizer: Authorizer, path: str) -> None:
        self._authorizer, self._path = authorizer, path

    def check(self, verb: str) -> AuthorizerDecision:
        return self._authorizer.decide_path(verb, self._path)


class GroupCheck(Members):
    """An API group."""

    CALLABLE = frozenset(("resource",))

    def __init__(self, authorizer: Authorizer, group: str) -> None:
        self._authorizer, self._group = authorizer, group

    def resource(self, resource: str) -> ResourceCheck:
        return ResourceCheck(self._authorizer, group=self._group, resource=resource)


class ResourceCheck(Members):
    """A resource, as far as it is named; every step gives a new one."""

    CALLABLE = frozenset(("subresource", "namespace", "name", "fieldSelector", "labelSelector", "check"))

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        self._authorizer = authorizer
        plural = f"{resource}/{subresource}" if subresource else resource
        self._ask = rbac.Ask(verb="", group=group, resource=plural, namespace=namespace, name=name)

    def _with(self, **fields: str) -> ResourceCheck:
        made = ResourceCheck(self._authorizer, group="", resource="")
        made._ask = msgspec.structs.replace(self._ask, **fields)
        return made

    def subresource(self, name: str) -> ResourceCheck:
        return self._with(resource=f"{self._ask.resource.partition('/')[0]}/{name}")

    def namespace(self, name: str) -> ResourceCheck:
        return self._with(namespace=name)

    def name(self, name: str) -> ResourceCheck:
        return self._with(name=name)

    def fieldSelector(self, text: str) -> ResourceCheck:
        """Roles know no selectors: what they allow, they allow for every selection."""
        return self._with()

    def labelSelector(self, text: str) -> ResourceCheck:
        return self._with()

    def check(self, verb: str) -> AuthorizerDecision:
        return self._authorizer.decide(msgspec.structs.replace(self._ask, verb=verb))
