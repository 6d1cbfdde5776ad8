"""Pressure: how much slower a job gets on one core while other cores stream memory, at several rates.

After Bubble-Up (Mars et al. 2011, doi:10.1145/2155620.2155650): sensitivity to a known pressure predicts what unknown
neighbours will do, without hardware counters and without root. Two cores then say something about sixty: the second
one's streams press as much on the first as many light samples would.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from coresim.measure import protocol
from coresim.measure.bandwidth import array_bytes, available_memory, cache_size
from coresim.measure.processes import Link
from coresim.measure.protocol import Cleaning, Clock, Progress
from coresim.measure.worker_pool import physical_cpus, worker_pool
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

#: A triad goes over so much of its arrays before it looks whether it is to rest.
SLICE_BYTES = 1 << 22
#: Rates of one streaming core, as shares of what it can; then every one of more cores streams as fast as it can.
RATES = (0.5, 1.0)
ROUNDS = 5
NAME = "pressure."


@contextlib.contextmanager
def streams(cpus: Sequence[int], cache_bytes: int | None = None) -> Iterator[Callable[[int, float], None]]:
    """Processes that can stream memory, one on each CPU, all at rest.

    Yields:
        A function that lets so many of them stream, each for a share of the time; it returns when they do.
    """
    cache = cache_bytes or cache_size()
    size = array_bytes(cache, len(cpus), available_memory())
    with worker_pool(_stream, size, cpus=cpus, doing="pressing on the memory") as children:

        def press(count: int, rate: float) -> None:
            for place, child in enumerate(children):
                child.send(rate if place < count else 0.0)
            for child in children:
                child.receive()

        yield press


def _stream(link: Link, size: int) -> None:
    """STREAM's triad over arrays larger than the last-level cache, for a share of the time."""
    a, b, c = (np.full(size // 8, value) for value in (1.0, 2.0, 3.0))
    pieces = [slice(begin, begin + SLICE_BYTES // 8) for begin in range(0, len(a), SLICE_BYTES // 8)]
    link.send("ready")
    place = 0
    while True:
        rate: float = link.receive()
        link.send("pressing")
        while rate > 0 and not link.waiting():
            began = time.perf_counter()
            piece = pieces[place % len(pieces)]
            np.multiply(c[piece], 1.5, out=a[piece])
            np.add(a[piece], b[piece], out=a[piece])
            place += 1
            if rate < 1:
                time.sleep((time.perf_counter() - began) * (1 / rate - 1))


def pressures(others: int) -> list[tuple[int, float]]:
    """Streaming cores and the rate of each: half of one, one, and up to ``others``, about twice as many each time."""
    found = [(1, rate) for rate in RATES] if others else []
    while found and found[-1][0] < others:
        found.append((min(others, 2 * found[-1][0]), 1.0))
    return found


def measure_pressure(
    work: Callable[[], object],
    *,
    cpus: Sequence[int] | None = None,
    cache_bytes: int | None = None,
    budget_s: float,
    progress: Progress = lambda done: None,
    cautions: list[HostWarning],
) -> list[Measurement]:
    """Measure ``pressure.P`` (s, CPU time of one call of ``work``) beside streams that are worth P % of one core's.

    ``pressure.0`` is without any. Nothing is measured where there is one core only.

    Args:
        work: the job on one core: the very same work at each call, a millisecond long at least. It runs in this
            process, which stays on the first CPU meanwhile.
        cpus: the hardware threads to use, one per physical core by default.
        cache_bytes: size of the last-level cache; read from the system where None.
        budget_s: wall seconds of measuring, all pressures together.
        progress: told the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        CoresimError: a streaming process died or hangs.
    """
    cpus = physical_cpus() if cpus is None else cpus
    if len(cpus) < 2:
        return []
    clock, cleaning = Clock(), Cleaning("the job under pressure")
    levels = [(0, 0.0), *pressures(len(cpus) - 1)]
    found: dict[int, list[float]] = {_percent(*level): [] for level in levels}
    seconds = budget_s / (ROUNDS * len(levels))
    with streams(cpus[1:], cache_bytes) as press, staying_on(cpus[0]):
        protocol.warm_up(work, clock, budget=1.0)
        for turn in range(ROUNDS):
            for place, level in enumerate(levels):
                progress((turn + place / len(levels)) / ROUNDS)
                press(*level)
                timings = cleaning.clean(protocol.repeated(work, clock, seconds))
                found[_percent(*level)] += [timing.cpu for timing in timings]
    cautions += cleaning.cautions
    how = "CPU time of the same work on one core, while other cores stream memory (triad) for a share of the time"
    return [Measurement(f"{NAME}{percent}", "s", (tuple(values),), how) for percent, values in found.items()]


def _percent(count: int, rate: float) -> int:
    return round(100 * count * rate)


@contextlib.contextmanager
def staying_on(cpu: int) -> Iterator[None]:
    """This process on one hardware thread."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)
