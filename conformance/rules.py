"""Rules of AWS Batch, each as a check that fails where an endpoint does otherwise.

A rule is documented by AWS or was observed there: docs/facts/aws-batch.md has the sources. The
number after `facts` is the section.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from lab import Lab, refusal

Check = Callable[[Lab], None]


class Rule(NamedTuple):
    #: Operation or subject, which is the heading in the table.
    subject: str
    text: str
    facts: str
    check: Check


RULES: dict[str, Rule] = {}


def rule(subject: str, text: str, facts: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        RULES[check.__name__] = Rule(subject, text, facts, check)
        return check

    return add


# -- compute environments -------------------------------------------------------------------------


@rule("CreateComputeEnvironment", "EC2 needs an instance role", "8.1")
def instance_role(lab: Lab) -> None:
    with refusal("Instance role is required."):
        lab.create_environment(lab.resources(instanceRole=None))


@rule("CreateComputeEnvironment", "EC2 needs `minvCpus`", "8.1")
def min_vcpus(lab: Lab) -> None:
    with refusal("Resource minvCpus is required."):
        lab.create_environment(lab.resources(minvCpus=None))


@rule("CreateComputeEnvironment", "UNMANAGED needs a service role", "8.9")
def service_role(lab: Lab) -> None:
    with refusal("ServiceRole is required."):
        lab.create_environment({}, type="UNMANAGED", computeResources=None, serviceRole=None)


@rule("CreateComputeEnvironment", "Fargate has no `minvCpus`", "8.1")
def fargate_members(lab: Lab) -> None:
    with refusal("minvCpus is not applicable for Fargate."):
        lab.create_environment(lab.fargate(minvCpus=0))


@rule("CreateComputeEnvironment", "x86_64 and arm64 are not mixed", "8.3")
def one_architecture(lab: Lab) -> None:
    with refusal():
        lab.create_environment(lab.resources(instanceTypes=["m6i.large", "m6g.large"]))


@rule("UpdateComputeEnvironment", "`desiredvCpus` is never lowered", "8.1")
def desired_vcpus(lab: Lab) -> None:
    name = lab.create_environment(lab.resources(minvCpus=0, desiredvCpus=8))
    with refusal("Manually scaling down compute environment is not supported."):
        lab.batch.update_compute_environment(
            computeEnvironment=name, computeResources={"desiredvCpus": 2}
        )


@rule("DeleteComputeEnvironment", "the environment must be disabled first", "7")
def delete_enabled_environment(lab: Lab) -> None:
    name = lab.create_environment()
    with refusal("disabled"):
        lab.batch.delete_compute_environment(computeEnvironment=name)


# -- queues ---------------------------------------------------------------------------------------


@rule("CreateJobQueue", "a compute environment must exist", "7")
def queue_environment(lab: Lab) -> None:
    arn = lab.environment_arn(lab.environment)
    with refusal():
        order = [{"order": 1, "computeEnvironment": f"{arn}-none"}]
        lab.create_queue(computeEnvironmentOrder=order)


@rule("CreateJobQueue", "at most three compute environments", "6")
def three_environments(lab: Lab) -> None:
    environments = [lab.create_environment() for _ in range(4)]
    with refusal():
        lab.create_queue(*environments)


@rule("CreateJobQueue", "EC2 and Fargate are not mixed", "7")
def queue_mixes(lab: Lab) -> None:
    fargate = lab.create_environment(lab.fargate())
    with refusal("Fargate and EC2 compute environments can not be mixed."):
        lab.create_queue(lab.environment, fargate)


@rule("DeleteJobQueue", "the queue must be disabled first", "7")
def delete_enabled_queue(lab: Lab) -> None:
    name = lab.create_queue(lab.environment)
    with refusal("disabled"):
        lab.batch.delete_job_queue(jobQueue=name)


@rule("GetJobQueueSnapshot", "lists the RUNNABLE jobs in front", "7.3")
def snapshot(lab: Lab) -> None:
    small = lab.create_environment(lab.resources(maxvCpus=2))
    queue = lab.create_queue(small)
    for _ in range(4):
        lab.run("sleep 5", queue=queue)
    deadline = time.monotonic() + lab.wait_s
    while not (jobs := lab.batch.get_job_queue_snapshot(jobQueue=queue)["frontOfQueue"]["jobs"]):
        assert time.monotonic() < deadline, "no job is in front"
        time.sleep(0.2)
    assert jobs[0]["jobArn"]


# -- job definitions ------------------------------------------------------------------------------


@rule("RegisterJobDefinition", "`1.0` is no number of vCPUs on EC2", "5.3")
def vcpu_text(lab: Lab) -> None:
    requirements = [{"type": "VCPU", "value": "1.0"}, {"type": "MEMORY", "value": "64"}]
    with refusal("Value 1.0 for type VCPU in resourceRequirement is not valid."):
        lab.define(lab.container(resourceRequirements=requirements))


@rule("RegisterJobDefinition", "`networkConfiguration` is not for EC2", "5.3")
def network_on_ec2(lab: Lab) -> None:
    with refusal("networkConfiguration not applicable for EC2."):
        lab.define(lab.container(networkConfiguration={"assignPublicIp": "ENABLED"}))


@rule("RegisterJobDefinition", "Fargate has fixed pairs of vCPUs and memory", "5.3")
def fargate_pairs(lab: Lab) -> None:
    requirements = [{"type": "VCPU", "value": "2"}, {"type": "MEMORY", "value": "1024"}]
    container = lab.container(resourceRequirements=requirements, executionRoleArn=lab.role)
    with refusal("Fargate resource requirements (2.00 vCPU, 1024 MiB) not valid."):
        lab.define(container, platformCapabilities=["FARGATE"])


@rule("RegisterJobDefinition", "a timeout has at least 60 seconds", "1.5")
def short_timeout(lab: Lab) -> None:
    with refusal():
        lab.define(timeout={"attemptDurationSeconds": 59})


@rule("RegisterJobDefinition", "at most 10 attempts", "1.3")
def many_attempts(lab: Lab) -> None:
    with refusal():
        lab.define(retryStrategy={"attempts": 11})


@rule("RegisterJobDefinition", "`evaluateOnExit` needs `attempts`", "1.4")
def rules_without_attempts(lab: Lab) -> None:
    with refusal("RetryAttempts must be provided with retry strategy"):
        lab.define(retryStrategy={"evaluateOnExit": [{"action": "EXIT", "onExitCode": "1"}]})


@rule("RegisterJobDefinition", "`AWS_BATCH_` begins no variable", "3")
def reserved_variables(lab: Lab) -> None:
    with refusal():
        lab.define(lab.container(environment=[{"name": "AWS_BATCH_MINE", "value": "1"}]))


@rule("RegisterJobDefinition", "at most 24 KiB", "6")
def large_definition(lab: Lab) -> None:
    with refusal():
        lab.define(lab.container("echo", "x" * 25 * 1024))


@rule("RegisterJobDefinition", "several nodes (`multinode`) are accepted", "4")
def multi_node(lab: Lab) -> None:
    container = lab.container()
    lab.define(
        type="multinode",
        containerProperties=None,
        nodeProperties={
            "numNodes": 2,
            "mainNode": 0,
            "nodeRangeProperties": [{"targetNodes": "0:1", "container": container}],
        },
    )


@rule("DescribeJobDefinitions", "empty lists are sent, and no invented platform", "1.2")
def empty_lists(lab: Lab) -> None:
    definition = lab.describe_definition(lab.define())
    container = definition["containerProperties"]
    for member in ("environment", "mountPoints", "volumes", "ulimits", "secrets"):
        assert container[member] == [], member
    assert not definition.get("platformCapabilities")


@rule("DeregisterJobDefinition", "a name stands for the newest ACTIVE revision", "5.4")
def newest_active(lab: Lab) -> None:
    name = lab.name("definition")
    for _ in range(3):
        lab.define(jobDefinitionName=name)
    lab.batch.deregister_job_definition(jobDefinition=f"{name}:3")
    assert lab.job(lab.submit(name))["jobDefinition"].endswith(f"{name}:2")


# -- SubmitJob ------------------------------------------------------------------------------------


@rule("SubmitJob", "a queue must exist: `JobQueue ... not found.`", "5.4")
def unknown_queue(lab: Lab) -> None:
    with refusal("JobQueue nope not found."):
        lab.submit(lab.define(), "nope")


@rule("SubmitJob", "an ARN of another region is refused", "5.4")
def foreign_arn(lab: Lab) -> None:
    arn = lab.batch.describe_job_queues(jobQueues=[lab.queue])["jobQueues"][0]["jobQueueArn"]
    with refusal():
        lab.submit(lab.define(), arn.replace("us-east-1", "eu-west-1"))


@rule("SubmitJob", "a DISABLED queue takes no jobs", "5.4")
def disabled_queue(lab: Lab) -> None:
    queue = lab.create_queue(lab.environment)
    lab.batch.update_job_queue(jobQueue=queue, state="DISABLED")
    with refusal():
        lab.submit(lab.define(), queue)


@rule("SubmitJob", "a job name has no dots or spaces", "5.4")
def job_name(lab: Lab) -> None:
    definition = lab.define()
    for name in ("a.b", "a b"):
        with refusal():
            lab.submit(definition, jobName=name)


@rule("SubmitJob", "at most 20 dependencies", "1.7")
def many_dependencies(lab: Lab) -> None:
    definition = lab.define()
    job_id = lab.submit(definition)
    with refusal("Job cannot have more than 20 dependencies"):
        lab.submit(definition, dependsOn=[{"jobId": job_id}] * 21)


@rule("SubmitJob", "an array has 2 to 10,000 children", "2")
def array_sizes(lab: Lab) -> None:
    definition = lab.define()
    for size in (1, 10_001):
        with refusal():
            lab.submit(definition, arrayProperties={"size": size})


@rule("SubmitJob", "N_TO_N needs arrays of one size", "2")
def n_to_n_sizes(lab: Lab) -> None:
    definition = lab.define()
    parent = lab.submit(definition, arrayProperties={"size": 2})
    with refusal():
        lab.submit(
            definition,
            arrayProperties={"size": 3},
            dependsOn=[{"jobId": parent, "type": "N_TO_N"}],
        )


@rule("SubmitJob", "at most 30 KiB", "6")
def large_job(lab: Lab) -> None:
    with refusal("Job size must be less than 30 KiB"):
        lab.submit(lab.define(), parameters={"x": "y" * 31 * 1024})


@rule("SubmitJob", "a share identifier is only for a fair-share queue", "5.4")
def share_without_policy(lab: Lab) -> None:
    with refusal():
        lab.submit(lab.define(), shareIdentifier="team")


@rule("SubmitJob", "a fair-share queue needs a share identifier", "5.4")
def share_required(lab: Lab) -> None:
    arn = lab.batch.create_scheduling_policy(name=lab.name("policy"))["arn"]
    queue = lab.create_queue(lab.environment, schedulingPolicyArn=arn)
    with refusal():
        lab.submit(lab.define(), queue)


@rule("SubmitJob", "overrides merge variables by name", "5.2")
def merged_variables(lab: Lab) -> None:
    variables = [{"name": "KEPT", "value": "1"}, {"name": "CHANGED", "value": "1"}]
    overrides = {"environment": [{"name": "CHANGED", "value": "2"}]}
    definition = lab.define(lab.container(environment=variables))
    job = lab.job(lab.submit(definition, containerOverrides=overrides))
    described = {entry["name"]: entry["value"] for entry in job["container"]["environment"]}
    assert (described["KEPT"], described["CHANGED"]) == ("1", "2"), described


# -- the life of a job ----------------------------------------------------------------------------


@rule("jobs", "the command runs, and its exit code is described", "1.2")
def exit_code(lab: Lab) -> None:
    job = lab.wait(lab.run("exit 3"))
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 3)


@rule("jobs", "a job that ends has the reason `Essential container in task exited`", "1.8")
def status_reason(lab: Lab) -> None:
    assert lab.wait(lab.run("true"))["statusReason"] == "Essential container in task exited"


@rule("jobs", "output is in `/aws/batch/job` under `logStreamName`", "1.1")
def output(lab: Lab) -> None:
    job_id = lab.run("echo from the job")
    lab.wait(job_id)
    assert lab.output(job_id) == ["from the job"]


@rule("jobs", "a log stream ends with the id of the ECS task", "1.1")
def stream_name(lab: Lab) -> None:
    container = lab.wait(lab.run("true"))["container"]
    task = container["taskArn"].rpartition("/")[2]
    assert container["logStreamName"].endswith(f"/default/{task}")


@rule("jobs", "the variables of AWS Batch are set", "3")
def batch_variables(lab: Lab) -> None:
    names = ("AWS_BATCH_JOB_ID", "AWS_BATCH_JQ_NAME", "AWS_BATCH_CE_NAME", "AWS_BATCH_JOB_ATTEMPT")
    job_id = lab.run(" && ".join(f'test -n "${name}"' for name in names))
    assert lab.wait(job_id)["status"] == "SUCCEEDED"


@rule("jobs", "`Ref::name` in a command is replaced", "5.1")
def parameters(lab: Lab) -> None:
    container = lab.container("sh", "-c", "test Ref::word = right")
    job_id = lab.submit(
        lab.define(container, parameters={"word": "wrong"}), parameters={"word": "right"}
    )
    assert lab.wait(job_id)["status"] == "SUCCEEDED"


@rule("jobs", "the log group must exist", "1.1")
def missing_log_group(lab: Lab) -> None:
    options = {"logDriver": "awslogs", "options": {"awslogs-group": lab.name("/none")}}
    job = lab.wait(lab.run("true", container={"logConfiguration": options}))
    assert (job["status"], job["statusReason"]) == ("FAILED", "Task failed to start")


@rule("jobs", "a job of `ecsProperties` is described as a task", "1.2")
def ecs_properties(lab: Lab) -> None:
    task = {"containers": [{"name": "main", "essential": True, **lab.container()}]}
    definition = lab.define(containerProperties=None, ecsProperties={"taskProperties": [task]})
    job = lab.wait(lab.submit(definition))
    assert job["ecsProperties"]["taskProperties"][0]["containers"][0]["exitCode"] == 0


@rule("jobs", "no more vCPUs run than `maxvCpus` has", "7")
def capacity(lab: Lab) -> None:
    queue = lab.create_queue(lab.create_environment(lab.resources(maxvCpus=2)))
    requirements = [{"type": "VCPU", "value": "2"}, {"type": "MEMORY", "value": "64"}]
    big = {"resourceRequirements": requirements}
    first = lab.run("sleep 6", queue=queue, container=big)
    second = lab.run("true", queue=queue, container=big)
    lab.wait(first, "RUNNING")
    time.sleep(1)
    assert lab.job(second)["status"] == "RUNNABLE"
    assert lab.wait(second)["status"] == "SUCCEEDED"


@rule("jobs", "a consumable resource limits what runs at once", "7.3")
def consumables(lab: Lab) -> None:
    name = lab.name("licence")
    lab.batch.create_consumable_resource(consumableResourceName=name, totalQuantity=1)
    needs = {"consumableResourceList": [{"consumableResource": name, "quantity": 1}]}
    holder = lab.run("sleep 5", definition={"consumableResourceProperties": needs})
    lab.wait(holder, "RUNNING")
    waiting = lab.run("true", definition={"consumableResourceProperties": needs})
    time.sleep(1)
    assert lab.job(waiting)["status"] == "RUNNABLE"
    assert lab.wait(waiting)["status"] == "SUCCEEDED"


# -- attempts -------------------------------------------------------------------------------------


@rule("attempts", "a failed job is tried again, up to `attempts`", "1.3")
def attempts(lab: Lab) -> None:
    job = lab.wait(lab.run("exit 1", definition={"retryStrategy": {"attempts": 3}}))
    assert (job["status"], len(job["attempts"])) == ("FAILED", 3)


@rule("attempts", "the second attempt can succeed", "1.3")
def second_attempt(lab: Lab) -> None:
    script = 'test "$AWS_BATCH_JOB_ATTEMPT" = 2'
    job = lab.wait(lab.run(script, definition={"retryStrategy": {"attempts": 2}}))
    assert (job["status"], len(job["attempts"])) == ("SUCCEEDED", 2)


@rule("attempts", "`evaluateOnExit` with EXIT ends the job", "1.4")
def rule_exit(lab: Lab) -> None:
    strategy = {"attempts": 3, "evaluateOnExit": [{"action": "EXIT", "onExitCode": "7"}]}
    job = lab.wait(lab.run("exit 7", definition={"retryStrategy": strategy}))
    assert len(job["attempts"]) == 1


@rule("attempts", "without a matching rule the job is tried again", "1.4")
def rule_unmatched(lab: Lab) -> None:
    strategy = {"attempts": 2, "evaluateOnExit": [{"action": "EXIT", "onExitCode": "7"}]}
    job = lab.wait(lab.run("exit 8", definition={"retryStrategy": strategy}))
    assert len(job["attempts"]) == 2


# -- arrays ---------------------------------------------------------------------------------------


@rule("arrays", "children have their index, and the parent counts them", "2")
def array_index(lab: Lab) -> None:
    array = lab.run('test "$AWS_BATCH_JOB_ARRAY_INDEX" != 2', arrayProperties={"size": 3})
    parent = lab.wait(array)
    summary = parent["arrayProperties"]["statusSummary"]
    assert (parent["status"], summary["SUCCEEDED"], summary["FAILED"]) == ("FAILED", 2, 1)


@rule("arrays", "children have the size of the array", "3")
def array_size(lab: Lab) -> None:
    array = lab.run('test "$AWS_BATCH_JOB_ARRAY_SIZE" = 2', arrayProperties={"size": 2})
    assert lab.wait(array)["status"] == "SUCCEEDED"


@rule("arrays", "the parent is PENDING while children run", "2")
def array_pending(lab: Lab) -> None:
    array = lab.run("sleep 4", arrayProperties={"size": 2})
    lab.wait(f"{array}:0", "RUNNING")
    assert lab.job(array)["status"] == "PENDING"


@rule("arrays", "each child is tried again by itself", "2")
def array_attempts(lab: Lab) -> None:
    array = lab.run(
        'test "$AWS_BATCH_JOB_ATTEMPT" = 2',
        definition={"retryStrategy": {"attempts": 2}},
        arrayProperties={"size": 2},
    )
    assert lab.wait(array)["status"] == "SUCCEEDED"
    assert len(lab.job(f"{array}:1")["attempts"]) == 2


@rule("arrays", "SEQUENTIAL runs the children one after the other", "2")
def sequential(lab: Lab) -> None:
    array = lab.run("sleep 1", arrayProperties={"size": 3}, dependsOn=[{"type": "SEQUENTIAL"}])
    assert lab.wait(array)["status"] == "SUCCEEDED"
    children = [lab.job(f"{array}:{index}") for index in range(3)]
    for first, second in pairwise(children):
        assert first["stoppedAt"] <= second["startedAt"]


@rule("arrays", "N_TO_N: a child waits for its own partner only", "2")
def n_to_n(lab: Lab) -> None:
    slow = 'test "$AWS_BATCH_JOB_ARRAY_INDEX" = 0 || sleep 5'
    first = lab.run(slow, arrayProperties={"size": 2})
    dependency = [{"jobId": first, "type": "N_TO_N"}]
    second = lab.run("true", arrayProperties={"size": 2}, dependsOn=dependency)
    lab.wait(f"{second}:0", "SUCCEEDED")
    assert lab.job(f"{second}:1")["status"] == "PENDING"
    assert lab.wait(second)["status"] == "SUCCEEDED"


# -- dependencies ---------------------------------------------------------------------------------


@rule("dependencies", "a job waits for the job it depends on", "1.7")
def dependency(lab: Lab) -> None:
    first = lab.run("sleep 3")
    second = lab.run("true", dependsOn=[{"jobId": first}])
    assert lab.job(second)["status"] == "PENDING"
    assert lab.wait(second)["status"] == "SUCCEEDED"
    assert lab.job(first)["stoppedAt"] <= lab.job(second)["startedAt"]


@rule("dependencies", "a job waits for all children of an array", "2")
def dependency_on_array(lab: Lab) -> None:
    array = lab.run("sleep 2", arrayProperties={"size": 2})
    second = lab.run("true", dependsOn=[{"jobId": array}])
    assert lab.wait(second)["status"] == "SUCCEEDED"
    assert lab.job(f"{array}:1")["stoppedAt"] <= lab.job(second)["startedAt"]


@rule("dependencies", "after a failure the dependent fails: `Dependent Job failed`", "1.8")
def failed_dependency(lab: Lab) -> None:
    second = lab.run("true", dependsOn=[{"jobId": lab.run("exit 1")}])
    job = lab.wait(second)
    assert (job["status"], job["statusReason"]) == ("FAILED", "Dependent Job failed")


# -- stopping -------------------------------------------------------------------------------------


@rule("TerminateJob", "ends a running job, which has the reason and is not tried again", "1.6")
def terminate(lab: Lab) -> None:
    job_id = lab.run("sleep 120", definition={"retryStrategy": {"attempts": 3}})
    lab.wait(job_id, "RUNNING")
    lab.batch.terminate_job(jobId=job_id, reason="enough")
    job = lab.wait(job_id)
    assert (job["status"], job["statusReason"]) == ("FAILED", "enough")
    assert len(job["attempts"]) == 1


@rule("TerminateJob", "an unknown id is accepted, an empty one is not", "1.6")
def terminate_unknown(lab: Lab) -> None:
    lab.batch.terminate_job(jobId="00000000-0000-4000-8000-000000000000", reason="none")
    with refusal():
        lab.batch.terminate_job(jobId="", reason="none")


@rule("TerminateJob", "ends all children of an array", "1.6")
def terminate_array(lab: Lab) -> None:
    array = lab.run("sleep 120", arrayProperties={"size": 2})
    lab.wait(f"{array}:0", "RUNNING")
    lab.batch.terminate_job(jobId=array, reason="enough")
    assert lab.wait(array)["status"] == "FAILED"
    assert lab.wait(f"{array}:1")["statusReason"] == "enough"


@rule("CancelJob", "does nothing to a running job", "1.6")
def cancel_running(lab: Lab) -> None:
    job_id = lab.run("sleep 3")
    lab.wait(job_id, "RUNNING")
    lab.batch.cancel_job(jobId=job_id, reason="too late")
    assert lab.wait(job_id)["status"] == "SUCCEEDED"


# -- lists ----------------------------------------------------------------------------------------


@rule("DescribeJobs", "unknown ids are left out", "1.2")
def describe_unknown(lab: Lab) -> None:
    answer = lab.batch.describe_jobs(jobs=["00000000-0000-4000-8000-000000000000"])
    assert answer["jobs"] == []


@rule("DescribeJobs", "at most 100 ids", "6")
def describe_many(lab: Lab) -> None:
    with refusal("Maximum number of jobs supported is  100 ."):
        lab.batch.describe_jobs(jobs=[f"job-{number}" for number in range(101)])


@rule("ListJobs", "without `jobStatus`, only RUNNING jobs", "6")
def list_running(lab: Lab) -> None:
    queue = lab.create_queue(lab.environment)
    lab.wait(lab.run("true", queue=queue))
    running = lab.run("sleep 4", queue=queue)
    lab.wait(running, "RUNNING")
    answer = lab.batch.list_jobs(jobQueue=queue)
    assert [job["jobId"] for job in answer["jobSummaryList"]] == [running]


@rule("ListJobs", "the filter JOB_NAME knows a final `*`", "6")
def list_by_name(lab: Lab) -> None:
    queue = lab.create_queue(lab.environment)
    definition = lab.define()
    wanted = lab.submit(definition, queue, jobName="wanted-1")
    lab.submit(definition, queue, jobName="other")
    filters = [{"name": "JOB_NAME", "values": ["WANTED*"]}]
    answer = lab.batch.list_jobs(jobQueue=queue, filters=filters)
    assert [job["jobId"] for job in answer["jobSummaryList"]] == [wanted]


@rule("TagResource", "the child of an array has no tags", "2")
def tag_child(lab: Lab) -> None:
    array = lab.run("true", arrayProperties={"size": 2})
    arn = lab.job(array)["jobArn"]
    with refusal():
        lab.batch.tag_resource(resourceArn=f"{arn}:0", tags={"a": "b"})
