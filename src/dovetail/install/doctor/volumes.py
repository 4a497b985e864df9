"""Keys that encrypt volumes (D17): they exist, are enabled, and the controller may use them.

EC2 attaches an encrypted volume with the rights of the role that launches the instance. Without them the instance ends
a moment after its launch, and nothing but its state says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.install.doctor.controller_policy import controller_role, denials, end_denial, extend_boundary
from dovetail.install.doctor.facts import Facts, Fault, Json, State, failure
from dovetail.install.doctor.permissions import VOLUME_KEY, Denial
from dovetail.install.doctor.principals import policy_document
from dovetail.kube.resources import EC2NODECLASSES, STORAGECLASSES
from dovetail.language import message

#: What EC2 needs of a key that encrypts a volume.
GRANTED = ("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*")
USES = ("kms:*", "kms:CreateGrant", "kms:Create*", "*")


def check_volume_keys(facts: Facts) -> Iterator[Fault]:
    for node_class in facts.items(EC2NODECLASSES.name):
        name = node_class["metadata"]["name"]
        for mapping in (node_class.get("spec") or {}).get("blockDeviceMappings") or ():
            key = (mapping.get("ebs") or {}).get("kmsKeyID")
            if key:
                where = f"spec.blockDeviceMappings kmsKeyID {key}"
                yield from _key_faults(facts, f"ec2nodeclass/{name}", where, key, launches=True)
    for storage_class in facts.items(STORAGECLASSES.name):
        key = (storage_class.get("parameters") or {}).get("kmsKeyId")
        if key:
            subject = f"storageclass/{storage_class['metadata']['name']}"
            yield from _key_faults(facts, subject, f"parameters.kmsKeyId {key}", key, launches=False)


def _key_faults(facts: Facts, subject: str, where: str, key: str, *, launches: bool) -> Iterator[Fault]:
    effect = (
        message("EC2 terminates each instance while it attaches the volume")
        if launches
        else message("no volume can be attached")
    )
    described = facts.read(f"key {key}")
    state = "not found" if described is None else str(described.get("KeyState", ""))
    if described is None:
        yield failure(
            subject,
            message("{where} does not exist: {effect}", where=where, effect=effect),
            _without_key(facts, subject, key),
        )
        return
    if state != "Enabled":
        undo = "cancel-key-deletion" if state == "PendingDeletion" else "enable-key"
        again = f" && aws kms enable-key --key-id {key} --region {facts.region}" if state == "PendingDeletion" else ""
        yield failure(
            subject,
            f"{where} is {state}: {effect}",
            f"aws kms {undo} --key-id {key} --region {facts.region}{again}",
        )
        return
    if launches and described.get("KeyManager") != "AWS":
        yield from _use_faults(facts, subject, where, described, effect)


def _without_key(facts: Facts, subject: str, key: str) -> str:
    """Volumes of an EC2NodeClass are encrypted with the account's default key where none is named."""
    kind, _, name = subject.partition("/")
    if kind != "ec2nodeclass":
        return message("aws kms list-keys --region {region}  # then name one", region=facts.region)
    node_class = facts.named(EC2NODECLASSES.name, name) or {}
    rows = (node_class.get("spec") or {}).get("blockDeviceMappings") or ()
    removed = [
        {"op": "remove", "path": f"/spec/blockDeviceMappings/{index}/ebs/kmsKeyID"}
        for index, mapping in enumerate(rows)
        if (mapping.get("ebs") or {}).get("kmsKeyID") == key
    ]
    return message(
        "kubectl patch ec2nodeclass {name} --type=json -p '{patch}'  # the account's default key is used then",
        name=name,
        patch=json.dumps(removed, separators=(",", ":")),
    )


def _use_faults(facts: Facts, subject: str, where: str, key: Json, effect: str) -> Iterator[Fault]:
    """The key policy admits the controller's role, or leaves it to IAM and IAM does."""
    source = next(name for name in facts.answers if name.startswith("policy of key ") and _names(name, key))
    policy = policy_document(facts.read(source))
    role = controller_role(facts)
    statements = policy.get("Statement") or ()
    statements = [statements] if isinstance(statements, Mapping) else statements
    denied = [row for row in statements if row.get("Effect") == "Deny" and _covers_role(row, key, role) and _uses(row)]
    if denied:
        yield failure(
            subject,
            message(
                "{where}: the key's policy denies its use ({Sid}): {effect}",
                where=where,
                Sid=denied[0].get("Sid") or message("a statement with Effect Deny"),
                effect=effect,
            ),
            message(
                "aws kms get-key-policy --key-id {KeyId} --policy-name default --region {region}  # "
                "remove the Deny, then aws kms put-key-policy",
                KeyId=key["KeyId"],
                region=facts.region,
            ),
        )
        return
    allowing = [row for row in statements if row.get("Effect") == "Allow" and _uses(row)]
    if any(_covers_role(row, key, role) for row in allowing):
        return
    delegated = any(_is_root(row, key) for row in allowing)
    answer = facts.answers.get("denied to the controller")
    if delegated and (answer is None or answer.state is not State.READ):
        return  # IAM decides, and it could not be asked; D03 says so
    refused = [row for row in denials(facts, VOLUME_KEY) if row.resource == key.get("Arn")]
    if delegated and not refused:
        return
    cause = (
        message(
            "the role {role} is not allowed {action} on it ({decision})",
            role=role,
            action=refused[0].action,
            decision=refused[0].decision,
        )
        if delegated
        else message("the key's policy admits neither the role {role} nor the account", role=role)
    )
    if delegated:
        yield failure(subject, f"{where}: {cause}: {effect}", _allow_use(role, key, refused))
        return
    yield failure(
        subject,
        f"{where}: {cause}: {effect}",
        f"aws kms create-grant --key-id {key['KeyId']} --grantee-principal"
        f" {_account_arn(key)}:role/{role} --operations CreateGrant Decrypt GenerateDataKeyWithoutPlaintext"
        f" ReEncryptFrom ReEncryptTo DescribeKey --region {facts.region}",
    )


def _allow_use(role: str, key: Json, refused: Sequence[Denial]) -> str:
    """The policy that lets a role use a key; a Deny has to go instead, and a boundary has to allow it too."""
    by_policies = [row for row in refused if not row.by_boundary]
    if not by_policies:
        return extend_boundary(role, *refused)
    if by_policies[0].is_explicit and by_policies[0].policy:
        return end_denial(role, *by_policies)
    statement = {"Effect": "Allow", "Action": list(GRANTED), "Resource": key["Arn"]}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))
    return f"aws iam put-role-policy --role-name {role} --policy-name volume-key --policy-document '{document}'"


def _names(source: str, key: Json) -> bool:
    name = source.removeprefix("policy of key ")
    return name in (key.get("KeyId"), key.get("Arn")) or name.startswith("alias/")


def _account_arn(key: Json) -> str:
    parts = str(key.get("Arn") or "arn:aws:kms:::").split(":")
    return f"arn:{parts[1]}:iam::{parts[4]}"


def _uses(statement: Mapping[str, Any]) -> bool:
    """Whether it speaks of using the key for a volume."""
    actions = statement.get("Action") or ()
    actions = [actions] if isinstance(actions, str) else actions
    return any(
        str(action) in USES or str(action).startswith(("kms:Decrypt", "kms:GenerateDataKey")) for action in actions
    )


def _principals(statement: Mapping[str, Any]) -> list[str]:
    principal = statement.get("Principal")
    if isinstance(principal, str):
        return [principal]
    rows = (principal or {}).get("AWS") or ()
    return [rows] if isinstance(rows, str) else [str(row) for row in rows]


def _covers_role(statement: Mapping[str, Any], key: Json, role: str) -> bool:
    """Whether it names the role, or everything; a condition that narrows `*` is taken to admit the role."""
    return any(name == "*" or name.endswith(f"/{role}") for name in _principals(statement))


def _is_root(statement: Mapping[str, Any], key: Json) -> bool:
    account = _account_arn(key).rsplit(":", 1)[-1]
    return any(name == account or name.endswith(f"::{account}:root") for name in _principals(statement))
