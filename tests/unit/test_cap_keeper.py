"""The function on AWS Lambda that keeps caps: what it counts, sees and may read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import pytest

from batchyard import cfn_yaml
from batchyard import plan as planning
from batchyard.aws import cap_keeper
from batchyard.aws.cap_keeper import SeenHost
from batchyard.cost_cap import Cap
from batchyard.engines.aws import staging
from batchyard.engines.aws.target import Target
from batchyard.environments import Environment
from batchyard.infra import read_template
from batchyard.pipeline import Pipeline, Step

#: 3.6 dollars an hour are 0.001 dollars a second.
CAP = Cap(1.0, rate_usd_h=3.6, host_usd_h=7.2, type_usd_h=(("m5.xlarge", 3.6),))
KEY = "runs/.caps/r-1.json"
NOW_S = 1_000_000.0


def add(known: Mapping[str, Any], now_s: float, spot: float | None = None, **hosts: Any) -> Any:
    seen = {name: SeenHost(*members) for name, members in hosts.items()}
    spot_usd_h = {} if spot is None else dict.fromkeys(seen, spot)
    prices = cap_keeper.find_prices(seen, CAP, spot_usd_h)
    return cap_keeper.add_hosts(known, seen, prices, 500.0, now_s)


def test_hosts_are_counted_as_they_are_paid_for() -> None:
    hosts = add({}, 1010.0, a=("m5.xlarge", 1000.0))
    # From its boot on.
    assert cap_keeper.price_hosts(hosts) == pytest.approx(0.13)
    # A minute at least, and no earlier than the run; an unknown type costs like the dearest.
    hosts = add(hosts, 530.0, b=("odd", 100.0))
    assert cap_keeper.price_hosts(hosts) == pytest.approx(0.13 + 0.12)
    hosts = add(hosts, 700.0, b=("odd", 100.0))
    assert cap_keeper.price_hosts(hosts) == pytest.approx(0.13 + 0.4)


def test_a_host_on_spot_costs_the_price_of_each_minute() -> None:
    hosts = add({}, 680.0, spot=1.8, a=("m5.xlarge", 620.0))
    assert cap_keeper.price_hosts(hosts) == pytest.approx(0.09)
    hosts = add(hosts, 740.0, spot=0.9, a=("m5.xlarge", 620.0))
    assert cap_keeper.price_hosts(hosts) == pytest.approx(0.09 + 0.015)
    # Where EC2 does not tell the price, that on demand counts.
    hosts = add(hosts, 800.0, a=("m5.xlarge", 620.0))
    assert cap_keeper.price_hosts(hosts) == pytest.approx(0.09 + 0.015 + 0.06)


class NoSuchKeyError(Exception):
    pass


class RefusalError(Exception):
    pass


class Account:
    """S3, AWS Batch, ECS and EC2, with one run of one job on one host."""

    def __init__(self, status: str = "RUNNING", market: str = "spot") -> None:
        self.exceptions = type("", (), {"NoSuchKey": NoSuchKeyError, "ClientError": RefusalError})
        self.objects: dict[str, Any] = {
            KEY: {
                "cap": CAP._asdict(),
                "created_s": NOW_S - 600,
                **{name: f"runs/r-1/{name}.json" for name in ("jobs", "held", "stopped")},
                "scales": [],
            },
            "runs/r-1/jobs.json": {"jobs": {"a": {"id": "j-1"}}},
        }
        self.jobs = [
            {
                "jobId": "j-1",
                "status": status,
                "container": {"containerInstanceArn": "arn:aws:ecs:r:1:container-instance/c/1"},
            }
        ]
        self.market = market
        self.ends: list[str] = []
        self.may_ask_ec2 = True

    def look(self, now_s: float = NOW_S) -> str:
        clients = dict.fromkeys(("s3", "batch", "ecs", "ec2"), self)
        return cap_keeper.look_at_runs(clients, "bucket", "", now_s)[KEY]

    # -- S3 --

    def get_object(self, **request: Any) -> Any:
        if request["Key"] not in self.objects:
            raise NoSuchKeyError
        return {"Body": io.BytesIO(json.dumps(self.objects[request["Key"]]).encode())}

    def put_object(self, **request: Any) -> None:
        self.objects[request["Key"]] = json.loads(request["Body"])

    def delete_object(self, **request: Any) -> None:
        del self.objects[request["Key"]]

    def get_paginator(self, operation: str) -> Any:
        return type("", (), {"paginate": lambda _, **request: self._page(operation, request)})()

    def _page(self, operation: str, request: Mapping[str, Any]) -> Iterator[Any]:
        if operation == "list_objects_v2":
            keys = [key for key in self.objects if key.startswith(request["Prefix"])]
            yield {"Contents": [{"Key": key} for key in keys]}
        else:
            assert request["InstanceTypes"] == ["m5.xlarge"]
            entry = {"InstanceType": "m5.xlarge", "AvailabilityZone": "z"}
            old = datetime.fromtimestamp(NOW_S - 9000, UTC)
            new = datetime.fromtimestamp(NOW_S - 60, UTC)
            prices = [{"SpotPrice": "0.9", "Timestamp": new}, {"SpotPrice": "9", "Timestamp": old}]
            yield {"SpotPriceHistory": [entry | price for price in prices]}

    # -- AWS Batch --

    def describe_jobs(self, jobs: list[str]) -> Any:
        return {"jobs": [job for job in self.jobs if job["jobId"] in jobs]}

    def cancel_job(self, **request: Any) -> None:
        self.ends.append(request["jobId"])

    # -- the hosts --

    def describe_container_instances(self, **request: Any) -> Any:
        attributes = [{"name": "ecs.instance-type", "value": "m5.xlarge"}]
        joined = datetime.fromtimestamp(NOW_S - 300, UTC)
        instance = {"ec2InstanceId": "i-1", "attributes": attributes, "registeredAt": joined}
        return {"containerInstances": [instance]}

    def describe_instances(self, **request: Any) -> Any:
        if not self.may_ask_ec2:
            raise RefusalError("UnauthorizedOperation")
        instance = {
            "InstanceId": "i-1",
            "InstanceType": "m5.xlarge",
            "Placement": {"AvailabilityZone": "z"},
        }
        lifecycle = {"InstanceLifecycle": "spot"} if self.market == "spot" else {}
        return {"Reservations": [{"Instances": [instance | lifecycle]}]}


@pytest.mark.parametrize(("market", "usd"), [("spot", 0.105), ("on-demand", 0.42)])
def test_the_market_of_a_host_decides_about_its_price(market: str, usd: float) -> None:
    account = Account(market=market)
    account.look()
    # Seven minutes, with those of its boot.
    assert account.objects[KEY]["hosts"]["i-1"]["usd"] == pytest.approx(usd)


def test_prices_that_may_not_be_asked_are_those_on_demand() -> None:
    account = Account()
    account.may_ask_ec2 = False
    assert account.look() == "go on"
    assert account.objects[KEY]["hosts"]["i-1"]["usd"] == pytest.approx(0.42)


def test_a_run_is_held_at_its_cap() -> None:
    account = Account(market="on-demand")
    assert account.look() == "go on" and not account.ends
    assert account.look(NOW_S + 500) == "hold" and account.ends == ["j-1"]
    assert "max_cost is $1" in account.objects["runs/r-1/held.json"]["reason"]


def test_a_run_whose_jobs_aws_does_not_show_yet_keeps_its_cap() -> None:
    account = Account()
    jobs, account.jobs = account.jobs, []
    assert account.look() == "not shown yet" and KEY in account.objects
    account.jobs = jobs
    assert account.look() == "go on"
    # After a day, AWS has forgotten the job.
    account.jobs = []
    assert account.look(NOW_S + 90_000) == "over" and KEY not in account.objects


def test_a_run_that_is_over_is_forgotten_and_one_that_is_not_submitted_is_kept() -> None:
    account = Account("SUCCEEDED")
    assert account.look() == "over" and KEY not in account.objects
    account = Account()
    del account.objects["runs/r-1/jobs.json"]
    assert account.look() == "not submitted" and KEY in account.objects


class Bucket:
    """Takes the object about the cap of a run."""

    def put(self, address: str, data: bytes, content_type: str = "") -> None:
        self.address, self.document = address, json.loads(data)


def test_the_function_may_find_out_that_its_objects_are_missing() -> None:
    """S3 answers "access denied" instead, to those who may not list the key of a missing object."""
    step = Step("a", None, commands=("true",) * 4, share_out="dynamic", array=2)
    plan = planning.make(Pipeline("p", (step,)))
    environment = Environment("lab", "us-east-1", "bucket")
    target = Target(environment, "p-20260101-abcdef", {}, "s3://bucket/w/", "me")
    bucket = Bucket()
    staging.upload_cap(bucket, CAP, plan, target, NOW_S)  # type: ignore[arg-type]
    document = bucket.document
    keys = [document[name] for name in ("jobs", "held", "stopped")] + document["scales"]
    assert len(keys) == 4
    role = cfn_yaml.load(read_template("caps"))["Resources"]["KeeperRole"]["Properties"]
    statements = {
        statement["Sid"]: statement
        for statement in role["Policies"][0]["PolicyDocument"]["Statement"]
    }
    patterns = statements["FindCaps"]["Condition"]["StringLike"]["s3:prefix"]
    folder = bucket.address.removeprefix("s3://bucket/").rpartition("/")[0] + "/"
    for key in [folder, *keys]:
        assert any(fnmatchcase(key, pattern) for pattern in patterns), key
