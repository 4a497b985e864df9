"""Whatever comes in, a Status goes out: no crash, no 500 the real server would not give, no damage to the store."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.server import ApiServer

_keys = st.sampled_from(
    [
        "metadata",
        "name",
        "labels",
        "spec",
        "containers",
        "image",
        "kind",
        "apiVersion",
        "data",
        "finalizers",
        "$patch",
        "x",
    ]
)
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=4)),
    max_leaves=12,
)
_bodies = st.one_of(
    st.binary(max_size=40), _values.map(msgspec.json.encode), st.dictionaries(_keys, _values).map(msgspec.json.encode)
)
_paths = st.sampled_from(
    [
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/deployments/a/scale",
        "/api/v1/nodes/a",
        "/api/v1/namespaces",
        "/apis/nope",
    ]
)
_types = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
        "",
    ]
)
_query = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "labelSelector",
                "fieldSelector",
                "limit",
                "continue",
                "resourceVersion",
                "dryRun",
                "fieldManager",
                "force",
            ]
        ),
        st.text(max_size=6),
    ),
    max_size=3,
).map(tuple)
_methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "FROB"])


async def _server() -> ApiServer:
    server = ApiServer(Clock(asyncio.get_running_loop(), EPOCH), Chance(3))
    for path, body in (
        ("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}, "data": {"x": "1"}}),
        (
            "/api/v1/namespaces/default/pods",
            {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        ),
    ):
        headers = {"content-type": "application/json"}
        made = await server.handle(Request(method="POST", path=path, body=msgspec.json.encode(body), headers=headers))
        assert made.status == 201
    return server


def _sound(server: ApiServer) -> None:
    for table in server.store.tables.values():
        assert table.keys == sorted(table.records)
        for record in table.records.values():
            obj: dict[str, Any] = msgspec.json.decode(record.raw)
            assert obj["metadata"]["resourceVersion"] == str(record.rv)


@given(_methods, _paths, _query, _types, st.sampled_from(["", "application/json", "*/*", "text/x"]), _bodies)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_request_gets_an_answer_and_leaves_the_store_sound(
    method: str, path: str, query: Any, content: str, accept: str, body: bytes
) -> None:
    async def main() -> None:
        server = await _server()
        headers = {"content-type": content, "accept": accept, "user-agent": "fuzz/1"}
        request = Request(method=method, path=path, query=query, headers=headers, body=body)
        response = await server.handle(request)
        assert 200 <= response.status < 600
        if response.stream is None and response.body.startswith(b"{"):
            msgspec.json.decode(response.body)
        _sound(server)

    run_virtual(main())
