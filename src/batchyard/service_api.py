"""Services in Python: what `batchyard service` does, without questions.

from batchyard import Service

service = Service.up("notebook.yaml", environment="lab")
print(service.status()["running"])
service.down()
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batchyard.aws.session import AwsSession
from batchyard.folder import find_home
from batchyard.images.registry import read_pinned_images
from batchyard.infra.changes import Change
from batchyard.infra.events import Progress, Step
from batchyard.services import forwarding, reading
from batchyard.services.operations import Services

Report = Callable[[str], None]


class _Agreement:
    """A Dialog of infra.stacks that agrees to everything, and reports events of the service."""

    def __init__(self, report: Report | None) -> None:
        self._report = report

    def say(self, text: str) -> None:
        if self._report is not None:
            self._report(text.strip())

    def ask(self, question: str) -> bool:
        return True

    def show_changes(
        self, stack: str, changes: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None:
        pass

    def show_events(self, stack: str, steps: Sequence[Step], progress: Progress) -> None:
        pass

    def show_end(self, stack: str, status: str, duration_s: float) -> None:
        self.say(f"{stack}: {status}")


class Service:
    """A service of an environment. ``report`` is called with a line for each event."""

    def __init__(self, name: str, environment: str, *, report: Report | None = None) -> None:
        """Raises InputError if the environment has no such service."""
        self.name = name
        self.environment = environment
        self._services = Services(AwsSession(None), environment, _Agreement(report))
        self._services.find(name)

    def __repr__(self) -> str:
        return f"Service({self.name!r}, {self.environment!r})"

    @classmethod
    def up(
        cls,
        path: str | Path,
        environment: str,
        *,
        home: str | Path | None = None,
        report: Report | None = None,
    ) -> Service:
        """Create or update the service of a file, and wait until its tasks run.

        Raises PipelineFileError with all mistakes of the file, and StackFailedError with the cause
        if the tasks do not stay up.
        """
        service = reading.load(Path(path))
        folder = find_home(Path.cwd(), str(home or os.environ.get("BATCHYARD_HOME", "")))
        image = read_pinned_images(folder, environment).get(service.image, service.image)
        Services(AwsSession(None), environment, _Agreement(report)).up(service, image)
        return cls(service.name, environment, report=report)

    @staticmethod
    def names(environment: str) -> list[str]:
        """Return the names of an environment's services."""
        return Services(AwsSession(None), environment, _Agreement(None)).list_names()

    def status(self) -> dict[str, Any]:
        """Return what `service status --json` prints."""
        return self._services.status(self.name).to_json()

    def logs(self, since_s: float = 3600, *, follow: bool = False) -> Iterator[tuple[str, str]]:
        """Yield (task id, line) of the last ``since_s`` seconds; with ``follow``, for ever."""
        return self._services.read_logs(self.name, time.time() - since_s, follow=follow)

    def scale(self, count: int) -> None:
        """Keep ``count`` tasks running, and wait until they run."""
        self._services.scale(self.name, count)

    def restart(self) -> None:
        """Replace all tasks, and wait until the new ones run. Raises OperationalError."""
        self._services.restart(self.name)

    def forward_command(self, port: int, local_port: int | None = None) -> list[str]:
        """Return the command that brings a port to this machine until it is interrupted."""
        state = self._services.status(self.name)
        return forwarding.find_tunnel(state, port, local_port).command()

    def down(self) -> None:
        """Delete the service with its output in CloudWatch Logs."""
        to_delete = self._services.find_to_delete(self.name)
        if to_delete is not None:
            self._services.down(to_delete)
