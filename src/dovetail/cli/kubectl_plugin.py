"""`kubectl dovetail …`: the same commands as a plugin of kubectl, with kubectl's flags where it allows them.

kubectl starts `kubectl-dovetail` with all words that follow the plugin's name, and `kubectl_complete-dovetail` with the
words so far for completion; the latter answers as Cobra does: suggestions, then a directive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

PROGRAM = "kubectl dovetail"
#: Flags that kubectl has for every command, and the option of ours for each.
GLOBAL_FLAGS = {
    "--context": "--context",
    "--kubeconfig": "--kubeconfig",
    "--namespace": "--namespace",
    "-n": "--namespace",
}
#: Cobra's directive that no file names belong here.
NO_FILES = ":4"


def arranged(words: Sequence[str]) -> list[str]:
    """The words with kubectl's flags behind the command: `--context c explain pod/x` works as well."""
    flags: list[str] = []
    rest = list(words)
    while rest and (name := rest[0].partition("=")[0]) in GLOBAL_FLAGS:
        word = rest.pop(0)
        if "=" in word:
            flags += [GLOBAL_FLAGS[name], word.partition("=")[2]]
        elif rest:
            flags += [GLOBAL_FLAGS[name], rest.pop(0)]
        else:
            flags.append(word)
    return [*rest[:1], *flags, *rest[1:]]


def with_namespace(words: Sequence[str]) -> list[str]:
    """For `explain`, the namespace of the kubeconfig's context, as kubectl would use it."""
    given = any(word.partition("=")[0] in ("-n", "--namespace") or word[:2] == "-n" for word in words[1:])
    if words[:1] != ["explain"] or given:
        return list(words)
    from dovetail.errors import UserError
    from dovetail.kube.config import load
    from dovetail.kube.credentials import ConfigError

    try:
        namespace = load(_value(words, "--kubeconfig"), _value(words, "--context")).namespace
    except (ConfigError, OSError, UserError):
        return list(words)  # the command itself says what is wrong with it
    return [*words, "--namespace", namespace]


def _value(words: Sequence[str], option: str) -> str | None:
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def main() -> None:
    from dovetail.cli.main import main as dovetail

    dovetail(args=with_namespace(arranged(sys.argv[1:])), prog_name=PROGRAM)


def complete() -> None:
    """Suggestions for the last word, by the words before it."""
    words = sys.argv[1:] or [""]
    for suggestion in suggestions(words[:-1], words[-1]):
        click.echo(suggestion)
    click.echo(NO_FILES)


def suggestions(words: Sequence[str], incomplete: str) -> list[str]:
    from click.shell_completion import ShellComplete

    from dovetail.cli.main import main as dovetail

    os.environ.setdefault("TERM", "dumb")
    completion = ShellComplete(dovetail, {}, PROGRAM, "")
    items = completion.get_completions(with_namespace(arranged(words)), incomplete)
    return [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in items if item.type == "plain"]
