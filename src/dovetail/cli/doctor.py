"""`dovetail doctor`: find misconfigurations of a cluster and its AWS account before they cost an hour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.language import data_in_english, message, source
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from dovetail.install.doctor.facts import Facts, Finding

MARKS = {"passed": ("√", "green"), "warning": ("‼", "yellow"), "failed": ("×", "red"), "not_checked": ("-", None)}
PAGE = "docs/doctor.md"
#: Keys of `-o json`, in this order.
KEYS = ("id", "status", "object", "message", "remedy")
#: A status as it is written before an objection, and with how many checks have it.
STATUSES = {"warning": source("warning"), "failed": source("failed")}
TOTALS = {
    "passed": source("{n} passed"),
    "warning": source("{n} warning"),
    "failed": source("{n} failed"),
    "not_checked": source("{n} not checked"),
}
NO_CONTROLLER = source("no controller is installed here")


@click.command()
@click.option("--pre", is_flag=True, help="Check what an installation needs, before it is made.")
@click.option("--only", multiple=True, metavar="ID,ID", help="Make these checks alone (D01,D05); may be repeated.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--fix", is_flag=True, help="Run the remedies that only add what is missing, then check again.")
@click.option("--dry-run", is_flag=True, help="With --fix: print the commands, and run nothing.")
@click.option(
    "--collect",
    "bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what was read to a file, without secrets, and make no check.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Check what --collect wrote; no cluster is asked.",
)
@click.option("--rbac", is_flag=True, help="Print the rights that reading takes, and do nothing.")
@click.option("--cluster", default=None, help="Name of the EKS cluster; found by the kubeconfig if left out.")
@click.option("--region", default=None, help="Region; default as the AWS command's, or the cluster's.")
@click.option("--name", "lab", default=None, metavar="LAB", help="Ask the lab of this name.")
@click.option("--kubeconfig", default=None, help="Path of a kubeconfig; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def doctor(
    pre: bool,
    only: tuple[str, ...],
    output: str,
    fix: bool,
    dry_run: bool,
    bundle: Path | None,
    source: Path | None,
    rbac: bool,
    cluster: str | None,
    region: str | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Check a cluster and its AWS account for known misconfigurations; without --fix nothing is written.

    Exit status: 0 no check failed, 1 a check failed, 2 the checks could not be made or a remedy failed.
    """
    from dovetail.errors import UserError
    from dovetail.install.doctor.checks import report
    from dovetail.install.doctor.facts import Status

    if rbac:
        _print_rights()
        return
    ids = _ids(only, pre)
    _check_options(source, bundle, fix=fix, dry_run=dry_run)
    place = _Place(cluster, region, kubeconfig, context, lab)
    facts = _read(source) if source else place.collect(logs=bundle is not None)
    if bundle:
        _write(bundle, facts)
        return
    with data_in_english(output):
        findings = _at_endpoint(report(facts, ids, pre=pre))
    if fix and dry_run:
        _print_remedies(findings)
        return
    failures: list[str] = []
    if fix:
        failures = _mend(findings, place)
        facts = place.collect()
        with data_in_english(output):
            findings = _at_endpoint(report(facts, ids, pre=pre))
    if output == "json":
        _print_json(findings)
    else:
        _show(facts, findings, pre)
    if failures:
        raise UserError("; ".join(failures))
    if any(finding.status is Status.FAILED for finding in findings):
        raise SystemExit(1)


def _check_options(source: Path | None, bundle: Path | None, *, fix: bool, dry_run: bool) -> None:
    from dovetail.errors import UserError

    if source and bundle:
        raise UserError(message("--collect and --from are opposites; give one of them"))
    if dry_run and not fix:
        raise UserError(message("--dry-run belongs to --fix; without --fix nothing is written anyway"))
    if source and fix and not dry_run:
        raise UserError(
            message("--from asks no cluster, so there is none to mend; add --dry-run to print the commands")
        )
    if bundle and fix:
        raise UserError(message("--collect makes no check, so there is nothing to mend; leave out --fix"))


def _print_json(findings: Sequence[Finding]) -> None:
    import msgspec

    rows = [{key: getattr(finding, key) for key in KEYS} for finding in findings]
    click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())


def _ids(only: Sequence[str], pre: bool) -> list[str]:
    """The ids that are asked for, as typed in one option or in several."""
    from dovetail.errors import UserError
    from dovetail.install.doctor.checks import CHECKS, checks_of

    chosen = [name.strip().upper() for text in only for name in text.split(",") if name.strip()]
    ids = [check.id for check in checks_of(pre=pre)]
    for name in chosen:
        if name in ids:
            continue
        if name in {check.id for check in CHECKS}:
            raise UserError(
                message("--only {name}: it is made without --pre", name=name)
                if pre
                else message("--only {name}: it is made with --pre", name=name)
            )
        raise UserError(
            message("--only {name}: there is no such check; there are {ids}", name=name, ids=", ".join(sorted(ids)))
        )
    return chosen


def _show(facts: Facts, findings: list[Finding], pre: bool) -> None:
    """Groups, a line for each check, and below it what is wrong and the remedy."""
    from collections import Counter

    from dovetail.install.doctor.checks import checks_of
    from dovetail.install.doctor.facts import Status

    worst = (Status.FAILED, Status.WARNING, Status.NOT_CHECKED, Status.PASSED)
    counts: Counter[str] = Counter()
    without_controller: list[str] = []
    cluster = facts.cluster or message("of the kubeconfig")
    click.echo(
        message("cluster {cluster} in {region}", cluster=cluster, region=facts.region)
        if facts.region
        else message("cluster {cluster}", cluster=cluster)
    )
    checks = checks_of(pre=pre)
    for group in dict.fromkeys(check.group for check in checks):
        lines = []
        for check in checks:
            rows = [finding for finding in findings if finding.id == check.id and check.group == group]
            if not rows:
                continue
            status = next(status for status in worst if any(row.status is status for row in rows))
            counts[status.value] += 1
            if status is Status.NOT_CHECKED and message(NO_CONTROLLER) in rows[-1].message:
                without_controller.append(check.id)
                continue
            mark, colour = MARKS[status.value]
            lines.append(click.style(f"  {mark} {check.id} {message(check.title)}", fg=colour))
            for row in rows:
                if row.status is Status.NOT_CHECKED:
                    lines.append(f"      {row.message}")
                elif row.status is not Status.PASSED:
                    status_text = message(STATUSES[row.status.value])
                    lines.append(f"      {status_text}: {row.object}: {row.message}")
                    lines.append(message("      remedy: {remedy}", remedy=row.remedy))
        if lines:
            click.echo(f"\n{message(group)}\n" + "\n".join(lines))
    if without_controller:
        click.echo(
            message(
                "\nno controller is installed, so these were not checked: {without_controller}",
                without_controller=", ".join(without_controller),
            )
        )
        if not pre:
            click.echo(message("dovetail doctor --pre checks what an installation needs"))
    totals = ", ".join(message(TOTALS[status], n=count) for status, count in counts.items())
    click.echo("\n" + message("{totals}; see {page}", totals=totals, page=PAGE))
    safe = [row for row in findings if row.safe and row.status in (Status.FAILED, Status.WARNING)]
    if safe:
        click.echo(message("dovetail doctor --fix --dry-run prints the safe remedies ({count})", count=len(safe)))


# Remedies


def _at_endpoint(findings: list[Finding]) -> list[Finding]:
    import msgspec

    from dovetail.cli.remedies import at_endpoint

    return [msgspec.structs.replace(row, remedy=at_endpoint(row.remedy)) for row in findings]


def _print_remedies(findings: list[Finding]) -> None:
    from dovetail.cli.remedies import safe_remedies
    from dovetail.install.doctor.facts import Status

    remedies = safe_remedies(findings)
    for finding in remedies:
        click.echo(f"# {finding.id} {finding.object}\n{finding.remedy}")
    left = [row for row in findings if row.status is Status.FAILED and not row.safe]
    if not remedies:
        click.echo(message("# no finding has a safe remedy"))
    for row in left:
        click.echo(
            message("# {id} {object} is for you to decide: {remedy}", id=row.id, object=row.object, remedy=row.remedy)
        )


def _mend(findings: list[Finding], place: _Place) -> list[str]:
    """Run the safe remedies, each with a line; returns those that failed."""
    from dovetail.cli.remedies import execute, run, safe_remedies

    failures = []
    options = place.options()
    remedies = safe_remedies(findings)
    if not remedies:
        click.echo(message("no finding has a safe remedy"), err=True)
    for finding in remedies:
        click.echo(f"{finding.id} {finding.remedy}", err=True)
        problem = run(finding.remedy, options, execute)
        if problem:
            failures.append(f"{finding.id}: {problem}")
    return failures


# Where findings come from


class _Place:
    """The cluster and the account that are asked, and mended."""

    def __init__(
        self, cluster: str | None, region: str | None, kubeconfig: str | None, context: str | None, lab: str | None
    ) -> None:
        self._cluster, self._region, self._kubeconfig, self._context = cluster, region, kubeconfig, context
        self._lab = lab

    def kubeconfig(self) -> str | None:
        from dovetail.cli import cluster_session

        return cluster_session.kubeconfig(self._kubeconfig, self._lab)

    def options(self) -> dict[str, Sequence[str]]:
        """What kubectl needs to act on the same cluster."""
        path = self.kubeconfig()
        flags = [f"--kubeconfig={path}"] if path else []
        return {"kubectl": [*flags, *([f"--context={self._context}"] if self._context else [])]}

    def collect(self, *, logs: bool = False) -> Facts:
        import asyncio
        import os

        from dovetail.cli.cluster_session import aws_region, cluster_errors
        from dovetail.cli.terminal import progress, quiet_logs
        from dovetail.clock import Clock
        from dovetail.cloud.aws.client import Calls
        from dovetail.install.doctor.collect import collect
        from dovetail.kube.client import Kube
        from dovetail.kube.config import load

        quiet_logs()

        async def main(show: Any) -> Facts:
            clock = Clock(asyncio.get_running_loop())
            connection = load(self.kubeconfig(), self._context)
            kube = Kube(connection.transport(), clock).read_only()
            calls = None
            try:
                region = await aws_region(self._region, kube, connection.server)
                if region:
                    calls = Calls(clock, region=region, endpoint=os.environ.get("AWS_ENDPOINT_URL"))
                else:
                    click.echo(_without_region(), err=True)
                return await collect(
                    kube, calls, server=connection.server, cluster=self._cluster or "", logs=logs, progress=show
                )
            finally:
                if calls is not None:
                    calls.close()
                await kube.close()

        with progress(message("reading {{}} …")) as show, cluster_errors():
            return asyncio.run(main(show))


def _without_region() -> str:
    return message("note: no region is set, so AWS is not asked; give --region, or set AWS_REGION")


def _read(source: Path) -> Facts:
    import msgspec

    from dovetail.errors import UserError
    from dovetail.install.doctor.facts import Facts

    try:
        return msgspec.json.decode(source.read_bytes(), type=Facts)
    except (OSError, msgspec.MsgspecError) as problem:
        raise UserError(
            message(
                "--from {source}: {problem}; name a file that dovetail doctor --collect wrote",
                source=source,
                problem=problem,
            )
        ) from problem


def _write(bundle: Path, facts: Facts) -> None:
    import msgspec

    from dovetail.errors import UserError

    try:
        bundle.write_bytes(msgspec.json.encode(facts))
    except OSError as problem:
        raise UserError(
            message(
                "--collect {bundle}: {strerror}; name a file that can be written",
                bundle=bundle,
                strerror=system_error(problem),
            )
        ) from problem
    click.echo(
        message(
            "{bundle}: {count} sources, without secrets; dovetail doctor --from {bundle} checks it",
            bundle=bundle,
            count=len(facts.answers),
        )
    )


def _print_rights() -> None:
    import yaml

    from dovetail.install.doctor.aws_answers import ACTIONS
    from dovetail.install.doctor.collect import LISTED, METRICS, VERSION

    resources: dict[str, list[str]] = {}
    for resource in LISTED:
        resources.setdefault(resource.group, []).append(resource.plural)
    resources[""].append("events")
    rules: list[dict[str, Any]] = [
        {"apiGroups": [group], "resources": sorted(plurals), "verbs": ["list"]} for group, plurals in resources.items()
    ]
    rules += [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["aws-auth"], "verbs": ["get"]},
        {"nonResourceURLs": [VERSION, METRICS], "verbs": ["get"]},
    ]
    logs = [
        {"apiGroups": [""], "resources": ["pods/log", "pods/proxy"], "verbs": ["get"]},
        {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes"], "verbs": ["list"]},
    ]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    role = {**kind, "metadata": {"name": "dovetail-doctor"}, "rules": rules}
    collecting = {**kind, "metadata": {"name": "dovetail-doctor-collect"}, "rules": logs}
    click.echo(yaml.safe_dump_all([role, collecting], sort_keys=False), nl=False)
    click.echo(message("# The second role is for --collect alone: logs and metrics. At AWS, on all resources:"))
    for action in ACTIONS:
        click.echo(f"#   {action}")
