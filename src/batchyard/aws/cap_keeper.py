"""A function on AWS Lambda that keeps the caps of runs while no command watches them.

It is called every minute. A run with a cap has an object in `runs/.caps/`. The function finds the
hosts on which children of the run are, adds up what they have cost, and does what ``decide`` says.
A host on spot costs the spot price of the minute; where EC2 does not tell it, that on demand.
`infra.inline` puts cost_cap.py and this module into the template `caps`, so it imports nothing else
of ours.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from batchyard.cost_cap import Cap, CapAction, Decision, decide

#: The function is called so often.
LOOK_S = 60.0
#: Seconds of a host before it joins its cluster, which are paid for.
BOOT_S = 120.0
_MIN_PAID_S = 60.0
_MAX_DESCRIBED = 100
#: AWS Batch remembers a job for at least so long.
_SHOWN_S = 86_400.0
_SECONDS_OF_HOUR = 3600
_FOLDER = "runs/.caps/"


def handler(event: object, context: object) -> dict[str, str]:
    """Look at each run that has a cap. A run that cannot be looked at does not stop the others."""
    import boto3

    clients = {name: boto3.client(name) for name in ("s3", "batch", "ecs", "ec2")}
    return look_at_runs(clients, os.environ["BUCKET"], os.environ.get("PREFIX", ""), time.time())


def look_at_runs(
    clients: Mapping[str, Any], bucket: str, prefix: str, now_s: float
) -> dict[str, str]:
    """Return the key of each run's object -> what was done, in a few words."""
    store = JsonStore(clients["s3"], bucket)
    results = {}
    for key in store.list_keys(prefix + _FOLDER):
        try:
            results[key] = _look_at_run(clients, store, key, now_s)
        except Exception as exc:  # any fault of one run is shown, and the next run is looked at
            results[key] = f"{type(exc).__name__}: {exc}"
    print(json.dumps(results))
    return results


def _look_at_run(clients: Mapping[str, Any], store: JsonStore, key: str, now_s: float) -> str:
    run = store.read(key)
    submitted = store.read(run["jobs"])
    if submitted is None:
        return "not submitted"
    job_ids = [entry["id"] for entry in submitted["jobs"].values()]
    jobs = _describe(clients["batch"], job_ids)
    unfinished = [job for job in jobs if job["status"] not in ("SUCCEEDED", "FAILED")]
    if not unfinished:
        # AWS does not show a job in its first seconds, and forgets it after days.
        if len(jobs) < len(set(job_ids)) and now_s - run["created_s"] < _SHOWN_S:
            return "not shown yet"
        store.delete(key)
        return "over"
    cap = Cap(**run["cap"])
    hosts = _describe_hosts(clients["ecs"], _find_instances(clients["batch"], unfinished))
    prices = find_prices(hosts, cap, _find_spot_prices(clients["ec2"], hosts, now_s))
    run["hosts"] = add_hosts(run.get("hosts", {}), hosts, prices, run["created_s"], now_s)
    store.write(key, run)
    decision = decide(cap, price_hosts(run["hosts"]), min_look_s=LOOK_S, max_look_s=LOOK_S)
    if decision.action in (CapAction.HOLD, CapAction.STOP):
        _end_run(clients["batch"], store, run, unfinished, decision)
    return decision.action.value


class SeenHost(NamedTuple):
    """A host on which children are now."""

    type: str
    #: When it joined its cluster.
    joined_s: float


def find_prices(
    hosts: Mapping[str, SeenHost], cap: Cap, spot_usd_h: Mapping[str, float]
) -> dict[str, float]:
    """Return id -> price of an hour now. Pure.

    ``spot_usd_h``: the same of hosts on spot, as far as it is known. A host of an unknown type
    costs as much as the dearest.
    """
    on_demand = dict(cap.type_usd_h)
    return {
        host_id: spot_usd_h.get(host_id, on_demand.get(host.type, cap.host_usd_h))
        for host_id, host in hosts.items()
    }


def add_hosts(
    known: Mapping[str, Any],
    seen: Mapping[str, SeenHost],
    prices: Mapping[str, float],
    created_s: float,
    now_s: float,
) -> dict[str, Any]:
    """Return the hosts of a run by id, with what they have cost until now. Pure.

    The time since the last look costs what ``prices`` says, by id. A host is paid for from its
    boot on.
    """
    hosts = dict(known)
    for host_id, host in seen.items():
        start_s = max(created_s, host.joined_s - BOOT_S)
        entry = hosts.get(host_id, {"usd": 0.0, "until_s": start_s})
        usd_h = prices[host_id]
        usd = entry["usd"] + max(0.0, now_s - entry["until_s"]) * usd_h / _SECONDS_OF_HOUR
        hosts[host_id] = {"type": host.type, "usd": usd, "usd_h": usd_h, "until_s": now_s}
    return hosts


def price_hosts(hosts: Mapping[str, Any]) -> float:
    """Return what the hosts have cost, each a minute at least. Pure."""
    least_h = _MIN_PAID_S / _SECONDS_OF_HOUR
    return float(sum(max(host["usd"], least_h * host["usd_h"]) for host in hosts.values()))


def _find_spot_prices(ec2: Any, hosts: Mapping[str, SeenHost], now_s: float) -> dict[str, float]:
    """Return id -> price of an hour now, of hosts on spot whose price EC2 tells."""
    try:
        places = _find_spot_places(ec2, list(hosts))
        types = sorted({kind for kind, _ in places.values()})
        history = (
            [
                entry
                for page in ec2.get_paginator("describe_spot_price_history").paginate(
                    InstanceTypes=types,
                    ProductDescriptions=["Linux/UNIX"],
                    StartTime=datetime.fromtimestamp(now_s, UTC),
                )
                for entry in page["SpotPriceHistory"]
            ]
            if types
            else []
        )
    except ec2.exceptions.ClientError as exc:
        # On-demand prices are higher: the cap is kept, only earlier.
        print(f"on-demand prices count for all hosts: {exc}")
        return {}
    history.sort(key=lambda entry: entry["Timestamp"])
    prices = {
        (entry["InstanceType"], entry["AvailabilityZone"]): float(entry["SpotPrice"])
        for entry in history
    }
    return {host_id: prices[place] for host_id, place in places.items() if place in prices}


def _find_spot_places(ec2: Any, host_ids: list[str]) -> dict[str, tuple[str, str]]:
    """Return id -> type and zone, of the hosts that are on spot."""
    instances = [
        instance
        for group in _split(sorted(host_ids))
        for reservation in ec2.describe_instances(
            Filters=[{"Name": "instance-id", "Values": group}]
        )["Reservations"]
        for instance in reservation["Instances"]
    ]
    return {
        instance["InstanceId"]: (
            instance["InstanceType"],
            instance["Placement"]["AvailabilityZone"],
        )
        for instance in instances
        if instance.get("InstanceLifecycle") == "spot"
    }


def _find_instances(batch: Any, jobs: Iterable[Any]) -> dict[str, set[str]]:
    """Return cluster -> container instances on which children of the jobs are."""
    children = []
    for job in jobs:
        if not job.get("arrayProperties", {}).get("size"):
            children.append(job)
            continue
        child_ids = [
            child["jobId"]
            for state in ("STARTING", "RUNNING")
            for page in batch.get_paginator("list_jobs").paginate(
                arrayJobId=job["jobId"], jobStatus=state
            )
            for child in page["jobSummaryList"]
        ]
        children += _describe(batch, child_ids)
    instances: dict[str, set[str]] = {}
    for child in children:
        arn = child.get("container", {}).get("containerInstanceArn")
        if arn and child["status"] in ("STARTING", "RUNNING"):
            instances.setdefault(arn.split("/")[-2], set()).add(arn)
    return instances


def _describe_hosts(ecs: Any, instances: Mapping[str, set[str]]) -> dict[str, SeenHost]:
    hosts = {}
    for cluster, arns in instances.items():
        for group in _split(sorted(arns)):
            answer = ecs.describe_container_instances(cluster=cluster, containerInstances=group)
            for instance in answer["containerInstances"]:
                attributes = {
                    entry["name"]: entry.get("value", "")
                    for entry in instance.get("attributes", ())
                }
                joined = instance.get("registeredAt")
                hosts[instance["ec2InstanceId"]] = SeenHost(
                    attributes.get("ecs.instance-type", ""),
                    joined.timestamp() if joined else 0.0,
                )
    return hosts


def _end_run(
    batch: Any, store: JsonStore, run: Mapping[str, Any], jobs: list[Any], decision: Decision
) -> None:
    """Let nothing more start, or end the run. First the record of it, which explains the ends."""
    is_stop = decision.action is CapAction.STOP
    for key in (run["held"], *([run["stopped"]] if is_stop else [])):
        if store.read(key) is None:
            store.write(key, {"reason": decision.reason})
    for key in run["scales"]:
        scale = store.read(key) or {"format": 1, "added": [], "token": "cap"}
        if scale.get("children") != []:
            store.write(key, {**scale, "children": [], "has_dependents": False})
    end = batch.terminate_job if is_stop else batch.cancel_job
    # The last first, so that no job fails for the end of one that it waits for.
    for job in reversed(jobs):
        end(jobId=job["jobId"], reason=decision.reason)


def _describe(batch: Any, job_ids: list[str]) -> list[Any]:
    return [job for group in _split(job_ids) for job in batch.describe_jobs(jobs=group)["jobs"]]


def _split(names: list[str]) -> list[list[str]]:
    return [names[start : start + _MAX_DESCRIBED] for start in range(0, len(names), _MAX_DESCRIBED)]


class JsonStore:
    """JSON objects of a bucket."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    def list_keys(self, prefix: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def read(self, key: str) -> Any:
        """Return the content of an object; None if there is none."""
        try:
            return json.loads(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        except self._s3.exceptions.NoSuchKey:
            return None

    def write(self, key: str, content: object) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=json.dumps(content).encode())

    def delete(self, key: str) -> None:
        self._s3.delete_object(Bucket=self._bucket, Key=key)
