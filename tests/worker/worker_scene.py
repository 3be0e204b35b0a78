"""A run in S3 as the engine stages it, and its jobs: real workers, through the real endpoint."""

from __future__ import annotations

import json
import os
import re
import secrets
import struct
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

from emulator_endpoint import Endpoint

import prestarted
from batchyard.blocks import DispatchOrder
from batchyard.worker import leases
from batchyard.worker.leases import Lease, Record

WORKER = (sys.executable, "-m", "batchyard.worker")
BUCKET = "yard"
#: the endpoint ends what uses more, as AWS does; the worker itself needs a good part of 128
MEMORY_MIB = 256
#: rules as the engine makes them: retry exit code 75 and a lost host, and nothing else
RETRY_RULES = [
    {"onExitCode": "75", "action": "RETRY"},
    {"onStatusReason": "Host EC2*", "action": "RETRY"},
    {"onReason": "*", "action": "EXIT"},
]


class Scene:
    def __init__(
        self, endpoint: Endpoint, folder: Path, name: str, worker: tuple[str, ...] = WORKER
    ) -> None:
        self.endpoint = endpoint
        self.worker = worker
        #: where commands leave what no attempt may lose
        self.folder = folder
        #: where workers make their folders: those that are killed leave them
        self.temporary = folder.with_name(f"{folder.name}-tmp")
        self.temporary.mkdir()
        self.root = f"runs/{name}/"
        self.s3: Any = endpoint.client("s3")

    # -- what the engine does ----------------------------------------------------------------------

    def orders(
        self, commands: list[str] | None = None, *, inline: bool = False, **changes: Any
    ) -> str:
        """Write the list and the orders, and return the address of the orders.

        ``inline``: the orders have the list, too.
        """
        at = f"s3://{BUCKET}/{self.root}"
        if commands is not None:
            lines = [f"{command}\n".encode() for command in commands]
            offsets = [0, *accumulate(map(len, lines))]
            self.put("lists/s.txt", b"".join(lines))
            self.put("lists/s.idx", struct.pack(f"<{len(offsets)}Q", *offsets))
        orders = {
            "format": 1,
            "run": "run-1",
            "step": "s",
            "size": 1,
            "indices": None,
            "command": None,
            "command_count": len(commands or [0]),
            "keep_going": False,
            "attempts": 1,
            "retries": 0,
            "retry_on": ["any"],
            "fail_on": [],
            "inputs": [],
            "outputs": [],
            "checkpoint": [],
            "workspace": f"{at}ws/",
            "list": None if commands is None else f"{at}lists/s.txt",
            "list_index": None if commands is None else f"{at}lists/s.idx",
            "done": f"{at}done/s/",
            "checkpoints": f"{at}checkpoint/s/",
            **({"commands": commands} if inline else {}),
            **changes,
        }
        self.put("orders.json", json.dumps(orders).encode())
        return f"{at}orders.json"

    def dynamic_orders(
        self,
        commands: list[str],
        children: int,
        *,
        skip: tuple[tuple[int, int], ...] = (),
        inline: bool = False,
        order: list[int] | None = None,
        **changes: Any,
    ) -> str:
        """Write the orders of a dynamic step: its list is in dispatch order."""
        dispatch = DispatchOrder(len(commands), skip, order)
        ordered = [commands[dispatch.command_at(place)] for place in range(len(dispatch))]
        return self.orders(
            ordered,
            inline=inline,
            format=3,
            size=children,
            children=children,
            command_count=len(commands),
            skip=skip,
            order=order,
            blocks=f"s3://{BUCKET}/{self.root}blocks/s/",
            **changes,
        )

    def blocks(self) -> list[Lease]:
        """Return the blocks that have an object, in order."""
        return [leases.decode(self.get(f"blocks/s/{name}")) for name in self.names("blocks/s/")]

    def block_records(self) -> dict[int, Record]:
        """Return the records of all commands of a dynamic step, which has one for each."""
        records = [record for lease in self.blocks() for record in lease.records]
        by_command = {record.command: record for record in records}
        assert len(by_command) == len(records)
        return by_command

    def submit(self, address: str, size: int = 1, attempts: int = 1, **environ: str) -> str:
        variables = {
            "BATCHYARD_ORDERS": address,
            "BATCHYARD_WORKSPACE": f"s3://{BUCKET}/{self.root}ws/",
            "BATCHYARD_RUN": "run-1",
            "BATCHYARD_STEP": "s",
            "KEEP": str(self.folder),
            "TMPDIR": str(self.temporary),
            **environ,
        }
        members: dict[str, Any] = {"arrayProperties": {"size": size}} if size > 1 else {}
        if attempts > 1:
            members["retryStrategy"] = {"attempts": attempts, "evaluateOnExit": RETRY_RULES}
        overrides = {
            "environment": [{"name": name, "value": value} for name, value in variables.items()]
        }
        return self.endpoint.submit(self.definition(), containerOverrides=overrides, **members)

    def definition(self, *wrapper: str) -> str:
        """Register a job definition that starts the worker, by way of a wrapper command."""
        return self.endpoint.definition("worker", *wrapper, *self.worker, memory_mib=MEMORY_MIB)

    def run(self, address: str, size: int = 1, attempts: int = 1, **environ: str) -> Any:
        """Submit a job and wait for its end."""
        return self.endpoint.wait(self.submit(address, size, attempts, **environ))

    def direct(self, address: str, **environ: str) -> subprocess.Popen[str]:
        """Start the worker without AWS Batch."""
        base = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "BATCHYARD_"))
        }
        variables = {
            **base,
            **self.endpoint.variables,
            "AWS_EC2_METADATA_DISABLED": "true",
            "BATCHYARD_ORDERS": address,
            "KEEP": str(self.folder),
            "TMPDIR": str(self.temporary),
            **environ,
        }
        return prestarted.Popen(
            list(self.worker),
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # -- what is there -----------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=self.root + name, Body=data)

    def get(self, name: str) -> bytes:
        return bytes(self.s3.get_object(Bucket=BUCKET, Key=self.root + name)["Body"].read())

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the run's objects below a prefix, relative to it."""
        at = self.root + prefix
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=at)
        return [
            entry["Key"].removeprefix(at) for page in pages for entry in page.get("Contents", ())
        ]

    def files(self, prefix: str = "ws/") -> dict[str, str]:
        return {name: self.get(prefix + name).decode() for name in self.names(prefix)}

    def done(self) -> list[int]:
        """Return the commands that have a success record."""
        return [int(name) for name in self.names("done/s/") if name.isdigit()]

    def failures(self, child: int = 0) -> list[Any]:
        failures: list[Any] = json.loads(self.get(f"done/s/failures/{child:07d}.json"))
        return failures

    def kept_lines(self, name: str) -> list[str]:
        """Return the lines that commands have written to a file that outlives attempts."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def logs(self, job_id: str) -> list[str]:
        return self.endpoint.output(job_id)


def name_of(test: str) -> str:
    """A name for a test's run that no other has."""
    return f"{re.sub(r'[^a-z]+', '-', test)[:60]}-{secrets.token_hex(4)}"


def exit_codes(job: Any) -> list[int | None]:
    return [attempt["container"].get("exitCode") for attempt in job["attempts"]]
