"""The API server: one request in, one response or stream of events out. No HTTP here.

Everything that changes the store runs without waiting, so that every request sees and leaves a consistent state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import (
    auth,
    create_update,
    deletion,
    get_list,
    patch,
    responses,
    routes,
    status_errors,
    streams,
    subresource_views,
    watch,
)
from dovetail.lab.apiserver.crd import definitions, finalizer
from dovetail.lab.apiserver.discovery import GROUPS, Discovery
from dovetail.lab.apiserver.health import HealthEndpoints
from dovetail.lab.apiserver.kinds import bootstrap
from dovetail.lab.apiserver.kinds.builtin import builtin
from dovetail.lab.apiserver.lister import StoredCluster
from dovetail.lab.apiserver.openapi import OpenApi
from dovetail.lab.apiserver.policies.source import PolicySource
from dovetail.lab.apiserver.registry import LogSource, Object, Registry, RequestRefused, ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.routes import Route
from dovetail.lab.apiserver.server_state import LocalService, Post, WebhookAnswer
from dovetail.lab.apiserver.status_errors import PlainError, StatusError
from dovetail.lab.apiserver.store import JournalRefused, ObjectStore
from dovetail.lab.apiserver.webhooks.configurations import Configurations
from dovetail.lab.apiserver.webhooks.conversion import WebhookConverter
from dovetail.lab.apiserver.webhooks.pending_calls import Committed, PendingCalls, after_commit


def shown_after(committed: Committed) -> Callable[[RequestCall], Response]:
    """What is left of a write that is done: to show it."""
    return lambda call: after_commit(committed.show)


_NAMED = frozenset(("get", "update", "patch", "delete"))


async def _post(
    url: str, body: bytes, *, authorities: bytes, server_name: str, target: tuple[str, int] | None
) -> WebhookAnswer:
    """A webhook's answer over HTTPS. Its client is a fifth of a simulation's start, and few need one."""
    from dovetail.lab.apiserver.webhooks import https

    return await https.post(url, body, authorities=authorities, server_name=server_name, target=target)


class ApiServer:
    """`handle` answers requests; `store`, `registry`, `clock` and `chance` are what it is made of.

    Without `tokens` every client is an administrator: the in-process server, which nothing outside can reach.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        registry: Registry | None = None,
        store: ObjectStore | None = None,
        tokens: dict[str, auth.User] | None = None,
    ) -> None:
        self.clock = clock
        self.chance = chance
        self.registry = registry or builtin()
        self.store = store or ObjectStore(clock)
        self.tokens = tokens
        #: Tokens of service accounts that were asked for, and when they expire.
        self._issued: dict[str, tuple[auth.User, datetime]] = {}
        self.address = "127.0.0.1:6443"
        self.cluster = StoredCluster(self)
        self.discovery = Discovery(self)
        self.openapi = OpenApi(self)
        self.health = HealthEndpoints()
        #: A server without kubelets has no logs to show; a lab with kubelets sets its own here.
        self.logs: LogSource = lambda pod, container, options: None
        #: Services whose programs run in this process, by namespace and name: webhooks are called there.
        self.local_services: dict[tuple[str, str], LocalService] = {}
        #: URLs that this process answers: webhooks of EKS run beside its API server, where no Service leads.
        self.local_urls: dict[str, LocalService] = {}
        #: Annotations that webhooks left for the audit log, newest last: method, path, annotations.
        self.audit: deque[tuple[str, str, dict[str, str]]] = deque(maxlen=1000)
        #: Sends a body to a webhook that is not in this process.
        self.post: Post = _post
        self.webhooks = Configurations(self.store)
        self.policies = PolicySource(self.store, self.registry)
        self.registry.webhook_converter = lambda definition: WebhookConverter(self, definition)
        self._deferred: deque[Callable[[], None]] = deque()
        #: Waits until what was written is safe: the log on disk, where there is one.
        self.settled: Callable[[], asyncio.Future[None] | None] = lambda: None
        bootstrap.seed(self, clock.now())
        for definition in self.cluster.list(finalizer.GROUP, finalizer.PLURAL):  # an earlier life's
            definitions.serve(definition, self.registry)

    def defer(self, action: Callable[[], None]) -> None:
        """Do this once the current request has its answer."""
        self._deferred.append(action)

    def run_deferred(self) -> None:
        while self._deferred:
            action = self._deferred.popleft()
            try:
                action()
            except JournalRefused:
                self._deferred.appendleft(action)
                raise

    def issue(self, token: str, namespace: str, account: Object, until: datetime) -> None:
        """Accept the token as that of a service account, as long as the account is there."""
        metadata = account["metadata"]
        self._issued[token] = (auth.service_account(namespace, metadata["name"], metadata["uid"]), until)

    def _user(self, token: str) -> auth.User | None:
        user: auth.User | None = (self.tokens or {}).get(token)
        if user is not None or token not in self._issued:
            return user
        user, until = self._issued[token]
        namespace, name = user.name.split(":")[2:]
        account = self.cluster.get("", "serviceaccounts", namespace, name)
        if until <= self.clock.now() or account is None or account["metadata"]["uid"] != user.uid:
            del self._issued[token]
            return None
        return user

    def authenticated(self, request: Request) -> auth.User:
        return auth.authenticate(request, None if self.tokens is None else self._user)

    def identify(self, token: str) -> Object | None:
        """Whose token it is, as a TokenReview says it."""
        user = self._user(token)
        if user is None:
            return None
        return {"username": user.name, "uid": user.uid, "groups": list(user.groups)}

    async def handle(self, request: Request) -> Response:
        try:
            response = await self._handle(request)
        except StatusError as error:
            response = responses.failure(request, error)
        except RequestRefused as refusal:
            response = responses.failure(request, create_update.refused(refusal))
        except PlainError as error:
            headers = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
            response = Response(status=error.code, headers=headers, body=error.text.encode())
        except JournalRefused as refused:
            response = responses.failure(request, status_errors.internal_error(str(refused)))
        try:
            self.run_deferred()
            settled = self.settled()
            if settled is not None:
                await asyncio.shield(settled)  # others wait for it too: a request that is cancelled must not end it
        except JournalRefused as refused:
            response = responses.failure(request, status_errors.internal_error(str(refused)))
        if request.method == "HEAD":
            response.body = b""
        return response

    async def _handle(self, request: Request) -> Response:
        user = auth.impersonate(request, self.authenticated(request))
        route = routes.parse(request.path)
        if "//" in request.path.replace("/namespaces//", "/"):
            raise PlainError() if request.path.startswith("//") else status_errors.no_resource()
        if route is None:
            return self._elsewhere(request, user)
        watching = route.old_watch or request.parameter("watch") not in (None, "false", "0", "False")
        verb = route.verb(request.method, watching)
        auth.authorize(user, route, verb, self.cluster)
        resource = self._resource(route)
        call = RequestCall(self, request, route, resource, verb, user.name, user.groups, user.uid, user.borrowed)
        try:
            response = await self._dispatch(call)
        except (StatusError, RequestRefused) as failed:
            error = create_update.refused(failed) if isinstance(failed, RequestRefused) else failed
            self._warn(call, error.headers)
            raise error from failed
        if call.warnings or resource.deprecation:
            headers = dict(response.headers)
            self._warn(call, headers)
            response.headers = headers
        return response

    def _warn(self, call: RequestCall, headers: dict[str, str]) -> None:
        """Warning headers, one a line: the HTTP mount splits them."""
        texts = list(call.warnings)
        if call.resource.deprecation:
            texts.insert(0, call.resource.deprecation)
        if texts:
            shown = responses.shortened_warnings(texts)
            headers["warning"] = "\n".join(f"299 - {responses.quoted_warning(text)}" for text in shown)

    def _resource(self, route: Route) -> ResourceType:
        resource = self.registry.lookup(route.group, route.version, route.plural)
        if resource is not None:
            return resource
        if route.group and route.group not in GROUPS:
            raise PlainError()
        raise status_errors.no_resource()

    async def _dispatch(self, call: RequestCall) -> Response:
        route, resource, verb = call.route, call.resource, call.verb
        if route.subresource:
            return await self._dispatch_subresource(call)
        method = call.request.method
        if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            raise status_errors.method_not_allowed()
        if resource.namespaced and not route.namespace and (route.name or method not in ("GET",)):
            raise status_errors.method_not_allowed() if not route.name else status_errors.no_resource()
        if not resource.namespaced and route.namespace and (resource.plural != "namespaces" or not route.name):
            raise status_errors.no_resource()
        if route.name and not _NAMED & set(resource.verbs):
            raise status_errors.no_resource()
        if (method == "POST" and route.name and not resource.custom) or (method in ("PUT", "PATCH") and not route.name):
            raise status_errors.method_not_allowed()
        if verb not in resource.verbs and not (verb == "watch" and "list" in resource.verbs):
            raise status_errors.method_not_allowed()
        if verb == "watch":
            return await self._answered(call, watch.watch)
        if verb == "get":
            return await self._answered(call, get_list.get)
        if verb == "list":
            return await self._answered(call, get_list.list_)
        if verb == "deletecollection":
            return await self._answered(call, deletion.delete_collection)
        actions = {
            "create": create_update.create,
            "update": create_update.update,
            "patch": patch.patch,
            "delete": deletion.delete,
        }
        return await self._admitted(call, actions[verb])

    async def _answered(self, call: RequestCall, read: Callable[[RequestCall], Awaitable[Response]]) -> Response:
        """Run a read; where it needs the answers of webhooks that convert, get them and run it again."""
        while True:
            try:
                return await read(call)
            except PendingCalls as outstanding:
                await call.answers.ask(outstanding.questions)

    async def _admitted(self, call: RequestCall, action: Callable[[RequestCall], Response]) -> Response:
        """Run a write; where it needs the answers of webhooks, get them and run it again."""
        while True:
            try:
                response = action(call)
                break
            except PendingCalls as outstanding:
                call.warnings.clear()
                await call.answers.ask(outstanding.questions)
                if isinstance(outstanding, Committed):
                    action = shown_after(outstanding)
        if call.answers.audit:
            self.audit.append((call.request.method, call.request.path, dict(call.answers.audit)))
        return response

    async def _dispatch_subresource(self, call: RequestCall) -> Response:
        subresource = call.subresource_type
        if subresource is None:
            if call.resource.custom:
                raise status_errors.not_found(call.resource.group, call.resource.plural, call.name)
            raise status_errors.no_resource()
        verb = call.verb
        if verb not in subresource.verbs and not (
            verb == "get" and call.request.method == "GET" and "get" in subresource.verbs
        ):
            raise status_errors.method_not_allowed()
        if subresource.name in streams.NAMES and not call.resource.custom:
            return await self._admitted(call, streams.connect)
        if call.route.tail:
            raise status_errors.no_resource()
        if verb == "create":
            return await self._admitted(call, create_update.create)
        if verb == "get":
            return await self._admitted(call, self._get_subresource)
        if verb == "update":
            return await self._admitted(
                call, create_update.update if subresource.merge is None else subresource_views.put
            )
        if verb == "patch":
            return await self._admitted(call, patch.patch)
        raise status_errors.method_not_allowed()

    def _get_subresource(self, call: RequestCall) -> Response:
        subresource = call.subresource_type
        assert subresource is not None
        record = self.store.get(call.table, call.key)
        if record is None:
            raise status_errors.not_found(call.resource.group, call.resource.plural, call.name)
        if subresource.act is not None and subresource.view is None:
            reply = subresource.act(record.obj, {}, call.context("CONNECT", options=dict(call.request.query)))
            if reply.stream is not None:
                return Response(status=reply.code, headers={"content-type": "text/plain"}, stream=reply.stream)
            if reply.text is not None:
                return Response(status=reply.code, headers={"content-type": "text/plain"}, body=reply.text)
            if reply.body is None:
                return Response(status=reply.code, headers={"cache-control": "no-cache, private"})
            return responses.value(reply.body, reply.code, call.response_form())
        shown = responses.in_version(record.fresh(), call.resource)
        if subresource.view is not None:
            shown = subresource.view(shown, call.resource)
        return responses.one(call, shown)

    def _elsewhere(self, request: Request, user: auth.User) -> Response:
        """Everything that is no resource: discovery, health, version, OpenAPI."""
        path = request.path
        if self.health.public(path):
            return self.health.answer(request)
        auth.authorize_path(user, path, request.method)
        if self.health.known(path):
            return self.health.answer(request)
        parts = [part for part in path.split("/") if part]
        if parts[:1] in (["api"], ["apis"]):
            if request.method != "GET":
                raise status_errors.method_not_allowed()
            return self.discovery.handle(request, parts)
        if parts[:1] == ["openapi"]:
            return self.openapi.handle(request, parts)
        if not parts:
            return responses.value({"paths": self._paths()})
        raise PlainError()

    def _paths(self) -> list[str]:
        paths = ["/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3"]
        paths += ["/openapi/v3/", "/readyz", "/version"]
        for group, versions in self.discovery.groups().items():
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return sorted(paths)
