"""A wrong key, and trouble on purpose: the endpoint refuses in the form that the clients of each
service read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from emulator_endpoint import Endpoint
from site_of_stacks import Site

from batchyard.aws.session import THROTTLED

#: (service, operation, its members): the forms in which errors come
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("batch", "describe_jobs", {"jobs": ["x"]}),
    ("logs", "describe_log_groups", {}),
    ("s3", "list_objects_v2", {"Bucket": "x"}),
    ("ec2", "describe_vpcs", {}),
    ("sts", "get_caller_identity", {}),
    ("cloudformation", "list_stacks", {}),
]


def refused(
    endpoint: Endpoint, service: str, operation: str, members: dict[str, Any], key: str
) -> tuple[str, str]:
    """The error's code and message, as boto3 reads them."""
    client = boto3.client(
        service,
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ClientError) as caught:
        getattr(client, operation)(**members)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_a_wrong_key(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path / "endpoint", "--cpus", "1", "--token", "sesame")
    try:
        for one in ASKED:
            code, message = refused(endpoint, *one, key="wrong")
            assert (code, message) == (
                "UnrecognizedClientException",
                "the access key is not this endpoint's token",
            )
        site = Site(endpoint, tmp_path)
        wrong = {**endpoint.environ, "AWS_ACCESS_KEY_ID": "wrong"}
        for words in (
            ("deploy", "--yes"),
            ("diff",),
            ("outputs",),
            ("destroy", "--yes"),
            ("run", "p.txt"),
        ):
            more = ("--engine", "aws", "--image", "x") if words[0] == "run" else ()
            (tmp_path / "p.txt").write_text("true\n")
            said = site.about(*words, *more, environ=wrong, code=3).stderr
            assert (
                "AWS does not know these credentials: the access key is not this endpoint's token"
                in said
            )
            assert "check AWS_PROFILE, AWS_ACCESS_KEY_ID" in said
        said = site("emulate", "reclaim", "x", environ=wrong, code=2).stderr
        assert "not this endpoint's token" in said and "--token" in said
        # With the right one it is let in.
        assert "nothing of environment" in site.about("outputs", code=2).stderr
    finally:
        endpoint.stop()


@pytest.mark.slow
def test_trouble_on_purpose(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path / "always", "--cpus", "1", "--faults", "throttle=1")
    try:
        for one in ASKED:
            code, message = refused(endpoint, *one, key="batchyard")
            # Each service has its own word for it.
            assert code in THROTTLED and "injected by --faults" in message
    finally:
        endpoint.stop()
    endpoint = Endpoint(tmp_path / "sometimes", "--cpus", "1", "--faults", "throttle=0.3,error=0.1")
    try:
        # It is asked again, as AWS wants it, until there is an answer.
        assert "nothing of environment" in Site(endpoint, tmp_path).about("outputs", code=2).stderr
    finally:
        endpoint.stop()
