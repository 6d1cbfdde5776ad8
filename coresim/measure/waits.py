"""How long samples wait without a core (for a network, a disk, a sleep), from the runs of a calibration.

One worker whose samples wait lets the CPUs rest nearly all the time. Work after a rest is slower (cold caches, a low
clock, a virtual CPU that must be woken): up to four times in ``calibration/workers-epyc-again.note.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coresim import stats
from coresim.measure.calibrate import ROUNDS, Calibration, CalibrationRun
from coresim.measure.notes import Note, duty_of
from coresim.measure.pacing import FIRST

#: The share of its time for which a sample must wait without a core to count as waiting; less cannot be told from other
#: programs' turns.
NOTABLE_WAIT = 0.1
#: Samples of runs with several workers wait as long as those with one within this share, or within the noise.
AS_LONG = 0.05
#: What a measurement of them says.
HOW = "time without a core, of each round's run with the most samples that waited as long"


def waits_of(found: Calibration, lone: Sequence[CalibrationRun]) -> list[list[float]]:
    """Seconds that samples waited, by run; empty if not notable. For option 3, the time of its fetching threads."""
    if found.subject.threads:
        per_run = [[note.fetch / len(note.wall) for note in run.later] for run in lone]
        whole = sum(sum(note.wall) + note.fetch for run in lone for note in run.later)
        waited = sum(note.fetch for run in lone for note in run.later)
    else:
        per_run = [[value for note in _longest(found, run).after_first for value in _waited(note)] for run in lone]
        whole = sum(sum(note.wall) for run in lone for note in run.later)
        waited = sum(value for run in lone for note in run.later for value in _waited(note))
    # If the system does not tell them apart, a sample's waits include the turns of other programs and other workers.
    told = all(note.queued is not None for run in lone for note in run.later)
    crowd = max(0.0, 1.0 - found.cpus / lone[0].workers)
    turns = 0.0 if told else stats.mean([run.others for run in lone]) / found.cpus + crowd
    return per_run if waited > (NOTABLE_WAIT + turns) * whole else []


def busiest(found: Calibration, lone: Sequence[CalibrationRun]) -> list[CalibrationRun]:
    """The runs whose CPU times count if samples wait: those with the most workers that together want at most one core.

    More workers slow one another down. Each worker made a batch after its first. All runs have the same number of
    workers. They are at least `ROUNDS`, with disturbed ones if there are too few others, or as many as there are with
    the fewest workers; if not, the runs with the fewest workers count.
    """
    for count in sorted(found.counts, reverse=True):
        runs = [run for run in found.of(count) if len(run.later) > count and count * duty_of(run.later) <= 1.0]
        if count > lone[0].workers and len(runs) >= min(ROUNDS, len(lone)):
            return runs
    return list(lone)


def _longest(found: Calibration, lone: CalibrationRun) -> CalibrationRun:
    """The run of the same round with the most samples: waits differ widely, so more of them tell more.

    It counts only if the samples that both runs prepared waited equally long; else storage, or a crowd, slows several
    down. All that a crowd shares with one worker may be its workers' first batches: of these, only the first sample,
    which may connect or import, is left out.
    """
    best, seen = lone, lone.after_first
    for run in found.runs:
        same = run.round == lone.round and run.workers > lone.workers and not found.disturbed(run)
        if not same or len(run.after_first) <= len(best.after_first):
            continue
        kinds = zip(lone.trial.notes, run.trial.notes, lone.kinds, run.kinds, strict=False)
        shared = [(_waited(a), _waited(b), int(FIRST in kind)) for a, b, *kind in kinds]
        pairs = [pair for one, two, first in shared for pair in zip(one[first:], two[first:], strict=False)]
        told = all(note.queued is not None for note in (*seen, *run.after_first))
        if told and len(pairs) > 1 and _as_long(pairs):
            best = run
    return best


def _as_long(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether the second of each pair is as long as the first on average, within the noise of their differences."""
    differences = [second - first for first, second in pairs]
    noise = 2.0 * math.sqrt(stats.variance(differences) / len(differences))
    return abs(stats.mean(differences)) <= max(AS_LONG * stats.mean([first for first, _ in pairs]), noise)


def _waited(note: Note) -> list[float]:
    """Seconds in which each sample wanted no core; a batch's time on the run queue is divided among its samples."""
    waits = [max(0.0, wall - cpu) for wall, cpu in zip(note.wall, note.cpu, strict=True)]
    whole = sum(waits)
    kept = max(0.0, 1.0 - (note.queued or 0.0) / whole) if whole > 0 else 0.0
    return [wait * kept for wait in waits]
