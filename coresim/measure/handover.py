"""The cost of handing a batch over for the worker that made it, and the trainer's wait for it, by its state."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from coresim import stats
from coresim.measure.calibrate import Calibration, CalibrationRun
from coresim.measure.notes import Note, duty_of
from coresim.measure.pacing import UNUSUAL
from coresim.measure.subject import Layout
from coresim.measure.trial import Trial
from coresim.model.handover import AWAITED, STATES, state_of
from coresim.model.measurement import Measurement
from coresim.model.rebatch import SIZE_MARK

#: Hand-overs that must have been seen in a state before they stand for it. ``send`` is seen mostly with the last batch
#: of each run, so fewer are enough.
LEAST_SEEN, LEAST_SENT = 6, 3
#: What a pipe holds (pipe(7)).
PIPE_BYTES = 65_536
#: A smaller share of sending may be noise, and changes no answer.
LEAST_OVERLAP = 0.02


def pickled(found: Calibration) -> tuple[int, float]:
    """Bytes of a batch's message and seconds to pickle it, where it does not fit into a pipe; else 0 and 0.

    Tensors are handed over in shared memory, and their messages are short. Anything else is in the message, which goes
    through the pipe of a ``multiprocessing.Queue``: what does not fit is written only when the trainer reads.
    """
    notes = [note for run in found.runs for note in (*run.trial.warm_up, *run.trial.notes)]
    long = [note for note in notes if note.message > PIPE_BYTES]
    return (max(note.message for note in long), stats.median([note.pickling for note in long])) if long else (0, 0.0)


def of_small(found: Sequence[Measurement], size: int) -> list[Measurement]:
    """Hand-over costs of a batch of ``size`` samples, named ``prepare.send@SIZE``, ``receive.cpu@SIZE`` and so on."""
    text = "the same with batches so small that they tell what every batch costs; "
    told = [one for one in found if one.name == "prepare.send" or one.name.startswith("receive.")]
    return [replace(one, name=f"{one.name}{SIZE_MARK}{size}", how=text + one.how) for one in told]


def waits_by_state(
    trial: Trial,
    workers: int,
    prefetch_factor: int,
    cpus: int,
    foreign: float = 0.0,
    pickling: float = 0.0,
    wanted: Sequence[bool] = (),
) -> dict[str, list[float]]:
    """Time to receive beyond the trainer's own CPU time, s, by state (`coresim.model.handover.STATES`).

    The trial ran an ordered loader with worker processes, which could use so many CPUs. ``foreign``: cores that other
    programs kept busy; what the trainer waited for them is no part of the hand-over. Other workers that make a batch
    count only as far as they want a core: by the share of the time of a batch in which its worker wants one.

    If a batch was there before an earlier one, the trainer received it while it waited for the earlier one, so its own
    turn shows nothing. While the trainer does something else, batches queue up as they are made. Those ahead of the one
    that it asks for come out with it, and all of them share the wait.

    A batch is pickled by its maker's thread that sends, for ``pickling`` seconds, when the trainer has read the maker's
    batch before. A batch that was made earlier and is not pickled yet is not ready: with more workers more batches are
    pickled at once, so this wait says nothing about a hand-over.

    If the loader's own thread pins, that thread waits for makers (`pinning`). The trainer waits only for the thread,
    from the moment on at which the batch is pinned. The state is then ``begin`` if the trainer had asked for the batch
    before, so that it is woken, and else ``rest``. Where cores are free, both take some 0.1 ms
    (``calibration/probe_pinned.py``); a trainer that is woken waits for a core where none is.

    ``wanted``: of each step, whether its hand-over goes into the result; empty: all do.
    """
    moments = [max(step.asked, step.ready) for step in trial.steps]
    batches = _made(trial, moments, workers, prefetch_factor)
    spans: dict[int, list[tuple[float, float]]] = {}
    for batch in sorted(batches, key=lambda batch: (batch.began, batch.made)):
        spans.setdefault(batch.worker, []).append((batch.began, batch.made))
    read: dict[int, float] = {}
    found: dict[str, list[float]] = {}
    duty = duty_of(trial.notes)
    latest = max((note.there for note in trial.warm_up), default=-math.inf)
    for number, (step, moment, batch) in enumerate(zip(trial.steps, moments, batches, strict=True)):
        known, latest = latest, max(latest, batch.there)
        if batch.there < known:
            continue
        at_work = sum(_at_work(own, moment) for worker, own in spans.items() if worker != batch.worker)
        others = round(duty * at_work)
        # A worker only sends or rests if this hand-over deals it a batch, or if it gets none at all.
        dealt = prefetch_factor > 1 and number + workers < len(batches)
        maker = _doing(batch, moment, spans[batch.worker], dealt)
        # The trainer's own work takes longer on a shared core; that is modelled elsewhere.
        sharing = max(0.0, (others + 2) / cpus - 1.0)
        # If the job leaves a core free, the trainer waits for other programs only; else for its own workers too.
        share = foreign / (foreign + max(0.0, others + 2 - cpus)) if foreign else 0.0
        begun, read[batch.worker] = max(batch.made, read.get(batch.worker, batch.made)), step.got
        unpickled = 0.0 if maker in AWAITED or batch.there > batch.made else max(0.0, begun + pickling - moment)
        waited = max(0.0, step.got - moment - unpickled - step.cpu * (1.0 + sharing) - share * step.queued)
        if not wanted or wanted[number]:
            later = batches[number + 1 : number + workers * prefetch_factor] if moment > batch.there else []
            along = sum(known < other.there < batch.there for other in later)
            found.setdefault(STATES[state_of(maker, others, cpus)], []).append(waited / (1 + along))
    return found


def _made(trial: Trial, moments: Sequence[float], workers: int, prefetch_factor: int) -> list[Note]:
    """The notes of a trial's batches, each picked up at its moment, with when its worker had it to make.

    A worker that has another batch to make begins it at once, even if it then waits for its own threads' lock.
    """
    found: list[Note] = []
    for number, note in enumerate(trial.notes):
        before, dealt = number - workers, number - workers * prefetch_factor
        began = max(found[before].made, moments[dealt]) if dealt >= 0 else note.began
        found.append(note._replace(began=min(began, note.made)))
    return found


def pinning(trial: Trial, later: Sequence[Note]) -> list[tuple[float, float]]:
    """The time of the thread that pins for each of the ``later`` batches: CPU seconds, and wall seconds beyond them.

    The thread receives and pins batches one after the other, so it is free for a batch when it has pinned the one
    before. The first of all batches has none before it and is left out. CPU seconds count from that moment on, wall
    seconds from when the batch is made as well. So the difference can be below 0 for a batch that was made while the
    thread still handed on the one before. The result is empty if no thread pins.
    """
    notes = sorted((n for n in (*trial.warm_up, *trial.notes) if n.pinned), key=lambda note: note.pinned)
    wanted = {note.pinned for note in later}
    found: list[tuple[float, float]] = []
    for before, note in itertools.pairwise(notes):
        if note.pinned in wanted:
            cpu = note.pin_clock - before.pin_clock
            found.append((cpu, note.pinned - max(note.made, before.pinned) - cpu))
    return found


def _doing(batch: Note, moment: float, spans: Sequence[tuple[float, float]], dealt: bool) -> str:
    """One of `coresim.model.handover.MAKERS`: what its maker does as a batch is picked up, or whether it was pinned.

    ``spans`` of that maker's work; ``dealt``: whether it has another batch to make when it has made this one.
    """
    if batch.there > batch.made:  # a thread has pinned it
        return "begin" if moment == batch.there else "rest"
    if moment == batch.made:
        return "begin" if dealt else "send"
    return "work" if _at_work(spans, moment) else "rest"


def _at_work(spans: Sequence[tuple[float, float]], moment: float) -> bool:
    """Whether a worker makes a batch at that moment."""
    place = bisect_left(spans, (moment,)) - 1
    return place >= 0 and spans[place][1] > moment


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
    found = [beyond_of(note, after) for _, note, after in successive(run)]
    # The first values include first calls and new memory; they count only if there are no others.
    return found[1 + sum(kind in UNUSUAL for kind in run.kinds) :] or found


def successive(run: CalibrationRun) -> list[tuple[int, Note, Note]]:
    """Each batch whose worker had the next one to make, with its number from the very first, 0, and that next one."""
    notes = [*run.trial.warm_up, *run.trial.notes]
    picked = [notes[0].there, *(max(step.asked, step.ready) for step in run.trial.steps)]
    workers, credits = run.workers, run.workers * Layout.prefetch_factor
    found: list[tuple[int, Note, Note]] = []
    for number, note in enumerate(notes[: len(notes) - workers]):
        dealt = number + workers - credits
        if dealt < 0 or picked[dealt] <= note.made:
            found.append((number, note, notes[number + workers]))
    return found


def beyond_of(note: Note, after: Note) -> float:
    """Seconds from one batch to the worker's next beyond samples, collation and `turns`."""
    found: float = after.began - note.began - sum(note.wall) - note.collate - turns(note, after)
    return max(0.0, found)


def turns(note: Note, after: Note) -> float:
    """Seconds that the worker waited for a core, from one batch to the next, beyond those of its samples."""
    if note.queued is None or note.waited is None or after.waited is None or after.worker != note.worker:
        return 0.0
    return after.waited - note.waited - note.queued
