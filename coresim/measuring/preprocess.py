"""What preparing one sample and one batch costs a loader's worker: fetch, decode, transform, collate.

Fresh processes do what a worker does: they visit samples in random order, keep them until the batch is
collated into newly allocated memory, and let it go. All visits of a pass are repeated pass after pass (never
one sample twice in a row, which would find it in the cache), with the random numbers of the first time, so
that the repeats of a visit are the very same work and what differs between visits is the samples.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coresim import stats
from coresim.errors import InputError
from coresim.measuring import protocol
from coresim.measuring.processes import HOW_THREADS, START_TIMEOUT, Child, HangError, Link, limit_threads
from coresim.measuring.protocol import Cautions, Clock, Progress, Timing
from coresim.model.measurement import Measurement
from coresim.workloads.base import Step, Workload, WorkloadSpec, batch_facts, seed_everything

VISITS = 128
LEAST_VISITS = 4
LEAST_PASSES, MOST_PASSES = 2, 5
TOO_SLOW = 1.5
REUSED_BELOW = 32e6
MOST_FILES = 4096
HOW_STEP = f"{HOW_THREADS}; random visits, files in the page cache; per visit the median of its undisturbed repeats"
HOW_WAIT = f"{HOW_STEP}; wall minus CPU time of all steps together, part of their times"
HOW_COLLATE = f"{HOW_THREADS}; one batch into newly allocated private memory"
HOW_START = "spawn of a new interpreter until its dataset is built; a forked worker starts sooner"

Announce = Callable[[int, float], None]


@dataclass(frozen=True)
class WorkloadFacts:
    """What is known of a workload once a fresh process has prepared a few samples of it.

    Attributes:
        name: what the report calls it.
        batch_size: samples per batch.
        samples: distinct samples; ``sys.maxsize`` for a stream.
        steps: the names of its steps, in order.
        bytes_per_sample: bytes read per sample, or None where unknown.
        bytes_per_batch: bytes of one prepared batch.
        arrays_per_batch: arrays or tensors of one prepared batch.
        files: the stored files, evenly thinned to some thousands; empty where unknown.
    """

    name: str
    batch_size: int
    samples: int
    steps: tuple[str, ...]
    bytes_per_sample: float | None
    bytes_per_batch: int
    arrays_per_batch: int
    files: tuple[Path, ...] = field(repr=False)


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


def look(spec: WorkloadSpec, timeout: float = 60.0) -> WorkloadFacts:
    """Let the workload make its data and prepare a few samples: the facts, or the first thing that is wrong.

    All in a fresh process: this one never imports the user's code.

    Raises:
        InputError: the dataset cannot be imported, is empty, raises, hangs, or gives None; the message names
            the sample and the remedy.
    """
    with Child(_look_job, spec, doing=f"preparing samples of {spec.target}") as child:
        facts: WorkloadFacts = _follow(child, spec, timeout, "done")
        return facts


def measure_preparation(
    spec: WorkloadSpec,
    *,
    processes: int = 3,
    budget_s: float = 14.0,
    timeout: float = 60.0,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``prepare.<step>`` (s/sample), ``prepare.collate`` (s/batch) and ``prepare.start`` (s/worker).

    Row i of every step is the same visit, so that sums by row are the visit's whole cost. The part of it that
    held no core (a network, a disk, a sleep) is ``prepare.wait`` (s/sample).

    Args:
        spec: the workload; `look` at it first, so that bad input is found early.
        processes: fresh processes, one after the other; with very slow samples fewer.
        budget_s: wall seconds of measuring, all processes together.
        timeout: the longest that one sample may take, in seconds.
        progress: told what is going on, and the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        InputError: the dataset failed or hangs.
        CoresimError: a process died.
    """
    starts: list[tuple[float, ...]] = []
    found: list[Rows] = []
    first_started = time.perf_counter()
    for number in range(processes):
        started = time.perf_counter()
        if found and started - first_started > TOO_SLOW * budget_s:
            break
        with Child(_rows_job, spec, number, budget_s / processes, doing=f"preparing {spec.target}") as child:
            _follow(child, spec, timeout, "ready")
            starts.append((time.perf_counter() - started,))
            share = partial(_tell_share, progress, number, processes)
            found.append(_follow(child, spec, timeout, "done", share))
    measurements = [*_measurements(found), Measurement("prepare.start", "s/worker", tuple(starts), HOW_START)]
    dirty, total = (sum(counts) for counts in zip(*(rows.counts() for rows in found), strict=True))
    protocol.add(cautions, protocol.dirty_caution("preparing samples", dirty, total))
    for measurement in measurements:
        # What is waited for is often nothing, and then all noise; the steps' own times tell whether it matters.
        if measurement.name != "prepare.wait":
            protocol.add(cautions, protocol.steadiness(measurement))
    return measurements


def _tell_share(progress: Progress, number: int, processes: int, fraction: float) -> None:
    protocol.tell(progress, "preparing samples", (number + min(1.0, fraction)) / processes)


def _measurements(found: Sequence[Rows]) -> list[Measurement]:
    steps = [
        Measurement(f"prepare.{name}", "s/sample", tuple(rows.values(name) for rows in found), HOW_STEP)
        for name in found[0].steps
    ]
    collates = tuple(tuple(t.wall for t in protocol.clean(rows.collates)) for rows in found)
    waits = Measurement("prepare.wait", "s/sample", tuple(rows.waits() for rows in found), HOW_WAIT)
    return [*steps, waits, Measurement("prepare.collate", "s/batch", collates, HOW_COLLATE)]


def _follow(
    child: Child,
    spec: WorkloadSpec,
    timeout: float,
    until: str,
    listen: Callable[[float], None] = lambda fraction: None,
) -> Any:
    """Wait for the message ``until``, passing progress on; a silence is blamed on the sample last announced."""
    where = "building the dataset"
    while True:
        try:
            tag, value = child.receive(timeout if where.startswith("sample") else max(timeout, START_TIMEOUT))
        except HangError:
            remedy = "make it answer or leave it out (a lock, a network read, a full disk?)"
            raise InputError(f"{spec.target}: {where} took more than {timeout:g} s; {remedy}") from None
        if tag == until:
            return value
        if tag == "at":
            where = f"sample {value[0]}"
            listen(value[1])


def _look_job(link: Link, spec: WorkloadSpec) -> WorkloadFacts:
    spec.make()
    workload = spec.build()
    rng = seed_everything(0)
    samples = []
    for index in np.unique(np.linspace(0, min(len(workload), 10**6) - 1, LEAST_VISITS).astype(int)):
        link.send("at", (int(index), 0.0))
        value: Any = int(index)
        for step in workload.steps():
            value = step.call(value, rng)
        samples.append(value)
    full = [samples[i % len(samples)] for i in range(workload.batch_size)]
    size, arrays = batch_facts(workload.collate(full))
    names = tuple(step.name for step in workload.steps())
    read, files = workload.bytes_per_sample(), workload.files()
    some = tuple(files[:: -(-len(files) // MOST_FILES) or 1])
    return WorkloadFacts(workload.name, workload.batch_size, len(workload), names, read, size, arrays, some)


def _rows_job(link: Link, spec: WorkloadSpec, seed: int, budget: float) -> Rows:
    workload = spec.build()
    limit_threads()
    link.send("ready")
    timer = RowTimer(workload, protocol.real_clock(), seed, budget, lambda index, used: link.send("at", (index, used)))
    return timer.run()
