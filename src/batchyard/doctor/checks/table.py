"""All checks of jobs, queues and compute environments, in the order of their ids.

To add a finding, write its file and add its ``CHECK`` here: docs/how-to/add-a-finding.md.
"""

from __future__ import annotations

from batchyard.doctor.checks.environments import (
    amazon_linux_2,
    architectures_mixed,
    best_fit_strategy,
    cpu_image_on_gpu_host,
    families_mixed,
    gpu_too_old_for_driver,
    gpus_not_schedulable,
    instance_type_unknown,
    metadata_hop_limit,
    spot_with_single_type,
    types_not_offered,
    unmanaged_without_instances,
    user_data,
)
from batchyard.doctor.checks.environments import invalid as invalid_environment
from batchyard.doctor.checks.failures import explain as failed_attempts
from batchyard.doctor.checks.fit import check as fit
from batchyard.doctor.checks.jobs import (
    blocked_by_aws,
    cause_undetermined,
    consumable_resource_used_up,
    dependency_failed,
    fair_share_reservation,
    fargate_size_unknown,
    multi_node_without_on_demand,
    starting_for_long,
)
from batchyard.doctor.checks.launches import (
    configuration_unsupported,
    launch_template_clash,
    max_vcpus_used_up,
    no_capacity,
    quota_too_small,
    quota_used_up,
    refused_for_quota,
    spot_bid_too_low,
    volume_key_denied,
)
from batchyard.doctor.checks.network import (
    fargate_image_unreachable,
    https_egress_blocked,
    network_acl_blocks,
    no_public_address,
    no_route_to_aws,
    subnets_full,
)
from batchyard.doctor.checks.queues import blocked_by_other_job, no_environment_enabled
from batchyard.doctor.checks.queues import disabled as disabled_queue
from batchyard.doctor.checks.queues import invalid as invalid_queue
from batchyard.doctor.checks.registration import (
    agent_disconnected,
    awslogs_driver_missing,
    gpus_not_registered,
    instances_not_joining,
)
from batchyard.doctor.checks.roles import (
    fleet_role_unusable,
    instance_profile_unusable,
    instance_role_too_weak,
    service_linked_role_missing,
    service_role_too_weak,
)

CHECKS = (
    dependency_failed.CHECK,
    disabled_queue.CHECK,
    invalid_queue.CHECK,
    no_environment_enabled.CHECK,
    invalid_environment.CHECK,
    blocked_by_other_job.CHECK,
    fit.MAX_VCPUS_CHECK,
    max_vcpus_used_up.CHECK,
    fit.SIZE_CHECK,
    families_mixed.CHECK,
    gpus_not_schedulable.CHECK,
    cpu_image_on_gpu_host.CHECK,
    gpu_too_old_for_driver.CHECK,
    amazon_linux_2.CHECK,
    architectures_mixed.CHECK,
    gpus_not_registered.CHECK,
    quota_too_small.CHECK,
    refused_for_quota.CHECK,
    no_capacity.CHECK,
    spot_bid_too_low.CHECK,
    types_not_offered.CHECK,
    instance_type_unknown.CHECK,
    no_route_to_aws.CHECK,
    no_public_address.CHECK,
    https_egress_blocked.CHECK,
    network_acl_blocks.CHECK,
    instance_profile_unusable.CHECK,
    instance_role_too_weak.CHECK,
    agent_disconnected.CHECK,
    instances_not_joining.CHECK,
    awslogs_driver_missing.CHECK,
    subnets_full.CHECK,
    service_linked_role_missing.CHECK,
    fleet_role_unusable.CHECK,
    volume_key_denied.CHECK,
    consumable_resource_used_up.CHECK,
    fair_share_reservation.CHECK,
    multi_node_without_on_demand.CHECK,
    fargate_size_unknown.CHECK,
    fargate_image_unreachable.CHECK,
    launch_template_clash.CHECK,
    configuration_unsupported.CHECK,
    service_role_too_weak.CHECK,
    cause_undetermined.CHECK,
    best_fit_strategy.CHECK,
    unmanaged_without_instances.CHECK,
    metadata_hop_limit.CHECK,
    spot_with_single_type.CHECK,
    quota_used_up.CHECK,
    blocked_by_aws.CHECK,
    failed_attempts.CHECK,
    starting_for_long.CHECK,
    user_data.CHECK,
)
