"""Every command and option, from click's tree and the flag tables of the programs that read Go's flags."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import click

from dovetail.autoscalers.node_groups.flags import FLAGS
from dovetail.autoscalers.vpa import settings as vpa
from dovetail.cli.main import COMMANDS, LANGUAGE_HELP
from scripts.reference.words import Words, code, page, table

VPA_TABLES = {
    "recommender": vpa.RECOMMENDER_FLAGS,
    "updater": vpa.UPDATER_FLAGS,
    "admission-controller": vpa.ADMISSION_FLAGS,
}


def commands(say: Words) -> str:
    """The page: one section a command, alphabetically; sub-commands below theirs."""
    return page(
        say.either("# Commands", "# 명령"),
        say.either(
            "Every command and option, from the code. `dovetail COMMAND --help` prints the same. "
            "All commands take `--lang en|ko`, else `DOVETAIL_LANG`, `LC_ALL` and `LANG` decide, and `--help`.",
            "코드에서 생성한 모든 명령과 옵션입니다. `dovetail COMMAND --help`도 같은 내용을 출력합니다. "
            "모든 명령은 `--help`와 `--lang en|ko`를 받고, 지정하지 않으면 `DOVETAIL_LANG`, `LC_ALL`, `LANG` 순으로 정합니다.",
        ),
        table(
            (say.either("command", "명령"), say.either("what it does", "하는 일")),
            ((f"[`dovetail {name}`](#dovetail-{name})", say(COMMANDS[name][1])) for name in sorted(COMMANDS)),
        ),
        *(part for name in sorted(COMMANDS) for part in _command(say, name)),
        *_cluster_autoscaler(say),
        *_vpa(say),
    )


def _command(say: Words, name: str) -> Iterator[str]:
    command = getattr(importlib.import_module(COMMANDS[name][0]), name.replace("-", "_"))
    assert isinstance(command, click.Command)
    yield from _section(say, f"dovetail {name}", command, 2)
    if isinstance(command, click.Group):
        for child in sorted(command.commands):
            yield from _section(say, f"dovetail {name} {child}", command.commands[child], 3)


def _section(say: Words, path: str, command: click.Command, level: int) -> Iterator[str]:
    yield f"{'#' * level} {path}"
    if command.help:
        paragraphs = say(inspect.cleandoc(command.help)).replace("\b\n", "").split("\n\n")
        yield "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"{say.either('Usage', '사용법')}: `{usage}`"
    yield table(
        (say.either("option", "옵션"), say.either("meaning", "의미"), say.either("default", "기본값")),
        (_option(say, option, context) for option in command.params if _is_listed(option)),
    )


def _is_listed(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and not parameter.hidden and parameter.help != LANGUAGE_HELP


def _option(say: Words, option: click.Parameter, context: click.Context) -> tuple[str, str, str]:
    assert isinstance(option, click.Option)
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    names = ", ".join([*option.opts, *option.secondary_opts])
    shown = option.default
    is_plain = not callable(shown) and shown not in (None, False, (), "") and "UNSET" not in repr(shown).upper()
    return code(f"{names}{value}"), say(option.help) if option.help else "", code(shown) if is_plain else ""


def _cluster_autoscaler(say: Words) -> Iterator[str]:
    yield say.either("## Flags of Cluster Autoscaler", "## Cluster Autoscaler의 플래그")
    yield say.either(
        "`dovetail cluster-autoscaler` reads upstream's flags as Go programs do.",
        "`dovetail cluster-autoscaler`는 업스트림의 플래그를 Go 프로그램처럼 읽습니다.",
    )
    yield table(
        (
            say.either("flag", "플래그"),
            say.either("type", "타입"),
            say.either("default", "기본값"),
            say.either("without effect here, because", "여기서 효과가 없는 까닭"),
        ),
        (
            (f"`--{name}`", flag.kind, code(flag.default), say(flag.without_effect) if flag.without_effect else "")
            for name, flag in sorted(FLAGS.items())
        ),
    )


def _vpa(say: Words) -> Iterator[str]:
    yield say.either("## Flags of the Vertical Pod Autoscaler", "## Vertical Pod Autoscaler의 플래그")
    for program, flags in VPA_TABLES.items():
        yield f"### dovetail vpa {program} flags"
        yield table(
            (say.either("flag", "플래그"), say.either("default", "기본값"), say.either("meaning", "의미")),
            ((f"`--{flag.name}`", code(flag.default), say(flag.meaning)) for flag in flags),
        )
