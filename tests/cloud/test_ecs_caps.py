"""Estimates and caps of runs on an ECS cluster, whose own process keeps the cap."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest
from cloud_lab import ENVIRONMENTS, Lab, run_of, until
from emulator_endpoint import Endpoint

#: An hour of the host costs $0.192, and a minute, which is the least, $0.0032. Each of the steps
#: may need a host: the run is held when it could reach its cap in 64 s, at $0.384 an hour.
PIPELINE = """\
name: capped
image: busybox
defaults: {memory: 64MiB}
steps:
  - {name: work, array: 12, max_running: 2, command: sleep %s}
  - {name: collect, needs: [work], command: 'true'}
"""
CAP = ("--max-cost", "0.0072")
ECS = ("pipeline.yaml", "--engine", "ecs", "--env", "capped")


@pytest.fixture(scope="module", autouse=True)
def host(endpoint: Endpoint) -> None:
    """A cluster with one m5.xlarge."""
    ecs = endpoint.client("ecs")
    ecs.create_cluster(clusterName="capped")
    endpoint.client("ec2").run_instances(
        ImageId="ami-12c6146b",
        InstanceType="m5.xlarge",
        MinCount=1,
        MaxCount=1,
        UserData="#!/bin/bash\necho ECS_CLUSTER=capped >> /etc/ecs/ecs.config\n",
    )
    until(lambda: ecs.list_container_instances(cluster="capped")["containerInstanceArns"])


@pytest.fixture(autouse=True)
def environment(lab: Lab) -> None:
    lab.write(
        ".batchyard/environments.yaml",
        ENVIRONMENTS + "  capped: {region: us-east-1, bucket: lab-runs, cluster: capped}\n",
    )


@pytest.mark.slow
def test_a_run_on_a_cluster_is_held_at_its_cap(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE % 1)
    done = lab("run", *ECS, *CAP, code=1)
    assert "an hour of the fleet at full size: $0.0649 on spot, $0.1920 on demand" in done.stderr
    assert "it is kept by the process that executes the run" in done.stderr
    assert "max_cost is $0.0072: nothing more starts; children that run go on" in done.stderr
    status = lab.status(run_of(done))
    assert status["state"] == "FAILED" and "max_cost is $0.0072" in status["held"]
    work, collect = status["steps"]
    assert 0 < work["succeeded"] < 12 and collect["succeeded"] == 0


@pytest.mark.slow
def test_the_cost_on_a_cluster_is_estimated_and_a_cap_below_it_refused(lab: Lab) -> None:
    step = "expect: 1s, command: sleep 1"
    lab.write("pipeline.yaml", PIPELINE.replace("command: sleep %s", step))
    cost = lab.json("plan", *ECS)["cost"]
    assert cost["steps"][0]["type"] == "m5.xlarge"
    # At least the minute that a host is billed.
    assert cost["steps"][0]["on_demand_usd"][0] >= 0.0032
    refused = lab("run", *ECS, "--max-cost", "0.001", code=2).stderr
    assert "max_cost is $0.001, and the run is likely to cost" in refused


def add_group(endpoint: Endpoint, name: str, **members: Any) -> None:
    """Make a cluster whose capacity provider is an Auto Scaling group with these members."""
    groups, ecs = endpoint.client("autoscaling"), endpoint.client("ecs")
    groups.create_auto_scaling_group(
        AutoScalingGroupName=name, MinSize=0, MaxSize=3, AvailabilityZones=["us-east-1a"], **members
    )
    (group,) = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ]
    ecs.create_capacity_provider(
        name=name, autoScalingGroupProvider={"autoScalingGroupArn": group["AutoScalingGroupARN"]}
    )
    ecs.create_cluster(
        clusterName=name,
        capacityProviders=[name],
        defaultCapacityProviderStrategy=[{"capacityProvider": name, "weight": 1}],
    )


@pytest.mark.slow
def test_the_types_of_auto_scaling_groups_are_priced(lab: Lab) -> None:
    ec2 = lab.endpoint.client("ec2")
    template = ec2.create_launch_template(
        LaunchTemplateName="nodes",
        LaunchTemplateData={"InstanceType": "m5.xlarge", "ImageId": "ami-12c6146b"},
    )["LaunchTemplate"]
    named = {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"}
    overrides = [{"InstanceType": "m5.2xlarge"}, {"InstanceType": "m5.8xlarge"}]
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": named, "Overrides": overrides}}
    add_group(lab.endpoint, "single", LaunchTemplate=named)
    add_group(lab.endpoint, "mixed", MixedInstancesPolicy=policy)
    lab.endpoint.client("autoscaling").create_launch_configuration(
        LaunchConfigurationName="old", ImageId="ami-12c6146b", InstanceType="m5.xlarge"
    )
    add_group(lab.endpoint, "old", LaunchConfigurationName="old")
    names = ("single", "mixed", "old")
    entries = (f"  {n}: {{region: us-east-1, bucket: lab-runs, cluster: {n}}}\n" for n in names)
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + "".join(entries))
    lab.write("pipeline.yaml", PIPELINE % 1)
    flags = ("pipeline.yaml", "--engine", "ecs", "--env")
    # Three instances each.
    single = lab.json("plan", *flags, "single")["cost"]
    assert single["fleet_on_demand_usd_h"] == [pytest.approx(3 * 0.192)] * 2
    mixed = lab.json("plan", *flags, "mixed")["cost"]
    assert mixed["fleet_on_demand_usd_h"] == [pytest.approx(3 * 0.384), pytest.approx(3 * 1.536)]
    refused = lab("run", *flags, "old", "--max-cost", "5", code=2).stderr
    assert "the hosts of work, collect and their prices are not known" in refused


@pytest.mark.slow
def test_what_runs_now_is_part_of_the_cost(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE % 600)
    run = run_of(lab("run", *ECS, "--detach"))
    bill = until(lambda: lab.json("cost", run), lambda bill: bill["used_usd"] > 0)
    assert bill["paid_usd"] > 0 and bill["disk_usd"] > 0 and not bill["is_final"]
    assert "disks of the hosts (EBS), not part of the sum" in lab("cost", run).stdout
    lab("stop", run)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", range(1, 6))
def test_no_task_starts_once_the_cap_is_reached(lab: Lab, seconds: int) -> None:
    lab.write("pipeline.yaml", PIPELINE % seconds)
    output = lab.folder / "output.txt"
    with output.open("wb") as file:
        process = lab.start("run", *ECS, *CAP, output=file)
    until(lambda: "nothing more starts" in output.read_text())
    held_s = time.time()
    assert process.wait() == 1
    run = lab.status("last")["run"]
    tasks = lab.tasks_of(run, "capped")
    # A RunTask may be on its way; its task is stopped before it runs.
    assert 0 < len(tasks) < 12
    assert all(task["createdAt"].timestamp() < held_s + 1 for task in tasks)
    succeeded = lab.status(run)["steps"][0]["succeeded"]
    assert 0 < succeeded <= len(tasks)
    lab("retry", run, "--max-cost", "50")
    status = lab.status("last")
    assert status["state"] == "SUCCEEDED" and status["steps"][0]["succeeded"] == 12 - succeeded


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--detach",)])
def test_a_run_on_a_cluster_can_be_stopped_at_its_cap(lab: Lab, flags: tuple[str, ...]) -> None:
    lab.write("pipeline.yaml", (PIPELINE % 600) + "max_cost: 0.0072\n")
    code = 0 if flags else 130
    run = run_of(lab("run", *ECS, "--max-cost-action", "stop", *flags, code=code))
    assert lab.ended(run) == "STOPPED"
    assert "max_cost is $0.0072" in lab.status(run)["held"]
    assert "max_cost is $0.0072" in lab.status(run)["steps"][0]["reason"]


@pytest.mark.slow
def test_children_of_a_dynamic_step_end_after_their_block(lab: Lab) -> None:
    commands = json.dumps(["sleep 1"] * 30)
    lab.write(
        "pipeline.yaml",
        "name: capped\nimage: busybox\nsteps:\n  - {name: work, share_out: dynamic, array: 2,"
        f" memory: 256MiB, commands: {commands}}}\n",
    )
    # One step: $0.192 an hour.
    run = run_of(lab("run", *ECS, "--max-cost", "0.0035", code=1))
    status = lab.status(run)
    assert status["state"] == "FAILED" and status["held"]
    counts = status["steps"][0]["commands"]
    assert counts["succeeded"] < 30 and not counts["failed"]
    retried = lab.json("plan", "--retry", run, "--commands")["commands"]
    assert len(retried) == 30 - counts["succeeded"]


@pytest.mark.slow
def test_tasks_of_a_held_run_go_on_when_its_process_is_killed(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE % 15)
    process = lab.start("run", *ECS, *CAP)
    run = until(lambda: [path.name for path in lab.folder.glob(".batchyard/runs/capped-*")])[0]
    until(lambda: lab.status(run)["held"])
    process.send_signal(signal.SIGKILL)
    process.wait()
    lab("resume", run, code=1)
    status = lab.status(run)
    # The two that ran have ended well, and no other has started.
    assert status["state"] == "FAILED" and status["steps"][0]["succeeded"] == 2
    assert len(lab.tasks_of(run, "capped")) == 2
