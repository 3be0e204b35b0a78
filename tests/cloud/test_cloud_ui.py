"""`batchyard ui --env`: runs on AWS Batch in the page, also those that another machine began."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster, until

sys.path.insert(0, str(Path(__file__).parents[1] / "ui"))
from ui_client import Page

PIPELINE = """\
name: seen
image: busybox
defaults: {memory: 256MiB}
steps:
  - name: work
    array: 3
    command: echo line $AWS_BATCH_JOB_ARRAY_INDEX; test $AWS_BATCH_JOB_ARRAY_INDEX != 2
"""


class ServerAt:
    """A server of another process: only its port is known."""

    def __init__(self, port: int) -> None:
        self.port = port


def test_a_run_of_another_machine(lab: Lab, tmp_path: Path) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run(code=1)
    other = tmp_path / "other/.batchyard"
    other.mkdir(parents=True)
    (other / "environments.yaml").write_bytes(
        (lab.folder / ".batchyard/environments.yaml").read_bytes()
    )
    with seen(lab, other) as page:
        with page.events("/api/runs") as events:
            rows = next(value["rows"] for _, value in events if run in value["order"])
            assert rows[run]["state"] == "ELSEWHERE"
        with page.events("/api/run", run=run, step="work") as events:
            document = children = None
            for name, value in events:
                document = value if name == "run" else document
                children = value if name == "children" else children
                if document and children:
                    break
        assert document is not None and children is not None
        assert document["state"] == "FAILED" and document["failures"][0]["index"] == 2
        states = base64.b64decode(children["records"])[::12]
        assert list(states) == [2, 2, 3]
        log = page.get("/api/log", run=run, step="work", index=1)
        assert log.body == b"line 1\n" and log.headers["x-log-size"] == "7"
        found = page.get("/api/log-search", run=run, step="work", index=1, attempt=1, text="LINE")
        assert found.json() == {"places": [0], "next": None}
        assert "<h2>Hosts</h2>" in page.get("/api/charts", run=run, state="FAILED").text


@contextmanager
def seen(lab: Lab, home: Path, environment: str = "lab") -> Iterator[Page]:
    """The page of a real command."""
    process = lab.start(
        *("ui", "--no-browser", "--env", environment, "--home", str(home)), output=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        port = int(address.split(":")[2].partition("/")[0])
        page = Page(ServerAt(port), address)  # type: ignore[arg-type]
        page.sign_in()
        try:
            yield page
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0


#: the endpoint has 8 vCPUs: `hold` has them all, until it is told to end
STUCK = """\
name: stuck
image: x
defaults: {memory: 4MiB}
steps:
  - {name: hold, cpus: 8, command: 'until [ -e "END" ]; do sleep 0.2; done'}
  - {name: train, array: 3, command: echo trained}
"""


def test_the_doctor_says_why_children_wait(lab: Lab) -> None:
    lab.write("pipeline.yaml", STUCK.replace("END", str(lab.folder / "end")))
    run = lab.run("--detach")
    until(
        lambda: [step["state"] for step in lab.status(run)["steps"][:2]],
        lambda now: now == ["RUNNING", "RUNNABLE"],
    )
    with seen(lab, lab.folder / ".batchyard") as page:
        with page.events("/api/run", run=run) as events:
            steps = (value.get("waiting_steps") for name, value in events if name == "run")
            assert next(filter(None, steps)) == ["train"]
        answer = page.get("/api/doctor", run=run, step="train")
        assert answer.status == 200 and answer.text.startswith("job ")
        assert page.get("/api/doctor", run=run, step="hold").status == 400
        (lab.folder / "end").touch()
        assert lab.ended(run) == "SUCCEEDED"


def test_a_run_on_a_cluster(lab: Lab, tmp_path: Path) -> None:
    """A run on ECS is executed by the machine that began it, which has its state."""
    add_cluster(lab.endpoint)
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS)
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run_tasks(code=1)
    with seen(lab, lab.folder / ".batchyard", "tasks") as page:
        with page.events("/api/runs") as events:
            rows = next(value["rows"] for _, value in events if run in value["rows"])
            assert (rows[run]["engine"], rows[run]["state"]) == ("ecs", "FAILED")
        with page.events("/api/run", run=run, step="work") as events:
            document = next(value for name, value in events if name == "run")
        assert document["failures"][0]["index"] == 2
        assert page.get("/api/log", run=run, step="work", index=1).body == b"line 1\n"
        assert "<h2>Hosts</h2>" in page.get("/api/charts", run=run, state="FAILED").text
    other = tmp_path / "other/.batchyard"
    other.mkdir(parents=True)
    (other / "environments.yaml").write_text(ENVIRONMENTS + TASKS)
    with seen(lab, other, "tasks") as page:
        with page.events("/api/runs") as events:
            rows = next(value["rows"] for _, value in events if run in value["rows"])
            assert rows[run]["state"] == "ELSEWHERE"
        reply = page.get("/api/run", run=run)
        assert reply.status == 404 and "a run on ECS is shown where it began" in reply.text
