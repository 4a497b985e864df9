"""Who may use the lab's AWS: requests signed (Signature Version 4) with a key that the lab or its IAM and STS gave out.

The endpoint listens on the loopback, which every local user and every web page in a local browser can reach. The
signature covers method, path, query, body and host with a secret that only `dovetail env` tells.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from dovetail.lab.aws.http_forms import Environ, body_of

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=([^/\s]+)/(\d{8})/([a-z0-9-]+)/([A-Za-z0-9._-]+)/aws4_request\s*,\s*"
    r"SignedHeaders=([a-z0-9;_.-]+)\s*,\s*Signature=([0-9a-f]{64})\s*"
)
#: How far the clock of a client may be from ours, as AWS allows.
MAX_CLOCK_SKEW = timedelta(minutes=15)
_UNSIGNED = "UNSIGNED-PAYLOAD"
#: Characters that stay as they are in a path and in a query.
_PATH_SAFE, _QUERY_SAFE = "/~", "-_.~"


class AccessKey(msgspec.Struct, frozen=True):
    """An access key; one of a session has a token, and an end."""

    access_key: str
    secret_key: str
    session_token: str = ""
    expiration: datetime | None = None


class SignatureRefused(Exception):
    """The request is not signed by a key of the lab; `code` is AWS's word for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


#: Finds the credentials of an access key.
Lookup = Callable[[str], AccessKey | None]


def verify(environ: Environ, credentials_of: Lookup, now: datetime) -> None:
    """Check a request's signature; SignatureRefused if it is not one of the lab's keys'."""
    header = environ.get("HTTP_AUTHORIZATION", "")
    if not header:
        raise SignatureRefused("MissingAuthenticationToken", "Request is missing Authentication Token")
    parsed = _AUTHORIZATION.fullmatch(header.strip())
    if parsed is None:
        raise SignatureRefused(
            "IncompleteSignature",
            "Authorization header is not of the form AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…",
        )
    access_key, day, region, service, signed, signature = parsed.groups()
    credentials = credentials_of(access_key)
    if credentials is None:
        raise SignatureRefused(
            "InvalidClientTokenId",
            "The security token included in the request is invalid; dovetail env prints the credentials of the lab",
        )
    if credentials.session_token and not hmac.compare_digest(
        environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "").encode(), credentials.session_token.encode()
    ):
        raise SignatureRefused("InvalidClientTokenId", "The security token included in the request is invalid")
    if credentials.expiration is not None and now >= credentials.expiration:
        raise SignatureRefused("ExpiredToken", "The security token included in the request is expired")
    stamp = environ.get("HTTP_X_AMZ_DATE", "")
    _check_date(stamp, day, now)
    names = signed.split(";")
    if "host" not in names:
        raise SignatureRefused("IncompleteSignature", "'Host' must be a 'SignedHeader' in the AWS Authorization.")
    payload = _payload_hash(environ)
    scope = f"{day}/{region}/{service}/aws4_request"
    key = signing_key(credentials.secret_key, day, region, service)
    for canonical in _canonical_requests(environ, service, names, payload):
        digest = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        if hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature):
            return
    raise SignatureRefused(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access "
        "Key and signing method; dovetail env prints the lab's.",
    )


def _check_date(stamp: str, day: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise SignatureRefused("IncompleteSignature", "X-Amz-Date must be of the form 20260102T030405Z") from error
    if not stamp.startswith(day):
        raise SignatureRefused("SignatureDoesNotMatch", "Date in Credential scope does not match X-Amz-Date")
    if abs(signed_at - now) > MAX_CLOCK_SKEW:
        raise SignatureRefused(
            "SignatureDoesNotMatch", f"Signature expired: {stamp} is not within 15 minutes of {now:%Y%m%dT%H%M%SZ}"
        )


def _payload_hash(environ: Environ) -> str:
    body = hashlib.sha256(body_of(environ)).hexdigest()
    claimed = str(environ.get("HTTP_X_AMZ_CONTENT_SHA256", body))
    if claimed not in (body, _UNSIGNED):
        raise SignatureRefused("SignatureDoesNotMatch", "X-Amz-Content-Sha256 is not the hash of the body")
    return claimed


def _canonical_requests(environ: Environ, service: str, names: list[str], payload: str) -> Iterator[str]:
    """The forms that clients sign: they differ in how they write a query that needs no escapes."""
    raw = str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or environ.get("PATH_INFO", "/"))
    path, _, query = raw.partition("?")
    path = path or "/"
    escaped = path if service == "s3" else quote(_normalized(path), safe=_PATH_SAFE)
    headers = "".join(f"{name}:{' '.join(_header(environ, name).split())}\n" for name in names)
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    written = sorted(pairs)
    encoded = sorted((_encoded(name), _encoded(value)) for name, value in pairs)
    for listed in [written, encoded] if written != encoded else [written]:
        text = "&".join(f"{name}={value}" for name, value in listed)
        yield "\n".join((environ["REQUEST_METHOD"], escaped, text, headers, ";".join(names), payload))


def _normalized(path: str) -> str:
    """Without empty parts, `.` and `..`."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            kept[-1:] = []
        elif part and part != ".":
            kept.append(part)
    return "/" + "/".join(kept) + ("/" if path.endswith("/") and kept else "")


def _encoded(text: str) -> str:
    return quote(unquote(text), safe=_QUERY_SAFE)


def _header(environ: Mapping[str, Any], name: str) -> str:
    key = name.upper().replace("-", "_")
    return str(environ.get(key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}", ""))


def signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def issued(access_key: str) -> AccessKey | None:
    """Credentials that IAM or STS of this process's moto gave out."""
    from moto.backends import get_backend

    for accounts in list(get_backend("iam").values()):
        for backend in list(accounts.values()):
            key = backend.access_keys.get(access_key)
            if key is not None and key.status == "Active":
                return _of_key(key)
    return None


def _of_key(key: Any) -> AccessKey:
    from moto.backends import get_backend

    for accounts in list(get_backend("sts").values()):
        for backend in list(accounts.values()):
            role = backend.get_assumed_role_from_access_key(key.access_key_id)
            if role is not None:
                end = role.expiration.replace(tzinfo=UTC)
                return AccessKey(key.access_key_id, key.secret_access_key, role.session_token, end)
    token, end = getattr(key, "session", ("", None))
    return AccessKey(key.access_key_id, key.secret_access_key, token, end)
