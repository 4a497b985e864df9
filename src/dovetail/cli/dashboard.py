"""`dovetail dashboard`: a live page of any cluster. It reads; it writes nothing."""

from __future__ import annotations

import click

from dovetail.errors import Problem
from dovetail.language import message
from dovetail.language.system_errors import system_error


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Port; 8090, or a free one if that is taken.")
@click.option("--listen", "host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--auth",
    type=click.Choice(["url", "kubernetes", "proxy"]),
    default="url",
    show_default=True,
    help="Who may look: those with the printed URL, those with a Kubernetes token, or those a proxy names.",
)
@click.option("--host-name", "hosts", multiple=True, metavar="NAME", help="A name that the page is reached by; repeat.")
@click.option("--token", default=None, help="The URL's token, to keep a bookmark; made up if absent.")
@click.option("--tls-proxy", is_flag=True, help="Viewers come by TLS through a proxy: cookies are for TLS alone.")
@click.option("--user-header", default="X-Forwarded-User", show_default=True, help="With --auth proxy: who looks.")
@click.option(
    "--group-header", default="X-Forwarded-Groups", show_default=True, help="With --auth proxy: their groups."
)
@click.option("--lang", type=click.Choice(["en", "ko"]), default=None, help="Language; the browser's if left out.")
@click.option(
    "--history-namespace", default=None, help="Namespace of the history.  [default: that of the controller's lease]"
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
@click.option("--name", "lab", default=None, metavar="LAB", help="Show the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def dashboard(
    port: int | None,
    host: str,
    auth: str,
    hosts: tuple[str, ...],
    token: str | None,
    tls_proxy: bool,
    user_header: str,
    group_header: str,
    lang: str | None,
    history_namespace: str | None,
    open_browser: bool,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show a cluster as a live page in the browser: nodes, money, pending pods and why. It writes nothing."""
    from dovetail.cli import cluster_session
    from dovetail.web.run import Options

    if auth == "url" and host not in ("127.0.0.1", "localhost", "::1"):
        raise Problem(
            message(
                "--listen {host}: a token in a URL is for the loopback; add --auth kubernetes, or leave it out",
                host=host,
            )
        )
    if token is not None and auth != "url":
        raise Problem(
            message("--token: is for --auth url; with --auth {auth} viewers have credentials of their own", auth=auth)
        )
    if token is not None and len(token) < MIN_TOKEN_CHARS:
        raise Problem(
            message(
                "--token: {count} characters can be guessed; give at least {min_token_chars}",
                count=len(token),
                min_token_chars=MIN_TOKEN_CHARS,
            )
        )
    options = Options(
        auth=auth,
        host=host,
        port=port,
        hosts=hosts,
        token=token,
        language=lang,
        history_namespace=history_namespace,
        secure=tls_proxy,
        user_header=user_header,
        group_header=group_header,
    )
    _serve(cluster_session.kubeconfig(kubeconfig, lab), context, options, open_browser)


MIN_TOKEN_CHARS = 16


def _serve(kubeconfig: str | None, context: str | None, options: object, open_browser: bool) -> None:
    import asyncio
    import signal
    import webbrowser

    import msgspec

    from dovetail.chance import Chance, system_seed
    from dovetail.cli.cluster_session import server_time
    from dovetail.cli.terminal import quiet_logs
    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.credentials import ConfigError
    from dovetail.kube.errors import Disconnected, KubeError
    from dovetail.web.run import Options
    from dovetail.web.run import dashboard as served

    assert isinstance(options, Options)
    quiet_logs()

    async def main() -> None:
        connection = load(kubeconfig, context)
        transport = connection.transport()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop.set)
        try:
            clock = Clock(loop, await server_time(transport))
            kube = Kube(transport, clock, chance=Chance(system_seed()))
            chosen = msgspec.structs.replace(options, title=connection.server, server=connection.server)
            async with served(kube, clock, chosen) as (url, _, _):
                click.echo(f"dashboard   {url}")
                click.echo(
                    message(
                        "cluster     {server}   (read only; Ctrl-C ends the page, not the cluster)",
                        server=connection.server,
                    )
                )
                if open_browser:
                    await asyncio.to_thread(webbrowser.open, url)
                await stop.wait()
        finally:
            await transport.close()

    try:
        run_scaled(main())
    except Disconnected as problem:
        raise Problem(
            message("{problem}; start it, or name another with --kubeconfig or --context", problem=problem)
        ) from problem
    except (ConfigError, KubeError) as problem:
        raise Problem(str(problem)) from problem
    except OSError as problem:
        where = f"{options.host}:{options.port}" if options.port is not None else options.host
        raise Problem(
            message(
                "cannot listen on {where}: {strerror}; choose another --port or --listen",
                where=where,
                strerror=system_error(problem),
            )
        ) from problem
