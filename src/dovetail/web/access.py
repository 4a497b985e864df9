"""Who may look, and what they see.

On the loopback a random token in the URL opens the page; a cookie stands for it from then on. In a cluster the viewer
shows their own Kubernetes token, or a proxy in front says who they are, if the server was started so. The API server
decides what they may see (TokenReview, SubjectAccessReview); no request of ours writes anything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import CONFIGMAPS, CORE_EVENTS, HPAS, NODECLAIMS, NODEPOOLS, NODES, PODS, Resource
from dovetail.kube.transport import Request, Response, Transport
from dovetail.language import source
from dovetail.view.observer import VPAS
from dovetail.web.rights import EVERYTHING, ViewerRights

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
#: How long an answer of the API server about a viewer counts.
REVIEW_TTL_S = 60.0
#: How long a viewer who signed in with a token stays signed in without looking.
SESSION_TTL_S = 12 * 3600.0
MAX_SESSIONS = 1000
#: Reviews of one viewer that are asked at a time.
_CONCURRENT_REVIEWS = 8


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks. `groups` are as the API server or the proxy says."""

    name: str = ""
    groups: tuple[str, ...] = ()


class RequestCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a request shows: the token of its URL, its cookie, its bearer token, its headers."""

    url_token: str = ""
    cookie: str = ""
    bearer: str = ""
    headers: Mapping[str, str] = {}


class NotAllowed(Exception):
    """The request is refused; the text says what to do. It is translated for the viewer, with the facts in it."""

    def __init__(self, text: str, status: int = 401, **facts: object) -> None:
        super().__init__(text.format(**facts) if facts else text)
        self.text, self.status, self.facts = text, status, facts


class Access(Protocol):
    """`viewer` identifies a request or raises; `rights` are what they may see; `cookie` is set for them, if any."""

    async def viewer(self, credentials: RequestCredentials) -> tuple[Viewer, str | None]: ...

    async def rights(self, viewer: Viewer) -> ViewerRights: ...

    @property
    def signs_in(self) -> bool:
        """Whether there is a form for a token."""
        ...


class UrlToken:
    """Loopback: a browser with the URL that was printed sees what the kubeconfig may read."""

    signs_in = False

    def __init__(self, token: str | None = None) -> None:
        """A token that is given outlives the process: open pages go on after a restart."""
        self.token = token or secrets.token_urlsafe(24)
        self._session = hmac.new(self.token.encode(), b"dovetail dashboard session", hashlib.sha256).hexdigest()

    async def viewer(self, credentials: RequestCredentials) -> tuple[Viewer, str | None]:
        if credentials.url_token and hmac.compare_digest(credentials.url_token.encode(), self.token.encode()):
            return Viewer(), self._session
        if credentials.cookie and hmac.compare_digest(credentials.cookie.encode(), self._session.encode()):
            return Viewer(), None
        raise NotAllowed(source("open the URL that dovetail printed when it started: it has the token"))

    async def rights(self, viewer: Viewer) -> ViewerRights:
        return EVERYTHING


class ReviewsOnly:
    """A transport that carries reviews and nothing else."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Response:
        if request.method != "POST" or request.path not in (TOKEN_REVIEWS.path(), ACCESS_REVIEWS.path()):
            raise NotAllowed(f"{request.method} {request.path}: the dashboard sends reviews alone", 500)
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


class Reviews:
    """What the API server says of viewers, kept for a minute."""

    def __init__(self, kube: Kube, clock: Clock, namespaces: Callable[[], Iterable[str]], history: str) -> None:
        self._kube = Kube(ReviewsOnly(kube.transport), clock, chance=kube.chance)
        self._clock = clock
        self._namespaces = namespaces
        self._history = history
        self._viewers: dict[str, tuple[float, Viewer]] = {}
        self._rights: dict[Viewer, tuple[float, ViewerRights]] = {}

    async def identify(self, token: str) -> Viewer:
        """Whose token it is; NotAllowed where the API server does not know it."""
        now = self._clock.monotonic()
        held = self._viewers.get(token)
        if held is not None and held[0] > now:
            return held[1]
        review = await self._create(TOKEN_REVIEWS, {"spec": {"token": token}})
        status = review.get("status") or {}
        if not status.get("authenticated"):
            raise NotAllowed(source("the cluster does not know this token; get one with kubectl create token NAME"))
        user = status.get("user") or {}
        viewer = Viewer(name=user.get("username", ""), groups=tuple(user.get("groups") or ()))
        if len(self._viewers) > MAX_SESSIONS:
            self._viewers.clear()
        self._viewers[token] = (now + REVIEW_TTL_S, viewer)
        return viewer

    async def rights(self, viewer: Viewer) -> ViewerRights:
        now = self._clock.monotonic()
        held = self._rights.get(viewer)
        if held is None or held[0] <= now:
            if len(self._rights) > MAX_SESSIONS:
                self._rights.clear()
            held = self._rights[viewer] = (now + REVIEW_TTL_S, await self._ask(viewer))
        return held[1]

    async def _ask(self, viewer: Viewer) -> ViewerRights:
        kinds = {
            "nodes": NODES,
            "nodeclaims": NODECLAIMS,
            "nodepools": NODEPOOLS,
            "pods": PODS,
            "hpas": HPAS,
            "vpas": VPAS,
            "events": CORE_EVENTS,
        }
        answers = await self._all(
            [(resource, "") for resource in kinds.values()] + [(CONFIGMAPS, self._history)], viewer
        )
        granted = dict(zip((*kinds, "history"), answers, strict=True))
        namespaces: frozenset[str] = frozenset()
        if not granted["pods"]:
            names = sorted(self._namespaces())
            allowed = await self._all([(PODS, name) for name in names], viewer)
            namespaces = frozenset(name for name, yes in zip(names, allowed, strict=True) if yes)
        return ViewerRights(**granted, namespaces=namespaces)

    async def _all(self, questions: list[tuple[Resource, str]], viewer: Viewer) -> list[bool]:
        slots = asyncio.Semaphore(_CONCURRENT_REVIEWS)

        async def is_allowed(resource: Resource, namespace: str) -> bool:
            async with slots:
                return await self._may_list(viewer, resource, namespace)

        return await asyncio.gather(*(is_allowed(resource, namespace) for resource, namespace in questions))

    async def _may_list(self, viewer: Viewer, resource: Resource, namespace: str) -> bool:
        attributes = {"verb": "list", "group": resource.group, "resource": resource.plural}
        if namespace:
            attributes["namespace"] = namespace
        spec = {"user": viewer.name, "groups": list(viewer.groups), "resourceAttributes": attributes}
        review = await self._create(ACCESS_REVIEWS, {"spec": spec})
        return bool((review.get("status") or {}).get("allowed"))

    async def _create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._kube.create(resource, body)
        except KubeError as problem:
            raise NotAllowed(
                source("the cluster cannot be asked who may look: {problem}"), 503, problem=problem
            ) from problem


class KubernetesTokens:
    """In a cluster: the viewer's own token, as a bearer token of the request or of the form."""

    signs_in = True

    def __init__(self, reviews: Reviews, clock: Clock) -> None:
        self._reviews = reviews
        self._clock = clock
        self._sessions: dict[str, tuple[float, str]] = {}

    async def sign_in(self, token: str) -> str:
        """A new session; the token itself stays here."""
        await self._reviews.identify(token)
        now = self._clock.monotonic()
        self._sessions = {name: held for name, held in self._sessions.items() if held[0] > now}
        if len(self._sessions) >= MAX_SESSIONS:
            raise NotAllowed(source("too many viewers are signed in; try again in a while"), 503)
        session = secrets.token_urlsafe(24)
        self._sessions[session] = (now + SESSION_TTL_S, token)
        return session

    async def viewer(self, credentials: RequestCredentials) -> tuple[Viewer, str | None]:
        token = credentials.bearer
        if not token and credentials.cookie:
            held = self._sessions.get(credentials.cookie)
            token = held[1] if held is not None and held[0] > self._clock.monotonic() else ""
        if not token:
            raise NotAllowed(source("sign in with a Kubernetes token"))
        return await self._reviews.identify(token), None

    async def rights(self, viewer: Viewer) -> ViewerRights:
        return await self._reviews.rights(viewer)


class ProxyHeaders:
    """Behind a proxy that has authenticated the viewer, and that no request can pass by."""

    signs_in = False

    def __init__(self, reviews: Reviews, user_header: str, group_header: str) -> None:
        self._reviews = reviews
        self._user_header = user_header.lower()
        self._group_header = group_header.lower()

    async def viewer(self, credentials: RequestCredentials) -> tuple[Viewer, str | None]:
        name = credentials.headers.get(self._user_header, "").strip()
        if not name:
            raise NotAllowed(
                source("the proxy did not say who looks: the header {header} is missing"), header=self._user_header
            )
        groups = credentials.headers.get(self._group_header, "").split(",")
        named = tuple(group.strip() for group in groups if group.strip())
        return Viewer(name=name, groups=(*named, "system:authenticated")), None

    async def rights(self, viewer: Viewer) -> ViewerRights:
        return await self._reviews.rights(viewer)
