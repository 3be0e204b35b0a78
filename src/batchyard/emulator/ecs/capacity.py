"""Capacity providers: tasks wait for instances, and managed scaling launches and ends them."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.emulator.ecs import instances
from batchyard.emulator.ecs.placement import (
    Room,
    count_missing_instances,
    find_lack,
    find_obstacle,
)
from batchyard.emulator.ecs.records import EcsTask
from batchyard.emulator.ecs.surroundings import Ec2Instance, Provider
from batchyard.emulator.ecs.task_states import Stop
from batchyard.emulator.ecs.tasks import (
    find_provider,
    machine_room,
    place_waiting,
    request_stop,
    to_candidate,
)
from batchyard.emulator.state import EndpointState

#: Time after which ECS stops a task that no instance came for.
_GIVE_UP_S = 600.0


def advance(state: EndpointState, booting: list[Ec2Instance]) -> None:
    """Place the tasks that wait, launch instances for the others, and end idle instances."""
    waiting: dict[str, list[EcsTask]] = {}
    for task in state.ecs.live_tasks():
        if task.is_placed or task.stopping_s is not None:
            continue
        if not task.refusal:
            place_waiting(state, task)
        if not task.is_placed and not _give_up(state, task):
            waiting.setdefault(task.capacity_provider, []).append(task)
    for provider in state.ecs.surroundings.list_providers():
        tasks = waiting.get(provider.name, [])
        if tasks and provider.is_managed:
            _scale_out(state, provider, tasks, booting)
        elif not tasks and provider.is_managed:
            _scale_in(state, provider)


def _give_up(state: EndpointState, task: EcsTask) -> bool:
    """Stop a task that can never be placed, or that waits for too long."""
    provider = find_provider(state, task.capacity_provider)
    lack = "EMPTY CAPACITY PROVIDER" if provider is None else _find_reason(state, task, provider)
    if lack is None:
        return False
    request_stop(state, task, Stop("TaskFailedToStart", f"TaskFailedToStart: {lack}"))
    return True


def _find_reason(state: EndpointState, task: EcsTask, provider: Provider) -> str | None:
    need = task.spec.need
    empty = _empty_room(state, provider)
    lack = task.refusal or find_lack(need, machine_room(state)) or find_lack(need, empty)
    limit_s = state.faults.settings.provision_wait or _GIVE_UP_S
    if lack or state.clock() - task.created_s <= limit_s:
        return lack
    rooms = [
        state.ecs.room_of(instance)
        for instance in state.ecs.instances.values()
        if instance.group == provider.group
    ]
    candidate = to_candidate(task)
    obstacles = (find_obstacle(candidate, room) for room in (*rooms, empty))
    return next(filter(None, obstacles), "NO ACTIVE INSTANCES").rstrip(".")


def _empty_room(state: EndpointState, provider: Provider) -> Room:
    """Return a new instance of a provider, with the attributes that every instance has."""
    resources = ec2_types.registered_resources(provider.type_name) or state.machine
    attributes = instances.builtin_attributes(provider.type_name, provider.zone)
    return Room(
        "new",
        resources.vcpus * 1024,
        resources.memory_mib,
        resources.gpus,
        attributes={**attributes, **provider.attributes},
    )


def _scale_out(
    state: EndpointState, provider: Provider, tasks: list[EcsTask], booting: list[Ec2Instance]
) -> None:
    empty = _empty_room(state, provider)
    rooms = [
        state.ecs.room_of(instance)
        for instance in state.ecs.instances.values()
        if instance.group == provider.group and instance.status == "ACTIVE"
    ]
    rooms += [empty for instance in booting if instance.group == provider.group]
    missing = count_missing_instances(
        [to_candidate(task) for task in tasks],
        rooms,
        empty,
        provider.max_size - provider.desired,
    )
    if missing:
        state.ecs.surroundings.set_desired(provider.group, provider.desired + missing)


def _scale_in(state: EndpointState, provider: Provider) -> None:
    """End the instances that have been idle for as long as those of AWS Batch may be."""
    idle_since_s = state.clock() - state.host_delays.idle_s
    spare = provider.desired - provider.min_size
    for instance in list(state.ecs.instances.values()):
        if spare <= 0:
            return
        is_idle = instance.idle_since_s <= idle_since_s and not state.ecs.tasks_on(instance)
        if instance.group == provider.group and is_idle:
            state.ecs.surroundings.end_instance(instance.ec2_id, is_replaced=False)
            spare -= 1
