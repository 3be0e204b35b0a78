"""Ask a service again while it is busy or does not answer, for those who watch a run to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from batchyard.engines.base import Backoff, Polling, Say, say_nothing
from batchyard.errors import BusyServiceError, UnreachableServiceError

_POLLING = Polling(first_s=5.0, longest_s=60.0)

Answer = TypeVar("Answer")


class PatientCaller:
    """Makes calls to a service, and repeats each until the service answers.

    There is no limit of time: the run goes on meanwhile. A service that has never answered is not
    waited for, since its address may be wrong.
    """

    def __init__(
        self,
        say: Say = say_nothing,
        sleep: Callable[[float], None] = time.sleep,
        *,
        was_answered: bool = False,
    ) -> None:
        """``say`` gets a sentence at the first failure of a call.

        ``was_answered``: whether the service has answered earlier calls of this process.
        """
        self._say = say
        self._sleep = sleep
        self._was_answered = was_answered

    def call(self, ask: Callable[[], Answer]) -> Answer:
        """Return what ``ask`` returns; while it raises BusyServiceError, wait and ask again."""
        backoff = Backoff(_POLLING)
        has_said = False
        while True:
            try:
                answer = ask()
            except BusyServiceError as exc:
                is_unreachable = isinstance(exc, UnreachableServiceError)
                if is_unreachable and not self._was_answered:
                    raise
                self._was_answered = True
                if not has_said:
                    self._say(
                        f"{exc.message}; the run goes on, and this command asks again until it "
                        "answers"
                    )
                    has_said = True
                self._sleep(backoff.next_delay_s(None))
            else:
                self._was_answered = True
                return answer
