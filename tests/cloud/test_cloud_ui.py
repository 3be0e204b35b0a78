"""`batchyard ui --env`: runs on AWS Batch in the page, also those that another machine began."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster, run_of, until

sys.path.insert(0, str(Path(__file__).parents[1] / "ui"))
from browser_yard import IS_REQUIRED, find_violations
from chromium import CHROMIUM, Chromium
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.outside
@pytest.mark.skipif(CHROMIUM is None and not IS_REQUIRED, reason="no Chromium is installed")
def test_the_cost_of_a_run_in_a_browser(lab: Lab, tmp_path: Path) -> None:
    ecs, ec2 = lab.endpoint.client("ecs"), lab.endpoint.client("ec2")
    ecs.create_cluster(clusterName="billed")
    ec2.run_instances(
        ImageId="ami-12c6146b",
        InstanceType="m5.xlarge",
        MinCount=1,
        MaxCount=1,
        UserData="#!/bin/bash\necho ECS_CLUSTER=billed >> /etc/ecs/ecs.config\n",
    )
    until(lambda: ecs.list_container_instances(cluster="billed")["containerInstanceArns"])
    billed = "  billed: {region: us-east-1, bucket: lab-runs, cluster: billed}\n"
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + billed)
    lab.write("pipeline.yaml", PIPELINE)
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "billed", code=1)
    run = run_of(done)
    home = lab.folder / ".batchyard"
    with seen(lab, home, "billed") as page, Chromium(tmp_path / "profile") as browser:
        browser.resize(1400)
        browser.open(page.address)
        browser.wait_for("document.querySelector('table.runs td:last-child').innerText[0] === '$'")
        browser.run(f"location.hash = '#/run/{run}'")
        browser.wait_for("document.querySelector('dl.facts').innerText.includes(' idle, ')")
        browser.wait_for("document.querySelector('.charts .money svg')")
        text = browser.run("document.querySelector('.charts').innerText")
        assert "paid until" in text and "m5.xlarge" in text and "idle $" in text
        names = "[...document.querySelectorAll('.charts svg.wide .name')].map(t => t.textContent)"
        assert any(name.endswith(" m5.xlarge") for name in browser.run(names))
        assert find_violations(browser) == []
        assert browser.errors == [] and browser.console == []
        own = f"http://127.0.0.1:{page.port}/"
        assert [url for url in browser.requests if not url.startswith((own, "data:"))] == []
