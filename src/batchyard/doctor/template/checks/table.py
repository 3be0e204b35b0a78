"""All checks of templates, in the order of their findings' ids.

To add a check, add its file to this folder and its name here.
"""

from __future__ import annotations

from batchyard.doctor.template.checks import (
    amazon_linux_2,
    desired_vcpus,
    environment_settings,
    fixed_name,
    gpu_jobs,
    instance_types,
    launch_configuration,
    launch_template_version,
    market_options,
    open_security_group,
    permissive_role,
    retry_rules,
    role_instead_of_profile,
    spot_fleet,
    spot_never_bought,
    tags_as_list,
    termination_protection,
)
from batchyard.doctor.template.checks.base import TemplateCheck

#: Checks that exist only for templates: BY201 to BY299.
OWN_CHECKS: tuple[TemplateCheck, ...] = (
    launch_configuration.CHECK,
    open_security_group.CHECK,
    permissive_role.CHECK,
    role_instead_of_profile.CHECK,
    desired_vcpus.CHECK,
    launch_template_version.CHECK,
    fixed_name.CHECK,
    spot_fleet.CHECK,
    spot_never_bought.CHECK,
    tags_as_list.CHECK,
    termination_protection.CHECK,
    retry_rules.CHECK,
    market_options.CHECK,
)
#: Checks of live resources that also look at templates.
SHARED_CHECKS: tuple[TemplateCheck, ...] = (
    gpu_jobs.CHECK,
    *instance_types.CHECKS,
    amazon_linux_2.CHECK,
    *environment_settings.CHECKS,
)
CHECKS = (*SHARED_CHECKS, *OWN_CHECKS)
#: Kinds of findings that only templates have.
KINDS = tuple(kind for check in OWN_CHECKS for kind in check.kinds)
