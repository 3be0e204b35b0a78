"""Small JSON files of a run: in S3 for all machines, and in the run's folder for this one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsRefusedError
from batchyard.errors import BrokenStoreError, from_os_error


class RunFiles:
    """Reads and writes the files by their names (see s3_layout)."""

    def __init__(self, folder: Path, address: str, s3: S3) -> None:
        """``address``: the run's prefix in S3."""
        self._folder = folder
        self._address = address
        self._s3 = s3
        #: Whether S3 has answered that the bucket does not exist.
        self.is_bucket_gone = False

    def write(self, name: str, content: object) -> None:
        """Write a file to S3 and to the folder; where the bucket is gone, only to the folder."""
        text = json.dumps(content)
        with self.tolerate_missing_bucket():
            self._s3.put(self._address + name, text.encode(), "application/json")
        path = self._folder / name
        # Under another name first: a process that is killed half way leaves no file cut short.
        draft = path.with_name(f".{name}-{os.getpid()}")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        except OSError as exc:
            raise from_os_error(exc, "write", path) from exc

    def write_first(self, name: str, content: object) -> bool:
        """Write a file to S3 unless it is there. Returns whether it was written."""
        return self._s3.put_if(self._address + name, json.dumps(content).encode(), None)

    def read(self, name: str) -> Any:
        """Return a file from the folder, else from S3; None where it is in neither."""
        content = self.read_local(name)
        return self.read_remote(name) if content is None else content

    def read_local(self, name: str) -> Any:
        """Return a file from the folder; None where it is not there."""
        path = self._folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except OSError as exc:
            raise from_os_error(exc, "read", path) from exc
        except ValueError as exc:
            hint = "delete it, and AWS and S3 are asked instead"
            raise BrokenStoreError(f"{path} cannot be read: {exc}", hint=hint) from exc

    def read_remote(self, name: str) -> Any:
        """Return a file from S3; None where it is not there, or the bucket is gone."""
        with self.tolerate_missing_bucket():
            data = self._s3.get(self._address + name)
            try:
                return None if data is None else json.loads(data)
            except ValueError as exc:
                raise BrokenStoreError(f"{self._address}{name} cannot be read: {exc}") from exc
        return None

    @contextmanager
    def tolerate_missing_bucket(self) -> Iterator[None]:
        """Ignore S3's refusal where the bucket does not exist any more."""
        try:
            yield
        except AwsRefusedError as exc:
            if exc.code != "NoSuchBucket":
                raise
            self.is_bucket_gone = True
