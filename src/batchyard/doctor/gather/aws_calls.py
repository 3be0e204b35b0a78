"""Call AWS read-only, count the calls, and turn a refusal into a Missing fact.

No call is made once the limit is reached, or once it is clear that none can succeed (no
credentials, no network).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchyard.aws.session import THROTTLED, AccessDeniedError, AwsRefusedError, AwsSession
from batchyard.doctor.facts import Missing
from batchyard.errors import InputError, OperationalError

T = TypeVar("T")

#: Error codes of endpoints other than AWS for operations that they do not have.
_NOT_OFFERED = frozenset(
    [
        "NotImplemented",
        "NotImplementedException",
        "UnknownService",
        "UnknownOperationException",
        "InvalidAction",
    ]
)


class AwsCalls:
    def __init__(self, session: AwsSession, max_calls: int) -> None:
        self.session = session
        self.count = 0
        self._max_calls = max_calls
        #: Why no further call can succeed.
        self._outage: Missing | None = None

    def call(self, action: str, function: Callable[[], T]) -> T | Missing:
        """Call ``function``, which needs the IAM action ``action``.

        Raises InputError for a wrong profile or region.
        """
        answer = self.call_optional(action, function, ())
        return Missing(f"AWS has no answer to {action}", "") if answer is None else answer

    def call_optional(
        self, action: str, function: Callable[[], T], absent_codes: tuple[str, ...]
    ) -> T | Missing | None:
        """Like call, but return None if AWS answers with one of the error codes."""
        if self._outage:
            return self._outage
        if self.count >= self._max_calls:
            return Missing(f"not asked: {self._max_calls} calls are the most for one examination")
        self.count += 1
        try:
            return function()
        except AccessDeniedError:
            return Missing("access denied", action)
        except AwsRefusedError as exc:
            return None if exc.code in absent_codes else _from_refusal(exc.code, exc.message)
        except InputError as exc:
            # The user can correct a wrong profile or region; a name that AWS refuses is a fact.
            if exc.hint:
                raise
            return Missing(exc.message)
        except OperationalError as exc:
            return self._from_failure(exc)

    def _from_failure(self, exc: OperationalError) -> Missing:
        response = getattr(exc.__cause__, "response", None) or {}
        code = response.get("Error", {}).get("Code", "")
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _NOT_OFFERED:
            return _from_refusal(code, exc.message)
        missing = Missing(f"{exc.message}; {exc.hint}" if exc.hint else exc.message)
        if code not in THROTTLED and status < 500:
            self._outage = missing
        return missing


def _from_refusal(code: str, message: str) -> Missing:
    return Missing("this endpoint does not offer it" if code in _NOT_OFFERED else message)
