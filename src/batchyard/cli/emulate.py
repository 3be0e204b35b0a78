"""`batchyard emulate`, and `batchyard emulate reclaim`."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path

import click

from batchyard.cli.options import example, home_option_for, memory, print_json
from batchyard.errors import InputError, OperationalError

_DEFAULT_PORT = 4577


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
    metavar="N",
    default=_DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 chooses a free port.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; an address beyond loopback needs --token.",
)
@click.option(
    "--token",
    metavar="SECRET",
    envvar="BATCHYARD_EMULATE_TOKEN",
    help="Access key that clients must use (default: $BATCHYARD_EMULATE_TOKEN, or none).",
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
    help="With --runner docker: mount a folder or file of this machine in every container. May be"
    " repeated.",
)
@click.option(
    "--cpus",
    type=click.IntRange(1),
    metavar="N",
    help="vCPUs that all jobs share (default: all of this machine).",
)
@click.option(
    "--memory",
    callback=memory,
    metavar="AMOUNT",
    help="Memory that all jobs share (default: all of this machine).",
)
@click.option(
    "--gpus",
    type=click.IntRange(0),
    metavar="N",
    help="GPUs that all jobs share (default: all of this machine); missing GPUs are emulated.",
)
@click.option(
    "--region",
    metavar="NAME",
    default="us-east-1",
    show_default=True,
    help="Default region. The endpoint serves all regions.",
)
@click.option(
    "--job-region/--no-job-region",
    default=False,
    show_default=True,
    help="Set AWS_REGION and AWS_DEFAULT_REGION in jobs. ECS agents before 1.104 set neither.",
)
@click.option(
    "--faults",
    metavar="KIND=VALUE,...",
    help="Inject faults, like throttle=0.3,lose@SubmitJob=0.05,list-lag=2. Kinds with a share of"
    " the calls (0 to 1, or Nx for the next N calls): throttle, error, reset, lose, cut, expire."
    " Kinds in seconds: describe-lag, list-lag, log-lag, event-lag, burst, credentials. Also:"
    " drop-logs=SHARE and seed=N.",
)
@click.option(
    "--launch-delay",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    default=0.0,
    show_default=True,
    help="Time from the launch of an instance until jobs start on it.",
)
@click.option(
    "--idle-delay",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time after which an instance without jobs ends.",
)
@click.option(
    "--reclaims",
    type=click.FloatRange(0),
    metavar="RATE",
    default=0.0,
    show_default=True,
    help="Reclaim Spot instances at random: so many reclaims a minute for each instance.",
)
@click.option(
    "--reclaim-notice",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    help="Time between the notice and the end of an instance, with --reclaims.",
)
@home_option_for(
    "Folder of the state, which is in DIR/emulator (default: $BATCHYARD_HOME, or .batchyard here)."
)
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
    job_region: bool,
    faults: str | None,
    launch_delay: float,
    idle_delay: float,
    reclaims: float,
    reclaim_notice: float,
    home: str | None,
) -> None:
    """Serve the API of AWS Batch on this machine, and run the jobs here.

    When the endpoint is ready, it prints the environment variables that clients need, as lines for
    a shell. Paste them into another terminal. The endpoint serves until Ctrl-C.
    """
    if ctx.invoked_subcommand is not None:
        return
    from batchyard.batch.jobs import Resources
    from batchyard.embedded import machine

    _require_extra()
    _require_region(region)
    from batchyard.emulator import server
    from batchyard.emulator.docker_flags import parse_volumes
    from batchyard.emulator.faults import FaultSettings
    from batchyard.emulator.reclaims import RandomReclaims
    from batchyard.emulator.state import HostDelays

    machine_gpus = machine.find_gpus()
    gpu_count = len(machine_gpus) if gpus is None else gpus
    emulated_gpus = max(0, gpu_count - len(machine_gpus))
    real_numbers = [gpu.index for gpu in machine_gpus[:gpu_count]]
    first_emulated = max(real_numbers, default=-1) + 1
    default = machine.measure_capacity(gpu_count)
    options = server.EndpointOptions(
        home=Path(home) if home else Path.cwd() / ".batchyard",
        host=host,
        port=port,
        region=region,
        capacity=Resources(cpus or default.vcpus, memory or default.memory_mib, gpu_count),
        gpu_numbers=(*real_numbers, *range(first_emulated, first_emulated + emulated_gpus)),
        emulated_gpus=emulated_gpus,
        runner=runner,
        token=token,
        has_job_region=job_region,
        faults=FaultSettings.parse(faults or ""),
        volumes=parse_volumes(volumes),
        host_delays=HostDelays(launch_delay, idle_delay),
        random_reclaims=RandomReclaims(reclaims, reclaim_notice) if reclaims else None,
    )
    if emulated_gpus:
        _print_event(
            f"--gpus {gpu_count}: this machine has {len(machine_gpus)} GPUs; "
            f"{emulated_gpus} are emulated, and jobs on them find no GPU"
        )

    def on_ready(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            click.echo(f"export {name}={shlex.quote(value)}")
        sys.stdout.flush()
        children = "processes" if runner == "process" else "containers"
        _print_event(
            f"jobs run as {children} and share at most {options.capacity}; press Ctrl-C to stop"
        )

    server.serve(options, os.environ, on_ready, _print_event)


@command.command(epilog=example("batchyard emulate reclaim JOB_ID --notice 5"))
@click.argument("job_id", metavar="JOB_ID")
@click.option(
    "--notice",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    default=120,
    show_default=True,
    help="Time between the notice and the end of the host.",
)
@click.option(
    "--endpoint",
    envvar="AWS_ENDPOINT_URL",
    metavar="URL",
    default=f"http://127.0.0.1:{_DEFAULT_PORT}",
    show_default=True,
    help="Address of the endpoint; also AWS_ENDPOINT_URL.",
)
@click.option(
    "--token",
    metavar="SECRET",
    envvar="BATCHYARD_EMULATE_TOKEN",
    help="Token of the endpoint, if it has one (default: $BATCHYARD_EMULATE_TOKEN).",
)
def reclaim(job_id: str, notice: float, endpoint: str, token: str | None) -> None:
    """Reclaim the host of a running job, child or ECS task, as EC2 Spot does: a notice, then the
    end. An ECS task is named by its id or ARN."""
    import http.client
    import json
    import urllib.error
    import urllib.request

    if not endpoint.startswith(("http://", "https://")):
        raise InputError(
            f"--endpoint {endpoint} is not a URL", hint="write it like http://127.0.0.1:4577"
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
            body = exc.read().decode(errors="replace")
        try:
            message = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError):
            raise _wrong_endpoint(endpoint, f"answered {exc.code}") from None
        hint = "`aws batch describe-jobs --jobs JOB_ID` shows the status of the job"
        if exc.code == http.HTTPStatus.FORBIDDEN:
            hint = "give the token of the endpoint with --token or BATCHYARD_EMULATE_TOKEN"
        raise InputError(message, hint=hint) from None
    except json.JSONDecodeError:
        raise _wrong_endpoint(endpoint, "did not answer with JSON") from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as exc:
        raise OperationalError(
            f"no endpoint answers at {endpoint}: {getattr(exc, 'reason', exc)}",
            hint="start it with `batchyard emulate`, or give its address with --endpoint",
        ) from None


def _wrong_endpoint(endpoint: str, answer: str) -> InputError:
    return InputError(
        f"{endpoint} {answer}, so it is not a `batchyard emulate`",
        hint="give the address of the endpoint with --endpoint",
    )


def _require_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("moto", "flask", "botocore") if find_spec(name) is None]
    if missing:
        raise OperationalError(
            f"`batchyard emulate` needs {', '.join(missing)}, which is not installed",
            hint="in the clone of batchyard: pip install '.[emulator]'",
        )


def _require_region(name: str) -> None:
    """Raise InputError if the name does not look like a region. No list: AWS adds regions."""
    from batchyard.emulator.names import is_region

    if is_region(name):
        return
    # Common mistakes: no dash before the number, capitals, the letter of a zone.
    suggestion = re.sub(r"-?([0-9]{1,2})[a-z]?$", r"-\1", name.lower())
    if is_region(suggestion):
        hint = f"did you mean {suggestion}?"
    else:
        hint = "regions are named like us-east-1 or eu-central-1"
    raise InputError(f"--region {name} is not the name of a region", hint=hint)


def _print_event(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
