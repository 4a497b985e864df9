"""Policies that name principals: which service, or which token, a role's trust, a queue or a key admits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from dovetail.install.doctor.facts import Json
from dovetail.install.policy import applies
from dovetail.language import message

#: What tokens of service accounts are for.
STS_AUDIENCE = "sts.amazonaws.com"
WEB_IDENTITY = "sts:AssumeRoleWithWebIdentity"
PODS_SERVICE = "pods.eks.amazonaws.com"
#: What the Pod Identity agent asks of a role.
POD_IDENTITY_ACTIONS = ("sts:AssumeRole", "sts:TagSession")
SERVICE, FEDERATED = "Service", "Federated"


def policy_document(value: Any) -> Json:
    """A policy as IAM returns it: parsed, or as (quoted) text."""
    if isinstance(value, str):
        value = json.loads(unquote(value))
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def trust_statements(role: Json) -> list[Json]:
    return listed(policy_document(role.get("AssumeRolePolicyDocument")).get("Statement"))


def trusted_services(role: Json) -> list[str]:
    """The services that a role's trust policy names in a statement with Effect Allow."""
    return [
        str(service)
        for statement in trust_statements(role)
        if statement.get("Effect") == "Allow" and isinstance(statement.get("Principal"), Mapping)
        for service in listed(statement["Principal"].get(SERVICE))
    ]


def is_for_pods(role: Json) -> bool:
    """Whether a role's trust policy admits service accounts of any cluster, rightly or not."""
    principals = [row.get("Principal") for row in trust_statements(role)]
    federated = any(isinstance(principal, Mapping) and FEDERATED in principal for principal in principals)
    return federated or PODS_SERVICE in trusted_services(role)


# A service, with the conditions that its requests are known to meet


def service_is_allowed(
    statements: Iterable[Json], service: str, action: str, resource: str | None, context: Mapping[str, str]
) -> bool:
    """Whether a service may do this: some statement allows it, and none denies it.

    A condition on a key that `context` lacks is not judged: it neither takes an Allow away nor makes a Deny hold.
    """
    speaking = [row for row in statements if _names(row, SERVICE, service) and _applies(row, action, resource, context)]
    denied = any(row.get("Effect") == "Deny" for row in speaking)
    return not denied and any(row.get("Effect") == "Allow" for row in speaking)


def _names(statement: Json, kind: str, name: str) -> bool:
    if "NotPrincipal" in statement:
        return not _lists(statement["NotPrincipal"], kind, name)
    return _lists(statement.get("Principal", "*"), kind, name)


def _lists(principal: Any, kind: str, name: str) -> bool:
    if not isinstance(principal, Mapping):
        return bool(principal == "*")
    names = [str(row) for row in listed(principal.get(kind))]
    return name in names or "*" in (*names, *listed(principal.get("AWS")))


def _applies(statement: Json, action: str, resource: str | None, context: Mapping[str, str]) -> bool:
    keys = {name.lower() for name in context}
    conditions = statement.get("Condition") or {}
    judged = {
        operator: {key: values for key, values in rows.items() if key.lower() in keys}
        for operator, rows in conditions.items()
    }
    if judged != conditions and statement.get("Effect") == "Deny":
        return False
    return applies(_with_action(statement, judged), action, resource, context)


def _with_action(statement: Json, condition: Mapping[str, Any]) -> Json:
    """The statement with this condition; one that states no action speaks of all."""
    action = {} if "NotAction" in statement else {"Action": "*"}
    return {**action, **statement, "Condition": condition}


# The token of a service account


def token_refusal(document: Json, provider: str, service_account: str) -> str:
    """Why STS refuses the token of a service account (`namespace:name`) by a trust policy; empty if it is accepted."""
    issuer = provider.partition(":oidc-provider/")[2]
    claims = {f"{issuer}:sub": f"system:serviceaccount:{service_account}", f"{issuer}:aud": STS_AUDIENCE}
    cause = message("has no statement for the OIDC provider {issuer}", issuer=issuer)
    accepted = False
    for statement in listed(document.get("Statement")):
        principal = statement.get("Principal")
        federated = [str(row) for row in listed(principal.get(FEDERATED) if isinstance(principal, Mapping) else None)]
        if not any(row.endswith(f"/{issuer}") for row in federated):
            continue
        refusal = _statement_refusal(statement, federated, provider, claims)
        if statement.get("Effect") == "Deny":
            if not refusal:
                return message("denies it ({Sid})", Sid=statement.get("Sid") or message("a statement with Effect Deny"))
        elif not refusal:
            accepted = True
        else:
            cause = refusal
    return "" if accepted else cause


def _statement_refusal(statement: Json, federated: list[str], provider: str, claims: Mapping[str, str]) -> str:
    """Why a statement does not speak of a token; conditions on other things than tokens are not judged."""
    if provider not in federated:
        return message(
            "names the provider {other}, and the cluster's is {provider}", other=federated[0], provider=provider
        )
    if not applies({"Action": "*", **statement, "Condition": {}}, WEB_IDENTITY, None, {}):
        actions = ", ".join(map(str, listed(statement.get("Action") or statement.get("NotAction"))))
        return message("allows {actions} and not {action}", actions=actions, action=WEB_IDENTITY)
    for operator, rows in (statement.get("Condition") or {}).items():
        for key, values in rows.items():
            is_of_token = key.endswith((":sub", ":aud")) and not key.startswith("aws:")
            if is_of_token and not applies({"Action": "*", "Condition": {operator: {key: values}}}, "*", None, claims):
                accepted = ", ".join(map(str, listed(values)))
                if key not in claims:
                    return message(
                        "requires {key} {map}, which no token of the provider {provider} has",
                        key=key, map=accepted, provider=provider,
                    )  # fmt: skip
                return message("requires {key} {map}, not {actual}", key=key, map=accepted, actual=claims[key])
    return ""
