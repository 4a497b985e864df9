"""`dovetail run`: the autoscaler against a cluster, with Karpenter's flags and environment."""

from __future__ import annotations

from typing import Any

import click

from dovetail.language import message


def _settings_options(command: Any) -> Any:
    """One option a setting, named as upstream names it; values stay text here and are read in one place.

    A boolean without a value is true, as Go's flags have it.
    """
    from dovetail.controllers.settings import flag, is_switch, meanings

    for name, text in reversed(meanings().items()):
        bare: Any = {"is_flag": False, "flag_value": "true"} if is_switch(name) else {}
        command = click.option(flag(name), name, default=None, metavar="VALUE", help=text, **bare)(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cloud", "provider", type=click.Choice(["aws", "simulated"]), default="aws", help="The cloud provider.")
@click.option("--catalog", type=click.Path(dir_okay=False), help="Catalogue file of the simulated cloud.")
@click.option("--market", type=click.Path(exists=True, dir_okay=False), help="Market file of the simulated cloud.")
@click.option("--region", default=None, help="Region of the packaged catalogue, or of AWS.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's, then in-cluster.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
@click.option("--seed", type=int, default=None, help="Seed of everything random; fixed for repeatable runs.")
@_settings_options
def run(
    provider: str,
    catalog: str | None,
    market: str | None,
    region: str | None,
    kubeconfig: str | None,
    context: str | None,
    seed: int | None,
    **flags: str | None,
) -> None:
    """Run the autoscaler against a cluster."""
    import os

    from dovetail.cli.run_autoscaler import AutoscalerProgram, main
    from dovetail.controllers.settings import SettingsError, read, unknown_gates

    try:
        settings = read(flags, os.environ)
    except SettingsError as problem:
        raise click.UsageError(str(problem)) from problem
    for name in unknown_gates(flags.get("feature_gates") or os.environ.get("FEATURE_GATES", "")):
        click.echo(message("note: --feature-gates: {name!r} is none of ours and changes nothing", name=name), err=True)
    main(
        AutoscalerProgram(
            provider=provider,
            catalog=catalog,
            market=market,
            region=region,
            kubeconfig=kubeconfig,
            context=context,
            seed=seed,
            settings=settings,
        )
    )
