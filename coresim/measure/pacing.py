"""The step times of one run of the calibration: no pause, then steps, then pauses in which the workers come to rest.

Each batch is noted with the kind of step it was taken for, because that decides what it shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from coresim.measure import worker
from coresim.measure.protocol import Progress
from coresim.measure.subject import Layout, Pipe

#: Shares of a run's time: without a pause, with steps in between; the rest of it goes to pauses.
STREAM, PACED = 0.3, 0.5
#: Two step times of each run, over what the workers need for a batch: one clearly shorter, so that the trainer waits,
#: and one longer, so that batches wait. They change from round to round, so that hand-overs are seen in every state,
#: and not always at the same place between two ticks of the scheduler's clock.
RATIOS = ((0.6, 1.2), (0.5, 1.1), (0.7, 1.3), (0.6, 1.15), (0.5, 1.2))
#: A pause over the time that one worker needs for a batch: afterwards all of them rest.
PAUSE = 1.3
#: With one step time.
MOST_BATCHES = 400
#: Batches are slow where so many of one worker's take longer than a run is to take.
SLOW = 3

#: The kinds of batches.
FIRST, COLD, STREAMED, PACED_STEP, RESTED, DRAINED = "first", "cold", "stream", "paced", "rest", "last"
#: A worker's first calls, and batches in new memory: their costs are not usual.
UNUSUAL = (FIRST, COLD)


@dataclass
class Pacing:
    """The step times of one run, chosen while it runs, because only then it is known how many batches fit.

    ``batch_s``: about how long a worker needs for a batch; None: not known yet. ``ratios``: step times over what the
    workers need for a batch, one after the other.
    """

    workers: int
    seconds: float
    batch_s: float | None
    ratios: tuple[float, ...]
    progress: Progress
    pipe: Pipe
    began: float = 0.0
    kinds: list[str] = field(default_factory=list)
    before: dict[int, float] = field(default_factory=dict)
    after: dict[int, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[float]:
        self.began = time.perf_counter()
        # With slow batches, those count that the loader deals at its start: two for each worker.
        if self.batch_s is None or SLOW * self.batch_s < self.seconds:
            yield from self._steps(FIRST, self.workers)
        self.before = self._task_times()
        if SLOW * self._spent() < 1.0 and self.kinds:
            # Until the memory of batches is used again, each takes new memory from the system, and perhaps from the
            # hypervisor, which takes up to four times as long: those that wait ahead, one in the trainer's hands, one
            # more.
            while len(self.kinds) < Layout.prefetch_factor * self.workers + 2 and SLOW * self._spent() < 1.0:
                yield from self._steps(COLD, 1)
            yield from self._batches(1.0 - self._spent())
        # Stages in threads and a trainer by itself do not stop dealing; they make as few slow batches as a loader.
        out = 0 if self.pipe.inline else self.pipe.stop()
        yield from self._steps(DRAINED, out or max(0, 2 * self.workers - len(self.kinds)))
        self.after = self._task_times()

    def _batches(self, left: float) -> Iterator[float]:
        """All later batches, in the share of the run's time that is left."""
        began, before = self._spent(), len(self.kinds)
        yield from self._steps_for(left * STREAM, STREAMED, least=2 * self.workers)
        period = self.seconds * (self._spent() - began) / (len(self.kinds) - before)
        for step_s in (ratio * period for ratio in self.ratios):
            yield from self._steps_for(left * PACED / len(self.ratios), PACED_STEP, step_s, max(period, step_s))
        pause_s = PAUSE * period * self.workers
        yield from self._steps_for(left * (1 - STREAM - PACED), RESTED, pause_s, pause_s)

    def _spent(self) -> float:
        """The share of the run's time that is over, more than 1 where batches are slow."""
        return (time.perf_counter() - self.began) / max(self.seconds, 1e-9)

    def _steps_for(
        self, share: float, kind: str, step_s: float = 0.0, each_s: float = 0.0, least: int = 0
    ) -> Iterator[float]:
        """As many steps as fit into that share of the run's time, each of about ``each_s`` seconds."""
        ends = self._spent() + share - each_s / self.seconds
        for taken in range(MOST_BATCHES):
            if taken >= least and self._spent() >= ends:
                return
            yield from self._steps(kind, 1, step_s)

    def _task_times(self) -> dict[int, float]:
        pids = self.pipe.pids()
        return worker.task_times(pids[0]) if pids else {}

    def _steps(self, kind: str, count: int, step_s: float = 0.0) -> Iterator[float]:
        for _ in range(count):
            self.kinds.append(kind if len(self.kinds) >= self.workers else FIRST)
            self.progress(min(0.9, self._spent()))
            yield step_s
