"""The form of a cause of failed attempts: how to recognise it, what to say, what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchyard.doctor.facts import Ending, Job
from batchyard.doctor.finding import Kind


def _nothing(_: object) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Cause:
    kind: Kind
    #: whether an attempt that ended like this had this cause
    matches: Callable[[Ending], bool]
    #: the cause as a sentence
    sentence: str
    #: commands for this job; JOB_ID stands for the id of a failed job
    remedy: tuple[str, ...] | Callable[[Job, Ending], tuple[str, ...]] = ()
    #: whether the log of the command helps: the remedy then ends with the command that prints it
    is_in_log: bool = False
    #: more evidence about the job, like the memory that it requested
    describe_job: Callable[[Job], str] = _nothing
    #: another line of remedy for this ending
    hint: Callable[[Ending], str] = _nothing


def mentions(*words: str) -> Callable[[Ending], bool]:
    """Make a test that is true where a reason of the ending contains one of the words.

    The words are in lower case; the case of the reasons does not matter.
    """

    def matches(ending: Ending) -> bool:
        reasons = f"{ending.status_reason}\n{ending.reason}".lower()
        return any(word in reasons for word in words)

    return matches
