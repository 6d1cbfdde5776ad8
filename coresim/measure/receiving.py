"""Receiving batches that take no time to prepare: what the hand-over itself allows, and how it grows with the senders.

The loader is torch's, the batches are the job's own, so that they go the same way as in the job: tensors by shared
memory, all else by pickle through a pipe. The rate is the cap of the hand-over, whatever the decoder: a job near it is
bound by handing over, and more cores would not help it.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coresim.measure import protocol
from coresim.measure.models import load_torch
from coresim.measure.protocol import Progress
from coresim.model.measurement import Measurement

RATE, CPU = "cap.", "cap.cpu."
COUNTS = (1, 2, 4, 8)
#: Batches that each worker sends before they count: the first ones start it.
FIRST = 3
LEAST = 5


def measure_receiving(
    open_loader: Callable[[int], Iterator[Any]],
    *,
    counts: Sequence[int] = COUNTS,
    budget_s: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.thread_time,
    progress: Progress = None,
) -> list[Measurement]:
    """Measure ``cap.K`` (s/batch, wall) and ``cap.cpu.K`` (s/batch, CPU time of the receiver) with K senders.

    Args:
        open_loader: the running loader with so many workers, whose batches are endless and take no time to prepare.
        counts: numbers of workers.
        budget_s: wall seconds of receiving, all counts together; starting workers comes on top.
        clock: wall seconds.
        cpu_clock: CPU seconds of this thread.
        progress: told what is going on, and the fraction done.
    """
    found: list[Measurement] = []
    for place, count in enumerate(counts):
        protocol.tell(progress, f"receiving from {count} workers", place / len(counts))
        walls, cpus = _received(open_loader(count), FIRST * count, budget_s / len(counts), clock, cpu_clock)
        how = f"torch's DataLoader, {count} workers that copy the same batch again and again; per batch"
        found.append(Measurement(f"{RATE}{count}", "s/batch", (walls,), f"{how}, wall time"))
        found.append(Measurement(f"{CPU}{count}", "s/batch", (cpus,), f"{how}, CPU time of the receiving thread"))
    return found


def _received(
    batches: Iterator[Any], first: int, seconds: float, clock: Callable[[], float], cpu_clock: Callable[[], float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    walls: list[float] = []
    cpus: list[float] = []
    try:
        for _ in range(first):
            next(batches)
        until = clock() + seconds
        while len(walls) < LEAST or clock() < until:
            began, cpu = clock(), cpu_clock()
            next(batches)
            walls.append(clock() - began)
            cpus.append(cpu_clock() - cpu)
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()
    return tuple(walls), tuple(cpus)


def same_batch(batch: Any) -> Callable[[int], Iterator[Any]]:
    """Opens loaders whose workers copy this batch again and again.

    Raises:
        MissingPartError: torch is not installed.
    """
    loader = load_torch().utils.data.DataLoader

    def opened(workers: int) -> Iterator[Any]:
        running = iter(loader(_Same(batch), None, sampler=_Endless(), num_workers=workers, collate_fn=_as_it_is))
        try:
            yield from running
        finally:
            running._shutdown_workers()

    return opened


class _Same:
    """A data set whose every item is a batch, freshly copied as one that was freshly collated."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getitem__(self, _: object) -> Any:
        return copy.deepcopy(self._batch)


class _Endless:
    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(0)


def _as_it_is(batch: Any) -> Any:
    return batch
