"""`dovetail crds`: print the custom resource definitions, for `kubectl apply -f -`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from dovetail.language import message
from dovetail.language.system_errors import system_error

#: A bundle of certificates is smaller than this.
MAX_CA_BYTES = 1 << 20
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----")


@click.command()
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option(
    "--webhook",
    metavar="NAMESPACE/SERVICE[:PORT]",
    help="Let this service convert between v1 and v1beta1 (see docs/api.md).",
)
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="CA of the service, PEM.")
@click.option(
    "--only",
    type=click.Choice(["v1"]),
    help="Leave out v1beta1 and the kinds of older generations, as in a cluster of Karpenter 1.x.",
)
@click.argument("names", nargs=-1)
def crds(output: str, webhook: str | None, ca: Path | None, only: str | None, names: tuple[str, ...]) -> None:
    """Print the custom resource definitions of every generation, or those NAMES alone (nodepools …).

    dovetail crds | kubectl apply -f -
    """
    import json

    from dovetail.model.kinds.crds import KINDS, definition, in_version, render

    if only and webhook:
        raise click.UsageError(
            message("--only {version} leaves nothing to convert; leave out --webhook, or --only", version=only)
        )
    kinds = KINDS if only is None else in_version(only)
    chosen = [kind for kind in kinds if not names or {kind.plural, kind.kind, kind.name} & set(names)]
    unknown = set(names) - {name for kind in kinds for name in (kind.plural, kind.kind, kind.name)}
    if unknown:
        plurals = ", ".join(kind.plural for kind in kinds)
        text = message(
            "{names}: no such definition; there are {known}", names=", ".join(sorted(unknown)), known=plurals
        )
        raise click.BadParameter(text, param_hint="NAMES")
    definitions = [definition(kind, _client(webhook, ca)) for kind in chosen]
    click.echo(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
        if output == "json"
        else render(definitions),
        nl=output == "json",
    )


def _client(webhook: str | None, ca: Path | None) -> dict[str, object] | None:
    """The webhook's clientConfig."""
    import base64

    if webhook is None:
        if ca is not None:
            raise click.UsageError(
                message("--ca belongs to a webhook; name its service with --webhook NAMESPACE/SERVICE")
            )
        return None
    namespace, slash, rest = webhook.partition("/")
    name, _, port = rest.partition(":")
    if not (namespace and slash and name) or (port and not port.isdigit()):
        raise click.BadParameter(
            message("expected NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT"), param_hint="--webhook"
        )
    client: dict[str, object] = {
        "service": {"namespace": namespace, "name": name, "port": int(port or 443), "path": "/convert"}
    }
    if ca is not None:
        client["caBundle"] = base64.b64encode(_certificates(ca)).decode()
    return client


def _certificates(file: Path) -> bytes:
    """The file's content, which must be certificates in PEM and nothing else: it is published in the cluster."""
    import ssl

    from dovetail.errors import UserError

    expected = message("expected certificates in PEM, such as the ca.crt of the webhook's Secret")
    try:
        with file.open("rb") as opened:  # a device has no size, and no end
            data = opened.read(MAX_CA_BYTES + 1)
        size = max(len(data), file.stat().st_size)
        if size > MAX_CA_BYTES:
            raise UserError(
                message(
                    "--ca {file}: {size} bytes; {expected}, at most {max_ca_bytes} bytes",
                    file=file,
                    size=size,
                    expected=expected,
                    max_ca_bytes=MAX_CA_BYTES,
                )
            )
        text = data.decode("ascii")
    except OSError as error:
        raise UserError(f"--ca {file}: {system_error(error)}; {expected}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            message(
                "--ca {file}: not text at byte {start}; {expected}", file=file, start=error.start, expected=expected
            )
        ) from error
    others = {name for name in _BLOCK.findall(text) if name != "CERTIFICATE"}
    if others:
        raise UserError(
            message(
                "--ca {file}: holds a {others}; {expected}, and no key",
                file=file,
                others=", ".join(sorted(others)),
                expected=expected,
            )
        )
    if "CERTIFICATE" not in _BLOCK.findall(text):
        raise UserError(message("--ca {file}: no certificate in it; {expected}", file=file, expected=expected))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            message("--ca {file}: a certificate in it cannot be read; {expected}", file=file, expected=expected)
        ) from error
    return data
