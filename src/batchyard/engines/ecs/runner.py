"""The runner of ECS: an attempt of a child is a task.

One thread starts tasks, and another one looks at them and stops them, so that the loop never waits
for AWS. Both change the state of the runner with its lock held, and make calls without it.
"""

from __future__ import annotations

import os
import select
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from batchyard.aws.ecs import MAX_DESCRIBED_TASKS, Ecs, StartedTasks
from batchyard.aws.session import AwsRefusedError
from batchyard.batch.jobs import Outcome, StatusReason
from batchyard.embedded.runner import Ended, Event, Started, Task
from batchyard.engines.base import Backoff, Polling
from batchyard.engines.busy_service import PatientCaller
from batchyard.engines.ecs import outcomes
from batchyard.engines.ecs.launches import Launches
from batchyard.engines.ecs.pending_tasks import PendingTasks, key_of
from batchyard.engines.ecs.requests import LAUNCH_TAG, Launch

T = TypeVar("T")

#: Between two looks at the tasks of a run.
_POLLING = Polling(0.5, 10.0)
#: A new task may be unknown to DescribeTasks for so long.
_VISIBLE_S = 60.0
_STOP_REASON = "stopped by batchyard"
#: A clientToken is known for 24 hours, or for one hour after the end of its tasks.
_TOKEN_S = 3000.0
_JOIN_S = 5.0
#: Error codes of requests that ECS would refuse every time.
_REFUSED_CODES = ("InvalidParameterException", "ClientException", "UnsupportedFeatureException")
#: In the messages of errors that only mean that there is no room now.
_NO_ROOM = (
    "PROVISIONING",
    "No Container Instances were found",
    "reached the limit on the number of",
    # Of EC2, which ECS asks for subnets and security groups.
    "RequestLimitExceeded",
    "Rate exceeded",
)
#: States of a task that is over; ECS shows the second one after a while.
_OVER = ("STOPPED", "DELETED")


class _ClosedError(Exception):
    """The runner was closed while a call waited for an answer."""


class _OpenTask:
    """A task of ECS that is not over."""

    __slots__ = ("is_stop_sent", "missing_since_s", "started_ms", "status", "task", "was_adopted")

    def __init__(self, task: Task, *, was_adopted: bool) -> None:
        self.task = task
        #: Since when DescribeTasks does not know the task; None if it does.
        self.missing_since_s: float | None = None
        self.was_adopted = was_adopted
        self.status = ""
        self.started_ms: int | None = None
        self.is_stop_sent = False


class EcsRunner:
    """See Runner for the contract."""

    name = "task"

    def __init__(
        self,
        ecs: Ecs,
        cluster: str,
        launches: Launches,
        make_request: Callable[[Launch], Mapping[str, Any]],
        is_dynamic: Callable[[int], bool],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``is_dynamic``: whether the children of the job of a number are alike."""
        self.lock = threading.Lock()
        self._ecs, self._cluster = ecs, cluster
        self._launches = launches
        self._make_request = make_request
        self._clock, self._monotonic = clock, monotonic
        self._pending = PendingTasks(is_dynamic, monotonic)
        #: ARN -> task.
        self._open: dict[str, _OpenTask] = {}
        #: Tasks that are to be stopped.
        self._stopping: set[Task] = set()
        self._events: list[Event] = []
        #: Sentences for the user.
        self._notes: list[str] = []
        #: Grows whenever a task changes, so that looks become frequent again.
        self._changes = 0
        self._changed = threading.Condition(self.lock)
        self._is_closing = threading.Event()
        self._failure: BaseException | None = None
        self._wake_read, self.wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._threads: list[threading.Thread] = []

    # -- the contract ----------------------------------------------------------------------------

    def listen(self, turn: Callable[[], None]) -> None:
        """Start the threads. Turns are taken by the thread that waits."""
        for target in (self._launch_tasks, self._observe_tasks):
            thread = threading.Thread(target=self._guard, args=(target,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def start(self, task: Task, *followers: Task) -> None:
        assert not followers
        launched = self._launches.find(key_of(task))
        if launched is not None and launched.arn is not None:
            self._open[launched.arn] = _OpenTask(task, was_adopted=True)
        else:
            self._pending.add(task, launched.launch if launched else None)
        self._note_change()

    def wait(self, timeout_s: float) -> None:
        if not self._events and self._failure is None:
            self.lock.release()
            try:
                select.select([self._wake_read], [], [], timeout_s)
            finally:
                self.lock.acquire()
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._failure is not None:
            raise self._failure

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        with suppress(BlockingIOError):  # a full pipe ends the wait anyway
            os.write(self.wake_fd, b"\0")

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        """Stop the tasks. ECS itself sends SIGTERM, and SIGKILL after the container's time."""
        for task in tasks:
            if self._pending.remove(task):
                self._end(task, Outcome(None, StatusReason.NOT_STARTED))
            else:
                self._stopping.add(task)
        self._note_change()

    def tick(self) -> None:
        """Do nothing: the threads look at the tasks."""

    def end_leftovers(self, token: str) -> int:
        """Do nothing: tasks of an earlier process are adopted."""
        return 0

    def close(self) -> None:
        """End the threads. Tasks that run go on, and a later process finds them."""
        self._is_closing.set()
        with self.lock:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_S)
        os.close(self._wake_read)
        os.close(self.wake_fd)

    def stop_leftovers(self, started_by: str) -> None:
        """Stop tasks of the run that no attempt is about any more. Call without the lock.

        An earlier process may have died between the decision to stop them and its requests.
        """
        call = self._make_caller()
        for arn in call(partial(self._ecs.find_running_tasks, self._cluster, started_by)):
            call(partial(self._ecs.stop_task, self._cluster, arn, _STOP_REASON))

    # -- for the site ----------------------------------------------------------------------------

    @property
    def settled_count(self) -> int:
        """The number of tasks that run, or that an earlier process has started."""
        tasks = self._open.values()
        return sum(entry.started_ms is not None or entry.was_adopted for entry in tasks)

    def list_waiting(self) -> list[Task]:
        """Return the attempts that are known not to have begun. The lock is held.

        A task of an earlier process may run: it is not known before ECS has shown it.
        """
        tasks = self._open.values()
        starting = [entry.task for entry in tasks if entry.status and entry.started_ms is None]
        return [*self._pending.list_all(), *starting]

    def take_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    # -- threads ---------------------------------------------------------------------------------

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except _ClosedError:
            return
        except BaseException as exc:
            with self.lock:
                self._failure = exc
            if not self._is_closing.is_set():
                self.wake()

    def _make_caller(self) -> Callable[[Callable[[], Any]], Any]:
        """Return a function that makes calls until AWS answers, or the runner is closed."""
        patient = PatientCaller(self._add_note, self._sleep, was_answered=True)

        def call(ask: Callable[[], T]) -> T:
            def ask_unless_closed() -> T:
                if self._is_closing.is_set():
                    raise _ClosedError
                return ask()

            return patient.call(ask_unless_closed)

        return call

    def _sleep(self, seconds: float) -> None:
        self._is_closing.wait(seconds)

    def _add_note(self, text: str) -> None:
        with self.lock:
            self._notes.append(text)

    def _wait_for_change(self, timeout_s: float | None) -> None:
        """Wait, with the lock held: the runner may have been closed before it was acquired."""
        if not self._is_closing.is_set():
            self._changed.wait(timeout_s)

    def _note_change(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _end(self, task: Task, outcome: Outcome, started_ms: int | None = None) -> None:
        self._stopping.discard(task)
        ended_ms = int(self._clock() * 1000)
        self._events.append(Ended(task, outcome, started_ms, ended_ms, 0.0, 0.0, 0, None, None))

    # -- starting tasks --------------------------------------------------------------------------

    def _launch_tasks(self) -> None:
        call = self._make_caller()
        while not self._is_closing.is_set():
            with self.lock:
                tasks, earlier = self._pending.take()
                if not tasks:
                    self._wait_for_change(self._pending.next_delay_s())
                    continue
            if earlier is not None and self._is_expired(tasks[0]):
                self._find_again(tasks, earlier, call)
            else:
                self._launch(tasks, earlier, call)
            self.wake()

    def _launch(
        self,
        tasks: Sequence[Task],
        earlier: Launch | None,
        call: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """Start the tasks with one RunTask; ``earlier``: the launch that it repeats."""
        launch = earlier
        if launch is None:
            first = tasks[0]
            children = [task.child for task in tasks]
            launch = Launch(uuid.uuid4().hex, first.job_number, first.attempt, children)
            self._launches.intend(launch)
        request = call(partial(self._make_request, launch))
        answer, problem = call(partial(self._run_tasks, request))
        self._launches.record_tasks(launch, answer.arns)
        with self.lock:
            self._sort_out(launch, tasks, answer, problem, is_repeat=earlier is not None)

    def _is_expired(self, task: Task) -> bool:
        """Return whether ECS may have forgotten the clientToken of an attempt's launch."""
        launched = self._launches.find(key_of(task))
        return launched is not None and self._clock() - launched.at_s > _TOKEN_S

    def _find_again(
        self,
        tasks: Sequence[Task],
        launch: Launch,
        call: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """Take the tasks of an old launch that still run. The ends of the others are unknown."""
        started_by = call(partial(self._make_request, launch))["startedBy"]
        find = partial(self._ecs.find_running_tasks, self._cluster, started_by)
        arns = [arn for arn, tags in call(find).items() if tags.get(LAUNCH_TAG) == launch.token]
        self._launches.record_tasks(launch, arns)
        with self.lock:
            for number, task in enumerate(tasks):
                if number < len(arns):
                    entry = _OpenTask(task, was_adopted=True)
                    self._open[arns[number]] = entry
                else:
                    self._end(task, outcomes.make_lost_outcome())
            self._note_change()

    def _run_tasks(self, request: Mapping[str, Any]) -> tuple[StartedTasks, str]:
        """Return the started tasks, and why ECS would refuse the others every time."""
        try:
            answer = self._ecs.run_tasks(request)
        except AwsRefusedError as exc:
            if exc.code not in _REFUSED_CODES:
                raise
            if any(text in exc.message for text in _NO_ROOM):
                return StartedTasks([], [exc.message]), ""
            return StartedTasks([], []), exc.message
        is_full = not answer.refusals or any(map(outcomes.is_lack, answer.refusals))
        return answer, "" if is_full else f"RunTask: {answer.refusals[0]}"

    def _sort_out(
        self,
        launch: Launch,
        tasks: Sequence[Task],
        answer: StartedTasks,
        problem: str,
        *,
        is_repeat: bool,
    ) -> None:
        """Take the tasks that were started; the others wait, or have failed."""
        arns = dict(zip(launch.children, answer.arns, strict=False))
        waiting = []
        for task in tasks:
            arn = arns.get(task.child)
            if arn is not None:
                self._open[arn] = _OpenTask(task, was_adopted=is_repeat)
            elif problem:
                self._end(task, Outcome(None, StatusReason.NOT_STARTED, problem))
            elif task in self._stopping:
                self._end(task, Outcome(None, StatusReason.NOT_STARTED))
            else:
                waiting.append(task)
        if waiting:
            self._delay(waiting, answer.refusals)
        else:
            self._pending.reset_delay(launch.job)
        self._note_change()

    def _delay(self, tasks: Sequence[Task], refusals: Sequence[str]) -> None:
        """Let tasks wait that the cluster has no room for."""
        is_first = self._pending.put_back(tasks)
        if is_first:
            reason = refusals[0] if refusals else "it has no hosts"
            self._notes.append(
                f"{tasks[0].step}: the cluster {self._cluster} has no room now ({reason}); its "
                "children wait"
            )

    # -- looking at tasks ------------------------------------------------------------------------

    def _observe_tasks(self) -> None:
        call, backoff = self._make_caller(), Backoff(_POLLING)
        look_at_s = 0.0
        while not self._is_closing.is_set():
            with self.lock:
                arns, to_stop = list(self._open), self._list_stops()
                if not to_stop and (not arns or self._monotonic() < look_at_s):
                    delay_s = look_at_s - self._monotonic() if arns else None
                    self._wait_for_change(delay_s)
                    continue
            for arn in to_stop:
                call(partial(self._ecs.stop_task, self._cluster, arn, _STOP_REASON))
            if self._monotonic() >= look_at_s:
                for first in range(0, len(arns), MAX_DESCRIBED_TASKS):
                    self._look_at(arns[first : first + MAX_DESCRIBED_TASKS], call)
                look_at_s = self._monotonic() + backoff.next_delay_s(self._changes)

    def _list_stops(self) -> list[str]:
        """Return the tasks to be stopped, each once."""
        arns = []
        for arn, entry in self._open.items():
            if entry.task in self._stopping and not entry.is_stop_sent:
                entry.is_stop_sent = True
                arns.append(arn)
        return arns

    def _look_at(self, arns: Sequence[str], call: Callable[[Callable[[], Any]], Any]) -> None:
        answers = call(partial(self._ecs.describe_tasks, self._cluster, arns))
        # A log is looked for only after its container has run.
        started = [
            arn
            for arn in arns
            if answers.get(arn, {}).get("startedAt") and self._open[arn].started_ms is None
        ]
        if started:
            self._launches.record_started(started)
        with self.lock:
            for arn in arns:
                self._follow(arn, answers.get(arn))
            if self._events:
                self.wake()

    def _follow(self, arn: str, description: Mapping[str, Any] | None) -> None:
        entry = self._open[arn]
        if description is None:
            # One answer without the task is no proof: a new task may be unknown for a while.
            if entry.missing_since_s is None:
                entry.missing_since_s = self._monotonic()
            elif self._monotonic() - entry.missing_since_s > _VISIBLE_S:
                self._close(arn, outcomes.make_lost_outcome(arn))
            return
        entry.missing_since_s = None
        if entry.is_stop_sent and description.get("desiredStatus") == "RUNNING":
            # ECS did not know the new task when it was to be stopped.
            entry.is_stop_sent = False
        status = str(description["lastStatus"])
        if status != entry.status:
            entry.status = status
            self._note_change()
        entry.task.compute_environment = self._cluster
        entry.task.host_id = str(description.get("containerInstanceArn", "")).rpartition("/")[2]
        if entry.started_ms is None and description.get("startedAt"):
            entry.started_ms = int(description["startedAt"].timestamp() * 1000)
            self._events.append(Started(entry.task, entry.started_ms))
        if status in _OVER:
            self._handle_stopped(arn, entry, description)

    def _handle_stopped(self, arn: str, entry: _OpenTask, description: Mapping[str, Any]) -> None:
        if entry.task not in self._stopping and outcomes.was_refused(description):
            # The capacity provider has given up: the attempt has not begun, and is tried again.
            del self._open[arn]
            self._delay([entry.task], [str(description.get("stoppedReason", ""))])
            return
        self._close(arn, outcomes.read_outcome(description))
        # There may be room for those that wait.
        self._pending.try_again()

    def _close(self, arn: str, outcome: Outcome) -> None:
        entry = self._open.pop(arn)
        self._end(entry.task, outcome, entry.started_ms)
