"""The addresses of the page and what each of them answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import diagnosis, operations, runs
from batchyard.command_texts import CommandTexts
from batchyard.engines.base import AttemptDetail, RunRecord
from batchyard.errors import BatchyardError, from_os_error
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
        self._diagnosing = threading.Lock()
        self._routes: dict[tuple[str, str], Callable[[Request], Answer]] = {
            ("GET", "/"): self._index,
            ("GET", "/api/about"): self._about,
            ("GET", "/api/runs"): self._follow_runs,
            ("GET", "/api/run"): self._follow_run,
            ("GET", "/api/child"): self._child,
            ("GET", "/api/log"): self._log,
            ("GET", "/api/log-search"): self._search_log,
            ("GET", "/api/log-file"): self._log_file,
            ("GET", "/api/charts"): self._draw_charts,
            ("GET", "/api/doctor"): self._diagnose,
        }
        if settings.allows_actions:
            self._routes["GET", "/api/question"] = self._ask
            self._routes["POST", "/api/act"] = self._act

    def respond(self, request: Request) -> Answer:
        try:
            return self._respond(request)
        except RefusedError as refusal:
            return text_answer(refusal.status, refusal.message)
        except BatchyardError as error:
            refused = to_refusal(error)
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
        route = self._routes.get((method, request.path))
        if route is None:
            is_known = any(path == request.path for _, path in self._routes)
            raise RefusedError(405 if is_known else 404, "there is nothing at this address")
        return route(request)

    # -- the page --------------------------------------------------------------------------------

    def _first_page(self, request: Request) -> Answer:
        """Answer the address that was printed, with the cookie.

        The page itself, not a redirection: after a link from another site, a browser would not send
        a strict cookie to the place that it is redirected to.
        """
        if not self._access.is_token(request.parameters["token"]):
            raise RefusedError(403, _NO_COOKIE)
        return replace(self._page(), headers={"Set-Cookie": self._access.cookie})

    def _index(self, request: Request) -> Answer:
        Parameters(request.parameters)
        return self._page()

    def _page(self) -> Answer:
        return self._files[f"/page/{INDEX}"]

    def _about(self, request: Request) -> Answer:
        Parameters(request.parameters)
        settings = self._settings
        return json_answer(
            {
                "home": str(settings.home),
                "environment": settings.environment,
                "allows_actions": settings.allows_actions,
            }
        )

    # -- runs ------------------------------------------------------------------------------------

    def _follow_runs(self, request: Request) -> Answer:
        Parameters(request.parameters)
        return Answer(200, EVENTS, self._runs.follow([RUNS]))

    def _follow_run(self, request: Request) -> Answer:
        parameters = Parameters(request.parameters, "run", "step")
        record = self._find_run(parameters)
        topics = [RUN]
        if "step" in request.parameters:
            topics.append(children_topic(parameters.step(record)))
        return Answer(200, EVENTS, self._readers.find(record.run_id).follow(topics))

    def _child(self, request: Request) -> Answer:
        """Answer the commands of a child and its attempts that have ended."""
        parameters = Parameters(request.parameters, "run", "step", "index")
        record = self._find_run(parameters)
        step, index = parameters.child(record)
        numbers = record.plan.job(step).commands_of_index(index)
        texts = CommandTexts(record)
        commands = [
            {"number": number, "text": texts.text_of(step, number)[:_MAX_COMMAND_CHARS]}
            for number in numbers[:_MAX_COMMANDS]
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

    def _draw_charts(self, request: Request) -> Answer:
        parameters = Parameters(request.parameters, "run", "state")
        record = self._find_run(parameters)
        return Answer(200, HTML, self._charts.draw(record, parameters.state()))

    def _diagnose(self, request: Request) -> Answer:
        """Answer the doctor's report about children of a step that wait for a host."""
        parameters = Parameters(request.parameters, "run", "step")
        record = self._find_run(parameters)
        step = parameters.step(record)
        with self._diagnosing:  # one at a time: each sends requests to AWS
            return text_answer(200, "\n".join(diagnosis.explain_wait(record, step)))

    # -- actions ---------------------------------------------------------------------------------

    def _ask(self, request: Request) -> Answer:
        """Answer what an action would do."""
        record, action = self._find_action(request)
        return json_answer({"question": action.ask(record)})

    def _act(self, request: Request) -> Answer:
        # A form of another page cannot set this header, if a browser forgets all other rules.
        if ACTION_HEADER not in request.headers:
            raise RefusedError(403, f"an action needs the header {ACTION_HEADER}")
        record, action = self._find_action(request)
        return json_answer({"run": action.act(record)})

    def _find_action(self, request: Request) -> tuple[RunRecord, Action]:
        parameters = Parameters(request.parameters, "run", "action")
        action = ACTIONS.get(parameters.text("action"))
        if action is None:
            raise RefusedError(404, "there is no such action")
        return self._find_run(parameters), action

    # -- logs ------------------------------------------------------------------------------------

    def _log(self, request: Request) -> Answer:
        """Answer a part of a log; headers have the size of the log, and the attempts with one."""
        parameters = Parameters(request.parameters, "run", "step", "index", "attempt", "begin")
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

    def _search_log(self, request: Request) -> Answer:
        parameters = Parameters(
            request.parameters, "run", "step", "index", "attempt", "begin", "text"
        )
        record = self._find_run(parameters)
        step, index = parameters.child(record)
        attempt, begin = parameters.number("attempt"), parameters.number("begin", 0)
        text = parameters.text("text")
        with self._logs.reader(record) as reader:
            size = reader.sizes(step, index).get(attempt, 0)
            return json_answer(logs.search(reader, step, index, attempt, text, begin, size))

    def _log_file(self, request: Request) -> Answer:
        parameters = Parameters(request.parameters, "run", "step", "index", "attempt")
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
        return operations.find_run(home, run_id, environment)

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
        "cpu_s": attempt.user_s + attempt.system_s,
        "memory_kib": attempt.max_rss_kib,
        "gpus": list(attempt.gpus),
    }
