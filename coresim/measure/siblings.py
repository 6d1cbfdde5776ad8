"""Siblings: what a second hardware thread of a core adds, by the job's own samples on one and on both of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coresim.measure import protocol
from coresim.measure.pressure import staying_on
from coresim.measure.protocol import Cleaning, Clock
from coresim.measure.system_root import SystemRoot
from coresim.measure.topology import allowed_cores
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

NAME = "sibling."
ROUNDS = 5
STOP_S = 5.0


def sibling_cpus(root: Path = Path("/")) -> tuple[int, int] | None:
    """Two hardware threads of one core on which this process may run; None where there are none."""
    return next(((first, more[0]) for first, *more in allowed_cores(SystemRoot(root)) if more), None)


def measure_siblings(
    work: Callable[[], object],
    pair: tuple[int, int],
    *,
    budget_s: float,
    cautions: list[HostWarning],
) -> list[Measurement]:
    """Measure ``sibling.1`` and ``sibling.2`` (s, CPU time of one call of ``work``) alone and beside the same work.

    Only in a process that may fork.

    Args:
        work: the same work at each call, a millisecond long at least; it runs on the pair's first thread.
        pair: the hardware threads, see `sibling_cpus`.
        budget_s: wall seconds, both together.
        cautions: reasons to trust the values less are appended here.
    """
    clock, cleaning = Clock(), Cleaning("hardware threads of one core")
    found: dict[int, list[float]] = {1: [], 2: []}
    seconds = budget_s / (2 * ROUNDS)
    fork = multiprocessing.get_context("fork")
    for _ in range(ROUNDS):
        for threads, values in found.items():
            other = fork.Process(target=_busy, args=(work, pair[1], os.getpid()), daemon=True)
            with staying_on(pair[0]):
                try:
                    if threads == 2:
                        other.start()
                    timings = protocol.repeated(work, clock, seconds)
                finally:
                    if other.pid is not None:
                        other.kill()
                        other.join(STOP_S)
            values += [timing.cpu for timing in cleaning.clean(timings)]
    cautions += cleaning.cautions
    how = "CPU time of the same samples on one hardware thread of a core, alone and beside the same on the other"
    return [Measurement(f"{NAME}{threads}", "s", (tuple(values),), how) for threads, values in found.items()]


def _busy(work: Callable[[], Any], cpu: int, parent: int) -> None:
    """The same work on the other thread, for as long as somebody waits for it."""
    os.sched_setaffinity(0, {cpu})
    while os.getppid() == parent:
        work()
