"""The texts of a run's commands, from the record of the run and its lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from batchyard.engines.base import RunRecord
from batchyard.quick_dataclasses import dataclass


@dataclass(slots=True)
class CommandTexts:
    """The texts of a run's commands. The list of a step is read when it is first needed."""

    record: RunRecord
    _lists: dict[str, Sequence[str]] = field(default_factory=dict)

    def text_of(self, step: str, number: int) -> str:
        planned = self.record.plan.job(step)
        if planned.command is not None:
            return planned.command
        if step not in self._lists:
            self._lists[step] = self._load(step)
        commands = self._lists[step]
        return commands[number] if number < len(commands) else ""

    def _load(self, step: str) -> Sequence[str]:
        if step in self.record.plan.lists:
            return self.record.plan.lists[step]
        try:
            return self.record.folder.load_list(step)
        except OSError:
            return ()  # another machine began the run
