"""How fast the machine is right now: a shared one changes its pace by tens of percent, without any load to be seen.

The probe lets the job's own loader run for a moment without a pause, with one worker and then with two, over the same
samples with the same random numbers each time, before and after every round of the calibration and every trial. Two
at once, because what slows down is often two busy cores together, of which either alone shows nothing. It is no part of
a trial and tells nothing of queues, order or waiting, only what the same work costs now; costs are proportional to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coresim import stats
from coresim.validate.loaders import Layout, Timed, open_pipe
from coresim.validate.trial import Trial, run_trial
from coresim.workloads.base import Workload

#: Wall seconds of a run with either number of workers, about.
PROBE_S = 0.35
#: Wall seconds of one of its batches at the most, but for a single sample that takes longer.
BATCH_S = 0.03
LEAST_STEPS, MOST_STEPS = 4, 200
#: Samples that are timed before the first probe.
LOOKS = 4
#: Probes made longer ago than this, s, are not the present.
FRESH_S = 0.5


class Pace(NamedTuple):
    """What the same work costs relative to the usual: with one worker, and for the faster and the slower of two."""

    one: float
    faster: float
    slower: float

    @property
    def two(self) -> float:
        """Of two at once, the mean."""
        return (self.faster + self.slower) / 2.0

    @property
    def uneven(self) -> float:
        """The slower of two over their mean: cores differ, and workers that take turns go at the slower one's pace."""
        return self.slower / self.two


#: As usual.
STEADY = Pace(1.0, 1.0, 1.0)


class Probed(NamedTuple):
    """What a batch costs a lone worker, and the first and second of two at once; CPU seconds.

    Threads (option 3) also wait for the interpreter's lock, which is no CPU time: theirs are wall seconds.
    """

    one: float
    first: float
    second: float

    def over(self, usual: Probed) -> Pace:
        """Relative to the usual costs."""
        two = sorted((self.first / usual.first, self.second / usual.second))
        return Pace(self.one / usual.one, *two)


NOT_PROBED = Probed(0.0, 0.0, 0.0)


def middle(found: Sequence[Probed]) -> Probed:
    """The median of each part."""
    return Probed(*map(stats.median, zip(*found, strict=True)))


def between(before: Pace, after: Pace) -> Pace:
    """The mean of two moments."""
    return Pace(*((x + y) / 2.0 for x, y in zip(before, after, strict=True)))


class Probe:
    """Runs the loader for a moment; only in a fresh process, which forks its workers.

    Args:
        real: the workload, its data made.
        option: 1 (loader in the trainer), 2 (worker processes) or 3 (threads).
        batch_size: samples per batch at the most: fewer where they take longer than `BATCH_S`.
        seconds: wall seconds of each of the two runs, about.
        clock: wall seconds.
    """

    def __init__(
        self,
        real: Workload,
        option: int,
        batch_size: int,
        seconds: float = PROBE_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._real, self._clock = real, clock
        data = Timed(real)
        began = clock()
        for index in range(LOOKS):
            data[index]
        sample = max((clock() - began) / LOOKS, 1e-9)
        size = max(1, min(batch_size, round(BATCH_S / sample)))
        lone = Layout(option, 0 if option == 1 else 1, size)
        self._layouts = [lone] if option == 1 else [lone, replace(lone, workers=2)]
        self._steps = LEAST_STEPS
        trial = self._run(lone)
        self._steps = min(MOST_STEPS, max(LEAST_STEPS, round(seconds / max(trial.seconds_per_step, 1e-6))))
        self._last: tuple[float, Probed] | None = None

    def now(self) -> Probed:
        """What a batch costs now; a fresh probe is used again."""
        if self._last and self._clock() - self._last[0] < FRESH_S:
            return self._last[1]
        costs = [cost for layout in self._layouts for cost in _costs(layout, self._run(layout))]
        found = Probed(costs[0], costs[-2 % len(costs)], costs[-1])
        self._last = (self._clock(), found)
        return found

    def _run(self, layout: Layout) -> Trial:
        pipe = open_pipe(Timed(self._real, rng=np.random.default_rng(0)), layout, seed=0)
        try:
            return run_trial(pipe, 0.0, 1 + layout.workers, max(1, layout.workers) * self._steps)
        finally:
            pipe.close()


def _costs(layout: Layout, trial: Trial) -> list[float]:
    """Of each worker, in the order of their first batches."""
    if layout.option == 3:
        return [layout.workers * trial.seconds_per_step] * layout.workers
    workers = dict.fromkeys(cost.worker for cost in trial.costs)
    return [
        stats.mean([sum(cost.cpu) + cost.collate for cost in trial.costs if cost.worker == worker])
        for worker in workers
    ]
