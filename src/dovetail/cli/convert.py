"""`dovetail convert`: rewrite manifests to another API generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.model.kinds.rewrite import Rewritten


@click.command()
@click.option("-f", "--filename", "names", multiple=True, metavar="FILE", help="A file, a folder, or - for the input.")
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option("--to", "version", type=click.Choice(["v1", "v1beta1"]), default="v1", show_default=True)
@click.option("-i", "--in-place", is_flag=True, help="Write the files instead of the output.")
@click.option("-q", "--quiet", is_flag=True, help="Leave out the notes.")
def convert(names: tuple[str, ...], more: tuple[str, ...], version: str, in_place: bool, quiet: bool) -> None:
    """Rewrite Provisioners, NodePools, node classes and their like to another generation.

    Comments and order stay where they can; other objects pass through as they are. A note on the standard error
    says what was moved and, above all, what changed its meaning.
    """
    from dovetail.errors import UserError
    from dovetail.model.kinds.convert import ConversionError
    from dovetail.model.kinds.rewrite import rewrite
    from dovetail.offline.manifests import STDIN, texts, write

    files = [*names, *more]
    if not files:
        raise click.UsageError(message("nothing to convert: name files with -f FILE"))
    first = True
    for name, text in list(texts(files)):
        try:
            done = rewrite(text, version)
        except ConversionError as error:
            raise UserError(f"{name}: {error}") from error
        if not quiet:
            _notes(name, done)
        if in_place and name != STDIN:
            if done.changed:
                write(name, done.text)
        else:
            click.echo(("" if first or done.text.startswith("---") else "---\n") + done.text, nl=False)
            first = False


def _notes(name: str, done: Rewritten) -> None:
    for remark in done.remarks:
        mark = message("meaning") if remark.note.meaning else message("note")
        click.echo(f"{name}: {remark.subject}: {remark.note.path}: {mark}: {remark.note.text}", err=True)
