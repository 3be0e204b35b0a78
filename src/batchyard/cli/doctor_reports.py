"""Judge facts, print the report, save the facts and offer fixes, for `batchyard doctor`."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import print_json
from batchyard.errors import InputError, OperationalError

if TYPE_CHECKING:
    from batchyard.aws.session import AwsSession
    from batchyard.cli.doctor_gathering import GatheredFacts
    from batchyard.doctor.facts import Facts, Survey
    from batchyard.doctor.finding import Report
    from batchyard.doctor.host.facts import HostFacts


def examine(gather: Callable[[], GatheredFacts], flags: dict[str, Any]) -> int:
    """Gather facts, or load saved ones; print the report; save and fix if requested.

    Returns the exit code of the report.
    """
    gathered = None if flags["source"] else _gather(gather)
    facts = gathered.facts if gathered else _load_saved(flags["source"], flags["fix"])
    report = judge_facts(facts, flags["dwell"])
    calls = gathered.calls if gathered else None
    exit_code = print_report(report, flags["with_all"], flags["as_json"], calls)
    # The report is printed first: it is useful even if the file cannot be written.
    if flags["save"]:
        save_facts(facts, flags["save"])
    if gathered and flags["fix"]:
        _offer_fixes(facts, flags["dwell"], gathered.session)
    return exit_code


def _gather(gather: Callable[[], GatheredFacts]) -> GatheredFacts:
    try:
        return gather()
    except OperationalError as exc:
        # InputError has exit code 2, which means "could not examine" in this command.
        raise InputError(exc.message, hint=exc.hint) from exc


def _load_saved(source: str, wants_fix: bool) -> Facts | Survey:
    from batchyard.doctor.host.facts import HostFacts

    if wants_fix:
        raise InputError(
            "--fix cannot be used with --from: saved facts may be out of date",
            hint="leave one of them out",
        )
    facts = load_facts(source)
    if isinstance(facts, HostFacts):
        raise InputError(
            f"{source} holds the facts of a host",
            hint=f"`batchyard doctor host --from {source}` reads it",
        )
    return facts


def judge_facts(facts: Facts | Survey, dwell_s: int) -> Report:
    from batchyard.doctor import judge
    from batchyard.doctor.facts import Survey

    if isinstance(facts, Survey):
        return judge.judge_survey(facts, dwell_s)
    return judge.judge(facts, dwell_s)


def print_report(report: Report, with_all: bool, as_json: bool, calls: int | None = None) -> int:
    """Print the report and return its exit code. ``calls``: the number of requests to AWS."""
    from batchyard.doctor import show

    if as_json:
        print_json(show.to_json(report) | ({} if calls is None else {"calls": calls}))
    else:
        click.echo("\n".join(show.to_lines(report, with_all)))
    return report.exit_code


def print_sarif(report: Report, as_json: bool) -> int:
    """Print the report as SARIF and return its exit code."""
    from batchyard import __version__
    from batchyard.doctor.sarif import to_sarif

    if as_json:
        raise InputError("--sarif and --json exclude each other", hint="leave one of them out")
    print_json(to_sarif(report, __version__))
    return report.exit_code


def _offer_fixes(facts: Facts | Survey, dwell_s: int, session: AwsSession) -> None:
    """Ask the user about each fix, and apply those that the user accepts."""
    from batchyard.doctor import fixes
    from batchyard.doctor.facts import Survey
    from batchyard.doctor.gather.batch_calls import BatchCalls

    places = [place.facts for place in facts.places] if isinstance(facts, Survey) else [facts]
    proposals = [
        fix for place in places for fix in fixes.propose_fixes(place, judge_facts(place, dwell_s))
    ]
    if not proposals:
        click.echo("no automatic fix is available", err=True)
    for fix in dict.fromkeys(proposals):
        try:
            is_accepted = click.confirm(fix.question, default=False, err=True)
        except click.Abort:
            click.echo("\nno answer: nothing more is changed", err=True)
            return
        if is_accepted:
            fixes.apply_fix(fix, BatchCalls(session))
            click.echo(f"done; to take it back: {fix.undo}", err=True)


# -- files -------------------------------------------------------------------------------------


def load_facts(file: str) -> Facts | Survey | HostFacts:
    """Read facts that --save wrote. Raises InputError where the file holds none."""
    from batchyard.doctor import facts_json

    return facts_json.load(read_input(file).decode("utf-8", "replace"), show_name(file))


def save_facts(facts: Facts | Survey | HostFacts, file: str) -> None:
    """Write facts, masked. Raises InputError where the file cannot be written."""
    from batchyard.doctor import facts_json, masking

    text = facts_json.dump(masking.mask_facts(facts))
    try:
        Path(file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as exc:
        # InputError has exit code 2, as all that this command could not do.
        is_full = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
        raise InputError(
            f"could not write the facts to {file}: {_reason_of(exc)}",
            hint="free some space, or name another file, and run the command again"
            if is_full
            else "name a file that can be written with --save",
        ) from exc


def show_name(file: str) -> str:
    return "standard input" if file == "-" else file


def read_input(file: str) -> bytes:
    """Return the content of a file, or of standard input for "-"."""
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as exc:
        raise InputError(f"cannot read {file}: {_reason_of(exc)}", hint="check the path") from None


def read_nested_template(path: str) -> bytes | None:
    """Return a file that a template names; None where it is missing or too large."""
    from batchyard.doctor.template.read import MAX_BYTES

    file = Path(path)
    try:
        # Only regular files are read: a pipe would block.
        return file.read_bytes() if file.is_file() and file.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None


def _reason_of(exc: OSError | ValueError) -> str | None:
    return exc.strerror if isinstance(exc, OSError) else str(exc)
