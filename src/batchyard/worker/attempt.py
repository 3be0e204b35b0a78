"""One attempt of a child, from its orders to its exit code: fetch, run, give back, record, in this order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchyard.shard import Turn
from batchyard.worker import rules
from batchyard.worker.faults import Fault
from batchyard.worker.moving import CutShort
from batchyard.worker.orders import Orders
from batchyard.worker.processes import Starter
from batchyard.worker.records import Records
from batchyard.worker.rules import Failure, Rules, Verdict
from batchyard.worker.stopping import Bell
from batchyard.worker.workspace import Checkpoint, Workspace


@dataclass(slots=True)
class Attempt:
    orders: Orders
    #: the child's number in the step
    number: int
    attempt: int
    records: Records
    workspace: Workspace
    starter: Starter
    #: number -> command
    command: Callable[[int], str]
    bell: Bell
    say: Callable[[str], None]

    def run(self) -> Verdict:
        commands = self.orders.commands_of(self.number)
        done = self.records.done(commands)
        if len(done) == len(commands):
            return Verdict(0)
        try:
            self.workspace.fetch_inputs(self.bell.has_rung)
            checkpoint = self.workspace.find_checkpoint()
            return self._run(Turn(commands, done, keep_going=self.orders.keep_going), checkpoint)
        except CutShort:
            return self._reclaimed()

    def _run(self, turn: Turn, checkpoint: Checkpoint | None) -> Verdict:
        first: Failure | None = None
        while (number := turn.next()) is not None:
            if checkpoint is not None and checkpoint.command == number:
                self.workspace.restore(checkpoint, self.bell.has_rung)
            # The last look: a command that has begun is cut short with whatever it has done.
            if self.bell.has_rung():
                return self._reclaimed()
            ended = self.starter.run(self.command(number), number)
            if ended.was_cut:
                self._save(number)
                return self._reclaimed()
            turn.record_exit(ended.exit_code)
            if ended.exit_code:
                first = first or Failure(number, ended.exit_code, ended.was_out_of_memory)
                self.workspace.disown_outputs()
            else:
                self.workspace.give_outputs(self.bell.is_too_late)
                self.records.succeeded(number, ended.seconds)
        return self._failed(first) if first else Verdict(0)

    def _failed(self, failure: Failure) -> Verdict:
        before: list[dict[str, object]] = []
        try:
            before = self.records.failures()
            self.records.failed(before, failure)
        except Fault as fault:
            # The command's failure says more than that it could not be noted.
            self.say(str(fault))
        return rules.after_failure(self._rules, failure, self.attempt, len(before))

    def _save(self, number: int) -> None:
        if not self.orders.checkpoint:
            return
        try:
            count = self.workspace.save_checkpoint(number, self.attempt, self.bell.is_too_late)
            self.say(
                f"saved {count} {'files' if count != 1 else 'file'} of command {number} for the next attempt"
            )
        except CutShort:
            self.say(
                "there was no time to save all of the checkpoint; the next attempt uses the one before"
            )
        except Fault as fault:
            self.say(f"{fault}; the next attempt begins without a checkpoint")

    def _reclaimed(self) -> Verdict:
        stop = self.bell.stop
        assert stop is not None, "only a ring cuts an attempt short"
        return rules.after_reclaim(self._rules, stop.why)

    @property
    def _rules(self) -> Rules:
        orders = self.orders
        return Rules(orders.retry_on, orders.fail_on, orders.retries, orders.attempts)
