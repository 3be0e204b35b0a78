"""Start, watch, change and delete services. `cli/service` and the Python interface call it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from batchyard import ec2_types
from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.ecs_services import EcsServices
from batchyard.aws.holdings import Holdings
from batchyard.aws.logs import Logs
from batchyard.aws.session import AwsSession
from batchyard.environments import near_hint
from batchyard.errors import InputError, OperationalError
from batchyard.infra import catalogue, deploying, destroying
from batchyard.infra.catalogue import Template
from batchyard.infra.destroying import StackToDelete
from batchyard.infra.instance_choices import list_types
from batchyard.infra.stacks import (
    Dialog,
    StackFailedError,
    Stacks,
    outputs_of,
    parameters_of,
)
from batchyard.services import states
from batchyard.services.rollouts import Rollout, RolloutDialog
from batchyard.services.service import (
    CLUSTERS,
    Service,
    stack_name,
    stack_title,
    template_name,
)
from batchyard.services.service_template import COUNT, make_template, parse_template
from batchyard.services.states import ServiceState
from batchyard.units import format_memory

_POLL_S = 2.0
_RESTART_HINT = "`batchyard service logs {name} --env {environment}` shows the output"


@dataclass(frozen=True, slots=True)
class DeployedService:
    """A service whose stack exists."""

    name: str
    environment: str
    cluster: str
    log_group: str
    #: State of the stack.
    stack_status: str

    @property
    def stack(self) -> str:
        return stack_name(self.environment, self.name)


class Services:
    """The services of one environment."""

    def __init__(
        self,
        session: AwsSession,
        environment: str,
        dialog: Dialog,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        catalogue.check_environment(environment)
        self._aws = CloudFormation(session)
        self._ecs = EcsServices(session)
        self._logs = Logs(session)
        self._holdings = Holdings(session)
        self._environment = environment
        self._dialog = dialog
        self._sleep = sleep
        self._clock = clock

    # -- finding -----------------------------------------------------------------------------------

    def list_names(self) -> list[str]:
        """Return the names of the environment's services."""
        beginning, end = stack_title(self._environment, "\n").split("\n")
        descriptions = [summary.get("TemplateDescription", "") for summary in self._aws.summaries()]
        return sorted(
            text.removeprefix(beginning).removesuffix(end)
            for text in descriptions
            if text.startswith(beginning) and text.endswith(end)
        )

    def find(self, name: str) -> DeployedService:
        """Return a service. Raises InputError if there is none of that name."""
        stack = self._aws.stack(stack_name(self._environment, name))
        outputs = outputs_of(stack) if stack else {}
        if stack is None or stack.get("Description") != stack_title(self._environment, name):
            raise self._not_found(name)
        if "Cluster" not in outputs:
            raise OperationalError(
                f"the service {name} is not up: its stack {stack['StackName']} is"
                f" {stack['StackStatus']}",
                hint="`batchyard service up FILE` goes on with it, `batchyard service down`"
                " deletes it",
            )
        return DeployedService(
            name,
            self._environment,
            outputs["Cluster"],
            outputs["LogGroup"],
            stack["StackStatus"],
        )

    def _not_found(self, name: str) -> InputError:
        names = self.list_names()
        listed = (
            f"it has {', '.join(names)}" if names else "it has none; `service up FILE` adds one"
        )
        return InputError(
            f"there is no service {name!r} in environment {self._environment!r}",
            hint=near_hint(name, names) or listed,
        )

    # -- up ----------------------------------------------------------------------------------------

    def up(self, service: Service, image: str) -> bool:
        """Create or update a service, and return whether anything changed.

        ``image`` is the address to pull. Raises InputError before anything is sent if the service
        cannot run on the cluster, and StackFailedError with the cause if its tasks do not run.
        """
        cluster = self._choose_cluster(service)
        cluster_name = f"{self._environment}-{cluster}"
        self._require_room(service, cluster)
        self._require_own_stack(service.name, cluster_name)
        template = make_template(service, self._environment, cluster, image)
        settings = {} if service.count is None else {COUNT: str(service.count)}
        return self._deploy(service.name, cluster_name, template, settings)

    def _choose_cluster(self, service: Service) -> str:
        exports = {export["Name"] for export in self._aws.exports()}
        deployed = [name for name in CLUSTERS if f"{self._environment}-{name}-cluster" in exports]
        wanted = service.cluster or next(iter(deployed), CLUSTERS[0])
        if wanted not in deployed:
            raise InputError(
                f"environment {self._environment!r} has no cluster for services: the stack"
                f" {self._environment}-{wanted} is not deployed",
                hint=f"`batchyard deploy {wanted} --env {self._environment}` makes one",
            )
        if wanted == "ecs" and f"{self._environment}-ecs-task-role" not in exports:
            raise InputError(
                f"the stack {self._environment}-ecs was deployed by an older batchyard",
                hint=f"`batchyard deploy iam ecs --env {self._environment}` updates it",
            )
        return wanted

    def _require_room(self, service: Service, cluster: str) -> None:
        """Raise InputError if no node that the cluster may have is large enough for a task."""
        stack = self._aws.stack(f"{self._environment}-{cluster}") or {}
        names = list_types(parameters_of(stack).get("InstanceTypes", ""))
        problem = find_misfit(service, names, fits_every=cluster == "ecs")
        if problem:
            raise InputError(
                problem,
                hint=f"ask for less, or `batchyard deploy {cluster} --env {self._environment}"
                " --set InstanceTypes=...` with larger types",
            )

    def _require_own_stack(self, name: str, cluster: str) -> None:
        """Raise InputError if the stack is not this service's, or its service cannot be updated."""
        stack = self._aws.stack(stack_name(self._environment, name)) or {}
        description = stack.get("Description", "")
        if description and description != stack_title(self._environment, name):
            raise InputError(
                f"the stack {stack_name(self._environment, name)} exists, and is no service of"
                f" {self._environment} (it says: {description})",
                hint="give the service another name",
            )
        deployed = outputs_of(stack).get("Cluster", cluster)
        if deployed != cluster:
            raise InputError(
                f"the service {name} is on the cluster {deployed}, and cannot move to {cluster}",
                hint=f"`batchyard service down {name} --env {self._environment}` first",
            )

    def _deploy(
        self, name: str, cluster: str, template: Template, settings: Mapping[str, str]
    ) -> bool:
        rollout = self._watch(name, cluster)
        stacks = Stacks(self._aws, RolloutDialog(self._dialog, rollout), self._sleep, self._clock)
        rollout.begin()
        try:
            changed = deploying.deploy(
                stacks, self._dialog, [template], self._environment, settings
            )
        except StackFailedError as exc:
            cause, hint = rollout.find_cause()
            if not cause:
                raise
            raise StackFailedError(
                f"{name}: its tasks do not stay up: {cause}; AWS has undone the change",
                hint=hint or exc.hint,
            ) from exc
        return bool(changed)

    def _watch(self, name: str, cluster: str) -> Rollout:
        log_group = f"/batchyard/{self._environment}/service/{name}"
        family = stack_name(self._environment, name)
        return Rollout(self._ecs, self._logs, cluster, name, family, log_group)

    # -- a service that is up ----------------------------------------------------------------------

    def status(self, name: str) -> ServiceState:
        deployed = self.find(name)
        service = self._ecs.service(deployed.cluster, name)
        if service is None:
            raise OperationalError(
                f"ECS has no service {name} on the cluster {deployed.cluster}, but the stack"
                f" {deployed.stack} exists",
                hint="somebody deleted the service by hand: `batchyard service down`, then `up`",
            )
        tasks = self._ecs.tasks(deployed.cluster, deployed.stack, "RUNNING")
        stopped = self._ecs.tasks(deployed.cluster, deployed.stack, "STOPPED")
        arns = [task["containerInstanceArn"] for task in tasks if "containerInstanceArn" in task]
        nodes = self._ecs.instance_ids(deployed.cluster, list(dict.fromkeys(arns)))
        return states.to_service_state(service, self._environment, tasks, stopped, nodes)

    def list_states(self) -> dict[str, ServiceState | str]:
        """Return name -> the state of each service, or why it is not up."""
        states_by_name: dict[str, ServiceState | str] = {}
        for name in self.list_names():
            try:
                states_by_name[name] = self.status(name)
            except OperationalError as exc:
                states_by_name[name] = exc.message
        return states_by_name

    def read_logs(
        self, name: str, since_s: float, *, follow: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Yield (id of the task, line) of the output since a time; with ``follow``, for ever."""
        deployed = self.find(name)
        start_ms, seen = int(since_s * 1000), set[str]()
        while True:
            # A line may arrive after a later one: the last ten seconds are read again.
            events = self._logs.group_events(deployed.log_group, start_ms)
            fresh = [event for event in events if event["eventId"] not in seen]
            for event in sorted(fresh, key=lambda event: int(event["timestamp"])):
                seen.add(event["eventId"])
                yield str(event["logStreamName"]).rpartition("/")[2], str(event["message"])
                start_ms = max(start_ms, int(event["timestamp"]) - 10_000)
            if not follow:
                return
            self._sleep(_POLL_S)

    def scale(self, name: str, count: int) -> bool:
        """Keep another number of tasks running; return whether that is a change."""
        deployed = self.find(name)
        template = parse_template(name, self._aws.template(deployed.stack))
        return self._deploy(name, deployed.cluster, template, {COUNT: str(count)})

    def restart(self, name: str) -> None:
        """Replace all tasks, and wait until the new ones run. Raises OperationalError if not."""
        deployed = self.find(name)
        rollout = self._watch(name, deployed.cluster)
        rollout.begin()
        deployment_id = self._ecs.restart(deployed.cluster, name)["deployments"][0]["id"]
        while True:
            for line in rollout.look():
                self._dialog.say(f"  {line}")
            service = self._ecs.service(deployed.cluster, name) or {"deployments": []}
            outcome = _find_outcome(service["deployments"], deployment_id)
            if outcome == "COMPLETED":
                return
            if outcome == "FAILED":
                cause, hint = rollout.find_cause()
                own_hint = _RESTART_HINT.format(name=name, environment=self._environment)
                raise OperationalError(
                    f"{name}: its new tasks do not stay up: {cause or 'ECS gave no reason'}",
                    hint=hint or own_hint,
                )
            self._sleep(_POLL_S)

    # -- down --------------------------------------------------------------------------------------

    def find_to_delete(self, name: str) -> StackToDelete | None:
        """Return the stack of a service with what it holds. Raises InputError if there is none.

        A deletion that is in progress is waited for: None if it has left nothing to delete.
        """
        stack = self._aws.stack(stack_name(self._environment, name))
        if stack is None or stack.get("Description", "") not in (
            stack_title(self._environment, name),
            "",
        ):
            raise self._not_found(name)
        stacks = Stacks(self._aws, self._dialog, self._sleep, self._clock)
        # A creation that waits for a node can be given up; an update cannot.
        if stack["StackStatus"] != "CREATE_IN_PROGRESS":
            stacks.wait_until_idle(stack["StackName"])
            stack = self._aws.stack(stack_name(self._environment, name))
            if stack is None:
                return None
        template = Template(template_name(name), "", "", {}, (), frozenset(), frozenset())
        return destroying.describe_stack_to_delete(self._aws, self._holdings, template, stack)

    def down(self, to_delete: StackToDelete) -> None:
        """Delete a service with its log group. Raises StackFailedError."""
        stacks = Stacks(self._aws, self._dialog, self._sleep, self._clock)
        stacks.delete(to_delete.stack, to_delete.stack_id)


def _find_outcome(deployments: list[Any], deployment_id: str) -> str:
    """Return COMPLETED, FAILED or IN_PROGRESS of a deployment."""
    by_id = {entry["id"]: entry for entry in deployments}
    state = str(by_id.get(deployment_id, {}).get("rolloutState", "FAILED"))
    return "IN_PROGRESS" if state == "COMPLETED" and len(by_id) > 1 else state


def find_misfit(service: Service, type_names: list[str], *, fits_every: bool) -> str:
    """Return why the nodes are too small for a task of the service; empty if they are not.

    A capacity provider launches any type of its group, so a task must fit every one.
    """
    nodes = ec2_types.expand(type_names) if type_names else ()
    misfits = [(node.name, misfit) for node in nodes if (misfit := _compare(service, node.name))]
    if not misfits or (not fits_every and len(misfits) < len(nodes)):
        return ""
    node_name, (key, amount, offer) = misfits[0]
    place = f"{service.places[key]}: " if key in service.places else ""
    return f"{place}{key} is {amount}, and a node of type {node_name} has {offer}"


def _compare(service: Service, type_name: str) -> tuple[str, str, str] | None:
    """Return key, amount and offer of the first thing that a type has too little of."""
    offer = ec2_types.registered_resources(type_name)
    if offer is None:
        return None
    if service.gpus > offer.gpus:
        return "gpus", str(service.gpus), str(offer.gpus)
    if service.cpus > offer.vcpus:
        return "cpus", str(service.cpus), str(offer.vcpus)
    if service.memory_mib > offer.memory_mib:
        amounts = format_memory(service.memory_mib), format_memory(offer.memory_mib)
        return "memory", *amounts
    return None
