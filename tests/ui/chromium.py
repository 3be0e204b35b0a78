"""Chromium without a driver: the protocol of its developer tools, over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


class Chromium:
    """A browser with one tab; ``console``, ``requests`` and ``errors`` are what it has done."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The browser reads commands from file 3 and writes answers to file 4.
        high = [os.dup2(fd, fd + 100) for fd in (to_browser, from_browser)]
        script = f'exec 3<&{high[0]} 4>&{high[1]}; exec "$@"'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", script, "chromium", CHROMIUM),
                *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (to_browser, from_browser, *high):
            os.close(fd)
        self.console: list[str] = []
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._answers: dict[int, Any] = {}
        self._arrived = threading.Condition()
        self._number = 0
        threading.Thread(target=self._listen, daemon=True).start()
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(entry["targetId"] for entry in targets if entry["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    _session = None

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._out)

    # -- the protocol ------------------------------------------------------------------------

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the tab."""
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        with self._arrived:
            self._number += 1
            number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        with self._arrived:
            assert self._arrived.wait_for(lambda: number in self._answers, 60), method
            answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def _listen(self) -> None:
        with os.fdopen(self._in, "rb") as file:
            rest = b""
            while data := file.read1(1 << 20):
                *messages, rest = (rest + data).split(b"\0")
                for message in messages:
                    self._take(json.loads(message))

    def _take(self, message: Any) -> None:
        if "id" in message:
            with self._arrived:
                self._answers[message["id"]] = message
                self._arrived.notify_all()
            return
        parameters = message.get("params", {})
        match message["method"]:
            case "Runtime.consoleAPICalled":
                self.console.append(str(parameters["args"]))
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description", details)))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(str(parameters["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])

    # -- what a user does ----------------------------------------------------------------------

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """Return the value of an expression, of which a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = 30) -> Any:
        """Return the value of an expression as soon as it is true."""
        end_s = time.monotonic() + seconds
        while True:
            value = self.run(
                f"(() => {{ try {{ return {script}; }} catch (e) {{ return null; }} }})()"
            )
            if value not in (None, False, 0, ""):  # an element is an empty object
                return value
            assert time.monotonic() < end_s, f"{script} stays false; errors: {self.errors}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        text = {"Enter": "\r"}.get(key)
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": _KEY_CODES.get(key, 0)}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **fields, **({"text": text} if text else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def scroll(self, x: float, y: float, by_px: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by_px)

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what the tab shows, or the ``whole`` page, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


_KEY_CODES = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
