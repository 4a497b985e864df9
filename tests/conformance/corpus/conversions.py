"""Conversion webhooks: reads and writes in every served version, and what a webhook does that lies."""

from __future__ import annotations

from typing import Any

from tests.conformance.scripted_conversions import GROUP
from tests.conformance.steps import Step, apply, cluster, delete, get, hear, named, open_watch, patch, post, put, table

Json = dict[str, Any]
CRDS = cluster("apiextensions.k8s.io/v1", "customresourcedefinitions")
#: How long a real server takes to serve a definition.
SERVED = 3.0
TEXT = {"type": "string"}


def schema(**spec: Json) -> Json:
    status = {"type": "object", "properties": {"phase": TEXT}}
    properties = {"spec": {"type": "object", "properties": spec}, "status": status}
    return {"openAPIV3Schema": {"type": "object", "properties": properties}}


def definition(plural: str, script: str, storage: str = "v1", **conversion: Any) -> Json:
    kind = plural.capitalize().removesuffix("s")
    versions: list[Json] = [
        {"name": "v1", "schema": schema(host=TEXT, port=TEXT)},
        {"name": "v2", "schema": schema(hostPort={**TEXT, "minLength": 3}, more={**TEXT, "default": "filled"})},
    ]
    for version in versions:
        version |= {"served": True, "storage": version["name"] == storage, "subresources": {"status": {}}}
    webhook = {
        "clientConfig": {"url": f"{{hooks}}/{script}", "caBundle": "{bundle}"},
        "conversionReviewVersions": ["v1"],
        **conversion,
    }
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"plural": plural, "kind": kind, "listKind": f"{kind}List", "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


def path(plural: str, version: str, name: str = "", subresource: str = "") -> str:
    return named(f"{GROUP}/{version}", plural, name, subresource)


def first(plural: str, name: str = "a", **metadata: Any) -> Json:
    kind = plural.capitalize().removesuffix("s")
    head = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name, **metadata}}
    return {**head, "spec": {"host": "h", "port": "80"}}


def second(plural: str, name: str = "b", host_port: str = "g:81") -> Json:
    kind = plural.capitalize().removesuffix("s")
    return {"apiVersion": f"{GROUP}/v2", "kind": kind, "metadata": {"name": name}, "spec": {"hostPort": host_port}}


FAULTS = {
    "failures": "convert-failed",
    "silences": "convert-failed-silently",
    "voids": "convert-no-result",
    "nones": "convert-none",
    "absents": "convert-no-response",
    "versions": "convert-wrong-version",
    "kinds": "convert-wrong-kind",
    "names": "convert-renamed",
    "uids": "convert-wrong-uid",
    "labels": "convert-labels",
    "marks": "convert-bad-labels",
    "metas": "convert-metadata",
    "bares": "convert-no-metadata",
    "extras": "convert-unknown",
    "breaks": "convert-broken",
    "noises": "convert-garbage",
    "reviews": "convert-wrong-review-uid",
    "strays": "nowhere",
}
W = "widgets"

TOPICS: dict[str, list[Step]] = {
    "conversions": [
        post(CRDS, definition(W, "convert"), pause=SERVED),
        post(path(W, "v1"), first(W)),
        post(path(W, "v2"), second(W)),
        get(path(W, "v1", "a")),
        get(path(W, "v2", "a")),
        get(path(W, "v1", "b")),
        get(path(W, "v2", "b")),
        get(path(W, "v1")),
        get(path(W, "v2")),
        table(path(W, "v2")),
        put(path(W, "v2", "a"), second(W, "a", "i:82")),
        open_watch("w", path(W, "v2")),
        patch(path(W, "v2", "a"), {"spec": {"hostPort": "j:83"}}),
        patch(path(W, "v1", "b"), {"metadata": {"labels": {"x": "y"}}}),
        patch(path(W, "v2", "b"), {"spec": {"hostPort": "x"}}),
        patch(path(W, "v2", "b", "status"), {"status": {"phase": "Good"}}),
        get(path(W, "v1"), labelSelector="x=y"),
        get(path(W, "v2"), labelSelector="x=y"),
        apply(path(W, "v2", "c"), second(W, "c", "k:84")),
        apply(path(W, "v2", "c"), second(W, "c", "l:85")),
        apply(path(W, "v1", "c"), first(W, "c"), manager="two"),
        apply(path(W, "v1", "c"), first(W, "c"), manager="two", force="true"),
        post(path(W, "v2"), second(W, "d"), dryRun="All"),
        post(path(W, "v2"), second(W, "a")),
        delete(path(W, "v2", "a")),
        delete(path(W, "v2", "missing")),
        hear("w"),
        get(path(W, "v2")),
        delete(path(W, "v2")),
        get(path(W, "v1")),
        delete(f"{CRDS}/{W}.{GROUP}"),
    ],
    "conversionfaults": [
        *(post(CRDS, definition(plural, script)) for plural, script in FAULTS.items()),
        post(CRDS, definition("refusals", "convert", clientConfig={"url": "https://127.0.0.1:1/x"}), pause=SERVED),
        *(post(path(plural, "v2"), second(plural)) for plural in [*FAULTS, "refusals"]),
        *(get(path(plural, "v1")) for plural in ("failures", "versions", "labels", "metas", "refusals")),
        patch(path("failures", "v2", "b"), {"spec": {"hostPort": "j:83"}}),
        delete(path("failures", "v2", "b")),
        post(CRDS, definition("wrongs", "convert", clientConfig={})),
        post(CRDS, definition("wrongs", "convert", clientConfig={"url": "http://x?a=b"})),
        post(CRDS, definition("wrongs", "convert", clientConfig={"service": {"path": "x"}})),
        post(CRDS, definition("wrongs", "convert", conversionReviewVersions=[])),
        post(CRDS, definition("wrongs", "convert", conversionReviewVersions=["v9"])),
        post(CRDS, definition("wrongs", "convert", conversionReviewVersions=["v1", "v1", "V_"])),
        *(delete(f"{CRDS}/{plural}.{GROUP}") for plural in [*FAULTS, "refusals"]),
    ],
}
