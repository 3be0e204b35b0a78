"""`batchyard emulate`, and `batchyard emulate reclaim`."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path

import click

from batchyard.cli.options import example, home_option, memory, print_json
from batchyard.errors import InputError, OperationalError

_DEFAULT_PORT = 4577
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+){1,2}-[0-9]{1,2}")


@click.group(
    invoke_without_command=True,
    epilog=example(
        "batchyard emulate",
        "batchyard emulate --port 0 --runner docker --volume /data:/data:ro",
        "batchyard emulate reclaim 6e1c7e28-1c0d-4a5e-9d7e-2f4b1c3d5e6f:3",
    ),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 chooses a free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; beyond loopback only with --token.",
)
@click.option(
    "--token",
    metavar="SECRET",
    envvar="BATCHYARD_EMULATE_TOKEN",
    help="What clients must have as access key.",
)
@click.option(
    "--runner",
    type=click.Choice(["process", "docker"]),
    default="process",
    show_default=True,
    help="Run jobs as processes, or as containers of their image.",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    metavar="HOST[:CONTAINER][:ro]",
    help="A folder of this machine that every container has; with --runner docker. May be repeated.",
)
@click.option(
    "--cpus",
    type=click.IntRange(1),
    help="vCPUs that jobs may have together; default: this machine's.",
)
@click.option(
    "--memory", callback=memory, metavar="AMOUNT", help="Memory that jobs may have together."
)
@click.option(
    "--gpus", type=click.IntRange(0), help="GPUs; more than there are: the rest are pretended."
)
@click.option(
    "--region", default="us-east-1", show_default=True, help="The region that it pretends to be."
)
@click.option(
    "--faults",
    metavar="KIND=PART,...",
    help="Trouble on purpose: parts of all calls to throttle, error, reset, lose.",
)
@home_option
@click.pass_context
def command(
    ctx: click.Context,
    port: int,
    host: str,
    token: str | None,
    runner: str,
    volumes: tuple[str, ...],
    cpus: int | None,
    memory: int | None,
    gpus: int | None,
    region: str,
    faults: str | None,
    home: str | None,
) -> None:
    """Serve the API of AWS Batch on this machine, and run the jobs here.

    When it is ready it prints the variables that clients need. It serves until it is stopped: start it in one terminal,
    and paste the lines into another.
    """
    if ctx.invoked_subcommand is not None:
        return
    from batchyard.batch.jobs import Resources
    from batchyard.embedded import machine

    _require_extra()
    _require_region(region)
    from batchyard.emulator import server
    from batchyard.emulator.docker_flags import parsed_volumes
    from batchyard.emulator.faults import Faults, Rates

    found = machine.find_gpus()
    count = len(found) if gpus is None else gpus
    pretended = max(0, count - len(found))
    known = [gpu.index for gpu in found[:count]]
    first = max(known, default=-1) + 1
    here = machine.capacity(count)
    setting = server.Setting(
        home=Path(home) if home else Path.cwd() / ".batchyard",
        host=host,
        port=port,
        region=region,
        capacity=Resources(cpus or here.vcpus, memory or here.memory_mib, count),
        gpu_numbers=(*known, *range(first, first + pretended)),
        pretended_gpus=pretended,
        runner=runner,
        token=token,
        faults=Faults(Rates.parsed(faults)) if faults else None,
        volumes=parsed_volumes(volumes),
    )
    if pretended:
        _say(
            f"--gpus {count}, but this machine shows {len(found)}: {pretended} are pretended, and jobs get no GPU there"
        )

    def ready(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            click.echo(f"export {name}={shlex.quote(value)}")
        sys.stdout.flush()
        how = "processes" if runner == "process" else "containers"
        _say(f"jobs run as {how}, together on at most {setting.capacity}; Ctrl-C stops")

    server.serve(setting, os.environ, ready, _say)


@command.command(epilog=example("batchyard emulate reclaim JOB_ID --notice 5"))
@click.argument("job_id", metavar="JOB_ID")
@click.option(
    "--notice",
    type=click.FloatRange(0, 3600),
    default=120,
    show_default=True,
    help="Seconds between notice and end.",
)
@click.option(
    "--endpoint",
    envvar="AWS_ENDPOINT_URL",
    default=f"http://127.0.0.1:{_DEFAULT_PORT}",
    show_default=True,
    help="Address of the emulator.",
)
@click.option(
    "--token",
    metavar="SECRET",
    envvar="BATCHYARD_EMULATE_TOKEN",
    help="The endpoint's token, if it has one.",
)
def reclaim(job_id: str, notice: float, endpoint: str, token: str | None) -> None:
    """Take the host of a running job or child away, as spot does: first the notice, then the end."""
    import http.client
    import json
    import urllib.error
    import urllib.request

    if not endpoint.startswith(("http://", "https://")):
        raise InputError(
            f"--endpoint {endpoint}: this is no address", hint="write it like http://127.0.0.1:4577"
        )
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={token}/-"
    data = json.dumps({"jobId": job_id, "notice": notice}).encode()
    try:
        request = urllib.request.Request(
            f"{endpoint.rstrip('/')}/_batchyard/reclaim", data, headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            print_json(json.load(answer))
    except urllib.error.HTTPError as exc:
        with exc:
            said = exc.read().decode(errors="replace")
        try:
            message = json.loads(said)["message"]
        except (ValueError, KeyError, TypeError):
            raise _not_ours(endpoint, f"answered {exc.code}") from None
        hint = "`aws batch describe-jobs --jobs JOB_ID` says what it is doing"
        if exc.code == http.HTTPStatus.FORBIDDEN:
            hint = "give the endpoint's token with --token, or in BATCHYARD_EMULATE_TOKEN"
        raise InputError(message, hint=hint) from None
    except json.JSONDecodeError:
        raise _not_ours(endpoint, "sent something else than JSON") from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as exc:
        raise OperationalError(
            f"no endpoint answers at {endpoint}: {getattr(exc, 'reason', exc)}",
            hint="start it with `batchyard emulate`, or say where it is with --endpoint",
        ) from None


def _not_ours(endpoint: str, what: str) -> InputError:
    return InputError(
        f"{endpoint} {what}, and is no `batchyard emulate`", hint="say where it is with --endpoint"
    )


def _require_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("moto", "flask", "botocore") if find_spec(name) is None]
    if missing:
        raise OperationalError(
            f"`batchyard emulate` needs {', '.join(missing)}, not installed here",
            hint="in the clone of batchyard: pip install '.[emulator]'",
        )


def _require_region(name: str) -> None:
    """By its form: AWS has more regions each year."""
    if _REGION.fullmatch(name):
        return
    # Without its last dash, in capitals, or with the letter of a zone.
    near = re.sub(r"-?([0-9]{1,2})[a-z]?$", r"-\1", name.lower())
    is_region = _REGION.fullmatch(near)
    hint = (
        f"did you mean {near}?" if is_region else "regions are named like us-east-1 or eu-central-1"
    )
    raise InputError(f"--region {name}: no region has such a name", hint=hint)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
