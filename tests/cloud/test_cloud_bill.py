"""The bill of a run on the endpoint, with prices that the test sets, against a simple oracle."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from cloud_lab import BUCKET, ENVIRONMENTS, Lab, calls, until
from emulator_endpoint import BATCHYARD
from test_cloud_forgotten import forget

import prestarted

pytestmark = pytest.mark.usefixtures("calm")

#: Two children of `shared` fit on one m5.xlarge. `flaky` fails once, on demand, on another type.
#: `taken` loses its first host.
PIPELINE = """\
name: billed
image: busybox
steps:
  - {name: shared, array: 4, cpus: 2, memory: 1GiB, command: sleep 1}
  - {name: flaky, queue: bill-steady, cpus: 1, memory: 4GiB, retries: 1,
     command: 'sleep 0.5; test $AWS_BATCH_JOB_ATTEMPT -gt 1'}
  - {name: taken, cpus: 4, memory: 1GiB, retries: 1,
     command: 'test $AWS_BATCH_JOB_ATTEMPT -gt 1 || sleep 600'}
"""
#: dollars per second: an error of ten milliseconds is less than a cent
SPOT_USD_H = (360.0, 720.0)
ON_DEMAND_USD_H = {"m5.xlarge": 1800.0, "c5.2xlarge": 1080.0}

#: Prints a bill with the prices of the test. Arguments: folder, run, time of the price change.
PROGRAM = f"""
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from batchyard import operations
from batchyard.cost.run_bill import bill_so_far
from batchyard.errors import OperationalError

class Prices:
    region = "us-east-1"
    def spot_history(self, types, start, end):
        if not changed_s:
            raise OperationalError("EC2 has forgotten")
        times = (datetime.fromtimestamp(time_s, UTC) for time_s in (0, changed_s))
        return [
            dict(InstanceType=name, AvailabilityZone=zone, Timestamp=time, SpotPrice=str(price))
            for time, price in zip(times, {SPOT_USD_H})
            for name in types
            for zone in ("us-east-1a", "us-east-1b")
        ]
    def linux_products(self, name):
        price = {{"USD": str({ON_DEMAND_USD_H}[name])}}
        dimension = {{"unit": "Hrs", "pricePerUnit": price}}
        term = {{"priceDimensions": {{"y": dimension}}}}
        return [json.dumps({{"terms": {{"OnDemand": {{"x": term}}}}}})]

home, run, changed_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
record = operations.find_run(home, run, "lab")
print(json.dumps(bill_so_far(record, record.open(), Prices()).to_json()))
"""


def bill_of(lab: Lab, run: str, changed_s: float, home: str = ".batchyard") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(lab.folder / home), run, str(changed_s)],
        cwd=lab.folder,
        env=lab.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def submit(lab: Lab) -> str:
    """Submit the pipeline, and take the first host of `taken` away."""
    endpoint = lab.endpoint
    spot = {"type": "SPOT", "spotIamFleetRole": "fleet"}
    endpoint.queue("bill-spot", endpoint.environment("bill-spot", types=("m5.xlarge",), **spot))
    endpoint.queue("bill-steady", endpoint.environment("bill-steady", types=("c5.2xlarge",)))
    queues = "{cpu: bill-spot, cpu_on_demand: bill-steady}"
    lines = ENVIRONMENTS.splitlines()
    text = "\n".join([*lines[:-1], f"    queues: {queues}", ""])
    lab.write(".batchyard/environments.yaml", text)
    lab.write("other/environments.yaml", text)
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run("--detach")
    answer = endpoint.batch.list_jobs(
        jobQueue="bill-spot", filters=[{"name": "JOB_NAME", "values": [f"{run}-taken"]}]
    )
    job_id = answer["jobSummaryList"][0]["jobId"]
    endpoint.wait(job_id, "RUNNING")
    prestarted.run(
        [BATCHYARD, "emulate", "reclaim", job_id, "--notice", "0"],
        env=endpoint.environ,
        check=True,
        timeout=300,
    )
    return run


class Oracle:
    """Adds up the dollars of each millisecond of each host."""

    def __init__(self, usage: Any, changed_s: float) -> None:
        self.usd: Counter[str] = Counter()
        for number, host in enumerate(usage["hosts"]):
            uses = [use for use in usage["uses"] if use[0] == number]
            self._add_host(host, uses, usage["kinds"], changed_s)

    def _add_host(self, host: Any, uses: list[Any], kinds: list[Any], changed_s: float) -> None:
        start_s, size = host["launched_s"], host["capacity"]
        lifetime_s = host["ended_s"] - start_s
        is_free = host["was_reclaimed"] and lifetime_s < 3600
        for millisecond in range(round(max(60, lifetime_s) * 1000)):
            time_s = start_s + (millisecond + 0.5) / 1000
            usd_h = ON_DEMAND_USD_H[host["type"]]
            if host["is_spot"]:
                usd_h = 0 if is_free else SPOT_USD_H[time_s >= changed_s]
            self._add(uses, kinds, size, time_s, usd_h / 3_600_000)

    def _add(self, uses: list[Any], kinds: list[Any], size: Any, time_s: float, usd: float) -> None:
        shares: Counter[str] = Counter()
        for _, kind, _, _, begin_s, end_s, counts, _ in uses:
            _, vcpus, memory_mib, _ = kinds[kind]
            if begin_s <= time_s < end_s:
                share = max(vcpus / size["vcpus"], memory_mib / size["memory_mib"])
                shares["used" if counts else "lost"] += share  # type: ignore[assignment]
        assert sum(shares.values()) <= 1
        for word, share in shares.items():
            self.usd[word] += share * usd  # type: ignore[assignment]
        self.usd["idle"] += (1 - sum(shares.values())) * usd  # type: ignore[assignment]


def lanes_of(lab: Lab, run: str) -> dict[str, int]:
    """Return id of a host -> attempts in its lane of the report."""
    lab("report", run, "--out", "report.html")
    report = (lab.folder / "report.html").read_text()
    titles = re.findall(r"<title>(i-[0-9a-f]+) [a-z0-9.]+: (\d+) attempts?, ", report)
    return {host: int(count) for host, count in titles}


@pytest.mark.slow
def test_the_bill_is_right_to_the_cent_and_the_same_elsewhere_and_later(lab: Lab) -> None:
    run = submit(lab)
    assert "SUCCEEDED" in lab("status", run, "--watch").stdout
    # Without prices of AWS, those of the dated list count. The hosts end a moment after the run.
    until(lambda: lab.json("cost", run)["is_final"])
    folder = lab.folder / ".batchyard" / "runs" / run
    usage = json.loads((folder / "usage.json").read_text())["usage"]
    changed_s = min(host["launched_s"] for host in usage["hosts"]) + 20
    bill = bill_of(lab, run, changed_s)

    assert {(host["type"], host["market"]) for host in bill["hosts"]} == {
        ("m5.xlarge", "spot"),
        ("c5.2xlarge", "on-demand"),
    }
    assert [host["was_reclaimed"] for host in bill["hosts"]].count(True) == 1
    hosts_of_shared = Counter(
        use[0] for use in usage["uses"] if usage["kinds"][use[1]][0] == "shared"
    )
    assert max(hosts_of_shared.values()) >= 2, "two children share a host"
    lost_steps = {step["step"] for step in bill["steps"] if step["lost_s"]}
    assert lost_steps == {"flaky", "taken"}
    # The attempt that was lost with its host cost nothing: EC2 took the host in its first hour.
    by_step = {step["step"]: step for step in bill["steps"]}
    assert by_step["taken"]["lost_usd"] == 0 and by_step["flaky"]["lost_usd"] > 0
    oracle = Oracle(usage, changed_s).usd
    for word in ("used", "idle", "lost"):
        assert bill[f"{word}_usd"] == pytest.approx(oracle[word], abs=0.01), word
    assert bill["paid_usd"] == pytest.approx(oracle.total(), abs=0.01)
    assert bill["saved_usd"] > 0 and not bill["unknown"]

    # The report has a lane for each host.
    lanes = lanes_of(lab, run)
    assert lanes.keys() == {host["id"] for host in usage["hosts"]}
    assert sum(lanes.values()) == len(usage["uses"])

    # A week later, from another machine: AWS Batch knows no job, and EC2 no price.
    for name in ("final.json", "usage.json"):
        (folder / name).unlink()
    forget(lab, run)
    assert bill_of(lab, run, 0.0, "other") == bill


@pytest.mark.slow
def test_a_plain_status_makes_no_more_calls_and_shows_what_is_recorded(lab: Lab) -> None:
    lab.endpoint.queue("seen", lab.endpoint.environment("seen", 16, types=("m5.xlarge",)))
    lab.write(
        "pipeline.yaml",
        "name: seen\nimage: busybox\nsteps:\n"
        "  - {name: a, memory: 64MiB, queue: seen, array: 3, commands: [sleep 1, sleep 1, pwd]}\n",
    )
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    assert "cost: $" in done.stdout
    run = lab.json("status", "last")["run"]
    before = calls(lab.endpoint)
    assert "cost: $" in lab("status", run).stdout
    assert calls(lab.endpoint) - before == Counter()
    # The worker has recorded its host, too.
    s3 = lab.endpoint.client("s3")
    answer = s3.get_object(Bucket=BUCKET, Key=f"team/runs/{run}/done/a/0000000")
    host = json.loads(answer["Body"].read())["host"]
    hosts = lab.json("cost", run)["hosts"]
    assert host["id"] in {entry["id"] for entry in hosts} and not host["is_spot"]


def test_the_cost_is_estimated_with_the_types_of_the_queue_before_a_run(lab: Lab) -> None:
    lab.endpoint.queue("known", lab.endpoint.environment("known", 16, types=("m5.xlarge",)))
    lab.write(
        "pipeline.yaml",
        "name: before\nimage: busybox\nsteps:\n"
        "  - {name: a, memory: 64MiB, queue: known, command: 'true', EXPECT}\n",
    )
    text = (lab.folder / "pipeline.yaml").read_text()
    lab.write("pipeline.yaml", text.replace(", EXPECT", ""))
    aws = ("pipeline.yaml", "--engine", "aws", "--env", "lab")
    # 4 instances with 4 vCPUs each
    fleet = "unknown for a; an hour of the fleet at full size: $0.2596 on spot"
    assert fleet in lab("plan", *aws).stdout
    lab.write("pipeline.yaml", text.replace("EXPECT", "expect: 3m"))
    cost = lab.json("plan", *aws)["cost"]
    assert cost["steps"][0]["type"] == "m5.xlarge" and cost["steps"][0]["median_s"] == 180
    done = lab("run", *aws)
    assert "note: estimated cost: $" in done.stderr and "on m5.xlarge)" in done.stderr
    # The run tells more than its file.
    assert lab.json("plan", *aws)["cost"]["steps"][0]["earlier_commands"] == 1


@pytest.mark.slow
def test_a_run_on_an_ecs_cluster_has_a_bill_too(lab: Lab) -> None:
    ecs, ec2 = lab.endpoint.client("ecs"), lab.endpoint.client("ec2")
    ecs.create_cluster(clusterName="billed")
    answer = ec2.run_instances(
        ImageId="ami-12c6146b",
        InstanceType="m5.xlarge",
        MinCount=1,
        MaxCount=1,
        UserData="#!/bin/bash\necho ECS_CLUSTER=billed >> /etc/ecs/ecs.config\n",
    )
    (instance,) = answer["Instances"]
    until(lambda: ecs.list_container_instances(cluster="billed")["containerInstanceArns"])
    lab.write(
        ".batchyard/environments.yaml",
        ENVIRONMENTS + "  billed: {region: us-east-1, bucket: lab-runs, cluster: billed}\n",
    )
    lab.write(
        "pipeline.yaml",
        "name: tasks\nimage: busybox\nsteps:\n"
        "  - {name: a, memory: 64MiB, cpus: 2, array: 2, command: sleep 1}\n"
        "  - {name: b, memory: 64MiB, needs: [a], retries: 1,"
        " command: 'test $AWS_BATCH_JOB_ATTEMPT -gt 1'}\n",
    )
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "billed", "--max-cost", "50")
    assert "cost: $" in done.stdout
    # Caps that are reached are in test_ecs_caps.py.
    assert "max_cost $50: it is kept by the process that executes the run" in done.stderr
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    bill = until(lambda: lab.json("cost", "last"), lambda bill: bill["is_final"])
    (host,) = bill["hosts"]
    assert (host["id"], host["type"]) == (instance["InstanceId"], "m5.xlarge")
    assert host["market"] == "on-demand" and host["ended_s"] is not None
    assert bill["paid_usd"] == pytest.approx(0.192 / 3600 * max(60, host["paid_s"]))
    used, lost = ({step["step"]: step[f"{word}_s"] for step in bill["steps"]} for word in WORDS)
    assert used["a"] >= 2 and lost["a"] == 0 and lost["b"] > 0
    assert lanes_of(lab, "last") == {host["id"]: 4}


WORDS = ("used", "lost")
