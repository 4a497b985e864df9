"""The `dovetail` command. Each subcommand is imported when it is called, so that `--help` stays quick."""

from __future__ import annotations

import copy
import errno
import gettext
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem

from dovetail import __version__, language
from dovetail.cli.terminal import printable
from dovetail.errors import UserError
from dovetail.language import message, translated
from dovetail.language.system_errors import system_error
from dovetail.model.spelling import nearest

#: The exit status of a command that Ctrl-C ended, as of any program that SIGINT ends.
INTERRUPTED = 130

#: Why an output takes nothing: a full disk, a closed descriptor, a broken device.
UNWRITTEN = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO))
#: Commands that run until stopped; what they print is not their answer.
SERVICES = frozenset(("cluster-autoscaler", "dashboard", "run", "up", "webhook"))

#: command -> (module, one line of help). The module has a click command of the same name.
COMMANDS: dict[str, tuple[str, str]] = {
    "cluster-autoscaler": ("dovetail.cli.cluster_autoscaler", "Run the autoscaler of node groups."),
    "compare": ("dovetail.cli.compare", "Compare node autoscalers on one workload: cost, waiting, evictions."),
    "completion": ("dovetail.cli.completion", "Print the completion of bash, zsh or fish."),
    "convert": ("dovetail.cli.convert", "Rewrite manifests to another API generation."),
    "crds": ("dovetail.cli.crds", "Print the custom resource definitions."),
    "dashboard": ("dovetail.cli.dashboard", "Show a cluster as a live page in the browser."),
    "diff": ("dovetail.cli.diff", "Say what would change if manifests were applied."),
    "doctor": ("dovetail.cli.doctor", "Find misconfigurations of a cluster and its AWS account."),
    "down": ("dovetail.cli.up", "Stop a lab left in the background."),
    "env": ("dovetail.cli.up", "Print the environment that points aws and kubectl at the lab."),
    "explain": ("dovetail.cli.explain", "Say why a pod waits or a node stays."),
    "fault": ("dovetail.cli.fault", "Break something in a running lab."),
    "history": ("dovetail.cli.history", "Show past decisions."),
    "iam": ("dovetail.cli.iam", "Print IAM policies, roles, queue and event rules."),
    "install": ("dovetail.cli.install", "Install Dovetail into an EKS cluster."),
    "kubectl": ("dovetail.cli.kubectl", "Run kubectl, from the wheel where none is installed."),
    "lint": ("dovetail.cli.lint", "Check manifests before they cost anything."),
    "manifests": ("dovetail.cli.vpa", "Print what installs the Vertical Pod Autoscaler or Cluster Autoscaler."),
    "migrate": ("dovetail.cli.migrate", "Move node groups to NodePools, and back."),
    "plan": ("dovetail.cli.plan", "Say which nodes pods need, and what they cost."),
    "record": ("dovetail.cli.record", "Record a cluster into a file."),
    "replay": ("dovetail.cli.replay", "Play a recording in virtual time, as it was or with changes."),
    "rightsize": ("dovetail.cli.rightsize", "Say what requests cost, and what they could cost."),
    "run": ("dovetail.cli.run", "Run the autoscaler against a cluster."),
    "shadow": ("dovetail.cli.shadow", "Report what a dry run would have done."),
    "simulate": ("dovetail.cli.simulate", "Run a scenario in virtual time."),
    "uninstall": ("dovetail.cli.uninstall", "Remove what install made."),
    "up": ("dovetail.cli.up", "Start the lab: a cluster in one process."),
    "view": ("dovetail.cli.view", "Show the fleet of a cluster in the terminal."),
    "vpa": ("dovetail.cli.vpa", "Run a program of the Vertical Pod Autoscaler."),
    "version": ("dovetail.cli.version", "Print the version."),
    "webhook": ("dovetail.cli.webhook", "Convert between API generations for an API server."),
}

LANGUAGE_HELP = "Language of what is printed; else DOVETAIL_LANG, LC_ALL or LANG."


class LazyGroup(click.Group):
    """Lists commands from the table above and imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None and ctx.resilient_parsing:
            return None  # a shell completes what is not typed yet
        if entry is None:
            near = nearest(name, COMMANDS)
            ctx.fail(
                message("no command '{name}'; did you mean {near}?", name=name, near=near)
                if near
                else message("no command '{name}'", name=name)
            )
        with _click_sentences("en"):  # the source of every translation, whatever the first reader of this process reads
            module = importlib.import_module(entry[0])
        command = getattr(module, name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return _localized(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table, so that no command is imported; options as click completes them."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name][1]) for name in names] or click.Command.shell_complete(
            self, ctx, incomplete
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(translated("Commands")):
            formatter.write_dl([(name, translated(COMMANDS[name][1])) for name in self.list_commands(ctx)])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        chosen = language.choose(_language_option(arguments))
        with language.in_language(chosen), _click_sentences(chosen):
            return click.Group.main(_localized(self), arguments, *rest, **named)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if sys.stdout is None and name not in SERVICES:
            _fail_on_write()
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except click.ClickException as error:
            if language.current() != "en":  # parts of it may be a library's, or recorded
                from dovetail.language.recognition import recognized

                vars(error)["message"] = recognized(error.message)
            vars(error)["message"] = printable(error.message)
            raise
        except OSError as error:
            if error.errno not in UNWRITTEN or error.filename is not None:
                raise
            _drop_output()
            raise UserError(
                message("the output cannot be written: {why}; send it elsewhere", why=system_error(error))
            ) from error


def _language_option(arguments: Sequence[str]) -> str | None:
    """What `--lang` says, wherever it stands: help and errors of the parser are in that language already."""
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--lang" and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith("--lang="):
            return argument.removeprefix("--lang=")
    return None


@contextmanager
def _click_sentences(chosen: str) -> Iterator[None]:
    """Inside, Click's own sentences ("Usage", "No such option") are in this language.

    Click asks the standard library's gettext for them, which knows a domain and an environment of the whole process.
    """
    domain, environment = gettext.textdomain(), os.environ.get("LANGUAGE")
    if chosen == "en":
        gettext.textdomain("messages")  # the one that Python starts with; it has no catalogue
    else:
        gettext.bindtextdomain(language.CLICK_DOMAIN, str(language.LOCALES))
        gettext.textdomain(language.CLICK_DOMAIN)
        os.environ["LANGUAGE"] = chosen
    try:
        yield
    finally:
        gettext.textdomain(domain)
        if environment is None:
            os.environ.pop("LANGUAGE", None)
        else:
            os.environ["LANGUAGE"] = environment


def _localized(command: click.Command) -> click.Command:
    """A copy of the command with `--lang`, and its help in the reader's language.

    A copy, because the command itself serves readers of other languages later in this process.
    """
    localized = copy.copy(command)
    localized.params = [_translated_parameter(parameter) for parameter in command.params]
    if not any(parameter.name == "lang" for parameter in command.params):
        languages = click.Choice(language.LANGUAGES)
        localized.params.append(
            click.Option(["--lang"], type=languages, expose_value=False, help=translated(LANGUAGE_HELP))
        )
    if language.current() != "en":
        for field in ("help", "short_help", "epilog"):
            if text := getattr(command, field):
                setattr(localized, field, translated(inspect.cleandoc(text)))
    if isinstance(localized, click.Group):
        localized.commands = {name: _localized(child) for name, child in localized.commands.items()}
    return localized


def _translated_parameter(parameter: click.Parameter) -> click.Parameter:
    """The parameter with its help, and the name of a file in its usage, in the reader's language."""
    if language.current() == "en":
        return parameter
    localized = copy.copy(parameter)
    if isinstance(localized, click.Option) and localized.help:
        localized.help = translated(localized.help)
    if isinstance(localized.type, click.Path):
        localized.type = copy.copy(localized.type)
        localized.type.name = translated(localized.type.name)
    return localized


def _fail_on_write() -> None:
    """Without a standard output Python drops what is printed; an answer that is nowhere is no answer."""
    unwritable = os.open(os.devnull, os.O_RDONLY)
    if unwritable != 1:
        os.dup2(unwritable, 1)
        os.close(unwritable)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (for the rest of the process)


def _drop_output() -> None:
    """What is left in the buffers goes nowhere: Python would fail over it once more as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


@click.version_option(__version__, "--version", message="dovetail %(version)s")
@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Just-in-time nodes for Kubernetes."""
