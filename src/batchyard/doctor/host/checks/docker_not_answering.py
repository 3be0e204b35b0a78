"""BY304: Docker does not answer."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, find_unit, is_ecs_node
from batchyard.doctor.host.facts import Docker, HostFacts

KIND = Kind("BY304", Severity.ERROR, 90, "Docker answers")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if isinstance(facts.docker, Docker):
        return []
    unit = find_unit(facts, "docker.service")
    is_installed = unit is not None and unit.load != "not-found"
    if not is_installed and not is_ecs_node(facts):
        return None  # the machine is not meant to run containers
    evidence = (facts.docker.reason, *([f"docker.service is {unit.active}"] if unit else []))
    remedy = ("systemctl status docker", "journalctl -b -u docker -n 50 --no-pager")
    return Finding(KIND, "Docker does not answer: no container can be started", evidence, remedy)
