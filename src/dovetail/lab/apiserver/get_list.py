"""Reading: get and list, now or as it was, whole or page by page."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dovetail.kube.decode import uncollected
from dovetail.kube.transport import Response
from dovetail.lab.apiserver import responses, selectors, status_errors, tables
from dovetail.lab.apiserver.negotiation import ResponseForm
from dovetail.lab.apiserver.options import ListOptions, list_options
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import StoredVersion
from dovetail.model.validation.field_errors import quoted

Json = dict[str, Any]
FUTURE_WAIT = 3.0
#: kubectl reads Tables in pages of 500, ten at once and five a second after that. A Table of more pages than those ten
#: is answered whole, which the API allows a server, so that a person does not wait for a client that counts.
TABLE_PAGE, TABLE_PAGES = 500, 10
_encode = msgspec.json.Encoder().encode


async def get(call: RequestCall) -> Response:
    form = call.response_form()
    version = call.request.parameter("resourceVersion")
    if version and version != "0":
        if not version.isascii() or not version.isdigit():
            raise status_errors.internal(bad_version(version))
        await not_older(call, int(version))
    record = call.server.store.get(call.table, call.key)
    if record is None:
        raise status_errors.not_found(call.resource.group, call.resource.plural, call.name)
    resource = call.resource
    if form.form == "Table":
        options = tables.TableOptions.of(call.request)
        row = responses.tabled(record, resource, options)
        return responses.value(tables.of_objects(call, [row], {}, form, options), 200, form)
    stored_here = responses.is_stored_so(record, resource)
    return responses.one(call, responses.show(record, resource), raw=record.raw if stored_here else None)


def bad_version(text: str) -> str:
    shown = quoted(text)
    return f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax"


def parse_version(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise status_errors.bad_request(f"invalid resource version: {bad_version(text)}")
    return int(text)


async def not_older(call: RequestCall, version: int) -> None:
    """Wait a little for a version from the future."""
    store = call.server.store
    if version <= store.rv:
        return
    loop = asyncio.get_running_loop()
    end = loop.time() + FUTURE_WAIT
    while store.rv < version:
        if loop.time() >= end:
            raise too_large(version, store.rv)
        await asyncio.sleep(0.1)


def too_large(version: int, current: int) -> StatusError:
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    details["retryAfterSeconds"] = 1  # type: ignore[assignment]
    return StatusError(504, "Timeout", message, details, {"retry-after": "1"})


class ListPage(msgspec.Struct):
    """What a list answers with, before it is given a form."""

    records: list[StoredVersion]
    version: int
    token: str = ""
    remaining: int | None = None
    #: All there is, though the request had a limit.
    whole: bool = False


async def list_(call: RequestCall) -> Response:
    options = list_options(call.request)
    form = call.response_form(listing=True)
    test = selectors.compile(call, options.labels, options.fields)
    page = await paged(call, options, test, table=form.form == "Table")
    prepare(call.resource, page.records)
    if form.form == "Table":
        return _table(call, page, form)
    if form.form == "PartialObjectMetadataList":
        items = [responses.partial(record.obj, form.version) for record in page.records]
        body = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": f"meta.k8s.io/{form.version}",
            "metadata": list_metadata(page, False),
            "items": items or None,
        }
        return responses.value(body, 200, form)
    if form.yaml or form.pretty:
        return responses.value(msgspec.json.decode(listing(call.resource, page)), 200, form)
    return Response(status=200, headers=responses.JSON_HEADERS, body=listing(call.resource, page))


def _table(call: RequestCall, page: ListPage, form: ResponseForm) -> Response:
    options, metadata = tables.TableOptions.of(call.request), list_metadata(page, False)
    with uncollected():
        if call.table == "/pods" and options.include == "Metadata" and not form.yaml:
            table = tables.of_pods(call, (record.raw for record in page.records), metadata, form, page.whole)
        else:
            shown = [responses.tabled(record, call.resource, options) for record in page.records]
            table = tables.of_objects(call, shown, metadata, form, options)
        return responses.value(table, 200, form)


def prepare(resource: ResourceType, records: Iterable[StoredVersion]) -> None:
    """Said before records are shown: those of custom resources may have to be converted."""
    if resource.custom:
        resource.strategy.prepare((record.obj for record in records), resource.version)


def list_metadata(page: ListPage, custom: bool) -> Json:
    metadata: Json = {"resourceVersion": str(page.version)}
    if page.token or custom:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def listing(resource: ResourceType, page: ListPage) -> bytes:
    """The list's JSON, put together from the stored texts of its items."""
    head = {
        "kind": resource.list_kind or f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": list_metadata(page, resource.custom),
    }
    items = item_texts(resource, page.records)
    return _encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}\n"


def item_texts(resource: ResourceType, records: Iterable[StoredVersion]) -> Iterable[bytes]:
    if resource.custom:
        for record in records:
            yield record.raw if responses.is_stored_so(record, resource) else _encode(responses.show(record, resource))
        return
    if resource.storage != (resource.group, resource.version):
        for record in records:
            shown = responses.in_version(record.fresh(), resource)
            yield _encode({name: item for name, item in shown.items() if name not in ("kind", "apiVersion")})
        return
    lead = _encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
    size = len(lead)
    for record in records:
        raw = record.raw
        if raw.startswith(lead):
            yield b"{" + raw[size:]
        else:
            yield _encode({k: v for k, v in record.obj.items() if k not in ("kind", "apiVersion")})


async def paged(
    call: RequestCall, options: ListOptions, test: Callable[[Json], bool] | None, *, table: bool = False
) -> ListPage:
    """The records a list is about: which version, from which key on, how many."""
    store = call.server.store
    prefix = f"{call.namespace}/" if call.namespace else ""
    after = ""
    exact = 0
    if options.token:
        exact, after = read_token(options)
        after = prefix + after
    elif options.version and options.version != "0":
        start = parse_version(options.version)
        await not_older(call, start)
        if options.match == "Exact" or (not options.match and options.limit > 0):
            exact = start
    if exact < 0:
        exact = store.rv
    if exact and exact < store.compacted:
        raise compacted(options, after.removeprefix(prefix))
    records, keys = _rows(call, prefix, after, exact)
    name = "" if options.token or (call.resource.namespaced and not prefix) else selectors.exact_name(options.fields)
    if name:
        keys = [prefix + name] if prefix + name in records else []
    version = exact or store.rv
    whole = table and options.limit >= TABLE_PAGE and len(keys) > TABLE_PAGES * options.limit
    page = _cut(call, msgspec.structs.replace(options, limit=0) if whole else options, test, records, keys, version)
    page.whole = whole
    return page


def _rows(call: RequestCall, prefix: str, after: str, exact: int) -> tuple[Mapping[str, StoredVersion], list[str]]:
    """The keys in question, and the table they are in: the present one unless it has changed since `exact`."""
    store = call.server.store
    table = store.table(call.table)
    if not exact or table.rv <= exact:
        return table.records, table.span(prefix, after)
    past = store.at(call.table, exact)
    return past, [key for key in sorted(past) if key.startswith(prefix) and key > after]


def _cut(
    call: RequestCall,
    options: ListOptions,
    test: Callable[[Json], bool] | None,
    records: Mapping[str, StoredVersion],
    keys: list[str],
    version: int,
) -> ListPage:
    prepare(call.resource, (records[key] for key in keys) if test is not None else ())
    limited = options.limit > 0 and (options.version != "0" or bool(options.token))
    if test is None:
        chosen = keys[: options.limit] if limited else keys
        taken = len(chosen)
    else:
        chosen = []
        taken = 0
        for key in keys:
            if limited and len(chosen) == options.limit:
                break
            taken += 1
            if test(responses.show(records[key], call.resource)):
                chosen.append(key)
    page = ListPage([records[key] for key in chosen], version)
    rest = len(keys) - taken
    if rest:
        prefix = f"{call.namespace}/" if call.namespace else ""
        page.token = write_token(version, "/" + keys[taken - 1].removeprefix(prefix))
        page.remaining = None if test is not None else rest
    return page


def write_token(version: int, key: str) -> str:
    document = {"v": "meta.k8s.io/v1", "rv": version, "start": key + "\0"}
    return base64.urlsafe_b64encode(_encode(document)).decode().rstrip("=")


def read_token(options: ListOptions) -> tuple[int, str]:
    if options.version and options.version != "0":
        raise status_errors.bad_request("specifying resource version is not allowed when using continue")
    try:
        raw = base64.urlsafe_b64decode(options.token + "=" * (-len(options.token) % 4))
    except (binascii.Error, ValueError) as error:
        raise _bad_token(f"illegal base64 data at input byte {_illegal(options.token)}") from error
    if _illegal(options.token) < len(options.token):
        raise _bad_token(f"illegal base64 data at input byte {_illegal(options.token)}")
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        from dovetail.lab.apiserver.gocompat import gojson

        raise _bad_token(gojson.problem(raw) or str(error)) from error
    if not isinstance(document, dict) or document.get("v") != "meta.k8s.io/v1":
        token_version = document.get("v", "") if isinstance(document, dict) else ""
        raise _bad_token(f"server does not recognize this encoded version {token_version}")
    return int(document.get("rv", 0)), str(document.get("start", "")).rstrip("\0").removeprefix("/")


def _illegal(token: str) -> int:
    """Where a token stops to be URL-safe base64."""
    for index, char in enumerate(token):
        if not (char.isascii() and (char.isalnum() or char in "-_")):
            return index
    return len(token)


def _bad_token(why: str) -> StatusError:
    return status_errors.bad_request(f"invalid continue token: continue key is not valid: {why}")


def compacted(options: ListOptions, after: str) -> StatusError:
    if options.token:
        message = (
            "The provided continue parameter is too old to display a consistent list result. You can start a new "
            "list without the continue parameter, or use the continue token in this response to retrieve the "
            "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
            "that were created, modified, or deleted between the time the first chunk was returned and now may show "
            "up in the list."
        )
        error = status_errors.expired(message)
        error.metadata = {"continue": write_token(-1, f"/{after}")}
        return error
    return status_errors.expired("The resourceVersion for the provided list is too old.")
