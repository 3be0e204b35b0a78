"""One question at a time to AWS: counted, and where there is no answer, why.

Every question is one call of AWS. Nothing more is asked once the number of calls is used up, or once it is clear that
nobody answers (no credentials, no network).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchyard.aws.session import THROTTLED, AccessDeniedError, AwsRefusedError, AwsSession
from batchyard.doctor.facts import Missing
from batchyard.errors import InputError, OperationalError

T = TypeVar("T")

#: an endpoint that is not AWS itself says so of what it lacks
_NOT_OFFERED = frozenset(
    [
        "NotImplemented",
        "NotImplementedException",
        "UnknownService",
        "UnknownOperationException",
        "InvalidAction",
    ]
)


class Asker:
    def __init__(self, session: AwsSession, most_calls: int) -> None:
        self.session = session
        self.calls = 0
        self._most_calls = most_calls
        self._closed: Missing | None = None

    def ask(self, action: str, call: Callable[[], T]) -> T | Missing:
        """``action``: the IAM action that the call needs."""
        found = self.find(action, call, ())
        return Missing(f"AWS has no answer to {action}", "") if found is None else found

    def find(
        self, action: str, call: Callable[[], T], absent: tuple[str, ...]
    ) -> T | Missing | None:
        """The same of something that may not be there: None where AWS answers with one of these error codes."""
        if self._closed:
            return self._closed
        if self.calls >= self._most_calls:
            return Missing(f"not asked: {self._most_calls} calls are the most for one examination")
        self.calls += 1
        try:
            return call()
        except AccessDeniedError:
            return Missing("access denied", action)
        except AwsRefusedError as exc:
            return None if exc.code in absent else _refused(exc.code, exc.message)
        except InputError as exc:
            # A profile or region that is not there is the user's to mend; a name that AWS would not take is a fact.
            if exc.hint:
                raise
            return Missing(exc.message)
        except OperationalError as exc:
            return self._without_answer(exc)

    def _without_answer(self, exc: OperationalError) -> Missing:
        response = getattr(exc.__cause__, "response", None) or {}
        code = response.get("Error", {}).get("Code", "")
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _NOT_OFFERED:
            return _refused(code, exc.message)
        found = Missing(f"{exc.message}; {exc.hint}" if exc.hint else exc.message)
        if code not in THROTTLED and status < 500:
            self._closed = found
        return found


def _refused(code: str, message: str) -> Missing:
    return Missing("this endpoint does not offer it" if code in _NOT_OFFERED else message)
