"""Children as containers of their step's image, by way of the docker command: the runner for what needs an image.

An attempt is three calls of docker: `create`, which also pulls (STARTING), `start --attach` (RUNNING), and `rm`, which
nobody waits for; after a failure `inspect` tells what became of the container. All of them are processes of the
spawner, so that no container waits for another's. A child with several commands is one container with a shell that is
given them one by one (``conversation``). What docker's clients use of CPU and memory says nothing of the containers:
no usage is recorded.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from batchyard.batch.jobs import Outcome, StatusReason
from batchyard.embedded import docker, proc
from batchyard.embedded.attempts import Attempt, Attempts, wall_clock_ms
from batchyard.embedded.calls import Calls
from batchyard.embedded.conversation import ATTACH, SHELL_ARGV, Bell, Conversation
from batchyard.embedded.docker import Place
from batchyard.embedded.runner import Ended, Started, Task
from batchyard.embedded.shell import SHELL
from batchyard.embedded.spawner import Exit, Output, Process, Spawner
from batchyard.errors import BatchyardError


class _Container(Attempt):
    __slots__ = ("conversation", "creation", "is_busy", "is_ready", "is_running", "name")

    def __init__(self, task: Task, output: Output, name: str) -> None:
        super().__init__(task, output)
        self.name = name
        #: `docker create`, while it is under way
        self.creation: Process | None = None
        #: from `docker start` to its end
        self.is_running = False
        #: only where there are several commands
        self.conversation: Conversation | None = None
        #: whether the shell in it has said its first word
        self.is_ready = False
        #: whether it has a command whose exit code we do not know yet
        self.is_busy = True


class ContainerRunner:
    name = "docker"

    def __init__(
        self,
        spawner: Spawner,
        place: Place,
        environ: Mapping[str, str],
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Raises ContainerEngineError."""
        self._spawner = spawner
        self.lock = spawner.lock
        self._place = place
        self._client = docker.require_engine(environ)
        # By this token the next engine of the run finds what this one has begun.
        self._environ = {**environ, "BATCHYARD_TOKEN": f"{place.token}."}
        self._calls = Calls(spawner, self._client, self._environ)
        self._user = docker.user_here(self._client, self._environ)
        #: a container that a dead engine had asked for may yet appear, under the name that it chose
        self._name_suffix = secrets.token_hex(3)
        self._attempts: Attempts[_Container] = Attempts(spawner, now_ms)
        #: those with a conversation
        self._talking: list[_Container] = []
        self._bell: Bell | None = None

    # -- the contract -----------------------------------------------------------------------------------------

    def start(self, task: Task) -> None:
        container = _Container(task, self._attempts.output_for(task), self._name_of(task))
        self._attempts.add(container)
        number = container.next_command()
        if number is None:
            # Earlier attempts have done it all.
            self._attempts.began(container)
            self._attempts.ended(container, container.outcome)
            return
        environ = docker.environ_of(task, self._user)
        argv = docker.create_argv(task, container.name, self._place, self._user, environ)
        argv += SHELL_ARGV if task.has_several else docker.command_argv(task.command(number))
        client_environ = docker.client_environ(self._calls.environ, environ)
        try:
            container.creation = self._calls.call(
                argv, partial(self._created, container), client_environ
            )
        except (OSError, ValueError) as exc:
            self._never_ran(container, docker.reason("CannotCreateContainerError", str(exc)))

    def listen(self, turn: Callable[[], None]) -> None:
        """All that happens, happens in ``wait``: whoever waits looks for news by itself."""

    def wake(self) -> None:
        self._spawner.wake()

    def wait(self, timeout_s: float) -> None:
        for exit in self._spawner.wait(0 if self._attempts.has_news else timeout_s):
            ended = exit.process.owner
            assert callable(ended)
            ended(exit)
        for container in self._talking:
            self._listen(container)

    def news(self) -> list[Started | Ended]:
        return self._attempts.take_news()

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        containers = self._attempts.of(tasks)
        for container in containers:
            container.is_stopping = True
        # Nothing of the user's runs in these yet.
        creations = [c.creation for c in containers if c.creation is not None]
        if creations:
            self._spawner.signal(creations, signal.SIGKILL)
        self._calls.signal([c.name for c in containers if c.is_running], signum)

    def tick(self) -> None:
        self._spawner.tick()
        self._calls.send_signals()
        for container in self._talking:
            self._pass_on_greeting(container)
            assert container.conversation is not None
            container.conversation.flush()

    def end_leftovers(self, token: str) -> int:
        count = docker.remove_all(self._client, self._environ, token)
        # A docker command that creates one at this moment is ended too, and what it has achieved removed.
        processes = proc.with_token(token)
        proc.kill_all(processes)
        return count + len(processes) + docker.remove_all(self._client, self._environ, token)

    def close(self) -> None:
        for container in list(self._talking):
            self._end_conversation(container)
        if self._bell is not None:
            self._bell.close()
        self._spawner.close()
        # With no engine that answers there is nothing to be done; `resume` ends them when there is one again.
        with suppress(BatchyardError):
            docker.remove_all(self._client, self._environ, self._place.token)

    # -- an attempt's life ------------------------------------------------------------------------------------

    def _created(self, container: _Container, exit_code: int, said: str) -> None:
        container.creation = None
        if container.is_stopping:
            self._calls.remove(container.name)
            self._never_ran(container, "")
        elif exit_code:
            # That there is no engine is no fault of this child, nor of the thousands after it: the run ends here.
            docker.require_engine(self._environ)
            self._never_ran(container, docker.why_not_created(said))
        else:
            self._begin(container)

    def _begin(self, container: _Container) -> None:
        container.is_running = True
        self._attempts.began(container)
        if not container.task.has_several:
            self._attach(container, self._client, ("docker", "start", "--attach", container.name))
            return
        if self._bell is None:
            self._bell = Bell(self._spawner.wake_fd)
        conversation = container.conversation = Conversation(container.task.mark, self._bell)
        self._talking.append(container)
        with conversation.their_ends() as ends:
            self._attach(
                container, SHELL, ("sh", "-c", ATTACH, self._client, container.name, *ends)
            )

    def _attach(self, container: _Container, program: str, argv: tuple[str, ...]) -> None:
        exited = partial(self._exited, container)
        self._spawner.spawn(program, argv, self._calls.environ, container.output, exited)

    def _exited(self, container: _Container, exit: Exit) -> None:
        container.is_running = False
        self._calls.forget(container.name)
        if container.conversation is not None:
            self._listen(container)
            self._end_conversation(container)
        elif exit.exit_code == 0:
            container.command_ended(0)
            container.is_busy = False
        if exit.exit_code == 0 and not container.is_busy and container.outcome.is_success:
            self._over(container, container.outcome)
        else:
            # What docker exits with may speak of docker itself (1, 125) and not of the command.
            argv = ("inspect", "--type", "container", "--format", "{{json .State}}", container.name)
            self._calls.call(argv, partial(self._inspected, container))

    def _inspected(self, container: _Container, exit_code: int, said: str) -> None:
        if exit_code:
            docker.require_engine(self._environ)
            self._over(
                container, Outcome(None, reason=docker.reason("CannotInspectContainerError", said))
            )
            return
        state = docker.parse_state(said)
        if state.never_started:
            container.started_ms = None
            self._calls.remove(container.name)
            self._never_ran(container, docker.reason("CannotStartContainerError", state.error))
        elif not state.is_over:
            # It runs, and we have lost sight of it. It must be gone before the next attempt begins.
            self._calls.call(
                ("rm", "--force", "--volumes", container.name), partial(self._lost, container)
            )
        else:
            container.was_out_of_memory = state.was_out_of_memory
            if container.is_busy:
                # The container has ended with the command, or before it: no success, whatever the exit code.
                container.command_ended(state.exit_code or 1)
            self._over(container, container.outcome)

    def _lost(self, container: _Container, exit_code: int, said: str) -> None:
        docker.require_engine(self._environ)
        why = docker.reason(
            "CannotInspectContainerError", "the docker command that was attached to it has ended"
        )
        self._over(container, Outcome(None, reason=why))

    def _over(self, container: _Container, outcome: Outcome) -> None:
        self._calls.remove(container.name)
        self._attempts.ended(container, outcome)

    def _never_ran(self, container: _Container, why: str) -> None:
        self._attempts.ended(container, Outcome(None, StatusReason.NOT_STARTED, why))

    # -- several commands in one container --------------------------------------------------------------------

    def _listen(self, container: _Container) -> None:
        """Takes the exit codes that came in, and gives it the next command."""
        conversation = container.conversation
        assert conversation is not None
        exit_codes = conversation.heard()
        self._pass_on_greeting(container)
        for exit_code in exit_codes:
            if container.is_ready:
                container.command_ended(exit_code)
                number = container.next_command()
            else:
                container.is_ready = True
                number = None if container.is_stopping else container.number
            if number is None:
                container.is_busy = False
                conversation.end()
            else:
                command = container.task.command(number)
                assert isinstance(command, str)
                conversation.say(command)

    def _end_conversation(self, container: _Container) -> None:
        self._talking.remove(container)
        assert container.conversation is not None
        container.conversation.close()
        self._pass_on_greeting(container)
        container.conversation = None

    def _pass_on_greeting(self, container: _Container) -> None:
        """To the log, by way of its pipe: as much as there is room for, since we are the ones who empty it."""
        conversation = container.conversation
        if conversation is None or not conversation.greeting:
            return
        # Opened anew: docker's own writes must go on waiting for room.
        path = f"/proc/self/fd/{container.output.write_end}"
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(BlockingIOError):
            sent = os.write(pipe, conversation.greeting)
            conversation.greeting = conversation.greeting[sent:]
        os.close(pipe)

    def _name_of(self, task: Task) -> str:
        child = f"{task.step}-{task.index_in_step}-{task.attempt}"
        return f"batchyard-{self._place.run_id}-{child}-{self._name_suffix}"
