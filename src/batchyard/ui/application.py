"""The addresses of the page and what each of them answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import diagnosis, operations, report, runs
from batchyard.engines.base import AttemptDetail, RunRecord
from batchyard.errors import BatchyardError, RunNotFoundError, from_os_error
from batchyard.folder import RunFolder, runs_in
from batchyard.quick_dataclasses import dataclass
from batchyard.status import explain_failure
from batchyard.ui import logs
from batchyard.ui.access import Access
from batchyard.ui.actions import ACTIONS, Action
from batchyard.ui.answers import (
    EVENTS,
    HTML,
    TEXT,
    Answer,
    RefusedError,
    Request,
    json_answer,
    text_answer,
)
from batchyard.ui.charts import Charts
from batchyard.ui.child_commands import ChildCommands
from batchyard.ui.page_files import INDEX, load_page_files
from batchyard.ui.parameters import Parameters, to_refusal
from batchyard.ui.run_list import RUNS, RunList
from batchyard.ui.run_reader import RUN, RunReader, children_topic
from batchyard.ui.streams import Registry

#: Header of requests that act.
ACTION_HEADER = "x-batchyard-action"
#: Commands of a child, and characters of each, that are shown.
_MAX_COMMANDS = 20
_MAX_COMMAND_CHARS = 4000
_NO_COOKIE = (
    "This page needs the address that `batchyard ui` has printed, with its token. Open that address"
    " once in this browser."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the page shows, and what it may do."""

    home: Path
    #: AWS environment whose runs are shown, too.
    environment: str | None = None
    allows_actions: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """What answers the requests to one address."""

    answer: Callable[[Parameters], Answer]
    #: All parameters that the address has; others are refused.
    parameters: tuple[str, ...] = ()
    #: Whether it changes something, and so needs ACTION_HEADER.
    acts: bool = False


class Application:
    """Answers requests. Every method can be called by several threads at once."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._files = load_page_files()
        self._runs = RunList(settings.home, self._list_remote_runs)
        self._readers = Registry(lambda run_id: RunReader(self._read_record(run_id)))
        self._logs = logs.OpenLogs()
        self._charts = Charts()
        self._commands = ChildCommands()
        self._diagnosing = threading.Lock()
        child = ("run", "step", "index")
        #: (method, path) -> what answers it.
        self.routes: dict[tuple[str, str], Route] = {
            ("GET", "/"): Route(self._index),
            ("GET", "/api/about"): Route(self._about),
            ("GET", "/api/runs"): Route(self._follow_runs),
            ("GET", "/api/run"): Route(self._follow_run, ("run", "step")),
            ("GET", "/api/child"): Route(self._child, child),
            ("GET", "/api/use"): Route(self._draw_use, child),
            ("GET", "/api/log"): Route(self._log, (*child, "attempt", "begin")),
            ("GET", "/api/log-search"): Route(
                self._search_log, (*child, "attempt", "begin", "text")
            ),
            ("GET", "/api/log-file"): Route(self._log_file, (*child, "attempt")),
            ("GET", "/api/charts"): Route(self._draw_charts, ("run", "state")),
            ("GET", "/api/doctor"): Route(self._diagnose, ("run", "step")),
        }
        if settings.allows_actions:
            self.routes["GET", "/api/question"] = Route(self._ask, ("run", "action"))
            self.routes["POST", "/api/act"] = Route(self._act, ("run", "action"), acts=True)

    def respond(self, request: Request) -> Answer:
        try:
            return self._respond(request)
        except RefusedError as refusal:
            return text_answer(refusal.status, refusal.message)
        except BatchyardError as error:
            refused = to_refusal(error)
        except OSError as error:  # a log that this user may not read, or no room for one
            refused = to_refusal(from_os_error(error, "read"))
        return text_answer(refused.status, refused.message)

    def _respond(self, request: Request) -> Answer:
        refusal = self._access.find_refusal(request.method, request.headers)
        if refusal is not None:
            raise RefusedError(403, refusal)
        method = "GET" if request.method == "HEAD" else request.method
        if (method, request.path) == ("GET", "/") and "token" in request.parameters:
            return self._first_page(request)
        if not self._access.has_session(request.headers):
            raise RefusedError(403, _NO_COOKIE)
        if method == "GET" and request.path in self._files:
            Parameters(request.parameters)
            return self._files[request.path]
        route = self._find_route(method, request.path)
        # A form of another page cannot set this header, if a browser forgets all other rules.
        if route.acts and ACTION_HEADER not in request.headers:
            raise RefusedError(403, f"an action needs the header {ACTION_HEADER}")
        return route.answer(Parameters(request.parameters, *route.parameters))

    def _find_route(self, method: str, path: str) -> Route:
        route = self.routes.get((method, path))
        if route is None:
            is_known = any(known == path for _, known in self.routes)
            raise RefusedError(405 if is_known else 404, "there is nothing at this address")
        return route

    # -- the page --------------------------------------------------------------------------------

    def _first_page(self, request: Request) -> Answer:
        """Answer the address that was printed, with the cookie.

        The page itself, not a redirection: after a link from another site, a browser would not send
        a strict cookie to the place that it is redirected to.
        """
        if not self._access.is_token(request.parameters["token"]):
            raise RefusedError(403, _NO_COOKIE)
        return replace(self._page(), headers={"Set-Cookie": self._access.cookie})

    def _index(self, parameters: Parameters) -> Answer:
        return self._page()

    def _page(self) -> Answer:
        return self._files[f"/page/{INDEX}"]

    def _about(self, parameters: Parameters) -> Answer:
        settings = self._settings
        return json_answer(
            {
                "home": str(settings.home),
                "environment": settings.environment,
                "allows_actions": settings.allows_actions,
            }
        )

    # -- runs ------------------------------------------------------------------------------------

    def _follow_runs(self, parameters: Parameters) -> Answer:
        return Answer(200, EVENTS, self._runs.follow([RUNS]))

    def _follow_run(self, parameters: Parameters) -> Answer:
        record = self._find_run(parameters)
        topics = [RUN]
        if parameters.has("step"):
            topics.append(children_topic(parameters.step(record)))
        return Answer(200, EVENTS, self._readers.find(record.run_id).follow(topics))

    def _child(self, parameters: Parameters) -> Answer:
        """Answer the commands of a child and its attempts that have ended."""
        record = self._find_run(parameters)
        step, index = parameters.child(record)
        numbers = record.plan.job(step).commands_of_index(index)
        shown = numbers[:_MAX_COMMANDS]
        texts = self._commands.texts(record, step, shown)
        commands = [
            {"number": number, "text": text[:_MAX_COMMAND_CHARS]}
            for number, text in zip(shown, texts, strict=True)
        ]
        engine = record.open()
        try:
            job_ids = [job.id for job in engine.overview().jobs if job.step == step]
            attempts = [_attempt(attempt) for attempt in engine.attempts(job_ids, index=index)]
        finally:
            engine.close()
        return json_answer(
            {
                "step": step,
                "index": index,
                "commands": commands,
                "more_commands": max(0, len(numbers) - _MAX_COMMANDS),
                "attempts": attempts,
            }
        )

    def _draw_use(self, parameters: Parameters) -> Answer:
        """Answer an HTML document with what the attempts of a child have used."""
        record = self._find_run(parameters)
        return Answer(200, HTML, report.uses_of_child(record, *parameters.child(record)).encode())

    def _draw_charts(self, parameters: Parameters) -> Answer:
        record = self._find_run(parameters)
        return Answer(200, HTML, self._charts.draw(record, parameters.state()))

    def _diagnose(self, parameters: Parameters) -> Answer:
        """Answer the doctor's report about children of a step that wait for a host."""
        record = self._find_run(parameters)
        step = parameters.step(record)
        with self._diagnosing:  # one at a time: each sends requests to AWS
            return text_answer(200, "\n".join(diagnosis.explain_wait(record, step)))

    # -- actions ---------------------------------------------------------------------------------

    def _ask(self, parameters: Parameters) -> Answer:
        """Answer what an action would do."""
        record, action = self._find_action(parameters)
        return json_answer({"question": action.ask(record)})

    def _act(self, parameters: Parameters) -> Answer:
        record, action = self._find_action(parameters)
        return json_answer({"run": action.act(record)})

    def _find_action(self, parameters: Parameters) -> tuple[RunRecord, Action]:
        action = ACTIONS.get(parameters.text("action"))
        if action is None:
            raise RefusedError(404, "there is no such action")
        return self._find_run(parameters), action

    # -- logs ------------------------------------------------------------------------------------

    def _log(self, parameters: Parameters) -> Answer:
        """Answer a part of a log; headers have the size of the log, and the attempts with one."""
        record = self._find_run(parameters)
        step, index = parameters.child(record)
        with self._logs.reader(record) as reader:
            sizes = reader.sizes(step, index)
            attempt = parameters.number("attempt", max(sizes, default=1))
            size = sizes.get(attempt, 0)
            begin = parameters.number("begin", max(0, size - logs.MAX_PART))
            part = logs.read_part(reader, step, index, attempt, begin)
        headers = {
            "X-Log-Size": str(size),
            "X-Log-Begin": str(begin),
            "X-Log-Attempt": str(attempt),
            "X-Log-Attempts": ",".join(map(str, sizes)),
        }
        return Answer(200, TEXT, part, headers)

    def _search_log(self, parameters: Parameters) -> Answer:
        record = self._find_run(parameters)
        step, index = parameters.child(record)
        attempt, begin = parameters.number("attempt"), parameters.number("begin", 0)
        text = parameters.text("text")
        with self._logs.reader(record) as reader:
            size = reader.sizes(step, index).get(attempt, 0)
            return json_answer(logs.search(reader, step, index, attempt, text, begin, size))

    def _log_file(self, parameters: Parameters) -> Answer:
        record = self._find_run(parameters)
        step, index = parameters.child(record)
        attempt = parameters.number("attempt")
        # A pipeline made in Python may have steps of any name.
        name = re.sub(r"[^\w.-]", "_", f"{record.run_id}-{step}-{index}-{attempt}.log", flags=re.A)
        with self._logs.reader(record) as reader:
            size = reader.sizes(step, index).get(attempt, 0)
        # By the length, a browser notices that a download has broken off.
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(size),
        }
        parts = logs.read_whole(self._logs, record, step, index, attempt, size)
        return Answer(200, TEXT, parts, headers)

    # -- finding runs ----------------------------------------------------------------------------

    def _find_run(self, parameters: Parameters) -> RunRecord:
        return self._read_record(parameters.text("run"))

    def _read_record(self, run_id: str) -> RunRecord:
        """Return the record of a run of the folder, or of the environment. Raises RefusedError."""
        home, environment = self._settings.home, self._settings.environment
        if not runs.is_id(run_id):
            raise RefusedError(404, "there is no such run")
        folder = RunFolder(runs_in(home) / run_id)
        if _exists(folder):
            return runs.read(folder)
        if environment is None:
            raise RefusedError(404, "there is no such run")
        try:
            return operations.find_run(home, run_id, environment)
        except RunNotFoundError as exc:
            # The bucket names it, but the state of a run on ECS is where the run was begun.
            raise RefusedError(404, f"{exc.message}; a run on ECS is shown where it began") from exc

    def _list_remote_runs(self) -> list[str]:
        environment = self._settings.environment
        if environment is None:
            return []
        return operations.list_remote_runs(self._settings.home, environment)


def _exists(folder: RunFolder) -> bool:
    """Return whether there is such a run. The list of all runs would open each of them."""
    try:
        return folder.path.is_dir()
    except OSError as exc:
        raise from_os_error(exc, "read", folder.path) from exc


def _attempt(attempt: AttemptDetail) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "state": "RETRIED" if attempt.state is None else attempt.state.value,
        "exit_code": attempt.exit_code,
        "reason": explain_failure(attempt),
        "started_ms": attempt.started_ms,
        "ended_ms": attempt.ended_ms,
        "cpu_s": attempt.cpu_s,
        "memory_kib": attempt.peak_memory_kib,
        "gpus": list(attempt.gpus),
    }
