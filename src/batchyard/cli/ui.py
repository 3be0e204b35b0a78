"""`batchyard ui`."""

from __future__ import annotations

import click

from batchyard.cli.options import env_option_for, example, home_of, home_option


@click.command(
    epilog=example(
        "batchyard ui", "batchyard ui --port 8080 --no-browser", "batchyard ui --env research"
    )
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port (default: free)."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. Another one than 127.0.0.1 lets other machines connect.",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let the page stop, retry and resume runs, after a question.",
)
@env_option_for("Show the runs in the bucket of this AWS environment, too.")
@home_option
def command(
    port: int,
    host: str,
    no_browser: bool,
    allow_actions: bool,
    env: str | None,
    home: str | None,
) -> int:
    """Show the runs of this folder in a browser, live, until Ctrl-C.

    The page has the steps, children, failures and logs of each run. It is only for this machine: it
    listens on 127.0.0.1, and the printed address has a token that a browser needs once.
    """
    from batchyard.ui import server as ui_server
    from batchyard.ui.application import Settings

    settings = Settings(home_of(home), env, allow_actions)
    server, address = ui_server.make_server(settings, host, port)
    with server:
        if note := ui_server.explain_host(host):
            click.echo(f"note: {note}", err=True)
        click.echo(address)
        if not no_browser:
            click.launch(address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
    return 0
