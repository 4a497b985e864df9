"""Whether the cluster lets a machine in: its role must be mapped, by aws-auth or by an access entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

NODES = "system:nodes"


class Verdict(msgspec.Struct, frozen=True):
    """`why` is what an operator must know where the machine may not join."""

    joins: bool
    why: str = ""


def judge(
    role_arn: str | None, aws_auth: Mapping[str, str] | None, entries: Iterable[Mapping[str, Any]]
) -> Verdict:
    """`aws_auth` is the ConfigMap's data; `entries` are the cluster's access entries."""
    if role_arn is None:
        return Verdict(False, "the machine has no IAM role: its instance profile is missing or empty")
    if any(entry["principalArn"] == role_arn and NODES in entry["kubernetesGroups"] for entry in entries):
        return Verdict(True)
    for mapped in _roles(aws_auth):
        if _same(str(mapped.get("rolearn", "")), role_arn):
            if NODES in (mapped.get("groups") or ()):
                return Verdict(True)
            return Verdict(False, f"aws-auth maps {role_arn} without the group {NODES}")
    return Verdict(
        False, f"neither aws-auth (kube-system) nor an access entry maps {role_arn}: the machine runs and cannot join"
    )


def _roles(aws_auth: Mapping[str, str] | None) -> list[Mapping[str, Any]]:
    try:
        found = yaml.safe_load((aws_auth or {}).get("mapRoles") or "[]")
    except yaml.YAMLError:
        return []
    return [role for role in found if isinstance(role, dict)] if isinstance(found, list) else []


def _same(mapped: str, role: str) -> bool:
    """aws-auth wants the role without its path; a mapping written with the path never matches, as on EKS."""
    account, _, name = role.partition(":role/")
    return mapped == f"{account}:role/{name.rsplit('/', 1)[-1]}"
