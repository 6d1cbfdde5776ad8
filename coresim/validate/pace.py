"""How fast the machine is right now: a shared one changes its pace by tens of percent, without any load to be seen.

The probe prepares one fixed batch over and over in the trainer's own process, on each core in turn, before and after
every run of the calibration and every trial. It is no part of a trial and tells nothing of queues, workers or waiting,
only what the same work costs now; costs are proportional to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from coresim import stats
from coresim.validate.loaders import Timed
from coresim.workloads.base import Workload

#: Wall seconds on each core.
PROBE_S = 0.2
#: Probes made longer ago than this, s, are not the present.
FRESH_S = 0.5
#: Cores that are probed at the most.
MOST_CORES = 2


class Pace:
    """CPU seconds of one fixed batch; probe it with `now`.

    Args:
        workload: whose samples to prepare; its data are made.
        batch_size: samples of the batch at the most: fewer where they take longer than half a probe.
        seconds: wall seconds of a probe on each core; one batch at least.
        clock, cpu_clock: wall seconds, and CPU seconds of this thread.
    """

    def __init__(
        self,
        workload: Workload,
        batch_size: int,
        seconds: float = PROBE_S,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._workload, self._seconds = workload, seconds
        self._clock, self._cpu_clock = clock, cpu_clock
        self._last: tuple[float, tuple[int, ...], float] | None = None
        self._samples = 1
        while self._samples < batch_size and self._took() < seconds / 4.0:
            self._samples = min(2 * self._samples, batch_size)

    def now(self, cores: Sequence[int] | None = None) -> float:
        """Seconds per batch, the mean over ``cores``, at most `MOST_CORES` of them; a fresh probe is used again.

        Args:
            cores: numbers of CPUs; all that this process may use if None.
        """
        allowed = os.sched_getaffinity(0)
        wanted = tuple(sorted(allowed if cores is None else cores))
        wanted = wanted[:: -(-len(wanted) // MOST_CORES)]
        if self._last and self._last[1] == wanted and self._clock() - self._last[0] < FRESH_S:
            return self._last[2]
        try:
            found = stats.mean([self._on(core) for core in wanted])
        finally:
            os.sched_setaffinity(0, allowed)
        self._last = (self._clock(), wanted, found)
        return found

    def _on(self, core: int) -> float:
        os.sched_setaffinity(0, {core})
        until, cpu, count = self._clock() + self._seconds, self._cpu_clock(), 0
        while count == 0 or self._clock() < until:
            self._batch()
            count += 1
        return (self._cpu_clock() - cpu) / count

    def _took(self) -> float:
        began = self._clock()
        self._batch()
        return self._clock() - began

    def _batch(self) -> None:
        """The same work each time: the same samples, and the same random numbers."""
        data = Timed(self._workload, rng=np.random.default_rng(0))
        data.collate([data[index] for index in range(self._samples)])
