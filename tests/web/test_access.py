"""Who may look and what they see: tokens, rights, proxies, and requests that other sites forge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from dovetail.kube.resources import Resource
from dovetail.language import use
from tests.web.world import ADMINISTRATOR, DEVELOPER, STRANGER, TOKEN, World

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
GROUP = "rbac.authorization.k8s.io"


class Answer:
    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


def ask(world: World, path: str, method: str = "GET", data: Any = None, **headers: str) -> Answer:
    async def request() -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, world.base + path, headers=given, data=data, allow_redirects=False) as response,
        ):
            return Answer(response.status, response.headers, await response.text())

    return world.do(request())


@pytest.fixture(scope="module")
def by_url() -> Iterator[World]:
    with World() as world:
        world.node("n1")
        world.settle(lambda observer: "node/n1" in observer.view.nodes)
        yield world


def test_without_the_token_nothing_is_shown(by_url: World) -> None:
    for path in ("/", "/node/n1", "/events", "/data/time", "/manifest/node/n1", "/search/results?q=n1"):
        for credentials in ("", "?token=wrong", f"?token={TOKEN}x"):
            joined = path + (credentials.replace("?", "&") if "?" in path else credentials)
            answer = ask(by_url, joined)
            assert answer.status == 401
            assert "n1" not in answer.text


def test_the_token_of_the_url_becomes_a_cookie_that_scripts_cannot_read(by_url: World) -> None:
    first = ask(by_url, f"/node/n1?token={TOKEN}&theme=dark")
    assert (first.status, first.headers["Location"]) == (302, "/node/n1?theme=dark")
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and TOKEN not in cookie
    second = ask(by_url, "/node/n1", Cookie=cookie.partition(";")[0])
    assert second.status == 200 and "n1" in second.text


def test_every_answer_has_a_strict_policy(by_url: World) -> None:
    cookie = ask(by_url, f"/?token={TOKEN}").headers["Set-Cookie"].partition(";")[0]
    answers = [
        ask(by_url, "/", Cookie=cookie),
        ask(by_url, "/"),
        ask(by_url, "/nowhere"),
        ask(by_url, "/assets/dashboard.js"),
        ask(by_url, "/", "POST"),
    ]
    assert [answer.status for answer in answers] == [200, 401, 404, 200, 405]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = answers[0].text
    assert "<script>" not in page and " style=" not in page and " onclick=" not in page


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.7", "localhost.evil.example", "[::", ""])
def test_another_host_is_refused(by_url: World, host: str) -> None:
    assert ask(by_url, f"/?token={TOKEN}", Host=host).status == 421


def test_a_refusal_speaks_the_language_of_the_viewer(by_url: World) -> None:
    said = ask(by_url, f"/?token={TOKEN}", Host="evil.example", Accept_Language="ko").text
    assert "호스트 &#x27;evil.example&#x27;는 이 페이지의 것이 아닙니다. --host-name으로 지정하세요" in said
    assert 'name="viewport"' in said
    assert "is not this page&#x27;s" in ask(by_url, f"/?token={TOKEN}", Host="evil.example").text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[evil"},
        {"Origin": "http://[::1"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_a_request_of_another_site_is_refused(by_url: World, headers: dict[str, str]) -> None:
    assert ask(by_url, f"/?token={TOKEN}", **headers).status == 403


def test_a_link_from_another_site_may_be_followed(by_url: World) -> None:
    answer = ask(by_url, f"/?token={TOKEN}", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert answer.status == 302


@pytest.mark.parametrize("seen", ["9" * 5000, "-1", "²", ""])
def test_a_number_that_is_none_of_ours_is_no_error_of_the_server(by_url: World, seen: str) -> None:
    async def first_event() -> tuple[int, bytes]:
        async with aiohttp.ClientSession() as session:
            address = f"{by_url.base}/events?token={TOKEN}&seen={quote(seen)}"
            async with session.get(address, allow_redirects=False) as response:
                return response.status, await response.content.readline()

    assert by_url.do(first_event()) == (200, b"retry: 1000\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(by_url: World, method: str) -> None:
    for path in ("/", "/node/n1", "/manifest/node/n1"):
        assert ask(by_url, f"{path}?token={TOKEN}", method).status == 405


def test_secrets_have_no_page_and_no_manifest(by_url: World) -> None:
    cookie = ask(by_url, f"/?token={TOKEN}").headers["Set-Cookie"].partition(";")[0]
    for path in ("/secret/shop/x", "/manifest/secret/shop/x", "/manifest/pod/x", "/manifest/../secrets"):
        assert ask(by_url, path, Cookie=cookie).status == 404


# In a cluster: the viewer's own rights.


def _grant(world: World, user: str, namespace: str, *resources: str) -> None:
    rules = [{"apiGroups": ["", "karpenter.sh"], "resources": list(resources), "verbs": ["list", "get"]}]
    role, binding = (ROLES, ROLE_BINDINGS) if namespace else (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": f"{user}-{namespace or 'all'}", **({"namespace": namespace} if namespace else {})}
    subject = {"kind": "User", "name": user, "apiGroup": GROUP}
    world.create(role, {"metadata": metadata, "rules": rules})
    reference = {"kind": kind, "name": metadata["name"], "apiGroup": GROUP}
    world.create(binding, {"metadata": metadata, "subjects": [subject], "roleRef": reference})


@pytest.fixture(scope="module")
def in_cluster() -> Iterator[World]:
    with World(auth="kubernetes") as world:
        world.pool("default")
        world.node("n1", pool="default", claim="default-xyz", price="0.5")
        world.pod("mine", "n1")
        world.pod("theirs", "n1", namespace="secret-lab")
        world.pod("hidden-pending", namespace="secret-lab")
        _grant(world, "developer", "", "nodes")
        _grant(world, "developer", "shop", "pods")
        world.settle(lambda observer: len(observer.view.pending) == 1 and len(observer.view.nodes["node/n1"].pods) == 2)
        yield world


def test_a_viewer_sees_what_kubectl_would_show_them(in_cluster: World) -> None:
    token = f"Bearer {DEVELOPER}"
    fleet = ask(in_cluster, "/", Authorization=token)
    assert fleet.status == 200 and "n1" in fleet.text and "developer" in fleet.text
    assert "secret-lab" not in fleet.text and "hidden-pending" not in fleet.text and "theirs" not in fleet.text
    assert ask(in_cluster, "/pod/shop/mine", Authorization=token).status == 200
    for path in ("/pod/secret-lab/theirs", "/nodepool/default", "/nodeclaim/default-xyz", "/decision/d-1"):
        answer = ask(in_cluster, path, Authorization=token)
        assert answer.status == 404 and "theirs" not in answer.text.replace(path.rpartition("/")[2], "")
    assert ask(in_cluster, "/manifest/pod/secret-lab/theirs", Authorization=token).status == 403
    assert ask(in_cluster, "/manifest/pod/shop/mine", Authorization=token).status == 200
    assert ask(in_cluster, "/data/time", Authorization=token).status == 403
    found = ask(in_cluster, "/search/results?q=e", Authorization=token).text
    assert "mine" in found and "theirs" not in found and "default" not in found
    node = ask(in_cluster, "/node/n1", Authorization=token).text
    assert "mine" in node and "theirs" not in node


def test_a_viewer_without_rights_sees_no_node_and_no_pod(in_cluster: World) -> None:
    token = f"Bearer {STRANGER}"
    for path in ("/", "/?form=table", "/cost", "/pending", "/health", "/budgets", "/autoscalers", "/search?q=n1"):
        answer = ask(in_cluster, path, Authorization=token)
        assert answer.status == 200
        assert "default-xyz" not in answer.text and "node/n1" not in answer.text and "mine" not in answer.text
    assert ask(in_cluster, "/node/n1", Authorization=token).status == 404


def test_the_administrator_sees_everything(in_cluster: World) -> None:
    answer = ask(in_cluster, "/", Authorization=f"Bearer {ADMINISTRATOR}")
    assert "hidden-pending" in answer.text and "secret-lab" in answer.text


def test_a_token_the_cluster_does_not_know_is_refused(in_cluster: World) -> None:
    assert ask(in_cluster, "/", Authorization="Bearer made-up").status == 401
    assert ask(in_cluster, "/?token=made-up").status == 401
    assert ask(in_cluster, "/", X_Forwarded_User="developer").status == 401  # a proxy that was not announced


def test_a_token_given_in_the_form_becomes_a_session(in_cluster: World) -> None:
    page = ask(in_cluster, "/node/n1", Accept="text/html")
    assert (page.status, page.headers["Location"]) == (302, "/login?to=%2Fnode%2Fn1")
    refused = ask(in_cluster, "/login", "POST", {"token": "made-up"})
    assert refused.status == 401 and "does not know this token" in refused.text
    korean = ask(in_cluster, "/login", "POST", {"token": "made-up"}, Accept_Language="ko")
    assert "클러스터가 이 토큰을 모릅니다" in korean.text
    forged = ask(in_cluster, "/login", "POST", {"token": DEVELOPER}, Origin="http://evil.example")
    assert forged.status == 403
    entered = ask(in_cluster, "/login", "POST", {"token": DEVELOPER, "to": "/node/n1"})
    assert (entered.status, entered.headers["Location"]) == (303, "/node/n1")
    for address in ("//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example", ""):
        elsewhere = ask(in_cluster, "/login", "POST", {"token": DEVELOPER, "to": address})
        assert elsewhere.headers["Location"] == "/", address
    retried = ask(in_cluster, "/login", "POST", {"token": "made-up", "to": "/node/n1"})
    assert 'name="to" value="/node/n1"' in retried.text  # a mistyped token does not lose the page that was asked for
    cookie = entered.headers["Set-Cookie"].partition(";")[0]
    assert DEVELOPER not in cookie
    assert "mine" in ask(in_cluster, "/node/n1", Cookie=cookie).text


def test_a_proxy_that_was_announced_names_the_viewer() -> None:
    with World(auth="proxy") as world:
        world.node("n1")
        _grant(world, "developer", "", "nodes")
        world.settle(lambda observer: "node/n1" in observer.view.nodes)
        assert ask(world, "/").status == 401
        assert "node/n1" in ask(world, "/", X_Forwarded_User="developer").text
        assert "node/n1" not in ask(world, "/", X_Forwarded_User="stranger").text
        assert "node/n1" in ask(world, "/", X_Forwarded_User="x", X_Forwarded_Groups="system:masters").text


def test_a_name_that_was_given_is_a_host() -> None:
    with World(hosts=("dashboard.example",)) as world:
        assert ask(world, f"/?token={TOKEN}", Host="dashboard.example").status == 302
        assert ask(world, f"/?token={TOKEN}", Host="dashboard.example.evil").status == 421


class KoreanWorld(World):
    """The page of a process that was started with `--lang ko`."""

    async def _start(self) -> None:
        use("ko")
        await super()._start()


def test_viewers_of_both_languages_share_a_view_that_speaks_neither_of_the_process() -> None:
    with KoreanWorld() as world:
        world.pod("waiting")
        world.settle(lambda observer: "shop/waiting" in observer.view.pending)
        said = world.observer.view.pending["shop/waiting"].reason
        assert said == "kube-scheduler has not tried it yet"
        cookie = ask(world, f"/?token={TOKEN}").headers["Set-Cookie"].partition(";")[0]
        pages = {code: ask(world, f"/health?lang={code}", Cookie=cookie).text for code in ("en", "ko")}
        assert "metrics.k8s.io is not served: install metrics-server" in pages["en"]
        assert "metrics.k8s.io가 제공되지 않습니다. metrics-server를 설치하세요" in pages["ko"]
