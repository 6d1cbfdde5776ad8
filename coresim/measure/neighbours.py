"""Measure how much other cores, or its own second hardware thread, slow a core down.

* Droop: all cores spin without touching memory, and the clock falls.
* Pressure: other cores stream memory at several rates. After Bubble-Up (Mars et al. 2011,
  doi:10.1145/2155620.2155650): sensitivity to a known pressure predicts what unknown neighbours will do, without
  hardware counters and without root. Two cores then say something about sixty: the second one's streams press as much
  on the first as many light samples would.
* Siblings: the job's own samples on one and on both hardware threads of a core.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from coresim.measure import protocol
from coresim.measure.bandwidth import array_bytes, available_memory, cache_size, triad
from coresim.measure.processes import single_threaded
from coresim.measure.protocol import Clocks, Context, Timing
from coresim.measure.topology import allowed_cores, on_cpus
from coresim.measure.worker_pool import ROUNDS, physical_cpus, press, rounds, serve, worker_pool
from coresim.model.measurement import Measurement

#: Turns of the loop that spins: about a millisecond, so that a change of the clock within it does not matter.
TURNS = 40_000
#: A triad goes over so much of its arrays before it looks whether it is to rest.
SLICE_BYTES = 1 << 22
#: Rates of one streaming core, as shares of what it can; then every one of more cores streams as fast as it can.
RATES = (0.5, 1.0)
STOP_S = 5.0


def measure_droop(context: Context) -> list[Measurement]:
    """Measure ``spin.1`` and ``spin.K`` (s, CPU time of the same loop) on one and on all K cores at once.

    Nothing is measured where there is one core only.

    Raises:
        CoresimError: a process died or hangs.
    """
    cpus = physical_cpus()
    if len(cpus) < 2:
        return []
    found: dict[int, dict[int, list[float]]] = {1: {}, len(cpus): {}}
    turns = rounds(
        partial, _spin, cpus=cpus, counts=list(found), context=context, name="spinning", doing="spinning on all cores"
    )
    for count, members in turns:
        for place, timings in members.items():
            found[count].setdefault(place, []).extend(timing.cpu for timing in timings)
    how = f"fresh processes, pinned to a core each, all at work at once; CPU time of {TURNS} turns of an empty loop"
    return [Measurement(f"spin.{count}", "s", tuple(map(tuple, own.values())), how) for count, own in found.items()]


def _spin() -> None:
    for _ in range(TURNS):
        pass


def measure_pressure(work: Callable[[], object], context: Context) -> list[Measurement]:
    """Measure ``pressure.P`` (s, CPU time of one call of ``work``) beside streams that are worth P % of one core's.

    ``pressure.0`` is without any. Nothing is measured where there is one core only.

    ``work`` is the job on one core: the very same work at each call, a millisecond long at least. It runs in this
    process, which stays on the first CPU meanwhile.

    Raises:
        CoresimError: a streaming process died or hangs.
    """
    cpus = physical_cpus()
    if len(cpus) < 2:
        return []
    rates = [(0, 0.0), *pressures(len(cpus) - 1)]
    size = array_bytes(cache_size(), len(cpus) - 1, available_memory())
    pool = worker_pool(serve, pieces, size, cpus=cpus[1:], doing="pressing on the memory")
    with pool as children, on_cpus(cpus[:1]):
        levels = {round(100 * count * rate): partial(press, children, count, rate) for count, rate in rates}
        found = _beside(work, levels, context, "the job under pressure")
    how = "CPU time of the same work on one core, while other cores stream memory (triad) for a share of the time"
    return [Measurement(f"pressure.{percent}", "s", (tuple(values),), how) for percent, values in found.items()]


def pressures(others: int) -> list[tuple[int, float]]:
    """Streaming cores and the rate of each: half of one, one, and up to ``others``, about twice as many each time."""
    found = [(1, rate) for rate in RATES] if others else []
    while found and found[-1][0] < others:
        found.append((min(others, 2 * found[-1][0]), 1.0))
    return found


def pieces(size: int) -> Callable[[], None]:
    """STREAM's triad over arrays larger than the last-level cache, a piece of them at each call."""
    run, step = triad(size), SLICE_BYTES // 8
    parts = itertools.cycle([slice(begin, begin + step) for begin in range(0, size // 8, step)])
    return lambda: run(next(parts))


def sibling_cpus(root: Path = Path("/")) -> list[int] | None:
    """Two hardware threads of one core on which this process may run; None where there are none."""
    return next((cpus[:2] for cpus in allowed_cores(root) if len(cpus) > 1), None)


def measure_siblings(work: Callable[[], object], pair: Sequence[int], context: Context) -> list[Measurement]:
    """Measure ``sibling.1`` and ``sibling.2`` (s, CPU time of one call of ``work``) alone and beside the same work.

    Only in a process that may fork. ``work`` is the same work at each call, a millisecond long at least; it runs on
    the first of the two hardware threads, which `sibling_cpus` gives.
    """
    fork = multiprocessing.get_context("fork")

    @contextmanager
    def both() -> Iterator[None]:
        other = fork.Process(target=_busy, args=(work, pair[1], os.getpid()), daemon=True)
        other.start()
        try:
            yield
        finally:
            other.kill()
            other.join(STOP_S)

    with on_cpus(pair[:1]):
        found = _beside(work, {1: contextlib.nullcontext, 2: both}, context, "hardware threads of one core")
    how = "CPU time of the same samples on one hardware thread of a core, alone and beside the same on the other"
    return [Measurement(f"sibling.{count}", "s", (tuple(values),), how) for count, values in found.items()]


def _busy(work: Callable[[], object], cpu: int, parent: int) -> None:
    """The same work on the other thread, for as long as somebody waits for it."""
    os.sched_setaffinity(0, {cpu})
    single_threaded()
    while os.getppid() == parent:
        work()


def _beside(
    work: Callable[[], object],
    levels: Mapping[int, Callable[[], AbstractContextManager[None]]],
    context: Context,
    name: str,
) -> dict[int, list[float]]:
    """CPU seconds of the undisturbed calls of ``work``, by the name of the level at which others work meanwhile."""
    numbers, turns = list(levels) * ROUNDS, list[list[Timing]]()
    for done, number in enumerate(numbers):
        context.progress(done / len(numbers))
        with levels[number]():
            turns.append(protocol.repeated(work, Clocks(), context.budget_s / len(numbers)))
    found: dict[int, list[float]] = {number: [] for number in levels}
    for number, timings in zip(numbers, protocol.cleaned(turns, name, context.warnings), strict=True):
        found[number] += [timing.cpu for timing in timings]
    return found
