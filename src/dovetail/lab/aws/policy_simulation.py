"""`aws iam simulate-principal-policy` and `simulate-custom-policy`, answered by what also judges requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from dovetail.install.policy import PolicyDecision, decide
from dovetail.lab.aws.authentication import error
from dovetail.lab.aws.authorization import Authorization, Principal
from dovetail.lab.aws.http_forms import Answer, Environ, body_of
from dovetail.lab.aws.permissions import nested

_ACTIONS = ("SimulatePrincipalPolicy", "SimulateCustomPolicy")
_NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


class PolicySimulation:
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization

    def answer(self, environ: Environ) -> Answer | None:
        if "form" not in environ.get("CONTENT_TYPE", ""):
            return None
        body = body_of(environ).decode(errors="replace")
        if not any(f"Action={action}" in body for action in _ACTIONS):
            return None
        parameters = nested({name: values[0] for name, values in parse_qs(body).items()})
        action = str(parameters.get("Action"))
        try:
            given = tuple(json.loads(text) for text in parameters.get("PolicyInputList") or ())
        except ValueError:
            return error(environ, 400, "InvalidInput", "PolicyInputList: is not JSON")
        principal = Principal("arn:aws:iam::123456789012:user/custom", "", given)
        if action == "SimulatePrincipalPolicy":
            source = str(parameters.get("PolicySourceArn", ""))
            named = self._authorization.named(source)
            if named is None:
                return error(environ, 404, "NoSuchEntity", f"The entity {source} cannot be found.")
            principal = Principal(named.arn, named.source, (*named.policies, *given), named.tags, named.boundary)
        return _response(action, self._rows(principal, parameters))

    def _rows(self, principal: Principal, parameters: Mapping[str, Any]) -> list[str]:
        context: dict[str, str | list[str]] = {
            f"aws:PrincipalTag/{key}": value for key, value in principal.tags.items()
        }
        for entry in parameters.get("ContextEntries") or ():
            values = [str(value) for value in entry.get("ContextKeyValues") or ()]
            context[str(entry.get("ContextKeyName"))] = values[0] if len(values) == 1 else values
        resources = parameters.get("ResourceArns") or ["*"]
        return [
            _row(principal, str(action), str(resource), context)
            for action in parameters.get("ActionNames") or ()
            for resource in resources
        ]


def _row(principal: Principal, action: str, resource: str, context: Mapping[str, str | list[str]]) -> str:
    decision, statements = decide(principal.policies, action, resource, context)
    boundary = ""
    if principal.boundary is not None:
        bounded, _ = decide(principal.boundary, action, resource, context)
        inside = str(bounded is PolicyDecision.ALLOWED).lower()
        boundary = (
            "<PermissionsBoundaryDecisionDetail><AllowedByPermissionsBoundary>"
            f"{inside}</AllowedByPermissionsBoundary></PermissionsBoundaryDecisionDetail>"
        )
        if decision is PolicyDecision.ALLOWED:
            decision = bounded
    matched = "".join(
        f"<member><SourcePolicyId>{escape(str(statement.get('Sid', '')))}</SourcePolicyId>"
        "<SourcePolicyType>IAM Policy</SourcePolicyType></member>"
        for statement in statements
    )
    return (
        f"<member><EvalActionName>{escape(action)}</EvalActionName>"
        f"<EvalResourceName>{escape(resource)}</EvalResourceName><EvalDecision>{decision.value}</EvalDecision>"
        f"<MatchedStatements>{matched}</MatchedStatements><MissingContextValues/>{boundary}</member>"
    )


def _response(action: str, rows: list[str]) -> Answer:
    result = f"<IsTruncated>false</IsTruncated><EvaluationResults>{''.join(rows)}</EvaluationResults>"
    inside = f"<{action}Result>{result}</{action}Result><ResponseMetadata><RequestId>lab</RequestId></ResponseMetadata>"
    return 200, "text/xml", f'<{action}Response xmlns="{_NAMESPACE}">{inside}</{action}Response>'.encode()
