"""The API describes itself: every reference leads somewhere, and types have the names people know."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.lab.apiserver.requests import Api, Json, ask

CONTAINER = "io.k8s.api.core.v1.Container"


def dangling(document: Json, prefix: str, known: Json) -> set[str]:
    text = repr(document)
    return {name for name in re.findall(re.escape(prefix) + r"([\w.\-]+)", text) if name not in known}


def test_every_reference_of_every_document_leads_somewhere() -> None:
    async def scenario(api: Api) -> None:
        index = await api.ok("GET", "/openapi/v3")
        for path in index["paths"]:
            document = await api.ok("GET", f"/openapi/v3/{path}")
            schemas = document["components"]["schemas"]
            assert not dangling(document, "#/components/schemas/", schemas), path

    ask(scenario)


def test_an_old_kubectl_gets_a_document_it_can_read_and_leaves_the_checking_to_the_server() -> None:
    async def scenario(api: Api) -> None:
        accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        response = await api.raw("GET", "/openapi/v2", accept=accept)
        assert response.status == 200 and response.headers["content-type"] == accept.replace("@", ".")
        assert response.body.startswith(b"\x0a\x032.0")

    ask(scenario)


def test_the_old_document_holds_every_kind() -> None:
    async def scenario(api: Api) -> None:
        document = await api.ok("GET", "/openapi/v2")
        definitions = document["definitions"]
        assert {"io.k8s.api.core.v1.Pod", "io.k8s.api.apps.v1.Deployment"} <= set(definitions)
        assert not dangling(document, "#/definitions/", definitions)
        assert "#/components/" not in repr(document)

    ask(scenario)


@pytest.mark.parametrize(
    ("struct", "field", "expected"),
    [
        (CONTAINER, "imagePullPolicy", {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]}),
        ("io.k8s.api.core.v1.ResourceFieldSelector", "divisor", "io.k8s.apimachinery.pkg.api.resource.Quantity"),
        ("io.k8s.api.core.v1.TCPSocketAction", "port", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
        (CONTAINER, "resources", "io.k8s.api.core.v1.ResourceRequirements"),
    ],
)
def test_a_field_has_the_type_that_explain_shows(struct: str, field: str, expected: Any) -> None:
    async def scenario(api: Api) -> None:
        document = await api.ok("GET", "/openapi/v3/api/v1")
        shown = document["components"]["schemas"][struct]["properties"][field]
        if isinstance(expected, str):
            assert shown["allOf"] == [{"$ref": f"#/components/schemas/{expected}"}]
        else:
            assert shown == expected

    ask(scenario)
