"""What IAM refuses of a policy document before it keeps it: principals and resources that are no ARNs.

moto keeps them, and an installation in which a variable was empty would fail much later, and elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from dovetail.lab.aws.authentication import error
from dovetail.lab.aws.http_forms import Answer, Environ, body_of

_TRUST = ("CreateRole", "UpdateAssumeRolePolicy")
_PERMISSIONS = ("PutRolePolicy", "PutUserPolicy", "PutGroupPolicy", "CreatePolicy", "CreatePolicyVersion")
_PROVIDER = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(oidc|saml)-provider/.+|[a-z.-]+\.(com|net|org)")
_PARTITION = re.compile(r"\*|aws[a-z-]*")


def answer(environ: Environ) -> Answer | None:
    """The refusal of a request that hands IAM a document; None for every other request."""
    if environ.get("REQUEST_METHOD") != "POST" or "form" not in environ.get("CONTENT_TYPE", ""):
        return None
    body = body_of(environ)
    if b"PolicyDocument=" not in body:
        return None
    form = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
    try:
        document = json.loads(form.get("AssumeRolePolicyDocument") or form.get("PolicyDocument") or "")
    except ValueError:
        return None  # moto has its own words for what is no JSON
    if not isinstance(document, dict):
        return None
    problem = ""
    if form.get("Action") in _TRUST:
        problem = trust_problem(document)
    elif form.get("Action") in _PERMISSIONS:
        problem = resource_problem(document)
    return error(environ, 400, "MalformedPolicyDocument", problem) if problem else None


def trust_problem(document: Mapping[str, Any]) -> str:
    """What is wrong with the principals of a trust policy; empty if nothing is."""
    for statement in _statements(document):
        principal = statement.get("Principal")
        for provider in _list(principal.get("Federated") if isinstance(principal, dict) else None):
            if not _PROVIDER.fullmatch(str(provider)):
                return f'Invalid principal in policy: "FEDERATED":"{provider}"'
    return ""


def resource_problem(document: Mapping[str, Any]) -> str:
    """What is wrong with the resources of a policy; empty if nothing is."""
    for statement in _statements(document):
        for resource in map(str, _list(statement.get("Resource"))):
            if resource == "*":
                continue
            if not resource.startswith("arn:"):
                return f'Resource {resource} must be in ARN format or "*".'
            partition = resource.split(":")[1]
            if not _PARTITION.fullmatch(partition) and "${" not in partition:
                return f'Partition "{partition}" is not valid for resource "{resource}".'
    return ""


def _statements(document: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (row for row in _list(document.get("Statement")) if isinstance(row, dict))


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
