"""Conversion webhooks of custom resources: one version's objects become another's, many in one review.

A conversion that was answered is kept as long as its definition stays as it is. One that was not stops the request with
`PendingCalls`, as admission webhooks do.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.status_errors import internal
from dovetail.lab.apiserver.webhooks import connection
from dovetail.lab.apiserver.webhooks.pending_calls import PendingCalls, WebhookCall
from dovetail.lab.apiserver.webhooks.review import CallFailed, check_kind, read_object
from dovetail.model.validation.field_errors import quoted
from dovetail.model.validation.metadata import labels as check_labels

Json = dict[str, Any]
TIMEOUT_S = 30.0
#: So many conversions of one definition are kept.
MAX_KEPT = 20_000
_sorted = msgspec.json.Encoder(order="sorted").encode


class InvalidMetadata(Exception):
    """Metadata of a converted object that no object may have."""


class WebhookConverter:
    """The conversions of one definition."""

    def __init__(self, server: ServerState, definition: Json) -> None:
        webhook = definition["spec"]["conversion"].get("webhook") or {}
        self._server = server
        self._group = definition["spec"]["group"]
        self._client = webhook.get("clientConfig") or {}
        self._review = next(
            (name for name in webhook.get("conversionReviewVersions") or () if name in ("v1", "v1beta1")), ""
        )
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def __call__(self, obj: Json, version: str) -> Json:
        """An object in another version. Raises PendingCalls where the webhook has not been asked yet."""
        self.prepare([obj], version)
        if obj.get("apiVersion") == f"{self._group}/{version}":
            return obj
        made: Json = msgspec.json.decode(self._kept[_key(obj, version)])
        return made

    def prepare(self, objects: Iterable[Json], version: str) -> None:
        """Raise PendingCalls, with one question, unless all these objects can be shown in a version."""
        api_version = f"{self._group}/{version}"
        missing = [
            obj for obj in objects if obj.get("apiVersion") != api_version and _key(obj, version) not in self._kept
        ]
        if not missing:
            return

        async def ask(left_s: float) -> None:
            await self._convert(missing, version, min(left_s, TIMEOUT_S))

        raise PendingCalls([WebhookCall(("conversion", api_version, _key(missing[0], version)), ask)])

    async def _convert(self, objects: Sequence[Json], version: str, timeout_s: float) -> None:
        """Ask the webhook, and keep what it says. Raises StatusError."""
        api_version, first = f"{self._group}/{version}", objects[0]
        subject = f"conversion webhook for {first['apiVersion']}, Kind={first['kind']}"
        uid = self._server.chance.uid()
        if not self._review:
            raise internal("no supported conversion review versions")
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": list(objects)}
        head = {"kind": "ConversionReview", "apiVersion": f"apiextensions.k8s.io/{self._review}"}
        empty: Json = {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}
        body = msgspec.json.encode({**head, "request": request, "response": empty})
        try:
            answer = await connection.send(self._server, self._client, body, timeout_s)
            review = read_object(connection.body_of(answer))
            check_kind(review, "ConversionReview", "apiextensions.k8s.io", self._review)
            made = _objects(review, uid, self._review)
        except (connection.Unreachable, CallFailed) as problem:
            raise internal(f"{subject} failed: {problem}") from problem
        if len(made) != len(objects):
            raise internal(f"{subject} returned {len(made)} objects, expected {len(objects)}")
        for index, (before, after) in enumerate(zip(objects, made, strict=True)):
            try:
                self._keep(_key(before, version), _restored(before, after, api_version))
            except InvalidMetadata as problem:
                raise internal(f"{subject} returned invalid metadata: {problem}") from problem
            except CallFailed as problem:
                place = f" at index {index}" if str(problem).startswith("invalid ") else ""
                raise internal(f"{subject} returned invalid object{place}: {problem}") from problem

    def _keep(self, key: tuple[str, str], obj: Json) -> None:
        self._kept[key] = msgspec.json.encode(obj)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)


def _key(obj: Json, version: str) -> tuple[str, str]:
    return hashlib.blake2b(_sorted(obj), digest_size=16).hexdigest(), version


def _objects(review: Json, uid: str, version: str) -> list[Json]:
    """The converted objects of a review. Raises CallFailed."""
    group = "apiextensions.k8s.io"
    given = f"{review['apiVersion'] or '/'}, Kind={review['kind']}"
    if version == "v1" and given != f"{group}/v1, Kind=ConversionReview":
        raise CallFailed(f"expected webhook response of {group}/v1, Kind=ConversionReview, got {given}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise CallFailed("no response provided")
    if version == "v1" and response.get("uid", "") != uid:
        raise CallFailed(f"expected response.uid={quoted(uid)}, got {quoted(str(response.get('uid', '')))}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise CallFailed(
            result.get("message") or f"response.result.status was '{result.get('status', '')}', not 'Success'"
        )
    return list(response.get("convertedObjects") or ())


def _restored(before: Json, after: Any, api_version: str) -> Json:
    """A converted object with its metadata: a webhook may change labels and annotations. Raises CallFailed."""
    if not isinstance(after, dict):
        raise CallFailed("Object 'Kind' is missing")
    if after.get("apiVersion") != api_version:
        got = after.get("apiVersion", "")
        raise CallFailed(f"invalid groupVersion (expected {api_version}, received {got})")
    if after.get("kind") != before["kind"]:
        raise CallFailed(f"invalid kind (expected {before['kind']}, received {after.get('kind', '')})")
    metadata, own = after.get("metadata"), before["metadata"]
    if metadata is None:
        metadata = {}
    for field, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if metadata.get(field, "") != own.get(field, ""):
            raise CallFailed(f"must have the same {word}: {own.get(field, '')} != {metadata.get(field, '')}")
    problems = check_labels(metadata.get("labels") or {}, "metadata.labels")
    if problems:
        raise InvalidMetadata(", ".join(str(problem) for problem in problems))
    kept = {name: value for name, value in own.items() if name not in ("labels", "annotations")}
    kept |= {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name) is not None}
    return {**after, "metadata": kept}
