"""What sending a batch costs the worker that made it, beyond samples and collation, from the runs of a calibration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from coresim import stats
from coresim.measure.calibrate import CalibrationRun
from coresim.measure.notes import Note
from coresim.measure.pacing import UNUSUAL
from coresim.measure.subject import Layout

#: A smaller share of sending may be noise, and changes no answer.
LEAST_OVERLAP = 0.02


def sending(run: CalibrationRun) -> list[float]:
    """`beyond`, or the CPU time of all of a worker's threads beyond samples and collation, whichever is more.

    While a worker prepares its next batch, its other threads send this one. If a core is free, that takes little of the
    worker's time; if none is, it takes all of it.
    """
    found, ordered = beyond(run), sorted(run.later, key=lambda note: (note.worker, note.began))
    pairs = [pair for pair in itertools.pairwise(ordered) if pair[0].worker == pair[1].worker]
    work = [after.process - note.process - sum(note.cpu) - note.collate for note, after in pairs]
    if not work or not sum(found):
        return found
    more = max(1.0, stats.mean(work) / stats.mean(found))
    return [more * value for value in found]


def overlap(runs: Sequence[CalibrationRun]) -> float:
    """The share of `sending` that takes none of the worker's own time in those runs, in which cores were free.

    It is 0 below `LEAST_OVERLAP`, and where it is not seen in every run.
    """
    pairs = [(beyond(run), sending(run)) for run in runs]
    shares = [1.0 - stats.mean(own) / stats.mean(whole) for own, whole in pairs if sum(whole)]
    seen = bool(shares) and min(shares) > 0.0 and stats.mean(shares) >= LEAST_OVERLAP
    return stats.mean(shares) if seen else 0.0


def beyond(run: CalibrationRun) -> list[float]:
    """Seconds from batch to batch of a worker that had the next one to make, beyond its samples and collation."""
    notes = [*run.trial.warm_up, *run.trial.notes]
    picked = [notes[0].there, *(max(step.asked, step.ready) for step in run.trial.steps)]
    workers, credits = run.workers, run.workers * Layout.prefetch_factor
    found: list[float] = []
    for number, note in enumerate(notes[: len(notes) - workers]):
        after, dealt = notes[number + workers], number + workers - credits
        if dealt < 0 or picked[dealt] <= note.made:
            found.append(max(0.0, after.began - note.began - sum(note.wall) - note.collate - _turns(note, after)))
    # The first values include first calls and new memory; they count only if there are no others.
    return found[1 + sum(kind in UNUSUAL for kind in run.kinds) :] or found


def _turns(note: Note, after: Note) -> float:
    """Seconds that the worker waited for a core, from one batch to the next, beyond those of its samples."""
    if note.queued is None or note.waited is None or after.waited is None or after.worker != note.worker:
        return 0.0
    return after.waited - note.waited - note.queued
