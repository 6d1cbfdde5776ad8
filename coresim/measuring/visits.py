"""How the steps of preparing samples are timed: many visits, again and again.

As a worker does, a process visits samples in random order, keeps them until the batch is collated into newly allocated
memory, and lets it go. All visits of a pass are repeated pass after pass (never one sample twice in a row, which would
find it in the cache), with the random numbers of the first time, so that the repeats of a visit are the very same work
and what differs between visits is the samples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from coresim import stats
from coresim.measuring import protocol
from coresim.measuring.protocol import Clock, Timing
from coresim.workloads.base import Step, Workload, batch_facts, seed_everything

VISITS = 128
LEAST_VISITS = 4
LEAST_PASSES, MOST_PASSES = 2, 5
TOO_SLOW = 1.5
REUSED_BELOW = 32e6

Announce = Callable[[int, float], None]


@dataclass
class Rows:
    """One process's timings: ``steps[name][i]`` are the repeats of step ``name`` in visit ``i``."""

    steps: dict[str, list[list[Timing]]]
    collates: list[Timing] = field(default_factory=list)
    tolerance: float = 0.0

    def values(self, name: str) -> tuple[float, ...]:
        """Undisturbed seconds of one step, one value per visit."""
        return tuple(protocol.undisturbed(repeats, self.tolerance) for repeats in self.steps[name])

    def waits(self) -> tuple[float, ...]:
        """Seconds without the core in each visit, all steps together: what its undisturbed repeats waited for."""
        columns = (
            [stats.median([t.waited for t in protocol.clean(repeats, self.tolerance)]) for repeats in column]
            for column in self.steps.values()
        )
        return tuple(math.fsum(visit) for visit in zip(*columns, strict=True))

    def counts(self) -> tuple[int, int]:
        """Disturbed repeats, and all repeats."""
        cells = [cell for column in self.steps.values() for cell in column]
        total = sum(len(cell) for cell in cells)
        return total - sum(len(protocol.clean(cell, self.tolerance)) for cell in cells), total


class RowTimer:
    """Times all steps of many visits, pass after pass, for about ``budget`` seconds of ``clock``.

    Args:
        workload: what to prepare.
        clock: the wall and the CPU clock.
        seed: chooses the visits; the number of the process.
        budget: seconds; two passes of four visits are made, and fewer only where half as much again is used up.
        announce: told the index of each visit before it begins, and the fraction of the budget used.
    """

    def __init__(self, workload: Workload, clock: Clock, seed: int, budget: float, announce: Announce) -> None:
        self._workload, self._clock, self._budget, self._announce = workload, clock, budget, announce
        order = np.random.default_rng(seed).permutation(min(len(workload), 10**6))
        self._order = [int(index) for index in order[:VISITS]]
        self._steps = [(step, 1) for step in workload.steps()]
        self._rows = Rows({step.name: [] for step, _ in self._steps}, tolerance=4 * clock.cpu_tick)
        self._held: list[Any] = []
        self._started = clock.wall()

    def run(self) -> Rows:
        """Calibrate, warm up, and make as many passes as the budget allows; a stream gets one."""
        self._announce(self._order[0], 0.0)
        self._calibrate(protocol.LOOPS_TIMER * self._clock.wall_tick)
        protocol.warm_up(lambda: self._visit(self._order[0], 0), self._clock, self._budget / 6)
        for number in range(MOST_PASSES if self._workload.repeatable else 1):
            before = self._used()
            self._pass(first=number == 0)
            enough = number + 1 >= LEAST_PASSES or self._used() > TOO_SLOW * self._budget
            if enough and 2 * self._used() - before > self._budget:
                break
        return self._rows

    def _used(self) -> float:
        return self._clock.wall() - self._started

    def _pass(self, first: bool) -> None:
        """Visit all; the first pass ends early rather than use more than its share of the budget."""
        share = self._budget / (3 if self._workload.repeatable else 1)
        samples: deque[Any] = deque(maxlen=self._workload.batch_size)
        for place, index in enumerate(self._order):
            used = self._used()
            too_slow = used > TOO_SLOW * self._budget and place > 0
            if first and used > share and (place >= LEAST_VISITS or too_slow):
                self._order = self._order[:place]
                break
            self._announce(index, used / self._budget)
            sample, timings = self._visit(index, place)
            samples.append(sample)
            self._record(place, timings)
        self._collate(list(samples))

    def _visit(self, index: int, seed: int) -> tuple[Any, list[Timing]]:
        value: Any = index
        timings = []
        for step, loops in self._steps:
            value, timing = self._call(step, value, seed, loops)
            timings.append(timing)
        return value, timings

    def _call(self, step: Step, value: Any, seed: int, loops: int) -> tuple[Any, Timing]:
        rng = seed_everything(seed)
        result: Any = None

        def work() -> None:
            nonlocal result
            result = step.call(value, rng)

        timing = protocol.timed(work, self._clock, loops)
        return result, timing

    def _calibrate(self, least: float) -> None:
        """Give steps that are too short for the timer a number of loops."""
        value: Any = self._order[0]
        for place, (step, _) in enumerate(self._steps):
            call = partial(step.call, value, seed_everything(0))
            self._steps[place] = (step, protocol.calibrate(call, self._clock, least))
            value = call()

    def _record(self, place: int, timings: Sequence[Timing]) -> None:
        for (step, _), timing in zip(self._steps, timings, strict=True):
            column = self._rows.steps[step.name]
            if place == len(column):
                column.append([])
            column[place].append(timing)

    def _collate(self, samples: list[Any]) -> None:
        """Time one full batch, of repeated samples where a pass has fewer.

        A batch that malloc would take from its heap is kept, so that the next one gets new pages too.
        """
        full = [samples[i % len(samples)] for i in range(self._workload.batch_size)]
        batch: Any = None

        def work() -> None:
            nonlocal batch
            batch = self._workload.collate(full)

        self._rows.collates.append(protocol.timed(work, self._clock))
        if batch_facts(batch)[0] < REUSED_BELOW:
            self._held.append(batch)
