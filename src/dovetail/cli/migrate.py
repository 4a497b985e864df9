"""`dovetail migrate node-groups`: from node groups to NodePools, step by step, with the price before and after."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from dovetail.errors import UserError
from dovetail.language import data_in_english, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.cli.migrate_session import MigrationSession
    from dovetail.migration.carry_out import MigrationProgress, MigrationResult
    from dovetail.migration.plan import MigrationRequest
    from dovetail.migration.record import MigrationRecord


@click.group()
def migrate() -> None:
    """Move a cluster from one kind of autoscaling to another."""


@migrate.command("node-groups")
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--keep", multiple=True, metavar="GROUP", help="A group that stays as it is, for system pods.")
@click.option("--yes", "-y", is_flag=True, help="Carry it out without asking.")
@click.option("--dry-run", is_flag=True, help="Print the plan; change nothing.")
@click.option("--stop", is_flag=True, help="Stop once the nodes that are being drained are done.")
@click.option("--back", is_flag=True, help="Restore the groups and remove the NodePools that were made.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes drained at once.")
@click.option("--node-class", default="", metavar="NAME", help="An EC2NodeClass that exists, for all NodePools.")
@click.option("--node-role", default="", metavar="ROLE", help="Role of new nodes; else that of an EC2NodeClass.")
@click.option("--same-types", is_flag=True, help="Launch only the instance types of the groups.")
@click.option("--force", is_flag=True, help="Evict pods without a controller too; they do not come back.")
@click.option("--delete-emptydir-data", is_flag=True, help="Evict pods with local storage too; its data is lost.")
@click.option(
    "--timeout",
    "stall_s",
    type=click.FloatRange(min=10),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop if nothing could be done for so long.",
)
@click.option("--permissions", is_flag=True, help="Print the IAM policy and the roles that this command needs.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show the objects, and the command of each step.")
@click.option("--cluster", default=None, help="Name of the EKS cluster; found by the kubeconfig if left out.")
@click.option("--region", default=None, help="Region; default as the AWS command's, or the cluster's.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def node_groups(
    groups: tuple[str, ...],
    keep: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    stop: bool,
    back: bool,
    batch: int,
    node_class: str,
    node_role: str,
    same_types: bool,
    force: bool,
    delete_emptydir_data: bool,
    stall_s: float,
    permissions: bool,
    output: str,
    verbose: bool,
    cluster: str | None,
    region: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Move the nodes of node groups to NodePools, one by one, under PodDisruptionBudgets.

    GROUPs are Auto Scaling groups or managed node groups; without any, all of the cluster but those that run the
    controller of the NodePools. An interrupted run goes on when the command is given again.

    Exit status: 0 as asked, 1 refused or not finished, 2 the input is wrong.
    """
    from dovetail.cli.migrate_session import converse
    from dovetail.migration.drain_blockers import EvictionRules
    from dovetail.migration.plan import MigrationRequest
    from dovetail.migration.proposals import ProposalSettings

    if sum((stop, back, dry_run, permissions)) > 1:
        raise click.UsageError(message("--stop, --back, --dry-run and --permissions exclude each other; give one"))
    request = MigrationRequest(
        groups=groups,
        keep=keep,
        batch_size=batch,
        eviction=EvictionRules(force=force, delete_emptydir_data=delete_emptydir_data),
        proposal=ProposalSettings(node_class=node_class, same_types=same_types),
    )
    dialogue = Dialogue(yes=yes, output=output, verbose=verbose, stall_s=stall_s)

    async def talk(session: MigrationSession) -> bool:
        if permissions:
            return await dialogue.print_permissions(session)
        if stop:
            return await dialogue.stop(session)
        if back:
            return await dialogue.go_back(session)
        return await dialogue.move(session, request, node_role, dry_run=dry_run)

    succeeded = converse(talk, cluster=cluster, region=region, kubeconfig=kubeconfig, context=context)
    sys.exit(0 if succeeded else 1)


class Dialogue:
    """What is printed and asked. Every method returns whether what was asked for came about."""

    def __init__(self, *, yes: bool, output: str, verbose: bool, stall_s: float) -> None:
        self._yes, self._output, self._verbose, self._stall_s = yes, output, verbose, stall_s
        self._as_json = output == "json"

    async def move(
        self, session: MigrationSession, request: MigrationRequest, node_role: str, *, dry_run: bool
    ) -> bool:
        from dovetail.migration import record as records
        from dovetail.migration.record import Phase

        record, version = await records.read(session.kube)
        if record is not None and record.phase is Phase.BACK:
            raise UserError(message("the groups are being restored; finish that with --back"))
        if record is not None and record.phase is not Phase.DONE:
            return await self._continue(session, record, version, request, dry_run=dry_run)
        return await self._begin(session, record, version, request, node_role, dry_run=dry_run)

    async def _begin(
        self,
        session: MigrationSession,
        done: MigrationRecord | None,
        version: str,
        request: MigrationRequest,
        node_role: str,
        *,
        dry_run: bool,
    ) -> bool:
        from dovetail.cli.migrate_text import plan_data, plan_lines
        from dovetail.migration import record as records
        from dovetail.migration.plan import after, record_of

        with data_in_english(self._output):
            planned = await session.plan(request, node_role)
        if self._as_json:
            self._print_json({"plan": plan_data(planned)} if self._yes and not dry_run else plan_data(planned))
        else:
            for line in plan_lines(planned, verbose=self._verbose):
                click.echo(line)
        if planned.blockers:
            self._say(message("refused; nothing was changed"))
            return False
        if not planned.steps:
            self._say(message("no group has anything to move"))
            return True
        if dry_run or not self._agreed(message("move {count} groups?", count=len(planned.steps))):
            self._say(message("nothing was changed; --yes carries it out"))
            return dry_run or not self._may_ask
        record = after(done, record_of(planned, request, session.clock.now()))
        await records.write(session.kube, record, version)
        return await self._carry_out(session)

    async def _continue(
        self,
        session: MigrationSession,
        record: MigrationRecord,
        version: str,
        request: MigrationRequest,
        *,
        dry_run: bool,
    ) -> bool:
        from msgspec.structs import replace

        from dovetail.migration import record as records
        from dovetail.migration.record import Phase

        listed = ", ".join(record.order)
        strange = [name for name in request.groups if name not in record.order]
        if strange:
            raise UserError(
                message(
                    "a migration of {groups} is not finished; give the command without groups, or --back",
                    groups=listed,
                )
            )
        self._say(
            message("continues the migration of {groups}, begun at {started}", groups=listed, started=record.started)
        )
        if dry_run or not self._agreed(message("go on?")):
            self._say(message("nothing was changed; --yes carries it out"))
            return dry_run
        forward = replace(
            record,
            phase=Phase.FORWARD,
            batch_size=request.batch_size,
            force=record.force or request.eviction.force,
            delete_emptydir_data=record.delete_emptydir_data or request.eviction.delete_emptydir_data,
        )
        await records.write(session.kube, forward, version)
        return await self._carry_out(session)

    async def stop(self, session: MigrationSession) -> bool:
        from dovetail.cli.migrate_session import wait_for_end
        from dovetail.migration.record import Phase

        record = await self._turn(session, Phase.STOPPING, only=(Phase.FORWARD, Phase.STOPPING))
        if record is None:
            self._say(message("no migration is under way"))
            return True
        if await wait_for_end(session, self._stall_s):
            self._say(message("stopped"))
            return True
        return await self._carry_out(session)

    async def go_back(self, session: MigrationSession) -> bool:
        from dovetail.migration import record as records
        from dovetail.migration.record import Phase

        begun, _ = await records.read(session.kube)
        if begun is not None and not self._agreed(
            message("restore the groups, and remove the NodePools that were made?")
        ):
            self._say(message("nothing was changed; --yes carries it out"))
            return False
        if begun is None or await self._turn(session, Phase.BACK, only=tuple(Phase)) is None:
            self._say(message("no migration was begun; there is nothing to restore"))
            return True
        return await self._carry_out(session)

    async def _turn(self, session: MigrationSession, phase: Any, *, only: tuple[Any, ...]) -> MigrationRecord | None:
        """Write the phase, if the migration is in one of those."""
        from msgspec.structs import replace

        from dovetail.kube.errors import Conflict
        from dovetail.migration import record as records

        while True:
            record, version = await records.read(session.kube)
            if record is None or record.phase not in only:
                return None
            try:
                await records.write(session.kube, replace(record, phase=phase), version)
            except Conflict:
                continue  # the process that carries it out wrote as well
            return record

    async def print_permissions(self, session: MigrationSession) -> bool:
        import yaml

        from dovetail.install.iam import Site
        from dovetail.migration.permissions import policy, roles

        identity = await session.calls("sts", "get_caller_identity")
        site = Site(
            cluster=session.cluster,
            region=session.calls.region,
            account=str(identity["Account"]),
            partition=str(identity["Arn"]).split(":")[1],
        )
        if self._as_json:
            self._print_json({"policy": policy(site), "roles": roles()})
            return True
        click.echo(message("# the IAM policy"))
        click.echo(json.dumps(policy(site), indent=2))
        click.echo("---")
        click.echo(yaml.safe_dump_all(roles(), sort_keys=False).rstrip())
        return True

    async def _carry_out(self, session: MigrationSession) -> bool:
        with data_in_english(self._output):
            result = await session.carry_out(self._reporter(), self._stall_s)
        return self._conclude(result)

    def _reporter(self) -> Callable[[MigrationProgress], None]:
        from dovetail.cli.migrate_text import progress_data

        def report(progress: MigrationProgress) -> None:
            if self._as_json:
                self._print_json(progress_data(progress))
                return
            click.echo(progress.text)
            if self._verbose and progress.command:
                click.echo(click.style(f"        {progress.command}", dim=True))

        return report

    def _conclude(self, result: MigrationResult) -> bool:
        from dovetail.cli.migrate_text import blocker_lines, result_data
        from dovetail.migration.carry_out import RunOutcome

        if self._as_json:
            self._print_json(result_data(result))
        for line in () if self._as_json else blocker_lines(result.blockers):
            click.echo(line)
        texts = {
            RunOutcome.DONE: message("done: the groups are empty; --back restores them"),
            RunOutcome.STOPPED: message("stopped; give the command again to go on, or --back"),
            RunOutcome.RESTORED: message("restored: the groups have the sizes that they had"),
            RunOutcome.REFUSED: message("refused and stopped; mend it and give the command again, or --back"),
            RunOutcome.STALLED: message(
                "nothing could be done for {seconds:g} s: {why}; give the command again to go on, or --back",
                seconds=self._stall_s,
                why=result.why,
            ),
        }
        self._say(texts[result.outcome])
        return result.outcome in (RunOutcome.DONE, RunOutcome.STOPPED, RunOutcome.RESTORED)

    def _agreed(self, question: str) -> bool:
        if self._yes:
            return True
        return self._may_ask and click.confirm(question)

    @property
    def _may_ask(self) -> bool:
        return not self._as_json and sys.stdin.isatty()

    def _say(self, text: str) -> None:
        click.echo(text, err=self._as_json)

    def _print_json(self, data: Any) -> None:
        click.echo(json.dumps(data, ensure_ascii=False))
