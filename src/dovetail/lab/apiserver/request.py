"""A call: one request on its way through the server, with what was found out about it so far."""

from __future__ import annotations

from typing import Any, Literal

from dovetail.kube.transport import Request
from dovetail.lab.apiserver import negotiation
from dovetail.lab.apiserver.decode import Expected
from dovetail.lab.apiserver.registry import RequestContext, ResourceType, Schema, Subresource
from dovetail.lab.apiserver.routes import Route
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.webhooks.pending_calls import Answers

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class RequestCall:
    """The request, its resource, who asks, and the warnings collected on the way."""

    __slots__ = (
        "answers",
        "borrowed",
        "drawn",
        "groups",
        "request",
        "resource",
        "route",
        "server",
        "subresource",
        "subresource_type",
        "uid",
        "user",
        "verb",
        "warnings",
    )

    def __init__(
        self,
        server: ServerState,
        request: Request,
        route: Route,
        resource: ResourceType,
        verb: str,
        user: str,
        groups: tuple[str, ...],
        uid: str = "",
        borrowed: bool = False,
    ) -> None:
        self.server = server
        self.request = request
        self.route = route
        self.resource = resource
        self.verb = verb
        self.user = user
        self.groups = groups
        self.uid = uid
        #: Whether the user is impersonated: roles decide for those alone.
        self.borrowed = borrowed
        self.subresource = route.subresource
        self.subresource_type: Subresource | None = (
            resource.subresources.get(route.subresource) if route.subresource else None
        )
        self.warnings: list[str] = []
        #: What was drawn at random for this request: a write that runs again after a webhook's answer draws the same.
        self.drawn: dict[str, str] = {}
        self.answers = Answers()

    @property
    def namespace(self) -> str:
        return self.route.namespace if self.resource.namespaced else ""

    @property
    def name(self) -> str:
        return self.route.name

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name

    @property
    def table(self) -> str:
        return table_of(self.resource)

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "")

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def manager(self, given: str) -> str:
        """The field manager: as given, or the first word of the user agent."""
        if given:
            return given
        agent = self.request.headers.get("user-agent", "")
        return agent.split("/", 1)[0][:128] or "unknown"

    def response_form(self, listing: bool = False) -> negotiation.ResponseForm:
        headers = self.request.headers
        pretty = self.request.parameter("pretty")
        if pretty is None:
            agent = headers.get("user-agent", "")
            nice = agent.startswith(("curl", "Wget", "Mozilla/5.0"))
        else:
            nice = pretty.lower() not in ("false", "0")
        return negotiation.negotiate(headers.get("accept", ""), listing, nice, self._go_type(listing))

    def _go_type(self, listing: bool) -> str:
        """The type a message about the answer's form names."""
        resource = self.resource
        if resource.custom:
            return "*unstructured.UnstructuredList" if listing else "*unstructured.Unstructured"
        package = resource.group.partition(".")[0] or "core"
        return f"*{package}.{resource.kind}{'List' if listing else ''}"

    def expected(self) -> Expected:
        """The kind that the body should be."""
        resource, subresource = self.resource, self.subresource_type
        if subresource is not None and subresource.schema is not None:
            return Expected(subresource.group, subresource.version, subresource.kind, subresource.schema)
        group, version, kind, schema = resource.group, resource.version, resource.kind, resource.schema
        if resource.custom:
            return Expected(group, version, kind, schema, custom=True, other=self._schema_in)
        return Expected(group, version, kind, schema)

    def _schema_in(self, version: str) -> Schema | None:
        resource = self.server.registry.lookup(self.resource.group, version, self.resource.plural)
        return resource.schema if resource is not None else None

    def context(self, operation: Operation, **more: Any) -> RequestContext:
        server = self.server
        return RequestContext(
            operation=operation,
            resource=self.resource,
            namespace=self.namespace or None,
            name=self.name,
            now=server.clock.now(),
            chance=server.chance,
            cluster=server.cluster,
            registry=server.registry,
            subresource=self.subresource,
            user=self.user,
            groups=self.groups,
            identify=server.identify,
            issue=server.issue,
            logs=server.logs,
            warn=self.warn,
            defer=server.defer,
            **more,
        )


def table_of(resource: ResourceType) -> str:
    """The store's table of a resource: its storage group and plural."""
    return f"{resource.storage[0]}/{resource.storage_plural or resource.plural}"
