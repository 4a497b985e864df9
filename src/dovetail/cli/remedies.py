"""Runs the remedies of `dovetail doctor` that are safe: kubectl, aws and dovetail, and no shell.

A remedy holds names of objects of the cluster. It is split as a shell would split it, and nothing in it is expanded.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from dovetail.install.doctor.facts import Finding, Status
from dovetail.language import message

PROGRAMS = frozenset(("aws", "dovetail", "kubectl"))
#: A program that takes longer waits for something.
REMEDY_TIMEOUT_S = 120.0

Words = list[str]
Run = Callable[[Words, Mapping[str, str], bytes], "subprocess.CompletedProcess[bytes]"]


class NotSafe(Exception):
    """A remedy that takes more than our programs in a row."""


def at_endpoint(command: str) -> str:
    """A command for SQS with the endpoint of the environment: version 1 of the AWS command does not read it there."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if not endpoint:
        return command
    return command.replace("aws sqs ", f"aws sqs --endpoint-url {shlex.quote(endpoint)} ")


def safe_remedies(findings: Sequence[Finding]) -> list[Finding]:
    """Those to run, each command once."""
    rows: dict[str, Finding] = {}
    for finding in findings:
        if finding.safe and finding.status in (Status.FAILED, Status.WARNING):
            rows.setdefault(finding.remedy, finding)
    return list(rows.values())


def parts(remedy: str, options: Mapping[str, Sequence[str]]) -> list[Words]:
    """The programs of a pipe, each as words; `options` are added by program."""
    commands: list[Words] = [[]]
    for word in shlex.split(remedy):
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    for command in commands:
        if not command or command[0] not in PROGRAMS or {"&&", "||", ";", ">", "<"} & set(command):
            raise NotSafe(remedy)
    return [[command[0], *options.get(command[0], ()), *command[1:]] for command in commands]


def run(remedy: str, options: Mapping[str, Sequence[str]], execute: Run) -> str:
    """Run a remedy; returns what went wrong, or nothing."""
    output = b""
    for words in parts(remedy, options):
        program = [sys.executable, "-m", "dovetail.cli"] if words[0] == "dovetail" else [words[0]]
        try:
            ended = execute([*program, *words[1:]], os.environ, output)
        except FileNotFoundError:
            return message("{words} is not installed", words=words[0])
        except subprocess.TimeoutExpired:
            return message(
                "{words} did not end within {remedy_timeout_s:.0f} s", words=words[0], remedy_timeout_s=REMEDY_TIMEOUT_S
            )
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").strip().splitlines() or [
                message("exit status {returncode}", returncode=ended.returncode)
            ]
            return f"{words[0]}: {lines[-1]}"
        output = ended.stdout
    return ""


def execute(words: Words, variables: Mapping[str, str], given: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words, env=dict(variables), input=given, capture_output=True, timeout=REMEDY_TIMEOUT_S, check=False
    )
