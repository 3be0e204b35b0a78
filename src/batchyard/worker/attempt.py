"""One attempt of a child: download inputs, run the commands, upload outputs, write the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from batchyard.quick_dataclasses import dataclass
from batchyard.shard import Turn
from batchyard.worker import headings, rules
from batchyard.worker.errors import WorkerError
from batchyard.worker.orders import Orders
from batchyard.worker.processes import CommandResult, CommandRunner
from batchyard.worker.records import Records
from batchyard.worker.rules import Failure, Rules, Verdict
from batchyard.worker.stop_requests import StopRequests
from batchyard.worker.transfers import OutOfTimeError
from batchyard.worker.workspace import Checkpoint, Workspace


@dataclass(slots=True)
class Attempt:
    orders: Orders
    #: the child's index in the step
    number: int
    attempt: int
    records: Records
    workspace: Workspace
    runner: CommandRunner
    #: number of a command -> its text
    command: Callable[[int], str]
    stop_requests: StopRequests
    #: writes a line to the job's log
    log: Callable[[str], None]

    def run(self) -> Verdict:
        commands = self.orders.commands_of(self.number)
        succeeded = self.records.succeeded_commands(commands)
        # Those of an earlier run are not mentioned: their output is in the logs of that run.
        finished = succeeded - self.orders.skipped_commands(commands)
        if finished:
            self.log(headings.describe_succeeded(finished))
        if len(succeeded) == len(commands):
            return Verdict(0)
        try:
            self.workspace.download_inputs(
                self.stop_requests.is_stopping, is_continued=bool(succeeded)
            )
            checkpoint = self.workspace.find_checkpoint()
            turn = Turn(commands, succeeded, keep_going=self.orders.keep_going)
            return self._run_commands(turn, checkpoint)
        except OutOfTimeError:
            return self._reclaim_verdict()

    def _run_commands(self, turn: Turn, checkpoint: Checkpoint | None) -> Verdict:
        failures: dict[int, CommandResult] = {}
        while (number := turn.next()) is not None:
            if checkpoint is not None and checkpoint.command == number:
                self.workspace.restore(checkpoint, self.stop_requests.is_stopping)
            # From here on a stop request interrupts the command.
            if self.stop_requests.is_stopping():
                return self._reclaim_verdict()
            result = self.runner.run(self.command(number), number)
            if result.was_interrupted:
                self._save_checkpoint(number)
                return self._reclaim_verdict()
            turn.record_exit(result.exit_code)
            if result.exit_code:
                failures[number] = result
                self.workspace.ignore_outputs()
            else:
                self.workspace.upload_outputs(self.stop_requests.is_too_late)
                self.records.record_success(number, result)
        return self._failure_verdict(failures) if failures else Verdict(0)

    def _failure_verdict(self, failures: Mapping[int, CommandResult]) -> Verdict:
        """Record the failures; return the verdict, which is about the first of them."""
        earlier_failures: list[dict[str, object]] = []
        try:
            earlier_failures = self.records.earlier_failures()
            self.records.record_failures(earlier_failures, failures)
        except WorkerError as error:
            # The failure of the command matters more than that of recording it.
            self.log(str(error))
        failed_attempts = {failure["attempt"] for failure in earlier_failures}
        number, result = next(iter(failures.items()))
        failure = Failure(number, result.exit_code, result.was_out_of_memory)
        return rules.decide_after_failure(self._rules, failure, self.attempt, len(failed_attempts))

    def _save_checkpoint(self, number: int) -> None:
        if not self.orders.checkpoint:
            return
        try:
            count = self.workspace.save_checkpoint(
                number, self.attempt, self.stop_requests.is_too_late
            )
            files = "file" if count == 1 else "files"
            self.log(f"saved {count} {files} of command {number} for the next attempt")
        except OutOfTimeError:
            self.log("no time to save the whole checkpoint; the next attempt uses the previous one")
        except WorkerError as error:
            self.log(f"{error}; the next attempt starts without a checkpoint")

    def _reclaim_verdict(self) -> Verdict:
        request = self.stop_requests.first
        assert request is not None, "only a stop request interrupts an attempt"
        return rules.decide_after_reclaim(self._rules, request.reason)

    @property
    def _rules(self) -> Rules:
        orders = self.orders
        return Rules(orders.retry_on, orders.fail_on, orders.retries, orders.attempts)
