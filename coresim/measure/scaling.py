"""The cost of a sample beside other workers, and the share of work for which threads hold the interpreter's lock."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from coresim import stats
from coresim.measure.calibrate import Calibration, CalibrationRun
from coresim.measure.pacing import STREAMED
from coresim.model import lock
from coresim.model.measurement import Measurement

#: Share of the other workers that count as all of them while a batch is made.
ALL = 0.9
#: Two cores cannot tell the lock from memory that both wait for.
LEAST_CORES = 4
#: If the lock is taken all the time, twice as many threads get at most this factor more done.
GAIN = 1.1
#: They then wait for at least this share of their time with a sample.
WAITED = 0.25


def speeds(found: Calibration, most: int) -> Iterator[Measurement]:
    """``scaling.K``: the same work, samples and collation, beside K - 1 other workers; processes up to ``most``.

    Threads also wait for the interpreter's lock, which takes no CPU time, so for threads the finished samples count.
    """
    threads = found.subject.threads
    measure, what = (thread_time, "thread seconds") if threads else (busy_cpu, "CPU time")
    for count in (count for count in found.counts if threads or count <= most):
        values = tuple((measure(run) / found.slower(run),) for run in found.of(count))
        how = f"{found.subject.loader}, {count} workers at work; {what} per sample, with its part of the collation"
        yield Measurement(f"scaling.{count}", "s/sample", values, how)
    if threads:
        how = "a loop of the interpreter in 1, 2 and 4 threads, the fastest of three rounds"
        yield Measurement("lock.passing", "share", ((found.passing,),), how)
        yield from lock_share(found)


def busy_cpu(run: CalibrationRun) -> float:
    """CPU seconds per sample, with its part of the collation, while no worker rests: the others slow it down."""
    notes = [note for note, others in zip(run.later, _beside(run), strict=True) if others >= ALL * (run.workers - 1)]
    if len(notes) < 2 * run.workers:
        notes = [note for note, kind in zip(run.trial.notes, run.kinds, strict=True) if kind == STREAMED] or run.later
    return stats.mean([(sum(note.cpu) + note.collate) / len(note.cpu) for note in notes])


def _beside(run: CalibrationRun) -> NDArray[np.float64]:
    """How many other workers, on average, were making batches while each later batch was made.

    Of a batch that takes long, the usual time from its beginning counts: its length must not decide whether it counts.
    """
    began, made = np.array([(note.began, note.made) for note in (*run.trial.warm_up, *run.trial.notes)]).T
    first, last = np.array([(note.began, note.made) for note in run.later]).T
    last = np.minimum(last, first + np.median(last - first))
    together = np.minimum.outer(last, made) - np.maximum.outer(first, began)
    return np.asarray(np.maximum(0.0, together).sum(axis=1) / np.maximum(last - first, 1e-12) - 1.0)


def thread_time(run: CalibrationRun) -> float:
    """Thread seconds per sample, with its part of the collation, while all threads work without a pause."""
    streamed = [step for step, kind in zip(run.trial.steps, run.kinds, strict=True) if kind == STREAMED]
    if len(streamed) < 2:  # of batches so slow that there are only a few, each tells for itself
        return stats.mean([(sum(note.wall) + note.collate) / len(note.wall) for note in run.later or run.trial.notes])
    span = streamed[-1].end - streamed[0].end
    return span / (len(streamed) - 1) * run.workers / len(run.trial.notes[0].wall)


def lock_share(found: Calibration) -> Iterator[Measurement]:
    """``lock.share``: the share of preparing for which a thread holds the lock; nothing if that cannot be seen.

    With h seconds of the lock per sample, any number of threads makes at most 1 / h samples per second (the bottleneck
    law). That limit is reached if more threads get no more done although cores are free: they wait. h includes what
    passing the lock between so many threads adds (`coresim.model.lock`).
    """
    counts = sorted(count for count in found.counts if count <= found.cpus)
    if not counts or counts[-1] < LEAST_CORES:
        return
    most, fewer = counts[-1], max(count for count in counts if 2 * count <= counts[-1])
    times = {count: stats.mean([thread_time(run) / found.slower(run) for run in found.of(count)]) for count in counts}
    wall, cpu = (
        stats.mean([sum(sum(getattr(note, part)) for note in run.trial.notes) for run in found.of(most)])
        for part in ("wall", "cpu")
    )
    if most / times[most] > GAIN * fewer / times[fewer] or 1.0 - cpu / wall < WAITED:
        return
    share = times[most] / (most * times[counts[0]] * lock.longer(most, found.passing))
    how = f"{found.subject.loader}: {most} threads get no more done than the lock lets through; {fewer} nearly as much"
    yield Measurement("lock.share", "share", ((min(1.0, share),),), how)
