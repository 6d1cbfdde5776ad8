"""How much threads of one interpreter get done together, and so for which share of their work they hold its lock."""

from __future__ import annotations

from collections.abc import Iterator

from coresim import stats
from coresim.measure.calibrate import Calibration, CalibrationRun
from coresim.measure.pacing import STREAMED
from coresim.model import lock
from coresim.model.measurement import Measurement

#: Two cores cannot tell the lock from memory that both wait for.
LEAST_CORES = 4
#: If the lock is taken all the time, twice as many threads get at most this factor more done.
GAIN = 1.1
#: They then wait for at least this share of their time with a sample.
WAITED = 0.25


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
    counts = sorted(count for count in found.counts if 0 < count <= found.cpus)
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
    share = times[most] / most / times[counts[0]] / lock.longer(most)
    how = f"{found.subject.loader}: {most} threads get no more done than the lock lets through; {fewer} nearly as much"
    yield Measurement("lock.share", "share", ((min(1.0, share),),), how)
