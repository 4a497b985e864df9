"""Service account tokens: opaque here, with the times a client looks at. The server accepts them until they expire."""

from __future__ import annotations

from datetime import timedelta

from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.registry import Object, Reply, RequestContext, RequestRefused
from dovetail.model.validation.field_errors import invalid

#: A token lives ten minutes at least.
_SHORTEST = 600
_LONGEST = 1 << 32
#: Who a token is for unless its request says otherwise: this server.
_AUDIENCE = "https://kubernetes.default.svc"


def complete(account: Object | None, body: Object, ctx: RequestContext) -> None:
    """What the server knows of the token before it is issued; validating admission sees it."""
    if account is None:
        raise status_errors.not_found("", "serviceaccounts", ctx.name)
    body["metadata"] |= {"name": ctx.name, "namespace": ctx.namespace, "uid": account["metadata"]["uid"]}
    body["metadata"]["creationTimestamp"] = ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = body.setdefault("spec", {})
    spec["expirationSeconds"] = seconds = spec.get("expirationSeconds") or 3600
    if not spec.get("audiences"):
        spec["audiences"] = [_AUDIENCE]
    wrong = "less than 10 minutes" if seconds < _SHORTEST else "larger than 2^32 seconds" if seconds > _LONGEST else ""
    if wrong:
        error = invalid("spec.expirationSeconds", seconds, f"may not specify a duration {wrong}")
        raise status_errors.invalid("authentication.k8s.io", "TokenRequest", "", [error])


def issue(account: Object | None, body: Object, ctx: RequestContext) -> Reply:
    assert account is not None
    spec = body["spec"]
    if spec.get("boundObjectRef"):
        _check_bound(spec["boundObjectRef"], ctx)
    until = ctx.now + timedelta(seconds=spec["expirationSeconds"])
    token = f"lab.{ctx.namespace}.{ctx.name}.{ctx.chance.uid()}"
    if _AUDIENCE in spec["audiences"] and not ctx.dry_run:
        ctx.issue(token, ctx.namespace or "", account, until)
    given = {"token": token, "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return Reply(body=body | {"status": given}, code=201)


def _check_bound(ref: Object, ctx: RequestContext) -> None:
    """A token may be bound to a pod, a secret or a node that is there."""
    group, _, version = ref.get("apiVersion", "").rpartition("/")
    kind, name = ref.get("kind", ""), ref.get("name", "")
    if (group, version, kind) not in (("", "v1", "Pod"), ("", "v1", "Secret"), ("", "v1", "Node")):
        raise RequestRefused(400, "BadRequest", f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    plural = f"{kind.lower()}s"
    if ctx.cluster.get("", plural, None if kind == "Node" else ctx.namespace, name) is None:
        raise status_errors.not_found("", plural, name)
