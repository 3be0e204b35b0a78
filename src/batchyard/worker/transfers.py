"""Download and upload many files at once, large ones in parallel parts; a file is never cut short.

boto3's transfer manager splits files and repeats parts. What it gives up on is tried again here,
after a pause.
"""

from __future__ import annotations

import errno
import os
import queue
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from batchyard.quick_dataclasses import dataclass
from batchyard.worker import s3
from batchyard.worker.errors import EXIT_NAME, WorkerError, from_os_error, replaced_error
from batchyard.worker.globs import OWN_PREFIX
from batchyard.worker.orders import Place

_PART_BYTES = 16 * 1024 * 1024
#: transfers that the manager gets at the same time; more would only wait in its queue
_WINDOW = 64
#: chunks of 256 KiB
_IO_QUEUE = 64
_CHUNK_BYTES = 256 * 1024
_ROUNDS = 5
_MAX_PAUSE_S = 20
_POLL_S = 0.1
#: errors of the system that come from the name of a file
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


class OutOfTimeError(Exception):
    """The attempt has to end before the transfer is finished."""


@dataclass(frozen=True, slots=True)
class FileTransfer:
    """One file, to be downloaded or uploaded."""

    place: Place
    path: str
    size: int = 0
    #: ETag of an object to download: parts of two versions are never put together
    etag: str = ""


#: how a direction starts a transfer: (transfer, callback for its end) -> (future, path on disk)
_Start = Callable[[FileTransfer, Callable[[Any], None]], "tuple[Any, str]"]
_Finish = Callable[[FileTransfer, str], None]


class Transfers:
    def __init__(self, client: Any, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self._manager: Any = None
        self._pool: ThreadPoolExecutor | None = None

    def download(self, files: Iterable[FileTransfer], is_over: Callable[[], bool]) -> None:
        """Download all files. Raises OutOfTimeError when ``is_over`` returns True."""
        self._transfer_all(list(files), self._start_download, _move_into_place, "download", is_over)

    def upload(self, files: Iterable[FileTransfer], is_over: Callable[[], bool]) -> None:
        """Upload all files. Raises OutOfTimeError when ``is_over`` returns True."""
        self._transfer_all(
            list(files), self._start_upload, lambda file, path: None, "upload", is_over
        )

    def _transfer_all(
        self,
        files: Sequence[FileTransfer],
        start: _Start,
        finish: _Finish,
        action: str,
        is_over: Callable[[], bool],
    ) -> None:
        if not files:
            return
        for round_number in range(1, _ROUNDS + 1):
            failed = self._transfer_once(files, start, finish, action, is_over)
            if not failed:
                return
            files = [file for file, _ in failed]
            if round_number < _ROUNDS:
                self._pause(round_number, is_over)
        file, exc = failed[0]
        raise s3.to_worker_error(exc, action, str(file.place)) or exc from exc

    def _transfer_once(
        self,
        files: Sequence[FileTransfer],
        start: _Start,
        finish: _Finish,
        action: str,
        is_over: Callable[[], bool],
    ) -> list[tuple[FileTransfer, Exception]]:
        """Try each file once; return the files that are worth another try, with their errors."""
        waiting = list(reversed(files))
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running: dict[Any, tuple[FileTransfer, str]] = {}
        failed: list[tuple[FileTransfer, Exception]] = []
        while waiting or running:
            while waiting and len(running) < _WINDOW:
                file = waiting.pop()
                with _naming_disk_errors(action, file):
                    future, path = start(file, ended.put)
                running[future.meta.transfer_id] = file, path
            if is_over():
                raise OutOfTimeError
            try:
                future = ended.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            file, path = running.pop(future.meta.transfer_id)
            passing_error = _finish_transfer(future, file, path, finish, action)
            if passing_error is not None:
                failed.append((file, passing_error))
        return failed

    def _pause(self, round_number: int, is_over: Callable[[], bool]) -> None:
        # The random factor spreads the children that failed at the same time.
        remaining_s = min(_MAX_PAUSE_S, 2.0**round_number) * random.uniform(0.5, 1)
        while remaining_s > 0:
            if is_over():
                raise OutOfTimeError
            pause_s = min(remaining_s, _POLL_S)
            self._sleep(pause_s)
            remaining_s -= pause_s

    def _start_download(self, file: FileTransfer, on_end: Callable[[Any], None]) -> tuple[Any, str]:
        folder = os.path.dirname(file.path)
        os.makedirs(folder, exist_ok=True)
        # In the folder of the file, so that it can be renamed in one step.
        path = os.path.join(folder, f"{OWN_PREFIX}{secrets.token_hex(8)}.part")
        if file.size < _PART_BYTES:
            return _SmallDownload(self._client, self._threads(), file, path, on_end), path
        subscribers = [_subscriber(on_end, file.size, file.etag)]
        future = self._transfer_manager().download(
            file.place.bucket, file.place.key, path, subscribers=subscribers
        )
        return future, path

    def _start_upload(self, file: FileTransfer, on_end: Callable[[Any], None]) -> tuple[Any, str]:
        future = self._transfer_manager().upload(
            file.path, file.place.bucket, file.place.key, subscribers=[_subscriber(on_end)]
        )
        return future, file.path

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(s3.CONCURRENCY)
        return self._pool

    def _transfer_manager(self) -> Any:
        if self._manager is None:
            from s3transfer.manager import TransferConfig, TransferManager

            config = TransferConfig(
                multipart_threshold=_PART_BYTES,
                multipart_chunksize=_PART_BYTES,
                max_request_concurrency=s3.CONCURRENCY,
                # Received parts that are not on disk yet use the container's memory.
                max_io_queue_size=_IO_QUEUE,
            )
            self._manager = TransferManager(self._client, config)
        return self._manager


class _SmallDownload:
    """The download of a file with a single request, in the shape of s3transfer's future.

    The transfer manager would ask for size and ETag first, unless it knows both.
    """

    def __init__(
        self,
        client: Any,
        pool: ThreadPoolExecutor,
        file: FileTransfer,
        path: str,
        on_end: Callable[[Any], None],
    ) -> None:
        self.meta = SimpleNamespace(transfer_id=path)
        self._client, self._file, self._path = client, file, path
        self._future = pool.submit(self._download)
        self._future.add_done_callback(lambda _: on_end(self))

    def result(self) -> None:
        self._future.result()

    def _download(self) -> None:
        place = self._file.place
        condition = {"IfMatch": self._file.etag} if self._file.etag else {}
        try:
            answer = self._client.get_object(Bucket=place.bucket, Key=place.key, **condition)
        except Exception as exc:
            if s3.is_replaced(exc):
                raise replaced_error("download", str(place)) from exc
            raise
        try:
            with open(self._path, "wb") as file:
                for data in answer["Body"].iter_chunks(_CHUNK_BYTES):
                    file.write(data)
        except BaseException:
            with suppress(OSError):
                os.unlink(self._path)
            raise


def _finish_transfer(
    future: Any, file: FileTransfer, path: str, finish: _Finish, action: str
) -> Exception | None:
    """Finish a transfer that has ended; return its error if another try may succeed."""
    try:
        with _naming_disk_errors(action, file):
            future.result()
            finish(file, path)
    except WorkerError:
        raise
    except Exception as exc:
        if not s3.is_passing(exc):
            raise s3.to_worker_error(exc, action, str(file.place)) or exc from exc
        return exc
    return None


def _move_into_place(file: FileTransfer, path: str) -> None:
    # The transfer manager notices a body that was cut, so this is another object than the listed.
    if os.stat(path).st_size != file.size:
        os.unlink(path)
        raise replaced_error("download", str(file.place))
    os.replace(path, file.path)


def _subscriber(on_end: Callable[[Any], None], size: int | None = None, etag: str = "") -> Any:
    from s3transfer.subscribers import BaseSubscriber

    class Subscriber(BaseSubscriber):  # type: ignore[misc]
        def on_queued(self, future: Any, **_: Any) -> None:
            # Size and ETag are known from the list, which saves a request for each file.
            # s3transfer before 2025 has no ETags.
            if etag and hasattr(future.meta, "provide_object_etag"):
                future.meta.provide_transfer_size(size)
                future.meta.provide_object_etag(etag)

        def on_done(self, future: Any, **_: Any) -> None:
            on_end(future)

    return Subscriber()


@contextmanager
def _naming_disk_errors(action: str, file: FileTransfer) -> Iterator[None]:
    """Turn an OSError of the disk into a WorkerError; errors of the network pass through."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as exc:
        if exc.errno in _NAME_ERRORS:
            raise WorkerError(
                f"could not {action} {file.place}: {exc.strerror} for {file.path}; "
                "give it a name that can be the name of a file beside the others",
                EXIT_NAME,
            ) from exc
        if exc.errno is None:
            raise
        raise from_os_error(f"{action} {file.place} ({file.size} bytes), at", exc) from exc
