"""Every check of jobs, queues and compute environments, listed by hand. Pure."""

from __future__ import annotations

from batchyard.doctor.checks import (
    endings,
    environment,
    fit,
    hardware,
    joining,
    launching,
    line,
    market,
    network,
    roles,
    sharing,
    states,
)
from batchyard.doctor.checks.common import Check, Look, Setting
from batchyard.doctor.kinds import KINDS

__all__ = ["CHECKS", "Check", "Setting"]

_TABLE: tuple[tuple[Look, tuple[int, ...]], ...] = (
    (line.dependencies, (1,)),
    (states.queue_enabled, (2,)),
    (states.queue_valid, (3,)),
    (states.environment_enabled, (4,)),
    (states.environment_valid, (5, 6, 7, 8, 9, 10)),
    (line.front, (11,)),
    (fit.fits, (12, 14, 15, 16, 17)),
    (fit.used_up, (13,)),
    (environment.with_types(hardware.mixed_families), (18,)),
    (environment.with_types(hardware.unschedulable), (19,)),
    (environment.with_types(hardware.image_for_gpus), (20,)),
    (environment.with_types(hardware.driver_for_gpus), (21,)),
    (environment.plainly(hardware.old_image), (22,)),
    (environment.architectures, (23,)),
    (environment.gpus_registered, (24,)),
    (market.quota, (25,)),
    (launching.refused_for_quota, (26,)),
    (launching.no_capacity, (27,)),
    (market.price, (28,)),
    (environment.offered, (29,)),
    (environment.types_exist, (30,)),
    (network.routes, (31,)),
    (network.public_addresses, (32,)),
    (network.egress, (33,)),
    (network.acls, (34,)),
    (joining.profile_exists, (35,)),
    (joining.profile_rights, (36,)),
    (joining.connected, (37,)),
    (joining.joined, (38,)),
    (joining.log_driver, (39,)),
    (network.addresses, (40,)),
    (roles.linked_roles, (41,)),
    (roles.fleet_role, (42,)),
    (launching.keys, (43,)),
    (sharing.consumables, (44,)),
    (sharing.fair_share, (45,)),
    (sharing.multi_node, (47,)),
    (sharing.fargate_size, (48,)),
    (network.fargate, (49,)),
    (launching.clashes, (50,)),
    (environment.unsupported, (51,)),
    (roles.service_role, (52,)),
    (line.undetermined, (53,)),
    (environment.plainly(hardware.best_fit), (54,)),
    (environment.unmanaged, (55,)),
    (environment.hop_limit, (56,)),
    (environment.with_types(hardware.alternatives), (57,)),
    (market.quota_used, (58,)),
    (line.blocked, (59,)),
    (endings.endings, (46, *range(60, 71), 72, 73)),
    (line.starting, (71,)),
    (joining.user_data, (*range(101, 118),)),
)

CHECKS = tuple(Check(look, tuple(KINDS[number] for number in numbers)) for look, numbers in _TABLE)
