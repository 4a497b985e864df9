"""`dovetail doctor`: find misconfigurations of a cluster and its AWS account before they cost an hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dovetail.install.doctor.facts import Facts, Finding

MARKS = {"passed": ("√", "green"), "warning": ("‼", "yellow"), "failed": ("×", "red"), "not_checked": ("-", None)}
PAGE = "docs/doctor.md"


@click.command()
@click.option("--only", multiple=True, metavar="ID", help="Make this check alone (D01); may be repeated.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
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
@click.option("--region", default=None, help="Region; default as the AWS command's.")
@click.option("--kubeconfig", default=None, help="Path of a kubeconfig; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def doctor(
    only: tuple[str, ...],
    output: str,
    bundle: Path | None,
    source: Path | None,
    rbac: bool,
    cluster: str | None,
    region: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Check a cluster and its AWS account for known misconfigurations; nothing is written.

    Exit status: 0 no check failed, 1 a check failed, 2 the checks could not be made.
    """
    from dovetail.errors import Problem
    from dovetail.install.doctor.checks import CHECKS, report
    from dovetail.install.doctor.facts import Status

    if rbac:
        _print_rights()
        return
    ids = [check.id for check in CHECKS]
    wanted = [name.upper() for name in only]
    for name in wanted:
        if name not in ids:
            raise Problem(f"--only {name}: there is no such check; there are {', '.join(sorted(ids))}")
    if source and bundle:
        raise Problem("--collect and --from are opposites; give one of them")
    facts = _read(source) if source else _collect(cluster, region, kubeconfig, context)
    if bundle:
        _write(bundle, facts)
        return
    findings = report(facts, wanted)
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        _show(facts, findings)
    if any(finding.status is Status.FAILED for finding in findings):
        raise SystemExit(1)


def _show(facts: Facts, findings: list[Finding]) -> None:
    """Groups, a line for each check, and below it what is wrong and the remedy."""
    from collections import Counter

    from dovetail.install.doctor.checks import CHECKS
    from dovetail.install.doctor.facts import Status

    worst = (Status.FAILED, Status.WARNING, Status.NOT_CHECKED, Status.PASSED)
    counts: Counter[str] = Counter()
    click.echo(f"cluster {facts.cluster or 'of the kubeconfig'}" + (f" in {facts.region}" if facts.region else ""))
    for group in dict.fromkeys(check.group for check in CHECKS):
        lines = []
        for check in CHECKS:
            rows = [finding for finding in findings if finding.id == check.id and check.group == group]
            if not rows:
                continue
            status = next(status for status in worst if any(row.status is status for row in rows))
            counts[status.value.replace("_", " ")] += 1
            mark, colour = MARKS[status.value]
            lines.append(click.style(f"  {mark} {check.id} {check.title}", fg=colour))
            for row in rows:
                if row.status is Status.NOT_CHECKED:
                    lines.append(f"      {row.message}")
                elif row.status is not Status.PASSED:
                    lines += [f"      {row.status.value}: {row.object}: {row.message}", f"      remedy: {row.remedy}"]
        if lines:
            click.echo(f"\n{group}\n" + "\n".join(lines))
    click.echo("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()) + f"; see {PAGE}")


def _collect(cluster: str | None, region: str | None, kubeconfig: str | None, context: str | None) -> Facts:
    import asyncio
    import os

    import boto3

    from dovetail.cli import cluster_session
    from dovetail.cli.terminal import quiet_logs, waiting
    from dovetail.clock import Clock
    from dovetail.cloud.aws.client import Calls
    from dovetail.errors import Problem
    from dovetail.install.doctor.collect import collect
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.credentials import ConfigError
    from dovetail.kube.errors import Disconnected, KubeError

    quiet_logs()
    chosen = region or boto3.session.Session().region_name

    async def main() -> Facts:
        clock = Clock(asyncio.get_running_loop())
        connection = load(cluster_session.kubeconfig(kubeconfig), context)
        calls = Calls(clock, region=chosen, endpoint=os.environ.get("AWS_ENDPOINT_URL")) if chosen else None
        kube = Kube(connection.transport(), clock).read_only()
        try:
            return await collect(kube, calls, server=connection.server, cluster=cluster or "")
        finally:
            if calls is not None:
                calls.close()
            await kube.close()

    if not chosen:
        click.echo("note: no region is set, so AWS is not asked; give --region, or set AWS_REGION", err=True)
    try:
        with waiting("reading the cluster and the account …"):
            return asyncio.run(main())
    except Disconnected as problem:
        raise Problem(f"{problem}; start it, or name another with --kubeconfig or --context") from problem
    except (ConfigError, KubeError) as problem:
        raise Problem(str(problem)) from problem


def _read(source: Path) -> Facts:
    import msgspec

    from dovetail.errors import Problem
    from dovetail.install.doctor.facts import Facts

    try:
        return msgspec.json.decode(source.read_bytes(), type=Facts)
    except (OSError, msgspec.MsgspecError) as problem:
        raise Problem(f"--from {source}: {problem}; name a file that dovetail doctor --collect wrote") from problem


def _write(bundle: Path, facts: Facts) -> None:
    import msgspec

    from dovetail.errors import Problem

    try:
        bundle.write_bytes(msgspec.json.encode(facts))
    except OSError as problem:
        raise Problem(f"--collect {bundle}: {problem.strerror}; name a file that can be written") from problem
    click.echo(f"{bundle}: {len(facts.answers)} sources, without secrets; dovetail doctor --from {bundle} checks it")


def _print_rights() -> None:
    import yaml

    from dovetail.install.doctor.aws_answers import ACTIONS
    from dovetail.install.doctor.collect import LISTED

    rules = [{"apiGroups": [resource.group], "resources": [resource.plural], "verbs": ["list"]} for resource in LISTED]
    rules.append(
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["aws-auth"], "verbs": ["get"]},
    )
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "dovetail-doctor"},
        "rules": rules,
    }
    click.echo(yaml.safe_dump(role, sort_keys=False) + "# At AWS, on all resources:")
    for action in ACTIONS:
        click.echo(f"#   {action}")
