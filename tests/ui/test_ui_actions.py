"""Stop, retry and resume by the page."""

from __future__ import annotations

from pathlib import Path

from small_runs import begin_run
from ui_client import Page, serve

from batchyard import operations, runs
from batchyard.engines.base import RunState
from batchyard.pipeline import Step


def act(page: Page, run: str, action: str, **headers: str) -> tuple[int, str]:
    fields = {
        "Origin": f"http://127.0.0.1:{page.port}",
        "X-Batchyard-Action": "1",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    reply = page.ask("/api/act", "POST", fields, f"run={run}&action={action}".encode())
    return reply.status, reply.text


def test_a_run_is_stopped_and_retried_after_a_question(tmp_path: Path) -> None:
    home = tmp_path / ".batchyard"
    record = begin_run(home, Step("work", command="test -e go || sleep 60", array=2))
    operations.start(record)
    with serve(home, allows_actions=True) as page:
        question = page.get("/api/question", run=record.run_id, action="stop").json()["question"]
        assert question.startswith(f"Stop run {record.run_id}? ") and "SIGTERM" in question
        # Nothing but the page itself may act.
        evil = {"Origin": "https://evil.example"}
        for headers in (evil, {"Origin": ""}, {"Sec_Fetch_Site": "cross-site"}):
            assert act(page, record.run_id, "stop", **headers)[0] == 403
        assert act(page, record.run_id, "stop", X_Batchyard_Action="")[0] == 403
        assert act(page, record.run_id, "destroy")[0] == 404
        assert act(page, "../x", "stop")[0] == 404
        run = record.open()
        assert run.overview().state is RunState.RUNNING
        assert act(page, record.run_id, "stop")[0] == 200
        with page.events("/api/run", run=record.run_id) as events:
            assert any(name == "run" and value["state"] == "STOPPED" for name, value in events)
        run.close()
        (tmp_path / "go").touch()
        question = page.get("/api/question", run=record.run_id, action="retry").json()["question"]
        assert "2 children" in question
        status, text = act(page, record.run_id, "retry")
        assert status == 200
        retried = next(name for name in runs.names(home) if name != record.run_id)
        assert retried in text
        with page.events("/api/run", run=retried) as events:
            assert any(name == "run" and value["state"] == "SUCCEEDED" for name, value in events)
        # What cannot be done is a sentence.
        reply = page.get("/api/question", run=retried, action="retry")
        assert reply.status == 400 and "nothing to retry" in reply.text
        assert page.get("/api/question", run=retried, action="resume").status == 400


def test_without_the_flag_nothing_acts(page: Page, run_id: str) -> None:
    assert act(page, run_id, "retry")[0] == 404
    assert page.get("/api/question", run=run_id, action="retry").status == 404
    assert page.get("/api/about").json()["allows_actions"] is False


def test_charts_are_those_of_the_report(page: Page, run_id: str) -> None:
    reply = page.get("/api/charts", run=run_id, state="FAILED")
    assert reply.status == 200 and "<h2>Timeline</h2>" in reply.text
    assert "<script" not in reply.text
