"""What a run keeps of itself: small JSON files in S3, for everybody, and in its folder, where nobody need be asked."""

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


class Kept:
    def __init__(self, folder: Path, address: str, s3: S3) -> None:
        """``address``: the run's prefix in S3."""
        self._folder = folder
        self._address = address
        self._s3 = s3
        #: S3 has said so
        self.is_bucket_gone = False

    def put(self, name: str, content: object) -> None:
        """In S3 and here; where the bucket is gone, here."""
        text = json.dumps(content)
        with self.bucket_may_be_gone():
            self._s3.put(self._address + name, text.encode(), "application/json")
        path = self._folder / name
        # Under another name first: whoever is killed half way leaves nothing that is cut short.
        draft = path.with_name(f".{name}-{os.getpid()}")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        except OSError as exc:
            raise from_os_error(exc, "write", path) from exc

    def get(self, name: str) -> Any:
        """From here, else from S3; None where it is nowhere."""
        found = self.here(name)
        return self.there(name) if found is None else found

    def here(self, name: str) -> Any:
        path = self._folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except OSError as exc:
            raise from_os_error(exc, "read", path) from exc
        except ValueError as exc:
            hint = "delete it, and AWS and S3 are asked instead"
            raise BrokenStoreError(f"{path} cannot be read: {exc}", hint=hint) from exc

    def there(self, name: str) -> Any:
        """What S3 has of it; nothing where the bucket is gone."""
        with self.bucket_may_be_gone():
            found = self._s3.get(self._address + name)
            try:
                return None if found is None else json.loads(found)
            except ValueError as exc:
                raise BrokenStoreError(f"{self._address}{name} cannot be read: {exc}") from exc
        return None

    @contextmanager
    def bucket_may_be_gone(self) -> Iterator[None]:
        try:
            yield
        except AwsRefusedError as exc:
            if exc.code != "NoSuchBucket":
                raise
            self.is_bucket_gone = True
