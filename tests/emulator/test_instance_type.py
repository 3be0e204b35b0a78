"""The instance type in a job's metadata service: a type of its compute environment that fits."""

from __future__ import annotations

import json

import pytest
from emulator_endpoint import Endpoint
from gates import no_traceback

#: asks as the worker and other people's programs do: a token first
ASK = (
    "python3",
    "-c",
    """
import json, os, urllib.request
base = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "/latest/"
ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
ask = urllib.request.Request(base + "api/token", method="PUT", headers=ttl)
token = {"X-aws-ec2-metadata-token": urllib.request.urlopen(ask).read().decode()}
def get(path):
    request = urllib.request.Request(base + path, headers=token)
    return urllib.request.urlopen(request).read().decode()
identity = json.loads(get("dynamic/instance-identity/document"))
types = [get("meta-data/instance-type"), identity["instanceType"]]
print(json.dumps([*types, identity["architecture"]]))
""",
)


def told(endpoint: Endpoint, queue: str, child: str = "", **asks: int) -> list[str]:
    """What a job that asks for so much finds."""
    definition = endpoint.definition("asks", *ASK, **asks)
    members = {"arrayProperties": {"size": 2}} if child else {}
    job_id = endpoint.submit(definition, queue, **members)
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    (line,) = endpoint.output(job_id + child)
    types: list[str] = json.loads(line)
    return types


@pytest.mark.parametrize(
    ("name", "types", "asks", "kind", "architecture"),
    [
        ("one", ("c6i.xlarge",), {}, "c6i.xlarge", "x86_64"),
        ("some", ("c6i.4xlarge", "c6i.large", "c6i.xlarge"), {"vcpus": 3}, "c6i.xlarge", "x86_64"),
        ("roomy", ("c6i.large", "r6i.large"), {"memory_mib": 8192}, "r6i.large", "x86_64"),
        ("family", ("m6i",), {"vcpus": 4}, "m6i.xlarge", "x86_64"),
        ("arm", ("default_arm64",), {}, "c6g.medium", "arm64"),
        ("gpu", ("m6i", "g5"), {"gpus": 1}, "g5.xlarge", "x86_64"),
        ("spare", ("g5", "m6i"), {}, "m6i.large", "x86_64"),
    ],
)
def test_the_smallest_that_the_job_fits(
    endpoint: Endpoint,
    name: str,
    types: tuple[str, ...],
    asks: dict[str, int],
    kind: str,
    architecture: str,
) -> None:
    queue = endpoint.queue(name, endpoint.environment(name, types=types))
    assert told(endpoint, queue, **asks) == [kind, kind, architecture]


def test_a_child_of_an_array_and_the_second_of_two_environments(endpoint: Endpoint) -> None:
    small = endpoint.environment("too-small", types=("c6i.large",))
    queue = endpoint.queue("two", small, endpoint.environment("large", types=("c6i.2xlarge",)))
    assert told(endpoint, queue, ":1", vcpus=4) == ["c6i.2xlarge", "c6i.2xlarge", "x86_64"]
    assert told(endpoint, queue)[0] == "c6i.large"


def test_where_nobody_knows_it_is_what_it_always_was(endpoint: Endpoint) -> None:
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="own",
        type="UNMANAGED",
        serviceRole="arn:aws:iam::123456789012:role/batch",
    )
    assert told(endpoint, endpoint.queue("own", "own"))[0] == "m6i.large"


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
