"""Admission of a write: built-in plugins, policies and webhooks, mutating ones first, then validating ones."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.decode import Expected, to_object
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.status_errors import StatusError, bad_request, forbidden, internal, internal_error
from dovetail.lab.apiserver.webhooks import connection, review
from dovetail.lab.apiserver.webhooks.attributes import Attributes, Kind, in_version
from dovetail.lab.apiserver.webhooks.configurations import Phase, Webhook
from dovetail.lab.apiserver.webhooks.expressions import EvaluationFailed, Variables, conditions_hold
from dovetail.lab.apiserver.webhooks.matching import matched
from dovetail.lab.apiserver.webhooks.pending_calls import PendingCalls, WebhookCall
from dovetail.lab.apiserver.webhooks.review import CallFailed, ReviewResponse

Json = dict[str, Any]


def mutate(call: RequestCall, attributes: Attributes, reinvocation: Reinvocation) -> None:
    """Let the mutating webhooks change `asked.object`, in order."""
    reinvocation.start(attributes.object)
    try:
        for webhook in call.server.webhooks.webhooks("mutating"):
            _mutate_with(call, webhook, attributes, reinvocation)
    finally:
        reinvocation.last = attributes.object


class Reinvocation:
    """Which webhooks or policies see the object a second time: those that ask for it and ran before a change."""

    def __init__(self) -> None:
        self.round = 0
        self.needed = False
        self.last: Json | None = None
        self._again: set[str] = set()
        self._ran: set[str] = set()

    def start(self, obj: Json | None) -> None:
        if self.round and obj != self.last:
            self.require()

    def require(self) -> None:
        self._again |= self._ran
        self._ran = set()

    def skips(self, uid: str) -> bool:
        return self.round > 0 and uid not in self._again

    def ran(self, uid: str, changed: bool, again: bool) -> None:
        if changed:
            self.require()
            self.needed = True
        if again:
            self._ran.add(uid)


def _mutate_with(call: RequestCall, webhook: Webhook, attributes: Attributes, reinvocation: Reinvocation) -> None:
    seen = _matched_resource(call, webhook, attributes)
    if seen is None or reinvocation.skips(webhook.uid):
        return
    changed = False
    try:
        question = _question(call, "mutating", webhook, attributes, seen, reinvocation.round)
        verdict = _allowed(call, webhook, call.answers.get(question))
        changed = _apply(call, webhook, attributes, seen, verdict)
    except CallFailed as problem:
        if webhook.failure_policy != "Ignore":
            raise review.failure(webhook, str(problem)) from problem
        call.answers.audit[f"failed-open.mutation.webhook.admission.k8s.io/{webhook.uid}"] = webhook.name
    reinvocation.ran(webhook.uid, changed, webhook.reinvocation == "IfNeeded")


def _apply(
    call: RequestCall, webhook: Webhook, attributes: Attributes, seen: ResourceType, verdict: ReviewResponse
) -> bool:
    """Put a webhook's patch into the object; whether that changed anything."""
    patch = review.operations(verdict.patch)
    if not patch:
        return False
    shown, _ = attributes.converted(seen)
    if shown is None:
        text = "attempted to modify the object, which is not supported for this operation"
        raise internal_error(f'admission webhook "{webhook.name}" {text}')
    if verdict.patch_type != "JSONPatch":
        raise CallFailed(f'unsupported patch type "{verdict.patch_type}"')
    document = review.patched(shown, patch)
    made = read_back(call, document, seen, attributes.kind_in(seen))
    changed = made != shown
    if attributes.kind_in(seen) != attributes.kind:
        made = in_version(made, seen, attributes.resource) or made
    attributes.object = made
    return changed


def read_back(call: RequestCall, document: Json, seen: ResourceType, kind: Kind) -> Json:
    """A changed document as an object again: in normal form and with its defaults."""
    group, version, name = kind
    own = (seen.group, seen.version, seen.kind) == kind
    subresource = call.subresource_type
    schema = seen.schema if own or subresource is None or subresource.schema is None else subresource.schema
    expected = Expected(group, version, name, schema, custom=seen.custom and own)
    given = str(document.get("apiVersion") or ""), str(document.get("kind") or "")
    if given != (expected.api_version, name):
        text = f"({given[0].rpartition('/')[2]}.{given[1]}) to ({(group or 'core').partition('.')[0]}.{name})"
        raise internal(f"converting {text}: unknown conversion")
    try:
        obj = to_object(document, [], expected, "Ignore", call.warn)
    except StatusError as error:
        prefix = f'{name} in version "{version}" cannot be handled as a {name}: '
        raise internal_error(error.message.removeprefix(prefix)) from error
    if own:
        seen.strategy.default(obj)
    return {**obj, "kind": name, "apiVersion": f"{group}/{version}" if group else version}


def validate(call: RequestCall, attributes: Attributes) -> None:
    """Ask all validating webhooks at once; the first refusal, in their order, is the answer."""
    pairs: list[tuple[Webhook, WebhookCall | CallFailed | StatusError]] = []
    for webhook in call.server.webhooks.webhooks("validating"):
        seen = _matched_resource(call, webhook, attributes)
        if seen is None:
            continue
        try:
            pairs.append((webhook, _question(call, "validating", webhook, attributes, seen, 0)))
        except (CallFailed, StatusError) as problem:
            pairs.append((webhook, problem))
    waiting = [item for _, item in pairs if isinstance(item, WebhookCall) and item.key not in call.answers.held]
    if waiting:
        raise PendingCalls(waiting)
    refusals = [_refusal(call, webhook, item) for webhook, item in pairs]
    for refusal in refusals:
        if refusal is not None:
            raise refusal


def _refusal(call: RequestCall, webhook: Webhook, item: WebhookCall | CallFailed | StatusError) -> StatusError | None:
    """Why a validating webhook stands against the request."""
    if isinstance(item, StatusError):
        return item
    try:
        if isinstance(item, CallFailed):
            raise item
        _allowed(call, webhook, call.answers.get(item))
    except CallFailed as problem:
        if webhook.failure_policy != "Ignore":
            return review.failure(webhook, str(problem))
        call.answers.audit[f"failed-open.validating.webhook.admission.k8s.io/{webhook.uid}"] = webhook.name
    except StatusError as denial:
        return denial
    return None


def _matched_resource(call: RequestCall, webhook: Webhook, attributes: Attributes) -> ResourceType | None:
    """The version in which a webhook is shown the request; None if the request does not concern it."""
    server = call.server
    seen = matched(
        webhook.rules,
        webhook.match_policy,
        webhook.namespace_selector,
        webhook.object_selector,
        attributes,
        server.registry,
        server.store,
    )
    if seen is None or not webhook.conditions:
        return seen
    try:
        variables = Variables(call, attributes, seen, in_namespace=False)
        return seen if conditions_hold(webhook.conditions, variables, webhook.failure_policy) else None
    except EvaluationFailed as problem:
        resource = attributes.resource
        raise forbidden(resource.group, resource.plural, attributes.name, str(problem)) from problem


def _question(
    call: RequestCall, phase: Phase, webhook: Webhook, attributes: Attributes, seen: ResourceType, number: int
) -> WebhookCall:
    """What a webhook is to be asked. Raises CallFailed or StatusError where it cannot be asked at all."""
    if attributes.dry_run and webhook.side_effects not in ("None", "NoneOnDryRun"):
        raise review.no_dry_run(webhook)
    key = (phase, webhook.uid, number)
    uid = call.drawn.setdefault(f"{phase} {webhook.uid} {number}", "") or call.server.chance.uid()
    call.drawn[f"{phase} {webhook.uid} {number}"] = uid
    request = attributes.request(uid, seen)
    request["object"], request["oldObject"] = attributes.converted(seen)
    body = review.review_body(webhook.versions, request)
    version = next(name for name in webhook.versions if name in ("v1", "v1beta1"))

    async def ask(left_s: float) -> ReviewResponse | Exception:
        return await call_webhook(call.server, webhook, phase, uid, version, body, min(left_s, webhook.timeout_s))

    return WebhookCall(key, ask)


def _allowed(call: RequestCall, webhook: Webhook, answer: ReviewResponse | Exception) -> ReviewResponse:
    """The verdict of a webhook that allows the request; its warnings are heard in any case."""
    if isinstance(answer, Exception):
        raise answer
    for key, value in answer.audit.items():
        call.answers.audit[f"{webhook.name}/{key}"] = value
    for text in answer.warnings:
        if text and text.isprintable():
            call.warn(text)
    if not answer.allowed:
        raise review.denial(webhook, answer.status)
    return answer


async def call_webhook(
    server: ServerState, webhook: Webhook, phase: Phase, uid: str, version: str, body: bytes, timeout_s: float
) -> ReviewResponse | Exception:
    """The answer of one webhook, or what went wrong."""
    try:
        answer = await connection.send(server, webhook.client, body, timeout_s)
        return review.read_answer(connection.body_of(answer), uid, phase, version)
    except connection.Unreachable as problem:
        return CallFailed(f"failed to call webhook: {problem}")
    except CallFailed as problem:
        return problem
    except Exception as crash:  # of a service in this process: to the API server the same as a broken connection
        url = connection.address(webhook.client, timeout_s)
        return CallFailed(f'failed to call webhook: Post "{url}": {crash!r}')


def same_namespace(call: RequestCall, obj: Json) -> None:
    """Refuse an object that a webhook moved to another namespace."""
    if call.resource.namespaced and obj["metadata"].get("namespace", call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
