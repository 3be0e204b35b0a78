"""The scheduler with graphs, outcomes, stops, timeouts and crashes that nobody thought of.

A simulation plays the engine's loop. It knows only the changes that the scheduler returns, and
after every event compares what it knows with the scheduler's state. So it also checks that the
changes, of which the records on disk are made, are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from batchyard.batch import retry
from batchyard.batch.changes import Change, JobSettled, Requeued, RestFailed, Settled, Start, Stop
from batchyard.batch.jobs import (
    NOBODY,
    OUT_OF_MEMORY,
    Action,
    Dependency,
    DependencyType,
    EvaluateOnExit,
    Job,
    JobState,
    Outcome,
    Resources,
    RetryStrategy,
    StatusReason,
)
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler

SUCCEEDED, FAILED = JobState.SUCCEEDED, JobState.FAILED
Child = tuple[str, int]

OUTCOMES = (
    Outcome(0),
    Outcome(1),
    Outcome(2),
    Outcome(137, reason=OUT_OF_MEMORY),
    Outcome(None, "Host EC2 (instance i-0) terminated."),
    Outcome(None, StatusReason.NOT_STARTED, "CannotPullContainerError: gone"),
)
RULES = (
    EvaluateOnExit(Action.EXIT, on_exit_code="2"),
    EvaluateOnExit(Action.RETRY, on_status_reason="Host EC2*"),
    EvaluateOnExit(Action.RETRY, on_reason="OutOfMemoryError*", on_exit_code="137"),
    EvaluateOnExit(Action.EXIT, on_reason="*"),
)

# -- worlds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    environments: tuple[ComputeEnvironment, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...]
    consumables: dict[str, int]
    fail_fast: bool

    def scheduler(self) -> Scheduler:
        return Scheduler(self.queues, self.environments, self.consumables, fail_fast=self.fail_fast)

    def job(self, id: str) -> Job:
        return next(job for job in self.jobs if job.id == id)


@st.composite
def worlds(draw: st.DrawFn, may_fail_fast: bool = True) -> World:
    names = ("x", "y")[: draw(st.integers(1, 2))]
    environments = tuple(
        ComputeEnvironment(
            name,
            Resources(
                draw(st.integers(1, 4)), draw(st.integers(1, 4)) * 100, draw(st.integers(0, 3))
            ),
            # One is always on, so that everything can run somewhere.
            is_enabled=name == "x" or draw(st.booleans()),
        )
        for name in names
    )
    queues = [Queue("q", tuple(draw(st.permutations(names))), draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        queues.append(Queue("r", tuple(draw(st.permutations(names))), draw(st.integers(1, 3))))
    world = World(
        environments,
        tuple(queues),
        (),
        {"tokens": 2},
        fail_fast=may_fail_fast and draw(st.integers(0, 2)) == 0,
    )
    for number in range(draw(st.sampled_from([1, 2, 3, 4, 5, 6, 6, 6]))):
        world = replace(world, jobs=(*world.jobs, draw(jobs(world, f"j{number}"))))
    return world


@st.composite
def jobs(draw: st.DrawFn, world: World, id: str) -> Job:
    array = draw(st.sampled_from([3, 3, 3, None, 1, 2]))
    queue = draw(st.sampled_from(world.queues))
    rooms = [
        e.capacity for e in world.environments if e.is_enabled and e.name in queue.environments
    ]
    room = draw(st.sampled_from(rooms))
    strategy = RetryStrategy(
        draw(st.integers(1, 3)), tuple(rule for rule in RULES if draw(st.integers(0, 2)) == 0)
    )
    return Job(
        id=id,
        name=id,
        queue=queue.name,
        resources=Resources(
            draw(st.integers(1, room.vcpus)),
            draw(st.integers(1, room.memory_mib // 100)) * 100,
            draw(st.integers(0, room.gpus)),
        ),
        array_size=array,
        depends_on=tuple(draw(st.lists(dependencies(world, array), max_size=3)))
        if world.jobs or array
        else (),
        retry=strategy,
        timeout_s=draw(st.sampled_from([None, None, 60])),
        consumables=draw(st.sampled_from([(), (), (("tokens", 1),), (("tokens", 2),)])),
    )


def dependencies(world: World, array: int | None) -> st.SearchStrategy[Dependency]:
    kinds: list[st.SearchStrategy[Dependency]] = []
    if array is not None:
        kinds.append(st.just(Dependency(type=DependencyType.SEQUENTIAL)))
    if world.jobs:
        kinds.append(st.sampled_from(world.jobs).map(lambda job: Dependency(job.id)))
        arrays = [job for job in world.jobs if job.array_size is not None]
        if arrays:
            one = st.sampled_from(
                [job.child_id(index) for job in arrays for index in range(job.size)]
            )
            kinds.append(one.map(Dependency))
        same = [job for job in arrays if job.array_size == array]
        if same:
            # Listed twice, as the kind that has most to go wrong.
            kinds += [
                st.sampled_from(same).map(lambda job: Dependency(job.id, DependencyType.N_TO_N))
            ] * 2
        kinds.append(st.sampled_from(world.jobs).flatmap(lambda job: pairs_with(job, array or 1)))
    return st.one_of(kinds)


def pairs_with(needed: Job, size: int) -> st.SearchStrategy[Dependency]:
    """Dependencies of single children of a job of this size on children of another job."""
    waiting = st.permutations([*range(size), *[NOBODY] * needed.size])
    return waiting.map(
        lambda order: Dependency(needed.id, DependencyType.N_TO_N, tuple(order[: needed.size]))
    )


def needs_of(world: World, job: Job, index: int) -> Iterator[Child]:
    """Every child that must have succeeded before this one may start."""
    for dependency in job.depends_on:
        if dependency.type is DependencyType.SEQUENTIAL:
            if index:
                yield job.id, index - 1
            continue
        assert dependency.job_id is not None
        parent, _, child = dependency.job_id.partition(":")
        if dependency.pairs is not None:
            if index in dependency.pairs:
                yield parent, dependency.pairs.index(index)
        elif dependency.type is DependencyType.N_TO_N:
            yield parent, index
        elif child:
            yield parent, int(child)
        else:
            yield from ((parent, i) for i in range(world.job(parent).size))


# -- the record that an engine keeps, and how it comes back ----------------------------------------


@dataclass
class Record:
    """Records as embedded/store has them: a row for each ended attempt, and RestFailed of jobs."""

    attempts: dict[tuple[str, int, int], JobState | None] = field(default_factory=dict)
    rest: dict[str, str] = field(default_factory=dict)

    def settled(self) -> dict[Child, JobState]:
        return {
            (id, index): state
            for (id, index, _), state in self.attempts.items()
            if state is not None
        }

    def restore(self, world: World) -> Scheduler:
        scheduler = world.scheduler()
        for job in world.jobs:
            scheduler.submit(job)
        for job in world.jobs:
            for (id, index, attempt), state in sorted(
                self.attempts.items(), key=lambda item: item[0]
            ):
                if id == job.id:
                    scheduler.restore(id, index, attempt, state, "")
        # As both engines do, after all attempts: with fail_fast, to fail the rest of one job fails
        # the children of all jobs, also those whose success would be restored later.
        for job in reversed(world.jobs):
            if job.id in self.rest:
                scheduler.terminate(job.id, self.rest[job.id])
        return scheduler


# -- the simulation --------------------------------------------------------------------------------


class Simulation:
    """Plays the loop, at random, and believes only what the changes say."""

    def __init__(
        self, world: World, random: Random, outcome_of: Callable[[Start], Outcome] | None = None
    ) -> None:
        self.world = world
        self.random = random
        self.outcome_of = outcome_of or (
            lambda start: random.choice(OUTCOMES[: random.choice((1, 1, 2, 6))])
        )
        self.scheduler = world.scheduler()
        self.now_ms = 0
        self.known: list[Job] = []
        self.states: dict[Child, JobState] = {}
        self.attempts: Counter[Child] = Counter()
        self.under_way: dict[Child, Start] = {}
        self.is_running: set[Child] = set()
        self.stopping: set[Child] = set()
        self.settled_jobs: dict[str, JobState] = {}
        self.trace: list[object] = []
        # What a crash now would leave, and what has happened since.
        self.on_disk = Record()
        self.unwritten = Record()

    # -- events ------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        self.known.append(job)
        self.believe(self.scheduler.submit(job))

    def submit_all(self) -> None:
        for job in self.world.jobs[len(self.known) :]:
            self.submit(job)

    def place(self) -> None:
        for start in self.scheduler.place():
            self.trace.append(start)
            self.check_start(start)
            self.commit_before(start)
            child = (start.job_id, start.child)
            self.attempts[child] += 1
            self.under_way[child] = start
        self.check_capacity()

    def run(self, child: Child) -> None:
        self.scheduler.attempt_started(*child, self.now_ms)
        self.is_running.add(child)

    def end(self, child: Child) -> None:
        start = self.under_way.pop(child)
        outcome = self.outcome_of(start)
        self.is_running.discard(child)
        changes = self.scheduler.attempt_ended(*child, outcome)
        self.check_verdict(start, outcome, changes)
        self.stopping.discard(child)
        self.believe(changes)

    def terminate(self, job: Job, index: int | None) -> None:
        self.believe(self.scheduler.terminate(job.id, "not wanted", index))

    def tick(self) -> None:
        self.now_ms += self.random.choice((1_000, 20_000, 60_000))
        changes = self.scheduler.tick(self.now_ms)
        assert all(isinstance(change, Stop) for change in changes)
        self.believe(changes)

    def commit(self) -> None:
        self.on_disk.attempts |= self.unwritten.attempts
        self.on_disk.rest |= self.unwritten.rest
        self.unwritten = Record()

    def commit_before(self, start: Start) -> None:
        """As the loop does: an ending is on disk before anything that depends on it starts."""
        job = self.world.job(start.job_id)
        waited_for = {parent for parent, _ in needs_of(self.world, job, start.child)}
        if any(id in waited_for for id, _, _ in self.unwritten.attempts):
            self.commit()

    def crash(self) -> None:
        """Lose all that runs and all that is not on disk; another process resumes the run."""
        self.scheduler = self.on_disk.restore(self.world)
        self.unwritten = Record()
        self.under_way, self.is_running, self.stopping = {}, set(), set()
        recorded = self.on_disk.settled()
        self.attempts = Counter()
        for id, index, attempt in self.on_disk.attempts:
            self.attempts[id, index] = max(attempt, self.attempts[id, index])
        self.states = {}
        for job in self.world.jobs:
            for index in range(job.size):
                state = self.scheduler.child_state(job.id, index)
                assert recorded.get((job.id, index), state) is state, (
                    "what is recorded comes back as it was"
                )
                if state.is_terminal:
                    # Only failures follow from the records: of a stopped job and its followers.
                    assert (job.id, index) in recorded or state is FAILED
                    assert (job.id, index) in recorded or self.on_disk.rest
                    self.states[job.id, index] = state
        self.settled_jobs = {
            job.id: self.scheduler.summary(job.id).state
            for job in self.world.jobs
            if self.scheduler.summary(job.id).state.is_terminal
        }
        self.check_counts()

    # -- what the changes say ----------------------------------------------------------------------

    def believe(self, changes: list[Change]) -> None:
        self.trace += changes
        for change in changes:
            if isinstance(change, Stop):
                child = (change.job_id, change.child)
                assert child in self.under_way and child not in self.stopping, (
                    "only what runs is stopped, once"
                )
                self.stopping.add(child)
            elif isinstance(change, Requeued):
                self.unwritten.attempts[change] = None
            elif isinstance(change, Settled):
                child = (change.job_id, change.child)
                assert child not in self.states, "a child is settled once"
                assert child not in self.under_way, "nothing is settled that still runs"
                self.states[child] = change.state
                self.unwritten.attempts[change[:3]] = change.state
            elif isinstance(change, RestFailed):
                for index in range(self.world.job(change.job_id).size):
                    child = (change.job_id, index)
                    if child not in self.under_way:
                        self.states.setdefault(child, FAILED)
                self.unwritten.rest[change.job_id] = change.status_reason
            else:
                self.check_job_settled(change)
        self.check_counts()

    # -- what must hold ----------------------------------------------------------------------------

    def check_start(self, start: Start) -> None:
        child = (start.job_id, start.child)
        job = self.world.job(start.job_id)
        assert child not in self.states and child not in self.under_way
        for needed in needs_of(self.world, job, start.child):
            assert self.states.get(needed) is SUCCEEDED, (
                f"{child} started before {needed} had succeeded"
            )
        assert start.attempt == self.attempts[child] + 1 <= job.retry.attempts
        queue = next(queue for queue in self.world.queues if queue.name == job.queue)
        assert start.environment in queue.environments
        assert len(start.gpus) == job.resources.gpus

    def check_capacity(self) -> None:
        for environment in self.world.environments:
            here = [
                start for start in self.under_way.values() if start.environment == environment.name
            ]
            held = [self.world.job(start.job_id).resources for start in here]
            capacity = environment.capacity
            used = Resources(
                sum(r.vcpus for r in held),
                sum(r.memory_mib for r in held),
                sum(r.gpus for r in held),
            )
            assert used.fits_in(capacity)
            assert environment.is_enabled or not here
            gpus = [gpu for start in here for gpu in start.gpus]
            assert len(gpus) == len(set(gpus)) and set(gpus) <= set(range(capacity.gpus)), (
                "a GPU handed out twice"
            )
            if any(environment.name in queue.environments for queue in self.world.queues):
                free = self.scheduler.free(environment.name)
                left = (capacity.vcpus - used.vcpus, capacity.memory_mib - used.memory_mib)
                assert (free.vcpus, free.memory_mib, free.gpus) == (
                    *left,
                    capacity.gpus - used.gpus,
                )
        for name, total in self.world.consumables.items():
            jobs = [self.world.job(id) for id, _ in self.under_way]
            assert (
                sum(quantity for job in jobs for n, quantity in job.consumables if n == name)
                <= total
            )
        assert sorted(self.scheduler.placed_children()) == sorted(self.under_way)

    def check_verdict(self, start: Start, outcome: Outcome, changes: list[Change]) -> None:
        """Check that the first change, and no other, is about the child that ended."""
        child = (start.job_id, start.child)
        verdict = changes[0]
        assert isinstance(verdict, Settled | Requeued)
        assert verdict[:3] == (*child, start.attempt)
        assert not any(isinstance(c, Settled | Requeued) and c[:2] == child for c in changes[1:])
        job = self.world.job(start.job_id)
        if child in self.stopping:
            assert isinstance(verdict, Settled) and verdict.state is FAILED
        elif outcome.is_success:
            assert isinstance(verdict, Settled) and verdict.state is SUCCEEDED
        elif retry.decide(job.retry, start.attempt, outcome) is Action.RETRY:
            assert isinstance(verdict, Requeued)
        else:
            assert isinstance(verdict, Settled) and verdict.state is FAILED

    def check_job_settled(self, change: JobSettled) -> None:
        job = self.world.job(change.job_id)
        assert job.id not in self.settled_jobs, "a job is settled once"
        ends = {self.states[job.id, index] for index in range(job.size)}
        assert change.state is (FAILED if FAILED in ends else SUCCEEDED)
        self.settled_jobs[job.id] = change.state

    def check_counts(self) -> None:
        for job in self.known:
            children = [(job.id, index) for index in range(job.size)]
            states = [self.scheduler.child_state(*child) for child in children]
            summary = self.scheduler.summary(job.id)
            assert summary.counts == tuple(states.count(state) for state in JobState)
            for child, state in zip(children, states, strict=True):
                assert (
                    state is self.states[child] if child in self.states else not state.is_terminal
                )
                assert (child in self.under_way) is (state in (JobState.STARTING, JobState.RUNNING))
                assert (child in self.is_running) is (state is JobState.RUNNING)
            assert summary.state.is_terminal is (job.id in self.settled_jobs)
            assert (
                summary.state.is_terminal
                or job.array_size is None
                or summary.state is JobState.PENDING
            )
        assert self.scheduler.is_over is (len(self.settled_jobs) == len(self.known))

    # -- running it --------------------------------------------------------------------------------

    def step(self, *, may_stop: bool) -> None:
        """One event, whichever comes up."""
        random = self.random
        starting = sorted(set(self.under_way) - self.is_running)
        choice = random.random()
        if len(self.known) < len(self.world.jobs) and choice < 0.3:
            self.submit(self.world.jobs[len(self.known)])
        elif may_stop and self.known and choice < 0.34:
            job = random.choice(self.known)
            self.terminate(job, random.choice([None, *range(job.size)]))
        elif may_stop and choice < 0.42:
            self.tick()
        elif starting and choice < 0.65:
            self.run(random.choice(starting))
        elif self.under_way and choice < 0.8:
            self.end(random.choice(sorted(self.under_way)))
        elif choice < 0.9:
            self.place()
        else:
            self.commit()

    def finish(self) -> None:
        """To the end, with nothing stopped any more: it must come to one."""
        self.submit_all()
        self.place()
        while not self.scheduler.is_over:
            assert self.under_way, "nothing runs, nothing can start, and it is not over"
            self.end(self.random.choice(sorted(self.under_way)))
            self.place()
        assert not self.under_way
        assert set(self.settled_jobs) == {job.id for job in self.world.jobs}


seeds = st.integers(0, 2**32 - 1)


@given(worlds(), seeds, st.integers(0, 60))
def test_everything_holds_at_every_moment_and_everything_ends(
    world: World, seed: int, steps: int
) -> None:
    simulation = Simulation(world, Random(seed))
    for _ in range(steps):
        simulation.step(may_stop=True)
    simulation.finish()


def fail_fast_world() -> World:
    """A world where the failure of j0 fails a child of j2, and so all, when it is restored."""
    one_child = Resources(1, 100)
    return World(
        (ComputeEnvironment("x", one_child),),
        (Queue("q", ("x",)), Queue("r", ("x",))),
        (
            Job("j0", "j0", "r", one_child, 3),
            Job("j1", "j1", "q", one_child, 3),
            Job("j2", "j2", "q", one_child, 3, (Dependency("j0", DependencyType.N_TO_N),)),
        ),
        {"tokens": 2},
        fail_fast=True,
    )


@given(worlds(), seeds, st.lists(st.integers(0, 25), min_size=1, max_size=3))
@example(fail_fast_world(), 0, [11])
def test_a_crash_at_any_moment_loses_nothing_recorded_and_everything_still_ends(
    world: World, seed: int, moments: list[int]
) -> None:
    simulation = Simulation(world, Random(seed))
    simulation.submit_all()
    for steps in moments:
        for _ in range(steps):
            simulation.step(may_stop=True)
        simulation.crash()
    simulation.finish()


@given(worlds(), seeds, st.integers(0, 60))
def test_the_same_events_give_the_same_changes(world: World, seed: int, steps: int) -> None:
    traces = []
    for _ in range(2):
        simulation = Simulation(world, Random(seed))
        for _ in range(steps):
            simulation.step(may_stop=True)
        simulation.finish()
        traces.append(simulation.trace)
    assert traces[0] == traces[1]


def ends_of(world: World, outcome_of: Callable[[Start], Outcome]) -> dict[Child, JobState]:
    """Return how every child must end if nothing is stopped, by the rules of dependencies alone."""
    ends: dict[Child, JobState] = {}
    for job in world.jobs:
        for index in range(job.size):
            end = SUCCEEDED
            if any(ends[needed] is FAILED for needed in needs_of(world, job, index)):
                end = FAILED
            for attempt in range(1, job.retry.attempts + 1) if end is SUCCEEDED else ():
                outcome = outcome_of(Start(job.id, index, attempt, (), ""))
                end = SUCCEEDED if outcome.is_success else FAILED
                if outcome.is_success or retry.decide(job.retry, attempt, outcome) is Action.EXIT:
                    break
            ends[job.id, index] = end
    return ends


@given(worlds(may_fail_fast=False), seeds, st.lists(st.integers(0, 30), max_size=3))
def test_the_end_depends_on_the_outcomes_alone_not_on_order_capacity_or_crashes(
    world: World, seed: int, crashes: list[int]
) -> None:
    def outcome_of(start: Start) -> Outcome:
        return Random(f"{seed} {start[:3]}").choice((Outcome(0), *OUTCOMES))

    simulation = Simulation(world, Random(seed), outcome_of)
    if crashes:
        simulation.submit_all()
    for steps in crashes:
        for _ in range(steps):
            simulation.step(may_stop=False)
        simulation.crash()
    simulation.finish()
    assert simulation.states == ends_of(world, outcome_of)
