"""The rules of timing: the work is repeated, and never averaged with somebody else's work.

The rules, after pyperf (https://pyperf.readthedocs.io, "How to get reproducible benchmark results"):

* the first call of each turn, which may be slow, does not count;
* what is repeated is the very same work; a repeat that took more than 1.5 times the fastest, or that waited
  longer than the least-waiting one by over 10 % (wall minus CPU time: somebody else had the core), is a
  disturbance and is left out, so that what is left varies with the work and not with the machine;
* the clock and the work are passed in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from coresim.model.warning import HostWarning

#: A function that is called with the fraction done.
Progress = Callable[[float], None]

DISTURBED = 1.5
WAITED = 0.1


def part_of(progress: Progress, number: int, parts: int) -> Progress:
    """A progress function for one of several equal parts."""
    return lambda done: progress(min(1.0, (number + done) / parts))


@dataclass(frozen=True)
class Context:
    """What a micro-benchmark is given.

    ``budget_s``: wall seconds that it may take; what must be done once is done even if it takes longer. ``progress`` is
    called with the fraction done, and reasons to trust its values less are appended to ``warnings``.
    """

    budget_s: float
    progress: Progress = field(default=lambda done: None)
    warnings: list[HostWarning] = field(default_factory=list)


@dataclass(frozen=True)
class Clocks:
    """Two readings in seconds: the wall's, and the CPU time of this process."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Timing:
    """Seconds of one repeat, by the wall clock and by the CPU clock."""

    wall: float
    cpu: float

    @property
    def waited(self) -> float:
        """Wall seconds without the core: input, output, or somebody else's turn."""
        return max(0.0, self.wall - self.cpu)


def timed(work: Callable[[], object], clock: Clocks) -> Timing:
    """Time one call of ``work``; the CPU clock is read inside, so that it never exceeds the wall's."""
    start = clock.wall()
    cpu_start = clock.cpu()
    work()
    cpu = clock.cpu() - cpu_start
    return Timing(clock.wall() - start, cpu)


def repeated(work: Callable[[], object], clock: Clocks, seconds: float, least: int = 1) -> list[Timing]:
    """Time the work again and again for so long, ``least`` times at least; a first call, before, is not counted."""
    work()
    until = clock.wall() + seconds
    timings: list[Timing] = []
    while len(timings) < least or clock.wall() < until:
        timings.append(timed(work, clock))
    return timings


def clean(repeats: Sequence[Timing]) -> list[Timing]:
    """The repeats of the very same work that nobody disturbed; always one at least."""
    fastest = min(repeats, key=lambda repeat: repeat.wall)
    most_waited = min(repeat.waited for repeat in repeats) + WAITED * fastest.wall
    kept = [r for r in repeats if r.wall <= DISTURBED * fastest.wall and r.waited <= most_waited]
    return kept or [fastest]


def cleaned(turns: Sequence[Sequence[Timing]], name: str, warnings: list[HostWarning]) -> list[list[Timing]]:
    """The clean repeats of each turn; where over a tenth of all are left out, a warning of the measurement ``name``."""
    kept = [clean(turn) for turn in turns]
    total = sum(map(len, turns))
    dirty = total - sum(map(len, kept))
    if 10 * dirty > total:
        value = f"{dirty} of {total} repeats disturbed and left out"
        warnings.append(HostWarning(f"{name}: the machine was busy", value, "close other programs and measure again"))
    return kept


def others_meter(sampled: Callable[[], float] = lambda: 0.0) -> Callable[[], float]:
    """Begin to count; the function returned gives the cores that other programs have kept busy since.

    Others are all but this process, its children that have ended, and the sampler, which has ``sampled`` CPU seconds.
    """

    def used() -> float:
        return busy_seconds() - sum(os.times()[:4]) - sampled()

    began, before = time.perf_counter(), used()
    return lambda: max(0.0, used() - before) / (time.perf_counter() - began)


def busy_seconds() -> float:
    """CPU seconds that this machine has been busy since it started; what the hypervisor took away counts too."""
    times = psutil.cpu_times()
    # Linux counts a guest's time within user time.
    return float(sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice")))
