"""Takes samples of the command that the worker runs: one thread for all commands of a child."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from batchyard.sampling import gpu_devices
from batchyard.sampling.sampler import INTERVAL_S, Readers, Sampler, Subject
from batchyard.sampling.samples import SampledUse, Samples


class CommandSampler:
    """Samples one command after the other."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        readers: Readers | None = None,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``environ``: the variables that tell which GPUs the child has.

        ``clock``: in seconds, for the age of the command.
        """
        self._clock = clock
        self._gpus = gpu_devices.list_devices(environ)
        self._lock = threading.Lock()
        self._leader: int | None = None
        self._samples = Samples(0.0)
        self._began_s = 0.0
        self._sampler = Sampler(self.list_subjects, readers=readers, interval_s=interval_s)
        self._is_started = False

    def begin(self, leader: int) -> None:
        """Begin to sample a command. ``leader``: its process, which leads a session."""
        with self._lock:
            self._leader, self._began_s = leader, self._clock()
            self._samples = Samples(self._began_s)
        if not self._is_started:
            self._is_started = True
            self._sampler.start()

    def end(self) -> SampledUse | None:
        """Return what the command has used; None if it ended before the first sample."""
        with self._lock:
            self._leader = None
            return self._samples.summarize()

    def take_samples(self) -> None:
        """Look at the command once, in this thread."""
        self._sampler.take_samples()

    def list_subjects(self, min_age_s: float) -> Sequence[Subject]:
        """Return the command, if it has run for so many seconds."""
        with self._lock:
            if self._leader is None or self._clock() - self._began_s < min_age_s:
                return ()
            return [Subject((self._samples,), self._leader, gpus=self._gpus)]
