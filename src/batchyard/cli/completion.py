"""`batchyard completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from batchyard.cli.options import example


@click.command(
    epilog=example(
        'eval "$(batchyard completion bash)"    # in ~/.bashrc',
        'eval "$(batchyard completion zsh)"     # in ~/.zshrc',
        "batchyard completion fish > ~/.config/fish/completions/batchyard.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script of a shell: commands, flags, and the ids of runs."""
    from batchyard.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "batchyard", "_BATCHYARD_COMPLETE").source())
    return 0
