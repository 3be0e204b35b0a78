"""Other people's clients against a real endpoint. Collected only where this folder is named: `make test-peers`.

They come from PyPI into environments of their own, and the image of their jobs from .ci/peers-image: too slow, and too
much from elsewhere, for a `pytest` of everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The endpoint of the emulator's own tests
sys.path.insert(0, str(HERE.parent / "emulator"))

from emulator_endpoint import Endpoint  # noqa: E402
from peer_clients import IMAGE, CountedCalls, Peer  # noqa: E402

QUEUE = "peers"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in named) else True


@pytest.fixture(scope="session")
def image(docker_engine: None) -> str:
    """The image that jobs of redun and Metaflow run in, made if it is not there."""
    made = subprocess.run([ROOT / ".ci/peers-image"], capture_output=True, text=True, timeout=1200)
    if made.returncode and os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
        pytest.fail(made.stderr)
    if made.returncode:
        pytest.skip(f"no image for their jobs: {made.stderr.strip().splitlines()[-1]}")
    return IMAGE


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Peer]]:
    """Starts an endpoint with a queue and a bucket, and hands out a client from PyPI that knows its address."""
    endpoints: list[Endpoint] = []
    counters: list[CountedCalls] = []

    def start(client: str, runner: str) -> Peer:
        python = Peer.installed(ROOT / ".cache" / "peers" / client, HERE / "requirements" / f"{client}.txt")
        # The programs of the environment, python among them, are what jobs find when they run as processes.
        path = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        size = ("--cpus", "4", "--memory", "16GiB", "--gpus", "0")
        endpoint = Endpoint(tmp_path / "endpoint", "--runner", runner, *size, environ={**path, "TMPDIR": str(tmp_path)})
        endpoints.append(endpoint)
        endpoint.queue(QUEUE, endpoint.environment("cpu"))
        s3 = endpoint.client("s3")
        s3.create_bucket(Bucket="peers")
        # Snakemake's storage removes a bucket that it leaves empty.
        s3.put_object(Bucket="peers", Key="kept", Body=b"")
        counters.append(CountedCalls(endpoint.url))
        folder = tmp_path / client
        folder.mkdir()
        return Peer(endpoint, python, folder, counters[-1], path)

    yield start
    for counter in counters:
        counter.stop()
        # Shown with -rP
        print("operations of Batch that it called:", dict(counter.by_operation.most_common()))
    for endpoint in endpoints:
        endpoint.stop()
