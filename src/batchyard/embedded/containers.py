"""The runner that starts children as containers of their step's image, with the docker command.

An attempt is three docker commands: `create`, which also pulls the image (STARTING),
`start --attach` (RUNNING), and `rm`. After a failure, `inspect` returns the state of the container.
All of them are processes of the spawner, so that no container waits for another one. A child with
several commands is one container with a shell that runs them one by one (``container_shell``). CPU
and memory usage comes from samples of the container's cgroup alone, since docker's processes do not
have the usage of the container.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from batchyard.batch.jobs import Outcome, StatusReason
from batchyard.embedded import docker, proc, short_programs
from batchyard.embedded.attempts import Attempt, Attempts, wall_clock_ms
from batchyard.embedded.container_shell import (
    ATTACH,
    SHELL_ARGV,
    ContainerShell,
    PipeWatcher,
    make_separator,
)
from batchyard.embedded.docker import ContainerDefaults
from batchyard.embedded.docker_calls import DockerCalls
from batchyard.embedded.runner import Event, Task
from batchyard.embedded.shell import SHELL
from batchyard.embedded.spawner import Exit, Output, Process, Spawner
from batchyard.errors import BatchyardError

if TYPE_CHECKING:
    from batchyard.embedded.sampled_attempts import RunningAttempt

#: Kills the processes of a container that have a text, the argument, in their environment.
_KILL_MARKED = (
    'for folder in /proc/[0-9]*; do grep -qs "$0" "$folder/environ" && kill -9 "${folder#/proc/}"; '
    "done"
)


class _Container(Attempt):
    """An attempt in a container."""

    __slots__ = (
        "creation",
        "exit_codes",
        "id",
        "is_busy",
        "is_ready",
        "is_running",
        "name",
        "shell",
    )

    def __init__(self, task: Task, output: Output, name: str) -> None:
        super().__init__(task, output)
        self.name = name
        #: The id that Docker has given it; empty before that.
        self.id = ""
        #: The `docker create` that runs.
        self.creation: Process | None = None
        #: True from `docker start` to the end of the container.
        self.is_running = False
        #: Only for several commands.
        self.shell: ContainerShell | None = None
        #: What the shell has reported, and was not handled yet.
        self.exit_codes: deque[int] = deque()
        #: Whether the shell in the container has reported that it runs.
        self.is_ready = False
        #: Whether a command runs whose exit code is not known yet.
        self.is_busy = True


class ContainerRunner:
    """See ``runner.Runner``."""

    name = "docker"

    def __init__(
        self,
        spawner: Spawner,
        defaults: ContainerDefaults,
        environ: Mapping[str, str],
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Raises ContainerEngineError."""
        self._spawner = spawner
        self.lock = spawner.lock
        self._defaults = defaults
        self._client = docker.require_engine(environ)
        # With this token the next engine of the run finds the processes of this one.
        self._environ = {**environ, "BATCHYARD_TOKEN": f"{defaults.token}."}
        self._calls = DockerCalls(spawner, self._client, self._environ)
        self._user = docker.find_current_user(self._client, self._environ)
        #: Makes names unique: a container that a dead engine has requested may still appear.
        self._name_suffix = secrets.token_hex(3)
        self._attempts: Attempts[_Container] = Attempts(spawner, now_ms)
        #: Containers that have a shell.
        self._with_shell: list[_Container] = []
        self._pipe_watcher: PipeWatcher | None = None

    # -- the contract --------------------------------------------------------------------------

    def start(self, task: Task, *followers: Task) -> None:
        assert not followers
        container = _Container(task, self._attempts.output_for(task), self._name_of(task))
        self._attempts.add(container)
        number = self._attempts.begin_command(container)
        if number is None:
            # Earlier attempts have run all commands.
            self._attempts.record_start(container)
            self._attempts.record_end(container, container.outcome)
            return
        environ = docker.environ_of(task, self._user)
        argv = docker.create_argv(task, container.name, self._defaults, self._user, environ)
        argv += (
            SHELL_ARGV if task.has_several_commands else docker.command_argv(task.command(number))
        )
        client_environ = docker.client_environ(self._calls.environ, environ)
        try:
            container.creation = self._calls.call(
                argv, partial(self._on_created, container), client_environ
            )
        except (OSError, ValueError) as exc:
            self._finish_unstarted(
                container, docker.format_reason("CannotCreateContainerError", str(exc))
            )

    def listen(self, turn: Callable[[], None]) -> None:
        """Do nothing: all events come up in ``wait``, whose caller looks for them anyway."""

    def wake(self) -> None:
        self._spawner.wake()

    def wait(self, timeout_s: float) -> None:
        timeout_s = 0 if self._attempts.has_events else timeout_s
        short_programs.handle_ends(self._spawner.wait(timeout_s))
        for container in self._with_shell:
            self._run_next_commands(container)

    def take_events(self) -> list[Event]:
        return self._attempts.take_events()

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        containers = self._attempts.find(tasks)
        for container in containers:
            container.is_stopping = True
        # No command of the user runs in these containers yet.
        creations = [c.creation for c in containers if c.creation is not None]
        if creations:
            self._spawner.signal(creations, signal.SIGKILL)
        self._calls.signal([c.name for c in containers if c.is_running], signum)

    def probe(
        self, task: Task, command: tuple[str, ...], on_end: Callable[[int], None]
    ) -> Callable[[], None]:
        """Run a command in the container of a running attempt; see ``runner.Prober``."""
        (container,) = self._attempts.find([task])
        mark = f"BATCHYARD_PROBE={secrets.token_hex(8)}"
        process = self._calls.call(
            ("exec", "--env", mark, container.name, *command),
            lambda exit_code, output: on_end(exit_code),
            keeps_output=False,
        )
        return partial(self._kill_probe, container.name, mark, process)

    def _kill_probe(self, name: str, mark: str, process: Process) -> None:
        """Kill a command in a container: without its `docker exec`, it would go on there."""
        self._spawner.signal([process], signal.SIGKILL)
        with suppress(OSError, ValueError):
            self._calls.call(
                ("exec", name, "sh", "-c", _KILL_MARKED, mark),
                lambda exit_code, output: None,
                keeps_output=False,
            )

    def tick(self) -> None:
        self._spawner.tick()
        self._calls.send_signals()
        for container in self._with_shell:
            self._log_greeting(container)
            assert container.shell is not None
            container.shell.flush()

    def list_running(self) -> list[RunningAttempt]:
        """See ``sampled_attempts.SampledRunner``."""
        from batchyard.embedded.sampled_attempts import RunningAttempt

        return [
            RunningAttempt(container, container_id=container.id)
            for container in self._attempts.list_all()
            if container.is_running and container.id
        ]

    def end_leftovers(self, token: str) -> int:
        count = docker.remove_all(self._client, self._environ, token)
        # A `docker create` may still run: it is killed, and its container is removed too.
        processes = proc.find_by_token(token)
        proc.kill_all(processes)
        return count + len(processes) + docker.remove_all(self._client, self._environ, token)

    def close(self) -> None:
        for container in list(self._with_shell):
            self._close_shell(container)
        if self._pipe_watcher is not None:
            self._pipe_watcher.close()
        self._spawner.close()
        # Without a Docker engine, the containers remain until the next `resume`.
        with suppress(BatchyardError):
            docker.remove_all(self._client, self._environ, self._defaults.token)

    # -- from creation to end ------------------------------------------------------------------

    def _on_created(self, container: _Container, exit_code: int, output: str) -> None:
        container.creation = None
        if container.is_stopping:
            self._calls.remove(container.name)
            self._finish_unstarted(container, "")
        elif exit_code:
            # Without a Docker engine every child would fail, so this raises and ends the run.
            docker.require_engine(self._environ)
            self._finish_unstarted(container, docker.creation_failure_reason(output))
        else:
            container.id = docker.parse_container_id(output)
            self._begin(container)

    def _begin(self, container: _Container) -> None:
        container.is_running = True
        self._attempts.record_start(container)
        if not container.task.has_several_commands:
            self._attach(container, self._client, ("docker", "start", "--attach", container.name))
            return
        if self._pipe_watcher is None:
            self._pipe_watcher = PipeWatcher(self._spawner.wake_fd)
        shell = container.shell = ContainerShell(container.task.mark, self._pipe_watcher)
        container.output.separator = make_separator(container.task.mark)
        self._with_shell.append(container)
        with shell.inheritable_ends() as ends:
            self._attach(
                container, SHELL, ("sh", "-c", ATTACH, self._client, container.name, *ends)
            )

    def _attach(self, container: _Container, program: str, argv: tuple[str, ...]) -> None:
        on_exit = partial(self._on_exited, container)
        self._spawner.spawn(program, argv, self._calls.environ, container.output, on_exit)

    def _on_exited(self, container: _Container, exit: Exit) -> None:
        container.is_running = False
        self._calls.forget(container.name)
        if container.shell is not None:
            self._run_next_commands(container)
            self._close_shell(container)
        elif exit.exit_code == 0:
            self._attempts.end_command(container, 0)
            container.is_busy = False
        if exit.exit_code == 0 and not container.is_busy and container.outcome.is_success:
            self._finish(container, container.outcome)
        else:
            # Exit codes like 1 and 125 may come from docker itself and not from the command.
            argv = ("inspect", "--type", "container", "--format", "{{json .State}}", container.name)
            self._calls.call(argv, partial(self._on_inspected, container))

    def _on_inspected(self, container: _Container, exit_code: int, output: str) -> None:
        if exit_code:
            docker.require_engine(self._environ)
            self._finish(
                container,
                Outcome(None, reason=docker.format_reason("CannotInspectContainerError", output)),
            )
            return
        state = docker.parse_state(output)
        if state.never_started:
            container.started_ms = None
            self._calls.remove(container.name)
            self._finish_unstarted(
                container, docker.format_reason("CannotStartContainerError", state.error)
            )
        elif not state.is_over:
            # The container runs without an attached docker command. It must be removed before
            # the next attempt begins.
            self._calls.call(
                ("rm", "--force", "--volumes", container.name),
                partial(self._on_detached_removed, container),
            )
        else:
            container.was_out_of_memory = state.was_out_of_memory
            if container.is_busy:
                # The container ended before its command did: a failure, even with exit code 0.
                self._attempts.end_command(container, state.exit_code or 1)
            self._finish(container, container.outcome)

    def _on_detached_removed(self, container: _Container, exit_code: int, output: str) -> None:
        docker.require_engine(self._environ)
        reason = docker.format_reason(
            "CannotInspectContainerError", "the docker command that was attached to it has ended"
        )
        self._finish(container, Outcome(None, reason=reason))

    def _finish(self, container: _Container, outcome: Outcome) -> None:
        self._calls.remove(container.name)
        self._attempts.record_end(container, outcome)

    def _finish_unstarted(self, container: _Container, reason: str) -> None:
        self._attempts.record_end(container, Outcome(None, StatusReason.NOT_STARTED, reason))

    # -- several commands in one container -----------------------------------------------------

    def _run_next_commands(self, container: _Container) -> None:
        """Record the exit codes that the shell has reported, and send it the next command."""
        shell = container.shell
        assert shell is not None
        container.exit_codes.extend(shell.take_exit_codes())
        self._log_greeting(container)
        while container.exit_codes:
            if container.is_ready:
                # The exit code can arrive before the end of the output.
                if container.is_running and not self._attempts.has_output_end(container):
                    return
                self._attempts.end_command(container, container.exit_codes.popleft())
                number = self._attempts.begin_command(container)
            else:
                container.exit_codes.popleft()
                container.is_ready = True
                number = None if container.is_stopping else container.number
            if number is None:
                container.is_busy = False
                shell.end()
            else:
                command = container.task.command(number)
                assert isinstance(command, str)
                shell.run(command, number)

    def _close_shell(self, container: _Container) -> None:
        self._with_shell.remove(container)
        assert container.shell is not None
        container.shell.close()
        self._log_greeting(container)
        container.shell = None

    def _log_greeting(self, container: _Container) -> None:
        """Write the output of the entrypoint to the log's pipe, as much as the pipe takes.

        A write must not block, since this thread is also the reader of the pipe.
        """
        shell = container.shell
        if shell is None or not shell.greeting:
            return
        # Opened again without blocking: docker's own writes must block.
        path = f"/proc/self/fd/{container.output.write_end}"
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(BlockingIOError):
            written = os.write(pipe, shell.greeting)
            shell.greeting = shell.greeting[written:]
        os.close(pipe)

    def _name_of(self, task: Task) -> str:
        child = f"{task.step}-{task.index_in_step}-{task.attempt}"
        return f"batchyard-{self._defaults.run_id}-{child}-{self._name_suffix}"
