"""`dovetail lint`: check manifests before they cost anything."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from dovetail.language import data_in_english, message

if TYPE_CHECKING:
    from dovetail.model.lint import LintFinding, SourceFile
    from dovetail.model.lint.catalog import InstanceCatalog

_ZONE = re.compile(r"\b([a-z]{2}(?:-[a-z]+)+-[0-9])[a-f]\b")


@click.command()
@click.option("-f", "--filename", "names", multiple=True, metavar="FILE", help="A file, a folder, or - for the input.")
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option("--fix", is_flag=True, help="Write the corrections that are safe, keeping comments.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
@click.option("--region", help="Region to launch in; guessed from zones or AWS_REGION.")
@click.option("--strict", is_flag=True, help="Let warnings count as errors for the exit status.")
@click.option("--aws", is_flag=True, help="Ask AWS whether selectors select something.")
def lint(
    names: tuple[str, ...],
    more: tuple[str, ...],
    fix: bool,
    output: str,
    region: str | None,
    strict: bool,
    aws: bool,
) -> None:
    """Check NodePools, node classes and their older generations: form, sense, and what money can launch.

    Exit status: 0 nothing wrong (warnings at most), 1 errors found, 2 the command itself failed.
    """
    sources = _sources([*names, *more])
    shop = _catalog(region) if region else _catalog(_guess(sources))
    if region and shop is None:
        from dovetail.cloud.aws.catalog import UnknownRegion
        from dovetail.errors import UserError

        raise UserError(f"--region: {UnknownRegion(region)}")
    if fix:
        sources = _fix(sources, lambda given: _findings(given, shop, region, aws=False))
    with data_in_english(output):
        findings = _findings(sources, shop, region, aws)
    _note_strangers(sources)
    _report(findings, output, shop, err=fix and any(source.name == "<stdin>" for source in sources))
    bad = [finding for finding in findings if finding.severity == "error" or (strict and finding.severity == "warning")]
    sys.exit(1 if bad else 0)


def _sources(names: list[str]) -> list[SourceFile]:
    from dovetail.model.lint import SourceFile
    from dovetail.offline.manifests import texts

    if not names:
        raise click.UsageError(message("nothing to lint: name files with -f FILE"))
    return [SourceFile(name, text) for name, text in texts(names)]


def _note_strangers(sources: list[SourceFile]) -> None:
    """Silence must not be mistaken for praise when the wrong files were named."""
    from dovetail.model.lint.envelope import VERSIONS

    if not any(kind in source.text for source in sources for kind in VERSIONS):
        click.echo(
            message("note: nothing here is of a kind that is checked: {versions}", versions=", ".join(VERSIONS)),
            err=True,
        )


def _guess(sources: list[SourceFile]) -> str | None:
    """The region that the manifests' zones name, or the environment's."""
    for source in sources:
        match = _ZONE.search(source.text)
        if match is not None:
            return match[1]
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def _catalog(region: str | None) -> InstanceCatalog | None:
    from dovetail.cloud.aws import catalog
    from dovetail.model.lint.catalog import InstanceCatalog

    if region is None or region not in catalog.regions():
        return None
    return InstanceCatalog(region, catalog.load(region))


def _findings(
    sources: list[SourceFile], shop: InstanceCatalog | None, region: str | None, aws: bool
) -> list[LintFinding]:
    import asyncio

    from dovetail.clock import Clock
    from dovetail.model.lint import lint as check

    async def now() -> list[LintFinding]:
        findings = check(sources, Clock(asyncio.get_running_loop()).now(), shop)
        if aws:
            from dovetail.cli.lint_aws import selectors

            findings.extend(selectors(sources, region or (shop.region if shop else None)))
        return findings

    return asyncio.run(now())


def _fix(sources: list[SourceFile], check: Callable[[list[SourceFile]], list[LintFinding]]) -> list[SourceFile]:
    """Write the safe corrections. One may uncover another, so a few rounds."""
    from dovetail.model.lint import SourceFile
    from dovetail.model.lint.suggestions import fixed
    from dovetail.offline.manifests import STDIN, write

    total: Counter[str] = Counter()
    for _ in range(5):
        findings, corrected = check(sources), []
        for source in sources:
            text, count = fixed(source.text, [finding for finding in findings if finding.file == source.name])
            total[source.name] += count
            corrected.append(SourceFile(source.name, text))
        if corrected == sources:
            break
        sources = corrected
    for source in sources:
        if source.name == STDIN:
            click.echo(source.text, nl=False)
        elif total[source.name]:
            write(source.name, source.text)
            click.echo(message("{file}: {n} corrected", file=source.name, n=total[source.name]), err=True)
    return sources


def _report(findings: list[LintFinding], output: str, shop: InstanceCatalog | None, *, err: bool) -> None:
    from dovetail.model.lint import report

    if output == "json":
        click.echo(report.as_json(findings), err=err)
    elif output == "github":
        for finding in findings:
            click.echo(report.github(finding), err=err)
    else:
        for finding in findings:
            click.echo(report.text(finding) + "\n", err=err)
        region_note = (
            message("asked of {region}", region=shop.region)
            if shop
            else message("no region known: values were not asked of a catalogue")
        )
        click.echo(f"{report.summary(findings)} ({region_note})", err=err)
