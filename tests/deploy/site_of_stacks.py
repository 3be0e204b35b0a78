"""The command in a folder, against an endpoint; an environment of a name of its own for each
test.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator_endpoint import Endpoint

import prestarted

CORE = ("network", "storage", "registry", "iam", "batch")


@dataclass
class Site:
    endpoint: Endpoint
    folder: Path
    env: str = field(default_factory=lambda: f"t{secrets.token_hex(3)}")

    def __call__(
        self,
        *words: str,
        code: int | None = 0,
        answers: str | None = None,
        environ: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `batchyard WORDS`. ``answers``: what is typed, None: nothing, as from /dev/null."""
        done = prestarted.run(
            [sys.executable, "-m", "batchyard", *words],
            cwd=self.folder,
            env=environ or self.endpoint.environ,
            input=answers or "",
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = (
            f"batchyard {' '.join(words)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
        assert code is None or done.returncode == code, said
        assert "Traceback" not in said and "a bug in batchyard" not in said, said
        return done

    def killed(self, *words: str, at: str, or_at: str | None = None) -> None:
        """Runs `batchyard WORDS` about this environment, and ends it with SIGKILL once it says
        ``at`` or ``or_at`` on stderr.
        """
        command = [sys.executable, "-m", "batchyard", *words, "--env", self.env]
        with prestarted.Popen(
            command, cwd=self.folder, env=self.endpoint.environ, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if at in line or (or_at is not None and or_at in line):
                    process.kill()
                    return
        raise AssertionError(f"{at!r} was never said, but: {''.join(said)}")

    def about(self, command: str, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """A command about this environment."""
        return self(command, *words, "--env", self.env, **more)

    def outputs(self) -> dict[str, str]:
        found = json.loads(self.about("outputs", "--json").stdout)
        return {name: value for stack in found["stacks"].values() for name, value in stack.items()}

    def stacks(self) -> dict[str, str]:
        """The environment's stacks with their states, deleted ones left out."""
        pages = self.endpoint.client("cloudformation").get_paginator("describe_stacks").paginate()
        found = [one for page in pages for one in page["Stacks"]]
        return {
            one["StackName"]: one["StackStatus"]
            for one in found
            if one["StackName"].startswith(f"{self.env}-")
        }

    def compute_environment(self, kind: str) -> Any:
        """By the name that its instances get, like cpu-spot."""
        found = self.endpoint.batch.describe_compute_environments()["computeEnvironments"]
        wanted = f"{self.env}-{kind}"
        (one,) = [
            ce
            for ce in found
            if ce.get("computeResources", {}).get("tags", {}).get("Name") == wanted
        ]
        return one
