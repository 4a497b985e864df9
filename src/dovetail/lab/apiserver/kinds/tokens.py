"""Service account tokens: opaque here, with the times a client looks at."""

from __future__ import annotations

from datetime import timedelta

from dovetail.lab.apiserver.registry import Context, Object, Refusal, Reply

#: A token lives ten minutes at least.
_SHORTEST = 600


def issue(account: Object | None, body: Object, ctx: Context) -> Reply:
    if account is None:
        details = {"name": ctx.name, "kind": "serviceaccounts"}
        raise Refusal(404, "NotFound", f'serviceaccounts "{ctx.name}" not found', details)
    spec = body.setdefault("spec", {})
    seconds = spec.get("expirationSeconds") or 3600
    if seconds < _SHORTEST:
        raise _too_short(seconds)
    spec["expirationSeconds"] = seconds
    if not spec.get("audiences"):
        spec["audiences"] = ["https://kubernetes.default.svc"]
    until = (ctx.now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = body.get("metadata") or {}
    meta |= {"name": ctx.name, "namespace": ctx.namespace, "uid": account["metadata"]["uid"]}
    meta["creationTimestamp"] = ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    token = f"lab.{ctx.namespace}.{ctx.name}.{ctx.chance.uid()}"
    status = {"token": token, "expirationTimestamp": until}
    return Reply(body=body | {"metadata": meta, "status": status}, code=201)


def _too_short(seconds: int) -> Refusal:
    at, text = "spec.expirationSeconds", f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": at}]
    details = {"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": causes}
    message = f'TokenRequest.authentication.k8s.io "" is invalid: {at}: {text}'
    return Refusal(422, "Invalid", message, details)
