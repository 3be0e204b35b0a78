"""Files to S3 and from it: many at once, large ones in parallel parts, each whole or not at all.

boto3's transfer manager cuts and repeats parts; what it gives up on is tried again here, a little later.
"""

from __future__ import annotations

import errno
import os
import queue
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from batchyard.worker import s3
from batchyard.worker.faults import NAME, Fault, from_os_error, replaced
from batchyard.worker.globs import OWN_PREFIX
from batchyard.worker.orders import Place

_PART_BYTES = 16 * 1024 * 1024
#: files that are asked for at the same time; more would only wait in line
_WINDOW = 64
#: chunks of 256 KiB
_IO_QUEUE = 64
_ROUNDS = 5
_MOST_PAUSE_S = 20
_LOOK_EVERY_S = 0.1
#: what a name in S3 or on disk can be at fault for
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


class CutShort(Exception):
    """There was no time to finish."""


@dataclass(frozen=True, slots=True)
class Move:
    """One file: from S3 to the path, or the other way."""

    place: Place
    path: str
    size: int = 0
    #: of what comes from S3: parts of two versions are never put together
    etag: str = ""


class Mover:
    def __init__(self, client: Any, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self._manager: Any = None

    def fetch(self, moves: Iterable[Move], is_over: Callable[[], bool]) -> None:
        """Downloads them all. ``is_over``: whether time has run out."""
        self._all(list(moves), self._start_fetch, _laid_down, "download", is_over)

    def store(self, moves: Iterable[Move], is_over: Callable[[], bool]) -> None:
        """Uploads them all."""
        self._all(list(moves), self._start_store, lambda move, path: None, "upload", is_over)

    def _all(
        self,
        moves: Sequence[Move],
        start: Callable[[Move, Any], tuple[Any, str]],
        finish: Callable[[Move, str], None],
        doing: str,
        is_over: Callable[[], bool],
    ) -> None:
        if not moves:
            return
        for round_number in range(1, _ROUNDS + 1):
            failed = self._round(moves, start, finish, doing, is_over)
            if not failed:
                return
            moves = [move for move, _ in failed]
            if round_number < _ROUNDS:
                self._pause(round_number, is_over)
        move, exc = failed[0]
        fault = s3.explained(exc, doing, str(move.place))
        raise fault or exc from exc

    def _round(
        self,
        moves: Sequence[Move],
        start: Callable[[Move, Any], tuple[Any, str]],
        finish: Callable[[Move, str], None],
        doing: str,
        is_over: Callable[[], bool],
    ) -> list[tuple[Move, Exception]]:
        """Each once; gives back those that are worth another try."""
        waiting = list(reversed(moves))
        over: queue.SimpleQueue[Any] = queue.SimpleQueue()
        under_way: dict[Any, tuple[Move, str]] = {}
        failed: list[tuple[Move, Exception]] = []
        while waiting or under_way:
            while waiting and len(under_way) < _WINDOW:
                move = waiting.pop()
                with _on_disk(doing, move):
                    future, path = start(move, over.put)
                under_way[future.meta.transfer_id] = move, path
            if is_over():
                raise CutShort
            try:
                future = over.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                continue
            move, path = under_way.pop(future.meta.transfer_id)
            try:
                with _on_disk(doing, move):
                    future.result()
                    finish(move, path)
            except Fault:
                raise
            except Exception as exc:
                if not s3.is_passing(exc):
                    raise s3.explained(exc, doing, str(move.place)) or exc from exc
                failed.append((move, exc))
        return failed

    def _pause(self, round_number: int, is_over: Callable[[], bool]) -> None:
        # Thousands of children may have met the same trouble at the same time.
        left = min(_MOST_PAUSE_S, 2.0**round_number) * random.uniform(0.5, 1)
        while left > 0:
            if is_over():
                raise CutShort
            step = min(left, _LOOK_EVERY_S)
            self._sleep(step)
            left -= step

    def _start_fetch(self, move: Move, tell: Callable[[Any], None]) -> tuple[Any, str]:
        folder = os.path.dirname(move.path)
        os.makedirs(folder, exist_ok=True)
        # Beside the file, so that it can be put into its place in one step.
        path = os.path.join(folder, f"{OWN_PREFIX}{secrets.token_hex(8)}.part")
        subscribers = [_subscriber(tell, move.size, move.etag)]
        future = self._transfers().download(
            move.place.bucket, move.place.key, path, subscribers=subscribers
        )
        return future, path

    def _start_store(self, move: Move, tell: Callable[[Any], None]) -> tuple[Any, str]:
        future = self._transfers().upload(
            move.path, move.place.bucket, move.place.key, subscribers=[_subscriber(tell)]
        )
        return future, move.path

    def _transfers(self) -> Any:
        if self._manager is None:
            from s3transfer.manager import TransferConfig, TransferManager

            config = TransferConfig(
                multipart_threshold=_PART_BYTES,
                multipart_chunksize=_PART_BYTES,
                max_request_concurrency=s3.CONCURRENCY,
                # What has come and is not yet on disk is in memory, which is the container's.
                max_io_queue_size=_IO_QUEUE,
            )
            self._manager = TransferManager(self._client, config)
        return self._manager


def _laid_down(move: Move, path: str) -> None:
    # A body that was cut is noticed below; so this is another object than the list had.
    if os.stat(path).st_size != move.size:
        os.unlink(path)
        raise replaced("download", str(move.place))
    os.replace(path, move.path)


def _subscriber(tell: Callable[[Any], None], size: int | None = None, etag: str = "") -> Any:
    from s3transfer.subscribers import BaseSubscriber

    class Subscriber(BaseSubscriber):  # type: ignore[misc]
        def on_queued(self, future: Any, **_: Any) -> None:
            # Known from the list: spares a request for each file. Versions before 2025 know nothing of ETags.
            if etag and hasattr(future.meta, "provide_object_etag"):
                future.meta.provide_transfer_size(size)
                future.meta.provide_object_etag(etag)

        def on_done(self, future: Any, **_: Any) -> None:
            tell(future)

    return Subscriber()


@contextmanager
def _on_disk(doing: str, move: Move) -> Iterator[None]:
    """Says what was wrong with the file, where it was the file and not the network."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as exc:
        if exc.errno in _NAME_ERRORS:
            what = f"could not {doing} {move.place}: {exc.strerror} for {move.path}"
            raise Fault(
                f"{what}; give it a name that can be a file's beside the others", NAME
            ) from exc
        if exc.errno is None:
            raise
        raise from_os_error(f"{doing} {move.place} ({move.size} bytes) by way of", exc) from exc
