"""The HTTP server of the page: GET alone (and a form to sign in with), every answer under a strict policy.

Host and Origin are checked before anything else, so that no other site can look through a viewer's browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from importlib import resources
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from dovetail.controllers import explain
from dovetail.controllers.history.store import NAMESPACE
from dovetail.errors import UserError
from dovetail.install.doctor.facts import Finding
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.resources import CONFIGMAPS
from dovetail.language import source
from dovetail.offline.growing_recording import GrowingRecording
from dovetail.offline.recorded_fleet import RecordedFleet, instant_text
from dovetail.runtime.http_log import http_log
from dovetail.view.observer import ContainerUsage, Observer
from dovetail.web import cluster_pages, fleet_page, object_pages, recorded_pages
from dovetail.web.access import Access, KubernetesTokens, NotAllowed, RequestCredentials, Viewer
from dovetail.web.autoscaler_pages import autoscalers
from dovetail.web.budget_pages import budget_calendar
from dovetail.web.context import PageContext
from dovetail.web.decision_pages import decision_page
from dovetail.web.instant import with_instant_in_links
from dovetail.web.layout import page
from dovetail.web.manifest import as_yaml
from dovetail.web.markup import Markup, isolated, join, tag
from dovetail.web.origin import SECURITY_HEADERS, check_origin
from dovetail.web.page_language import PageLanguage, chosen, page_language
from dovetail.web.palette import Palette
from dovetail.web.rights import ViewerRights
from dovetail.web.series import Series, chart, scaling_chart
from dovetail.web.stream import BEAT, GROWN, Stream
from dovetail.web.view_options import ViewOptions, comfortable_zoom, view_options_of

ASSETS: Mapping[str, str] = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
    "icon.svg": "image/svg+xml",
}
#: A page knows within so many seconds, and a few more, that its stream is dead.
BEAT_INTERVAL_S = 5.0
#: Findings of doctor are read anew when they are older.
DOCTOR_TTL_S = 300.0
MAX_FORM_BYTES = 64 * 1024
#: Digits of a number in a URL: int() refuses thousands of them with an error.
MAX_DIGITS = 18

Examine = Callable[[], Awaitable[Sequence[Finding]]]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts` are names, beside the loopback's, that the page is reached by; empty `title` shows none."""

    host: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    language: str | None = None
    title: str = ""
    speed: float = 1.0
    #: Whether viewers reach the server by TLS, through a proxy or an ingress: cookies are then for TLS alone.
    secure: bool = False


class Dashboard:
    """Serves one observer's view. `examine` makes doctor's checks; without it they are shown as not made.

    With `recorded` every page is of the instant that its URL names, and `observer` of the end of the recording.
    """

    def __init__(
        self,
        observer: Observer,
        access: Access,
        settings: ServerSettings,
        examine: Examine | None = None,
        recorded: GrowingRecording | None = None,
    ) -> None:
        self._observer = observer
        self._recorded = recorded
        self._recorded_series = recorded_pages.RecordedSeries(recorded) if recorded is not None else None
        self._access = access
        self._settings = settings
        self._examine = examine
        self._palette = Palette()
        self._series = Series()
        self._findings: tuple[float, Sequence[Finding]] | None = None
        self._examination: asyncio.Task[None] | None = None
        self._examination_problem = ""
        self.stream = Stream(self._palette, observer.clock.now, observer.view)
        self.port = settings.port
        observer.listen(self.stream.publish)
        observer.listen(lambda view, change: self._series.take(view, observer.clock.now()))
        observer.on_object = self._announce
        self._assets = {name: _asset(name) for name in ASSETS}

    # -- serving

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve while the block runs; yields the URL without a token."""
        app = web.Application(middlewares=[self._guard], client_max_size=MAX_FORM_BYTES)
        app.add_routes(self._routes())
        runner = web.AppRunner(app, access_log=None, logger=http_log, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._settings.host, self._settings.port)
            await site.start()
            sockets = site._server.sockets if isinstance(site._server, asyncio.Server) else ()
            self.port = sockets[0].getsockname()[1] if sockets else self._settings.port
            host = self._settings.host if self._settings.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
            yield f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        finally:
            if self._examination is not None:
                self._examination.cancel()
            await runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        routes = [
            web.get("/healthz", self._healthz),
            web.get("/assets/{name}", self._asset),
            web.get("/login", self._login_page),
            web.post("/login", self._login),
            web.get("/events", self._events),
            web.get("/data/time", self._chart),
            web.get("/data/hpa/{namespace}/{name}", self._hpa_chart),
            web.get("/search/results", self._results),
            web.get("/manifest/{kind}/{namespace}/{name}", self._manifest),
            web.get("/manifest/{kind}/{name}", self._manifest),
            web.get("/", self._fleet),
        ]
        pages: dict[str, Callable[[PageContext, web.Request], tuple[str, Markup | None]]] = {
            "/pending": lambda c, r: ("Pending pods", fleet_page.pending_page(c)),
            "/cost": lambda c, r: ("Cost", cluster_pages.cost(c)),
            "/time": lambda c, r: ("Time", self._time_page(c)),
            "/autoscalers": lambda c, r: ("Autoscalers", autoscalers(c, c.observer)),
            "/budgets": lambda c, r: ("Budgets", budget_calendar(c, c.observer)),
            "/health": self._health_page,
            "/search": lambda c, r: (
                "Search",
                cluster_pages.search_page(c, c.observer, r.query.get("q", "")[:200]),
            ),
            "/group/{name}": lambda c, r: ("Node group", object_pages.group_page(c, r.match_info["name"])),
            "/decision/{id}": lambda c, r: (
                "Decision",
                decision_page(c, c.observer.decisions.all(), r.match_info["id"]),
            ),
            "/workload/{namespace}/{kind}/{name}": lambda c, r: (
                "Workload",
                object_pages.workload_page(
                    c, r.match_info["namespace"], f"{r.match_info['kind']}/{r.match_info['name']}"
                ),
            ),
        }
        for kind in object_pages.RESOURCES:
            namespaced = object_pages.RESOURCES[kind].namespaced
            address = f"/{kind}/{{namespace}}/{{name}}" if namespaced else f"/{kind}/{{name}}"
            pages[address] = self._object(kind)
        routes += [web.get(address, self._page(draw)) for address, draw in pages.items()]
        return routes

    # -- who asks, and from where

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            check_origin(request, self._settings.hosts)
            response = await handler(request)
        except NotAllowed as problem:
            response = self._refusal(request, problem)
        except web.HTTPNotFound:
            response = self._plain(request, source("There is no such page."), 404)
        except web.HTTPMethodNotAllowed:
            response = self._plain(request, source("The page writes nothing: it answers GET alone."), 405)
        except web.HTTPException as answer:
            answer.headers.update(SECURITY_HEADERS)
            raise
        if not response.prepared:
            response.headers.update(SECURITY_HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    @property
    def cookie(self) -> str:
        """Cookies do not tell ports apart: the name does."""
        return f"dovetail-{self.port}"

    async def _viewer(self, request: web.Request) -> tuple[Viewer, ViewerRights, str | None]:
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        credentials = RequestCredentials(
            url_token=request.query.get("token", ""),
            cookie=request.cookies.get(self.cookie, ""),
            bearer=bearer.strip() if scheme.lower() == "bearer" else "",
            headers={name.lower(): value for name, value in request.headers.items()},
        )
        viewer, session = await self._access.viewer(credentials)
        return viewer, await self._access.rights(viewer), session

    def _set_cookie(self, response: web.StreamResponse, session: str) -> None:
        response.set_cookie(self.cookie, session, httponly=True, samesite="Lax", secure=self._settings.secure, path="/")

    def _refusal(self, request: web.Request, problem: NotAllowed) -> web.Response:
        if problem.status == 401 and self._access.signs_in and request.path != "/login" and _wants_page(request):
            return web.Response(
                status=302, headers={"Location": f"/login?{urlencode({'to': request.rel_url.path_qs})}"}
            )
        return self._plain(request, problem.text, problem.status, **problem.facts)

    def _plain(self, request: web.Request, text: str, status: int, **facts: object) -> web.Response:
        t = self._language(request)
        fleet = tag("p", tag("a", t("Fleet"), href="/"))
        return self._alone(t, status, tag("p", isolated(t(text, **facts))), fleet)

    @staticmethod
    def _alone(t: PageLanguage, status: int, *content: Markup | None) -> web.Response:
        """A page without the frame of the others: nothing of the cluster is in it."""
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", "Dovetail"),
            tag("link", rel="icon", href="/assets/icon.svg", type="image/svg+xml"),
            tag("link", rel="stylesheet", href="/assets/dashboard.css"),
        )
        body = tag("body", tag("main", tag("h1", "Dovetail"), *content, class_="alone"))
        text = f"<!doctype html>{tag('html', head, body, lang=t.language)}"
        return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")

    def _language(self, request: web.Request) -> PageLanguage:
        language = request.query.get("lang") or request.cookies.get("dovetail-lang")
        return page_language(chosen(language, request.headers.get("Accept-Language", ""), self._settings.language))

    async def _login_page(self, request: web.Request) -> web.Response:
        return self._login_form(request, request.query.get("to", "/"))

    def _login_form(self, request: web.Request, to: str, problem: NotAllowed | None = None) -> web.Response:
        if not self._access.signs_in:
            raise web.HTTPNotFound
        t = self._language(request)
        form = tag(
            "form",
            tag("input", type="hidden", name="to", value=to),
            tag("label", t("Kubernetes token"), for_="token"),
            tag("input", id="token", name="token", type="password", autocomplete="off", required=True),
            tag("button", t("Sign in"), type="submit"),
            method="post",
            action="/login",
        )
        hint = tag("p", t("You see what kubectl would show you."), " ", tag("code", "kubectl create token NAME"))
        if problem is None:
            return self._alone(t, 200, form, hint)
        said = tag("p", isolated(t(problem.text, **problem.facts)), class_="notice bad", role="alert")
        return self._alone(t, problem.status, said, form, hint)

    async def _login(self, request: web.Request) -> web.Response:
        """The one POST: it writes nothing anywhere, it only keeps the token for this viewer's session."""
        if not isinstance(self._access, KubernetesTokens):
            raise web.HTTPNotFound
        form = await request.post()
        to = str(form.get("to", "/"))
        try:
            session = await self._access.sign_in(str(form.get("token", "")).strip())
        except NotAllowed as problem:
            return self._login_form(request, to, problem)
        response = web.Response(status=303, headers={"Location": to if _is_local(to) else "/"})
        self._set_cookie(response, session)
        return response

    # -- pages

    async def _context(self, request: web.Request) -> tuple[PageContext, str | None]:
        viewer, rights, session = await self._viewer(request)
        observer, moment = self._observer, None
        if self._recorded is not None:
            recorded = self._recorded.fleet
            moment = recorded_pages.moment(self._recorded, _instant(recorded, request))
            observer = await recorded.at(moment.instant)
        await observer.ready.wait()
        context = PageContext(
            t=self._language(request),
            view=self.stream.view(rights) if moment is None else observer.view,
            observer=observer,
            publication=self.stream.number,
            moment=moment,
            rights=rights,
            palette=self._palette,
            now=observer.clock.now() if moment is None else moment.instant,
            path=request.path,
            query={name: value for name, value in request.query.items() if name not in ("token", "lang")},
            theme=request.query.get("theme") or request.cookies.get("dovetail-theme", ""),
            viewer=viewer.name,
            title=self._settings.title,
        )
        return context, session

    def _answer(self, request: web.Request, session: str | None, draw: Callable[[], str], status: int) -> web.Response:
        """The page; a token in its URL becomes a cookie first, so that it is not left in the address bar."""
        language = request.query.get("lang")
        if session is not None and "token" in request.query:
            kept = {name: value for name, value in request.query.items() if name != "token"}
            address = request.rel_url.raw_path + (f"?{urlencode(kept)}" if kept else "")
            response = web.Response(status=302, headers={"Location": address})
        else:
            response = web.Response(text=draw(), content_type="text/html", charset="utf-8", status=status)
            response.enable_compression()
        if session is not None:
            self._set_cookie(response, session)
        if language:
            response.set_cookie("dovetail-lang", chosen(language, "", None), samesite="Lax", path="/")
        return response

    async def _fleet(self, request: web.Request) -> web.StreamResponse:
        context, session = await self._context(request)
        options = view_options_of(request.query, context.t.language, comfortable_zoom(context.view.nodes))

        def draw() -> str:
            main = fleet_page.fleet(context, options)
            return page(context, context.t("Fleet"), main, _stream(context, _fields(options)))

        return self._answer(request, session, draw, 200)

    def _page(
        self, draw: Callable[[PageContext, web.Request], tuple[str, Markup | None]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            context, session = await self._context(request)
            context = msgspec.structs.replace(
                context,
                pod_usage=await self._usage(context, request),
                group_status=await _group_status(context, request),
            )
            title, main = draw(context, request)
            about = request.path.lstrip("/")
            fields = urlencode({"about": about, "lang": context.t.language})
            stream = _stream(context, f"?{fields}")
            status = 200
            if main is None:
                status = 404
                gone = context.t("There is no such object, or you may not see it.")
                main = join(tag("h1", isolated(about)), tag("p", gone, class_="empty"))
            body = tag(
                "div",
                main,
                id="content",
                hx_get=str(request.rel_url.path_qs),
                hx_select="#content",
                hx_swap="outerHTML",
                hx_trigger="refresh",
                hx_disinherit="*",
            )
            name = f"{context.t(title)}: {about}" if about.count("/") else context.t(title)
            plots = request.path == "/time" or request.path.startswith("/hpa/")
            return self._answer(request, session, lambda: page(context, name, body, stream, plots=plots), status)

        return handle

    def _object(self, kind: str) -> Callable[[PageContext, web.Request], tuple[str, Markup | None]]:
        def draw(context: PageContext, request: web.Request) -> tuple[str, Markup | None]:
            namespace, name = request.match_info.get("namespace", ""), request.match_info["name"]
            title = object_pages.TITLES[kind]
            if not object_pages.permitted(context, kind, namespace):
                return title, None
            return title, object_pages.object_page(context, context.observer, kind, namespace, name)

        return draw

    def _announce(self, kind: str, key: str) -> None:
        """An object changed, or has a new event, without a change of the view."""
        if kind in ("hpa", "vpa"):
            for about in (f"{kind}/{key}", "autoscalers"):
                self.stream.announce(about, lambda rights: rights.hpas if kind == "hpa" else rights.vpas)
        elif kind in object_pages.RESOURCES:
            self.stream.announce(f"{kind}/{key}", lambda rights: rights.events and rights.pods and rights.nodes)

    async def _usage(self, context: PageContext, request: web.Request) -> Mapping[str, ContainerUsage] | None:
        """What pods use, for the pages of those pods; None elsewhere, and where it is not known."""
        kind, namespace = request.path.split("/")[1], request.match_info.get("namespace", "")
        if kind not in ("pod", "workload", "vpa", "hpa") or context.moment is not None:
            return None
        if namespace not in context.observer.state.namespaces.store or not context.rights.sees_pods_of(namespace):
            return None
        return await context.observer.pod_usage(namespace)

    def _time_page(self, context: PageContext) -> Markup:
        if self._recorded is not None:
            return recorded_pages.time(context, self._recorded.fleet)
        return cluster_pages.time(context, context.observer.decisions.all(), self._series.points)

    def _health_page(self, context: PageContext, request: web.Request) -> tuple[str, Markup | None]:
        findings = self._checked() if context.rights.everything else None
        return "Health", cluster_pages.health_page(context, findings, self._examination_problem)

    def _checked(self) -> Sequence[Finding] | None:
        """Doctor's findings, read again beside the page when they are old."""
        now = self._observer.clock.monotonic()
        running = self._examination is not None and not self._examination.done()
        if self._examine is None:
            self._examination_problem = "not checked here; run dovetail doctor"
        elif not running and (self._findings is None or now - self._findings[0] > DOCTOR_TTL_S):
            self._examination = asyncio.create_task(self._run_examination(self._examine), name="doctor")
        return self._findings[1] if self._findings is not None else None

    async def _run_examination(self, examine: Examine) -> None:
        try:
            self._findings = (self._observer.clock.monotonic(), await examine())
            self._examination_problem = ""
        except (KubeError, UserError, OSError) as problem:
            self._examination_problem = str(problem)
        self.stream.announce("health")

    async def _results(self, request: web.Request) -> web.StreamResponse:
        context, _ = await self._context(request)
        query = request.query.get("q", "")[:200]
        search_results = cluster_pages.search_results(context, context.observer, query)
        return web.Response(
            text=with_instant_in_links(search_results, context.moment), content_type="text/html", charset="utf-8"
        )

    async def _chart(self, request: web.Request) -> web.StreamResponse:
        context, _ = await self._context(request)
        if not (context.rights.nodes and context.rights.pods):
            raise NotAllowed(source("the series are of all nodes and pods: they need the right to list those"), 403)
        if self._recorded_series is not None:
            drawn = await self._recorded_series.chart(context.now)
            return web.Response(body=msgspec.json.encode(drawn), content_type="application/json")
        decisions = context.observer.decisions.all() if context.rights.history else ()
        history = context.rights.history and context.view.health.safe_mode is not None
        drawn = chart(self._series.points, decisions, context.now, history)
        return web.Response(body=msgspec.json.encode(drawn), content_type="application/json")

    async def _hpa_chart(self, request: web.Request) -> web.StreamResponse:
        context, _ = await self._context(request)
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        if not context.rights.hpas:
            raise NotAllowed(source("you may not read this object"), 403)
        columns = scaling_chart(context.observer.scaling.of(key), context.now)
        return web.Response(body=msgspec.json.encode(columns), content_type="application/json")

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        """One object, read with the server's rights after the viewer's were checked; secrets are no kind of ours."""
        context, _ = await self._context(request)
        kind, namespace = request.match_info["kind"], request.match_info.get("namespace", "")
        resource = object_pages.RESOURCES.get(kind)
        if resource is None or resource.namespaced != bool(namespace):
            raise web.HTTPNotFound
        if not object_pages.permitted(context, kind, namespace):
            raise NotAllowed(source("you may not read this object"), 403)
        try:
            obj = await context.observer.kube.get(resource, request.match_info["name"], namespace or None)
        except NotFound:
            raise web.HTTPNotFound from None
        except KubeError as problem:
            raise NotAllowed(source("the cluster does not answer: {problem}"), 502, problem=problem) from problem
        shown = tag("pre", as_yaml(obj), class_="manifest", tabindex="0")
        return web.Response(text=shown, content_type="text/html", charset="utf-8")

    # -- what is no page

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._assets:
            raise web.HTTPNotFound
        response = web.Response(body=self._assets[name], content_type=ASSETS[name], charset="utf-8")
        response.headers["Cache-Control"] = "no-cache" if name.startswith("dashboard") else "max-age=86400"
        response.enable_compression()
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        _, rights, _ = await self._viewer(request)
        if self._recorded is not None:
            return await self._growth(request, self._recorded)
        await self._observer.ready.wait()
        language = self._language(request).language
        options, about = view_options_of(request.query, language), request.query.get("about", "")[:500]
        seen = _count(request.query.get("seen", ""))
        subscription, leave = self.stream.subscribe(rights, options, about, seen)
        return await self._send(request, subscription.queue, leave)

    async def _growth(self, request: web.Request, recording: GrowingRecording) -> web.StreamResponse:
        """Tells a page over a recording that it grew beyond what the page has; in one that is whole nothing happens."""
        shown = request.query.get("until")
        if shown is None:
            raise web.HTTPNotFound
        grown: asyncio.Queue[bytes] = asyncio.Queue()
        if not recording.growing or shown != instant_text(recording.fleet.end):  # between the page and this request
            grown.put_nowait(GROWN)

        def tell() -> None:
            if grown.empty():  # one is enough for a page that is slow
                grown.put_nowait(GROWN)

        return await self._send(request, grown, recording.listen(tell))

    async def _send(
        self, request: web.Request, queue: asyncio.Queue[bytes], leave: Callable[[], None]
    ) -> web.StreamResponse:
        """Everything that comes into the queue, and beats, until the viewer leaves."""
        response = web.StreamResponse(
            headers={**SECURITY_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n" + BEAT)
            while True:
                try:
                    async with asyncio.timeout(BEAT_INTERVAL_S * self._settings.speed):
                        message = await queue.get()
                except TimeoutError:
                    message = BEAT
                await response.write(message)
        except (ConnectionResetError, asyncio.CancelledError):
            return response
        finally:
            leave()


async def _group_status(context: PageContext, request: web.Request) -> Mapping[str, str] | None:
    """What a Cluster Autoscaler writes about its node groups, for their pages; None where there is none."""
    if not request.path.startswith("/group/") or not context.rights.everything or context.moment is not None:
        return None
    try:
        written = await context.observer.kube.get(CONFIGMAPS, explain.STATUS_CONFIG_MAP, NAMESPACE)
    except KubeError:
        return None
    return dict(written.get("data") or {})


def _fields(options: ViewOptions) -> str:
    """The options, whole: the stream must draw what the page has."""
    names = ("group", "colour", "zoom", "form", "filter")
    return f"?{urlencode({'lang': options.language, **{name: getattr(options, name) for name in names}})}"


def _stream(context: PageContext, fields: str) -> str:
    """Where the updates of a page come from; of a recording that does not grow there are none."""
    if context.moment is None:
        return f"/events{fields}&seen={context.publication}"
    return f"/events?{urlencode({'until': instant_text(context.moment.end)})}" if context.moment.growing else ""


def _instant(recorded: RecordedFleet, request: web.Request) -> datetime | None:
    """The instant that the URL names; None is the end. A step of the slider is answered with the URL of its instant."""
    named = request.query.get("at")
    if "step" in request.query:
        step = _count(request.query["step"])
        if step is None:
            raise NotAllowed(source("there is no such step"), 400)
        kept = {name: value for name, value in request.query.items() if name not in ("step", "at")}
        kept["at"] = instant_text(recorded.instant_of(step))
        raise web.HTTPFound(f"{request.path}?{urlencode(kept)}")
    try:
        return recorded.instant(named) if named else None
    except UserError as problem:
        raise NotAllowed(str(problem), 400) from problem


def _count(text: str) -> int | None:
    """The number that a URL names; None for what is none, or longer than any of ours."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def _wants_page(request: web.Request) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _is_local(address: str) -> bool:
    """Whether a browser that is sent there stays on this page; it leaves out control characters, and reads \\ as /."""
    return address.startswith("/") and address.isprintable() and not address.startswith(("//", "/\\"))


def _asset(name: str) -> bytes:
    return (resources.files("dovetail.web") / "assets" / name).read_bytes()
