"""One attempt of a child of a dynamic step: claim blocks and run their commands until none is left.

A failed command is tried again by this worker, as often as the step's rules say; the other commands
go on. The attempt fails at its end if a block that it has completed has a failed command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchyard.quick_dataclasses import dataclass
from batchyard.worker import headings, leases, rules
from batchyard.worker.block_keeper import BlockKeeper, LeasedBlock
from batchyard.worker.lease_protocol import MayEnd
from batchyard.worker.leases import Record
from batchyard.worker.orders import Orders
from batchyard.worker.processes import CommandRunner
from batchyard.worker.rules import Failure, Verdict
from batchyard.worker.stop_requests import StopRequests
from batchyard.worker.transfers import OutOfTimeError
from batchyard.worker.workspace import Workspace

#: A block is claimed ahead if commands take less than this on average: then a claim, which takes
#: 0.1 to 0.3 s on S3, is more than a few percent of a command.
SHORT_COMMAND_S = 10.0
#: Blocks of fewer commands are near the end of the step, where nobody should hold a block that it
#: does not work on, unless the rest of its block takes less than so many claims.
MIN_BLOCK_AHEAD = 4
MAX_CLAIMS_AHEAD = 1.5
#: Time between two looks of a child that stays until the last block of a scaled step.
STAY_S = 5.0


@dataclass(slots=True)
class DynamicAttempt:
    orders: Orders
    #: positions -> function from a position to the number of its command
    read_numbers: Callable[[range], Callable[[int], int]]
    #: number of a block -> its positions in the dispatch order
    blocks: Sequence[range]
    keeper: BlockKeeper
    workspace: Workspace
    runner: CommandRunner
    #: positions -> function from a position to the text of its command
    read_commands: Callable[[range], Callable[[int], str]]
    stop_requests: StopRequests
    #: writes a line to the job's log
    log: Callable[[str], None]
    #: writes a line to the stream that has the output of the commands
    write_heading: Callable[[str], None]
    #: a failed command of another child of a scaled step
    _other_failure: Record | None = None
    _run_count: int = 0
    _run_s: float = 0.0
    _last_s: float = 0.0

    def run(self) -> Verdict:
        with self.keeper:
            try:
                return self._run_blocks()
            except OutOfTimeError:
                return self._reclaim_verdict()

    def _run_blocks(self) -> Verdict:
        has_inputs = False
        while (block := self._next_block()) is not None:
            if not has_inputs:
                # Other children of the step may have written outputs that are inputs, too.
                self.workspace.download_inputs(self.stop_requests.is_stopping, is_continued=True)
                has_inputs = True
            if not self._run_block(block):
                return self._reclaim_verdict()
            # The next commands do not wait until the block is written.
            self.keeper.claim_ahead()
            self.keeper.complete(block)
        failure = self.keeper.failure or self._other_failure or self.keeper.find_earlier_failure()
        return rules.decide_after_final_failure(_failure_of(failure)) if failure else Verdict(0)

    def _next_block(self) -> LeasedBlock | None:
        """Claim a block; return None if the child may end, as soon as it may.

        A child that stays although it is dismissed claims again if nobody works on the step: the
        children that should do so have failed, or have not started yet.
        """
        idle_since_s: float | None = None
        while True:
            now_s = self.stop_requests.clock()
            is_needed = idle_since_s is not None and now_s - idle_since_s >= self.keeper.lease_s
            block = self.keeper.next_block(ignores_scale=is_needed)
            if block is not None:
                return block
            self.keeper.finish()
            outcome = self.keeper.ask_to_end()
            if isinstance(outcome, MayEnd):
                if outcome.failed_block is not None:
                    self._other_failure = self.keeper.find_failure_of(outcome.failed_block)
                return None
            idle_since_s = (idle_since_s or now_s) if outcome.is_idle else None
            self.stop_requests.wait(min(STAY_S, self.keeper.lease_s / 4))
            if self.stop_requests.is_stopping():
                raise OutOfTimeError

    def _run_block(self, block: LeasedBlock) -> bool:
        """Run the commands of the block that are left; return False if a stop was requested."""
        positions = self.blocks[block.number]
        read_number, read_command = self.read_numbers(positions), self.read_commands(positions)
        for position in positions:
            command = read_number(position)
            remaining = positions.stop - position
            while not block.is_lost and not self._is_final(block, command):
                if self.stop_requests.is_stopping():
                    return False
                if self._should_claim_ahead(len(positions), remaining):
                    self.keeper.claim_ahead()
                if not self._run_command(block, command, read_command(position)):
                    return False
        return True

    def _run_command(self, block: LeasedBlock, command: int, text: str) -> bool:
        """Run a command once and record it; return False if it was interrupted by a stop."""
        block.running = command
        if block.lease.is_careful:
            self.keeper.save(block)
            if block.is_lost:
                return True
        self.write_heading(headings.make_heading(command))
        result = self.runner.run(text, command)
        block.running = None
        if result.was_interrupted:
            return False
        if block.is_lost or result.exit_code:
            self.workspace.ignore_outputs()
        else:
            self.workspace.upload_outputs(self.stop_requests.is_too_late)
        earlier = block.record_of(command)
        self._run_count += 1
        self._run_s += result.duration_s
        self._last_s = result.duration_s
        block.add(
            Record(
                command,
                result.exit_code,
                (earlier.attempts if earlier else 0) + 1,
                result.started_ms,
                round(result.duration_s, 3),
                round(result.user_s, 3),
                round(result.system_s, 3),
                result.max_rss_kib,
                result.was_out_of_memory,
                block.lease.epoch,
                # A block has many records, and is written again and again.
                result.use.without_series() if result.use is not None else None,
            )
        )
        return True

    def _is_final(self, block: LeasedBlock, command: int) -> bool:
        """Return whether the command has succeeded, or has failed for good."""
        record = block.record_of(command)
        retries = self.orders.retries
        if record is None and block.lease.has_killed_owners(command, retries):
            deaths = block.lease.deaths.count(command)
            self.log(f"command {command} is not run again: {deaths} workers ended while it ran")
            block.add(leases.killed_record(command, deaths, 0, block.lease.epoch))
            return True
        if record is None or not record.exit_code:
            return record is not None
        has_timeout = self.orders.timeout_s is not None
        failure = _failure_of(record)
        return rules.is_final(self._rules, failure, record.attempts, has_timeout=has_timeout)

    def _should_claim_ahead(self, block_size: int, remaining: int) -> bool:
        """Return whether to claim the next block before a command starts.

        ``remaining``: commands of the block that are left, with this one.
        """
        mean_s = self._run_s / max(1, self._run_count)
        if remaining == 1 and block_size >= MIN_BLOCK_AHEAD and mean_s < SHORT_COMMAND_S:
            return True
        # Where lengths are known they fall, so that the last one is the better guess.
        expected_s = remaining * min(mean_s, self._last_s)
        return bool(self._run_count) and expected_s < MAX_CLAIMS_AHEAD * self.keeper.claim_s

    def _reclaim_verdict(self) -> Verdict:
        request = self.stop_requests.first
        assert request is not None, "only a stop request interrupts an attempt"
        return rules.decide_after_reclaim(self._rules, request.reason)

    @property
    def _rules(self) -> rules.Rules:
        orders = self.orders
        return rules.Rules(orders.retry_on, orders.fail_on, orders.retries, orders.attempts)


def _failure_of(record: Record) -> Failure:
    return Failure(record.command, record.exit_code, record.was_out_of_memory)
