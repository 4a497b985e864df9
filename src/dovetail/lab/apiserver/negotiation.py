"""Content negotiation: the form a client wants its answer in."""

from __future__ import annotations

import msgspec

from dovetail.lab.apiserver.status_errors import StatusError

MEDIA = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_FORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_NOT_ACCEPTABLE = "406: Not Acceptable\n\nAvailable representations: " + ", ".join(MEDIA)
_STREAMS = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


class ResponseForm(msgspec.Struct, frozen=True):
    """A media type, and the kind of meta.k8s.io the object should be shown as (empty: itself)."""

    yaml: bool = False
    form: str = ""
    version: str = "v1"
    pretty: bool = False


class Clause(msgspec.Struct, frozen=True):
    media: str
    parameters: dict[str, str]
    quality: float


PLAIN = ResponseForm()
_cache: dict[str, tuple[Clause, ...]] = {}


def clauses(header: str) -> tuple[Clause, ...]:
    """The Accept header, best first."""
    clauses = _cache.get(header)
    if clauses is None:
        clauses = tuple(sorted(_parse(header), key=lambda clause: -clause.quality))
        if len(_cache) < 1000:
            _cache[header] = clauses
    return clauses


def _parse(header: str) -> list[Clause]:
    out: list[Clause] = []
    for part in header.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        if not media:
            continue
        parameters = {
            key.strip(): value.strip().strip('"') for key, _, value in (piece.partition("=") for piece in rest)
        }
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        out.append(Clause(media.lower(), parameters, quality))
    return out


def _media(clause: Clause) -> str | None:
    if clause.media == "*/*":
        return "application/json"
    return clause.media if clause.media in MEDIA else None


def negotiate(
    header: str, listing: bool, pretty: bool = False, go_type: str = "", watchable: bool = True
) -> ResponseForm:
    """What to answer with, for an object or a listing. Protobuf is answered in JSON only where JSON is accepted too."""
    if not header or header in ("application/json", "*/*"):
        return ResponseForm(pretty=True) if pretty else PLAIN
    is_served = False
    protobuf = False
    for clause in clauses(header):
        media = _media(clause)
        if media is None:
            continue
        is_served = True
        form = clause.parameters.get("as", "")
        if form and not _possible(form, clause.parameters, listing):
            if form.startswith("PartialObjectMetadata") and _possible(form, clause.parameters, not listing):
                raise _wrong_form(listing, go_type)
            continue
        if media == "application/vnd.kubernetes.protobuf":
            protobuf = True
            continue
        version = clause.parameters.get("v", "v1")
        return ResponseForm(yaml=media == "application/yaml", form=form, version=version, pretty=pretty)
    if protobuf and "unstructured" not in go_type:
        return PLAIN
    if is_served:
        message = "only the following media types are accepted: " + ", ".join(MEDIA)
        raise StatusError(406, "NotAcceptable", message)
    raise StatusError(406, "NotAcceptable", _NOT_ACCEPTABLE + (_STREAMS if listing and watchable else ""), {})


def _wrong_form(listing: bool, go_type: str) -> StatusError:
    kind, other = ("PartialObjectMetadata", "a") if listing else ("PartialObjectMetadataList", "not a")
    message = f"you requested {kind}, but the requested object is {other} list ({go_type})"
    return StatusError(406, "NotAcceptable", message)


def _possible(form: str, parameters: dict[str, str], listing: bool) -> bool:
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
        return False
    if form == "PartialObjectMetadata":
        return not listing
    if form == "PartialObjectMetadataList":
        return listing
    return form in _FORMS
