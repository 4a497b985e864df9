"""The calls an installation consists of, with the shell command that does the same.

A part of the installation reads what is there, and says purely from that what has to be done (`Change`). So a plan can
be shown before anything is touched, and an interrupted installation goes on where the account and the cluster are.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from dovetail.cloud.aws.client import Calls
from dovetail.install.sprig import dump_yaml
from dovetail.kube.client import Kube
from dovetail.kube.resources import Resource


class StepStatus(StrEnum):
    """What a plan says of a part."""

    EXISTS = "exists"
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    LEAVE = "leave"
    ABSENT = "absent"
    WAIT = "wait"


class AwsCall(msgspec.Struct, frozen=True):
    """One AWS call that changes something."""

    service: str
    operation: str
    arguments: Mapping[str, Any]

    @property
    def command(self) -> str:
        """The same with the AWS command."""
        words = ["aws", self.service, self.operation.replace("_", "-")]
        for name, value in self.arguments.items():
            words.append("--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower())
            words += [text if isinstance(value, str) else _argument(text) for text in _texts(value)]
        return shlex.join(words)


def _texts(value: Any) -> list[Any]:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return value
    return [value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))]


def _argument(text: Any) -> str:
    return text if isinstance(text, str) else json.dumps(text)


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One Kubernetes request that changes something: `apply`, `patch`, `delete`, or `restart` of a Deployment."""

    verb: str
    resource: Resource
    name: str
    namespace: str | None = None
    body: Mapping[str, Any] = {}
    #: A command that prints the body but for our marks, where the body is long.
    printed_by: str = ""

    @property
    def command(self) -> str:
        """The same with kubectl, as it can be pasted into a shell."""
        where = f" -n {self.namespace}" if self.namespace else ""
        what = f"{self.resource.name} {self.name}"
        if self.verb == "apply" and self.printed_by:
            return "\n".join([f"{self.printed_by} | kubectl apply --server-side -f -", *self._marking(what + where)])
        if self.verb == "apply":
            return f"kubectl apply --server-side{where} -f - <<'EOF'\n{dump_yaml(self.body)}\nEOF"
        if self.verb == "patch":
            return f"kubectl patch {what}{where} --type merge -p {shlex.quote(json.dumps(self.body))}"
        if self.verb == "restart":
            return f"kubectl rollout restart deployment/{self.name}{where}"
        return f"kubectl delete {what}{where}"

    def _marking(self, what: str) -> list[str]:
        """The commands that write the labels and annotations of the body."""
        metadata = self.body["metadata"]
        fields = (("label", metadata.get("labels") or {}), ("annotate", metadata.get("annotations") or {}))
        return [
            shlex.join(
                ["kubectl", verb, "--overwrite", *what.split(), *(f"{key}={text}" for key, text in pairs.items())]
            )
            for verb, pairs in fields
            if pairs
        ]


Step = AwsCall | Write


class Change(msgspec.Struct, frozen=True):
    """What there is to do about one part; `why` is shown."""

    status: StepStatus
    steps: tuple[Step, ...] = ()
    why: str = ""


EXISTS = Change(StepStatus.EXISTS)
ABSENT = Change(StepStatus.ABSENT)


class Account(msgspec.Struct, frozen=True):
    """The ways to AWS and to the cluster."""

    calls: Calls
    kube: Kube


class InstallPart(Protocol):
    """Something that an installation consists of."""

    @property
    def title(self) -> str: ...

    async def read(self, account: Account) -> Any:
        """What is there now; None if nothing is."""

    def change(self, there: Any) -> Change:
        """What is to be done so that it is as it should be."""

    def removal(self, there: Any) -> Change:
        """What is to be done so that it is as it was before us."""
