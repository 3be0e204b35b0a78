"""Why tests of moto's AWS Batch suite fail against the endpoint: a verdict for each.

A test that fails without a verdict is a defect of the endpoint. A verdict names its source: BM is
botocore's model of AWS Batch, UG a page of AWS's user guide, OBS a repository or issue that shows
what AWS answered, `facts` a section of docs/facts/aws-batch.md.
"""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    #: What AWS does, or why the endpoint cannot pass.
    reason: str
    source: str
    #: The endpoint should pass, and does not yet. Such a test may pass at any time.
    is_gap: bool = False


_ONE_ERROR_CODE = "BM: the operations of AWS Batch declare ClientException and ServerException"
_NO_ROLES = Verdict(
    "AWS's error has no code InvalidParameterValue; roles need not exist here",
    f"{_ONE_ERROR_CODE}; docs/emulator.md, What differs from AWS",
)
_DISABLED_FIRST = Verdict(
    "AWS deletes a queue or compute environment only after it is disabled",
    "BM DeleteJobQueue and DeleteComputeEnvironment",
)
_NO_EKS = Verdict(
    "the endpoint serves compute of the ECS type and refuses EKS by name",
    "docs/emulator.md, What differs from AWS",
)
_SHORT_TIMEOUT = Verdict(
    "AWS refuses a timeout of less than 60 seconds",
    "BM JobTimeout: the minimum value is 60 seconds",
)
_WHOLE_VCPUS = Verdict(
    "AWS refuses a fraction of a vCPU on EC2: Value 0.25 for type VCPU ... is not valid",
    "BM ResourceRequirement; OBS kestra-io/plugin-aws#504",
)
_NAME_OF_STACK = Verdict(
    "the name that CloudFormation makes for AWS Batch begins with the logical id, not the stack",
    "OBS descriptions of stacks, such as ComputeEnvironment-CvKLJBQdefogayVQ",
)
_TASK_IN_STREAM = Verdict(
    "the log stream ends with the id of the ECS task, not of the job", "UG job_states; facts, 1.1"
)
_OTHER_WORDS = "moto words this refusal itself; AWS's text is"

#: File::test, with its parameters -> verdict.
VERDICTS: dict[str, Verdict] = {
    "test_batch_cloudformation::test_create_env_cf": _NAME_OF_STACK,
    "test_batch_cloudformation::test_create_job_queue_cf": _NAME_OF_STACK,
    "test_batch_cloudformation::test_create_job_def_cf": _NAME_OF_STACK,
    "test_batch_compute_envs::test_create_managed_compute_environment_with_unknown_instance_type": (
        Verdict("AWS's error has no code InvalidParameterValue", _ONE_ERROR_CODE)
    ),
    "test_batch_compute_envs::test_update_iam_role": _NO_ROLES,
    "test_batch_compute_envs::test_delete_unmanaged_compute_environment": _DISABLED_FIRST,
    "test_batch_compute_envs::test_delete_managed_compute_environment": _DISABLED_FIRST,
    "test_batch_compute_envs::"
    "test_create_ec2_managed_compute_environment__without_required_params": Verdict(
        "the test misspells a type as UNMANGED, which AWS refuses before it misses the role",
        "BM CEType: MANAGED and UNMANAGED",
    ),
    "test_batch_eks::test_register_job_definition_with_eks_properties": _NO_EKS,
    "test_batch_eks::test_submit_job_with_eks_properties_override": _NO_EKS,
    "test_batch_eks::test_submit_eks_job_without_override": _NO_EKS,
    "test_batch_eks::test_eks_job_definition_validation_missing_containers": _NO_EKS,
    "test_batch_eks::test_eks_job_definition_defaults": _NO_EKS,
    "test_batch_job_queue::test_create_job_queue": Verdict(
        "AWS refuses a scheduling policy that does not exist: SchedulingPolicy ... not found.",
        "OBS badmintoncryer/cdk-preflight rules/batch/pf-batch-jq-scheduling-policy-arn-region",
    ),
    "test_batch_job_queue::test_create_job_queue_twice": Verdict(
        f"{_OTHER_WORDS} Object already exists", "OBS, error texts in issues of Terraform's users"
    ),
    "test_batch_job_queue::test_create_job_queue_incorrect_state": Verdict(
        "moto words this refusal itself; AWS's text is not known", _ONE_ERROR_CODE
    ),
    "test_batch_job_queue::test_create_job_queue_without_compute_environment": Verdict(
        f"{_OTHER_WORDS} computeEnvironmentOrder is required.",
        "OBS badmintoncryer/cdk-preflight rules/batch/pf-batch-queue-order-required",
    ),
    "test_batch_job_queue::test_job_queue_bad_arn": Verdict(
        f"{_OTHER_WORDS} Compute Environments must be created and valid before attaching them to "
        "a job queue",
        "OBS badmintoncryer/cdk-preflight rules/batch/pf-batch-jq-ce-arn-region",
    ),
    "test_batch_job_queue::test_delete_job_queue": _DISABLED_FIRST,
    "test_batch_jobs::test_submit_job_array_size": Verdict(
        "without jobStatus, AWS's ListJobs lists the RUNNING jobs only", "BM ListJobs; facts, 6"
    ),
    "test_batch_jobs::test_submit_job_multinode": Verdict(
        "the endpoint refuses multi-node parallel jobs by name",
        "docs/emulator.md, What differs from AWS",
    ),
    "test_batch_jobs::test_terminate_job": _TASK_IN_STREAM,
    "test_batch_jobs::test_dependencies": _TASK_IN_STREAM,
    "test_batch_jobs::test_cancel_running_job": Verdict(
        "a job that succeeded has the statusReason Essential container in task exited; and a job "
        "of `echo` can end here before the test looks for it",
        "OBS, facts, 1.8",
    ),
    "test_batch_jobs::test_container_overrides": Verdict(
        "DescribeJobs shows the variables of the definition and the job, without AWS_BATCH_*",
        "UG batch_cwe_events: the example event; OBS answers of DescribeJobs",
    ),
    "test_batch_jobs::test_update_job_definition": Verdict(
        "the order of revisions is not documented; the endpoint lists the newest first",
        "BM DescribeJobDefinitions",
    ),
    "test_batch_jobs::test_register_job_definition_with_timeout": _SHORT_TIMEOUT,
    "test_batch_jobs::test_submit_job_with_timeout": _SHORT_TIMEOUT,
    "test_batch_jobs::test_submit_job_with_timeout_set_at_definition": _SHORT_TIMEOUT,
    "test_batch_scheduling_policy::test_describe_default_scheduling_policy": Verdict(
        "AWS does not document that it adds members to an empty fairsharePolicy; the endpoint "
        "shows what the request has set",
        "BM DescribeSchedulingPolicies",
    ),
    "test_batch_tags_job::test_submit_job_with_tags": Verdict(
        "AWS's error has no code ValidationError", _ONE_ERROR_CODE
    ),
    "test_batch_task_definition::test_register_task_definition[True]": _WHOLE_VCPUS,
    "test_batch_task_definition::test_reregister_task_definition[True]": _WHOLE_VCPUS,
    "test_batch_task_definition::test_delete_task_definition[True]": _WHOLE_VCPUS,
    "test_batch_task_definition::test_delete_task_definition_by_name[True]": _WHOLE_VCPUS,
    "test_batch_task_definition::test_describe_task_definition[True]": _WHOLE_VCPUS,
    "test_batch_task_definition::test_register_task_definition_with_platform_capability[FARGATE]": (
        Verdict(
            "AWS refuses 1 vCPU with 4 MiB: Fargate resource requirements (...) not valid.",
            "UG fargate; facts, 5.3",
        )
    ),
}
