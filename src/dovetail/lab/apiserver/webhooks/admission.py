"""Calling webhooks from writes that never wait.

A write runs without waiting, so that it sees one state of the store. Where it needs the answer of a webhook it stops
with `Outstanding`; the server asks the webhook and runs the write again from its start, with the answers so far.
Nothing was stored yet, and what was drawn at random (uid, name) is drawn once for all runs.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import Any

import aiohttp

from dovetail.lab.apiserver.decode import Expected, to_object
from dovetail.lab.apiserver.registry import Context, ResourceType
from dovetail.lab.apiserver.request import Call
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.webhooks import review
from dovetail.lab.apiserver.webhooks.matching import (
    Asked,
    ConditionFailed,
    Phase,
    Webhook,
    any_configured,
    conditions_hold,
    is_exempt,
    matched_version,
    selectors_match,
    webhooks,
)
from dovetail.lab.apiserver.webhooks.questions import Answers, Outstanding, Question
from dovetail.lab.apiserver.webhooks.review import CallFailed, Verdict

Json = dict[str, Any]
#: No answer may be longer.
MAX_ANSWER_BYTES = 3 * 2**20
#: What a webhook cannot change of an object.
_FIXED_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)


async def ask(server: ServerState, questions: list[Question], answers: Answers) -> None:
    """Ask all at once; each costs no more than its timeout."""
    verdicts = await asyncio.gather(*(call_webhook(server, question) for question in questions))
    for question, verdict in zip(questions, verdicts, strict=True):
        answers.held[question.key] = verdict


def mutate(call: Call, obj: Json | None, old: Json | None, ctx: Context) -> Json | None:
    """The object after all mutating webhooks, in order; those that ask for it see later changes once more."""
    if obj is None or not _concerned(call):
        return obj
    ran: list[Webhook] = []
    again: set[str] = set()
    for webhook in webhooks(call.server.store, "mutating"):
        changed, called = _mutated(call, webhook, obj, old, ctx, 0)
        if changed != obj:
            again |= {earlier.uid for earlier in ran if earlier.reinvocation == "IfNeeded"}
            obj = changed
        if called:
            ran.append(webhook)
    for webhook in ran:
        if webhook.uid in again:
            obj, _ = _mutated(call, webhook, obj, old, ctx, 1)
    return obj


def validate(call: Call, obj: Json | None, old: Json | None, ctx: Context) -> None:
    """Ask all validating webhooks at once; the first refusal, in their order, is the answer."""
    if not _concerned(call):
        return
    questions, waiting = [], []
    for webhook in webhooks(call.server.store, "validating"):
        question = _question(call, "validating", webhook, obj, old, ctx, 0)
        if question is not None:
            questions.append(question)
            if question.key not in call.answers.held:
                waiting.append(question)
    if waiting:
        raise Outstanding(waiting)
    for question in questions:
        _read(call, question)


def _concerned(call: Call) -> bool:
    return any_configured(call.server.store) and not is_exempt(call.resource)


def _mutated(call: Call, webhook: Webhook, obj: Json, old: Json | None, ctx: Context, number: int) -> tuple[Json, bool]:
    """The object after one webhook, and whether it was called."""
    question = _question(call, "mutating", webhook, obj, old, ctx, number)
    if question is None:
        return obj, False
    if question.key not in call.answers.held:
        raise Outstanding([question])
    verdict = _read(call, question)
    if verdict is None or not verdict.patch:
        return obj, True
    resource = _stored(call)
    shown = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    changed = review.patched(webhook, shown, verdict.patch)
    return _read_back(call, resource, obj, changed), True


def _question(
    call: Call, phase: Phase, webhook: Webhook, obj: Json | None, old: Json | None, ctx: Context, number: int
) -> Question | None:
    """What a webhook is to be asked; None if the request does not concern it."""
    server, own = call.server, _stored(call)
    asked = Asked(
        resource=own,
        subresource=call.subresource,
        operation=ctx.operation,
        namespace=call.namespace,
        object=_typed(obj, own),
        old_object=_typed(old, own),
    )
    seen = matched_version(webhook, asked, server.registry)
    if seen is None or not selectors_match(webhook, asked, server.store):
        return None
    uid = _drawn_uid(call, f"{phase} {webhook.uid} {number}")
    request = review.request_of(uid, asked, seen, _name(call, obj), call.user, call.groups, ctx.dry_run)
    if seen is not own:
        request["object"], request["oldObject"] = (_converted(item, seen) for item in (obj, old))
    try:
        if not conditions_hold(webhook, asked, request):
            return None
    except ConditionFailed as problem:
        if webhook.failure_policy == "Ignore":
            return None
        raise review.failure(webhook, f"failed evaluating match conditions: {problem}") from problem
    if ctx.dry_run and webhook.side_effects not in ("None", "NoneOnDryRun"):
        raise review.no_dry_run(webhook)
    try:
        return Question(phase, webhook, number, uid, review.review_body(webhook, request))
    except CallFailed as problem:
        if webhook.failure_policy == "Ignore":
            return None
        raise review.failure(webhook, str(problem)) from problem


def _read(call: Call, question: Question) -> Verdict | None:
    """The verdict of a webhook that allows the request; None if it failed and may."""
    webhook, answer = question.webhook, call.answers.held[question.key]
    if isinstance(answer, CallFailed):
        if webhook.failure_policy == "Ignore":
            return None
        raise review.failure(webhook, str(answer))
    if isinstance(answer, Exception):
        raise answer
    for text in answer.warnings:
        call.warn(text)
    for key, value in answer.audit.items():
        call.answers.audit[f"{webhook.name}/{key}"] = value
    if not answer.allowed:
        raise review.denial(webhook, answer.status)
    return answer


def _drawn_uid(call: Call, question: str) -> str:
    if question not in call.drawn:
        call.drawn[question] = call.server.chance.uid()
    return call.drawn[question]


def _stored(call: Call) -> ResourceType:
    """The resource in the version in which writes handle objects."""
    resource = call.resource
    if resource.storage == (resource.group, resource.version):
        return resource
    return call.server.registry.lookup(*resource.storage, resource.storage_plural or resource.plural) or resource


def _typed(obj: Json | None, resource: ResourceType) -> Json | None:
    return None if obj is None else {"kind": resource.kind, "apiVersion": resource.api_version, **obj}


def _converted(obj: Json | None, resource: ResourceType) -> Json | None:
    if obj is None:
        return None
    shown = resource.strategy.from_storage(dict(obj), resource.version)
    return {**shown, "kind": resource.kind, "apiVersion": resource.api_version}


def _name(call: Call, obj: Json | None) -> str:
    return call.name or (obj or {}).get("metadata", {}).get("name", "")


def _read_back(call: Call, resource: ResourceType, before: Json, changed: Json) -> Json:
    """A patched document as an object: in normal form, with its defaults, and with what no webhook may change."""
    expected = Expected(resource.group, resource.version, resource.kind, resource.schema, custom=resource.custom)
    obj = to_object(changed, [], expected, "Ignore", call.warn)
    resource.strategy.default(obj)
    metadata, held = obj["metadata"], before["metadata"]
    for field in _FIXED_METADATA:
        if field in held:
            metadata[field] = held[field]
        else:
            metadata.pop(field, None)
    return obj


async def call_webhook(server: ServerState, question: Question) -> Verdict | Exception:
    """The answer of one webhook, or what went wrong."""
    webhook = question.webhook
    try:
        async with asyncio.timeout(webhook.timeout_s):
            status, body = await _send(server, webhook, question.body)
        if not 200 <= status < 300:
            text = body[:500].decode(errors="replace").strip()
            raise CallFailed(f"failed to call webhook: the server responded with the status code {status}: {text}")
        return review.read_answer(body, question.uid, question.phase, question.body)
    except TimeoutError:
        url = address(webhook)
        return CallFailed(f'failed to call webhook: Post "{url}": context deadline exceeded')
    except (CallFailed, StatusError) as problem:
        return problem
    except Exception as crash:  # of a service in this process: to the API server the same as a broken connection
        return CallFailed(f'failed to call webhook: Post "{address(webhook)}": {crash!r}')


def address(webhook: Webhook) -> str:
    """The URL that a webhook is called at, with its timeout as the API server adds it."""
    client = webhook.client
    service = client.get("service")
    if service is None:
        url = str(client.get("url") or "")
    else:
        path = service.get("path") or "/"
        url = f"https://{service['name']}.{service['namespace']}.svc:{service.get('port') or 443}{path}"
    return f"{url}{'&' if '?' in url else '?'}timeout={webhook.timeout_s:g}s"


async def _send(server: ServerState, webhook: Webhook, body: bytes) -> tuple[int, bytes]:
    service, url = webhook.client.get("service"), address(webhook)
    if service is not None:
        local = server.local_services.get((service["namespace"], service["name"]))
        if local is not None:
            return await local(service.get("path") or "/", body)
        if server.store.get("/services", f"{service['namespace']}/{service['name']}") is None:
            raise CallFailed(f'failed to call webhook: Post "{url}": service "{service["name"]}" not found')
        text = f'no endpoints available for service "{service["name"]}"'
        raise CallFailed(f'failed to call webhook: Post "{url}": {text}')
    context: ssl.SSLContext | bool = True
    bundle = webhook.client.get("caBundle")
    if bundle:
        context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    headers = {"content-type": "application/json", "accept": "application/json"}
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, await response.content.read(MAX_ANSWER_BYTES)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise CallFailed(f'failed to call webhook: Post "{url}": {error}') from error
