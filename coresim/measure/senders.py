"""The hand-over alone: 1, 2, 4 and 8 workers send the same batch again and again, and prepare nothing.

The rate that they feed shows whether preparing or handing over limits a job on these cores. A job could feed a little
more: here each batch is copied in its worker and once more to be sent, but torch collates into the memory that it
sends. The runs also show how receiving changes with more workers than the job's own loader ran with
(`coresim.model.receiving`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from coresim import stats
from coresim.errors import CoresimError
from coresim.measure.calibrate import ROUNDS, Calibration
from coresim.measure.subject import Layout, Subject
from coresim.measure.worker import room_for
from coresim.model.measurement import Measurement
from coresim.model.receiving import ALONE, FED
from coresim.workloads.base import DatasetWorkload, Workload

#: Numbers of workers, and the share of a calibration's time that this takes.
COUNTS, SENDERS_SHARE = (1, 2, 4, 8), 0.25
#: Batches that are timed in a run at the least, and the share of a run's time in which nothing else happens.
LEAST, STREAM = 4, 0.3


def measure_senders(
    found: Calibration, subject: Subject, loader_of: Callable[[Workload], Subject], pin_memory: bool, seconds: float
) -> list[Measurement]:
    """Run as many of `COUNTS` as fit into the memory and into so many seconds, `ROUNDS` times.

    ``subject`` gives the batch, which may be smaller than those of the calibration; ``loader_of`` makes the loader that
    sends it. Nothing is measured if threads prepare, if a batch takes one worker longer than that, or if it cannot be
    copied.
    """
    batch_s = stats.mean([note.made - note.began for note in found.runs[0].trial.notes])
    if found.subject.threads or batch_s > seconds:
        return []
    try:
        workload, size = _same(subject)
        same, room = loader_of(workload), room_for((), Layout.prefetch_factor * found.batch_facts[0])
        counts = [count for count in COUNTS if count <= room]
        rounds = _rounds(partial(_run, same, pin_memory), counts, seconds)
    except (CoresimError, OSError, RuntimeError):  # what cannot be sent, or so many processes that none starts
        return []
    who = f"{same.loader} of a trivial data set: each sends copies of one batch of {size}"
    told = []
    for count in rounds[0]:
        cpu, wall = (tuple((one[count][place],) for one in rounds) for place in (0, 1))
        told.append(Measurement(f"{ALONE}{count}", "s/batch", cpu, f"{who}; CPU seconds of the trainer to receive it"))
        told.append(Measurement(f"{FED}{count}", "s/sample", wall, f"{who}; wall seconds per sample").scaled(1 / size))
    return told


def _same(subject: Subject) -> tuple[Workload, int]:
    """A data set whose every batch is a copy of one of the subject's, and the samples of that.

    Raises:
        CoresimError: it cannot be copied, or there is none.
    """
    with closing(subject.open(Layout(workers=1), seed=0)) as pipe:
        pipe.stop()
        batch, note = pipe.next()
    try:
        kept = copy.deepcopy(batch)
    except Exception as error:  # an object of the user's own may raise anything
        raise CoresimError(f"the batch cannot be copied: {error}") from error
    if kept is None:  # each of its samples is broken
        raise CoresimError("the batch is empty")
    workload = DatasetWorkload(range(2**16), "a trivial data set", collate=partial(_copied, kept))
    workload.batch_size, workload.context = 1, subject.context
    return workload, len(note.wall)


def _copied(batch: Any, _: Sequence[int]) -> Any:
    return copy.deepcopy(batch)


def _rounds(
    run: Callable[[int, float], tuple[float, float]], counts: Sequence[int], seconds: float
) -> list[dict[int, tuple[float, float]]]:
    """What `ROUNDS` rounds show, by the number of workers, of those that fit into the time: the first round tells."""
    each, first = STREAM * seconds / ROUNDS / len(COUNTS), dict[int, tuple[float, float]]()
    began = last = time.perf_counter()
    for count in counts:
        first[count] = run(count, each)
        now = time.perf_counter()
        # Twice as many workers take up to twice as long to start, and for their first batches.
        if ROUNDS * (now - began + 2 * (now - last)) > seconds:
            break
        last = now
    return [first, *({count: run(count, each) for count in first} for _ in range(ROUNDS - 1))]


def _run(same: Subject, pin_memory: bool, workers: int, seconds: float) -> tuple[float, float]:
    """CPU seconds of the trainer, and wall seconds, per batch."""
    with closing(same.open(Layout(workers, pin_memory=pin_memory), seed=0)) as pipe:
        for _ in range(Layout.prefetch_factor * workers + 2):  # first calls, and memory that no batch left
            pipe.next()
        began, cpu, taken = time.perf_counter(), time.thread_time(), 0
        while taken < LEAST or time.perf_counter() < began + seconds:
            pipe.next()
            taken += 1
        return (time.thread_time() - cpu) / taken, (time.perf_counter() - began) / taken
