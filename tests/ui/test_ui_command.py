"""`batchyard ui` as a command."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

from ui_client import Page

import prestarted
from batchyard.ui.server import explain_host


def test_the_command_serves_until_it_is_interrupted(home: Path, run_id: str) -> None:
    process = prestarted.Popen(
        [prestarted.BIN / "batchyard", "ui", "--no-browser", "--home", str(home)],
        stdout=-1,
        stderr=-1,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        try:
            address = process.stdout.readline().strip()
            match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})", address)
            assert match
            page = Page(_ServerAt(int(match[1])), address)  # type: ignore[arg-type]
            page.sign_in()
            with page.events("/api/runs") as events:
                name, value = next(events)
            assert name == "runs" and value["rows"][run_id]["state"] == "FAILED"
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        assert process.stderr.read() == "stopped\n"


class _ServerAt:
    """A server of another process: only its port is known."""

    def __init__(self, port: int) -> None:
        self.port = port


def test_a_port_that_is_taken_and_an_address_of_another_machine(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (["--port", port], ["--host", "192.0.2.1"], ["--host", "no such host"]):
            done = prestarted.run(
                [prestarted.BIN / "batchyard", "ui", "--no-browser", "--home", str(home), *words],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 3 and "could not listen on" in done.stderr, words
            assert "--port" in done.stderr and "Traceback" not in done.stderr


def test_another_address_is_explained() -> None:
    assert explain_host("127.0.0.1") == ""
    assert "not encrypted" in explain_host("0.0.0.0")
