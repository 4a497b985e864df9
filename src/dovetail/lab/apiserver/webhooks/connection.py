"""Calls of webhooks by URL or by Service; failures in the words of the real server's client."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dovetail.lab.apiserver.server_state import ServerState, WebhookAnswer
from dovetail.model.validation.field_errors import quoted

Json = dict[str, Any]
#: Of an answer that is no Status, the error shows this much.
MAX_SHOWN_BYTES = 2048
EXPIRED = "x509: certificate has expired or is not yet valid"
_CODES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: ("the server was unable to return a response in the time allotted, but may still be processing the request"),
}


class Unreachable(Exception):
    """A webhook that gave no answer at all; the text says why."""


def address(client: Mapping[str, Any], timeout_s: float) -> str:
    """The URL that a webhook is called at, with its timeout in whole seconds."""
    service = client.get("service")
    if service is None:
        url = str(client.get("url") or "")
        if not urlsplit(url).path:
            url += "/"
    else:
        path = service.get("path") or "/"
        url = f"https://{service['name']}.{service['namespace']}.svc:{service.get('port') or 443}{path}"
    return f"{url}?timeout={whole_seconds(timeout_s)}s"


def whole_seconds(seconds: float) -> int:
    return int(seconds) + (seconds > int(seconds))


async def send(server: ServerState, client: Mapping[str, Any], body: bytes, timeout_s: float) -> WebhookAnswer:
    """The answer of a webhook. Raises Unreachable after `timeout_s`, or where there is nothing to call."""
    url, service = address(client, timeout_s), client.get("service")
    try:
        async with asyncio.timeout(timeout_s):
            authorities = base64.b64decode(client.get("caBundle") or b"")
            if service is None:
                beside = server.local_urls.get(str(client.get("url")))
                if beside is not None:
                    return WebhookAnswer(*await beside(urlsplit(url).path, body))
                return await server.post(url, body, authorities=authorities, server_name="", target=None)
            local = server.local_services.get((service["namespace"], service["name"]))
            if local is not None:
                return WebhookAnswer(*await local(service.get("path") or "/", body))
            name = f"{service['name']}.{service['namespace']}.svc"
            target = endpoint(server, service)
            return await server.post(url, body, authorities=authorities, server_name=name, target=target)
    except TimeoutError:
        raise Unreachable(f"Post {quoted(url)}: context deadline exceeded") from None
    except Unreachable as problem:
        raise Unreachable(f"Post {quoted(url)}: {problem}") from problem
    except binascii.Error as error:
        raise Unreachable(f"Post {quoted(url)}: {error}") from error


def endpoint(server: ServerState, service: Mapping[str, Any]) -> tuple[str, int]:
    """Where a Service leads that no program of this process answers for: out of the lab, or nowhere."""
    namespace, name, port = service["namespace"], service["name"], service.get("port") or 443
    stored = server.cluster.get("", "services", namespace, name)
    if stored is None:
        raise Unreachable(f"service {quoted(name)} not found")
    spec = stored["spec"]
    if spec.get("type") == "ExternalName":
        return str(spec["externalName"]), port
    if spec.get("clusterIP") == "None":
        raise Unreachable('cannot route to service with ClusterIP "None"')
    if not any(item["port"] == port for item in spec.get("ports") or ()):
        raise Unreachable(f"no service port {port} found for service {quoted(name)}")
    raise Unreachable(f"no endpoints available for service {quoted(name)}")


def body_of(answer: WebhookAnswer) -> bytes:
    """The answer's body. Raises Unreachable unless the answer is a success with a body."""
    if 200 <= answer.status <= 206:
        if not answer.body:
            raise Unreachable(
                f"0-length response with status code: {answer.status} and content type: {answer.content_type}"
            )
        return answer.body
    try:
        status = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status" and status.get("status") != "Success":
        raise Unreachable(str(status.get("message") or "unknown"))
    raise Unreachable(_generic(answer))


def _generic(answer: WebhookAnswer) -> str:
    """The client's words for a status code without a Status."""
    code, media = answer.status, answer.content_type.partition(";")[0]
    text = answer.body[:MAX_SHOWN_BYTES].decode(errors="replace").strip() if media.startswith("text/") else "unknown"
    if code in _CODES:
        return _CODES[code]
    if code in (403, 415):
        return text
    if code == 406:
        absent = "the server was unable to respond with a content type that the client supports"
        return absent if text in ("", "unknown") else text
    if code >= 500:
        return f"an error on the server ({quoted(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {code} but did not return more information"
