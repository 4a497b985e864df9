"""The aws-auth ConfigMap: which IAM roles the cluster takes for nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dovetail.language import source
from dovetail.model import yaml_document

NODES = "system:nodes"


def refusal(
    role_arn: str | None, aws_auth: Mapping[str, str] | None, admitted: bool | None, *, aws_auth_read: bool = True
) -> str | None:
    """Why an instance of this role cannot join; None if it can, or if that is not known.

    `admitted`: whether an access entry lets it in, None if unknown. `aws_auth` is the ConfigMap's data, of use only if
    it was read.
    """
    if role_arn is None:
        return source("the instance has no IAM role: its instance profile is missing or empty")
    if admitted or not aws_auth_read:
        return None
    for mapped in _roles(aws_auth):
        if _same(str(mapped.get("rolearn", "")), role_arn):
            if NODES in (mapped.get("groups") or ()):
                return None
            return source("aws-auth maps {role_arn} without the group {group}").format(role_arn=role_arn, group=NODES)
    if admitted is None:
        return source(
            "the ConfigMap aws-auth in kube-system does not map {role_arn}, and whether an access entry does is not"
            " known: allow eks:DescribeAccessEntry to the controller to have it checked"
        ).format(role_arn=role_arn)
    return source(
        "neither the ConfigMap aws-auth in kube-system nor an access entry maps {role_arn}: map it with the groups"
        " system:bootstrappers and {group}, or make an access entry of type EC2_LINUX"
    ).format(role_arn=role_arn, group=NODES)


def mapping(aws_auth: Mapping[str, str] | None, principal_arn: str) -> Mapping[str, Any] | None:
    """The `username` and `groups` that aws-auth gives a role or a user; None where it maps neither.

    An account of mapAccounts lets all its users in by their ARN, with no group.
    """
    for row in _roles(aws_auth):
        if _same(str(row.get("rolearn", "")), principal_arn):
            return {"username": row.get("username") or principal_arn, "groups": row.get("groups") or ()}
    for row in _rows(aws_auth, "mapUsers"):
        if isinstance(row, dict) and row.get("userarn") == principal_arn:
            return {"username": row.get("username") or principal_arn, "groups": row.get("groups") or ()}
    if principal_arn.split(":")[4] in {str(account) for account in _rows(aws_auth, "mapAccounts")}:
        return {"username": principal_arn, "groups": ()}
    return None


def _roles(aws_auth: Mapping[str, str] | None) -> list[Mapping[str, Any]]:
    return [role for role in _rows(aws_auth, "mapRoles") if isinstance(role, dict)]


def _rows(aws_auth: Mapping[str, str] | None, name: str) -> list[Any]:
    try:
        rows = yaml_document.load((aws_auth or {}).get(name) or "[]")
    except yaml.YAMLError:
        return []
    return rows if isinstance(rows, list) else []


def _same(mapped: str, role: str) -> bool:
    """aws-auth wants the role without its path; a mapping written with the path never matches, as on EKS."""
    account, _, name = role.partition(":role/")
    return mapped == f"{account}:role/{name.rsplit('/', 1)[-1]}"
