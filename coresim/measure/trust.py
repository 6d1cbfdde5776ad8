"""Reasons to trust a calibration less, or to refuse it: a busy machine, parts that contradict one another."""

from __future__ import annotations

from collections.abc import Callable

from coresim import stats
from coresim.errors import CoresimError
from coresim.measure.calibrate import Calibration
from coresim.measure.handover import beyond_of, pickled, successive, turns
from coresim.measure.pacing import FIRST, STREAMED
from coresim.model.crowding import CURE, SPREAD
from coresim.model.warning import HostWarning
from coresim.units import format_bytes, format_duration

#: The share by which the parts of a batch may differ from its whole time, and how often they are measured until then.
CONTRADICTION, TIMES = 0.25, 3
#: The share of batches for which the trainer must have waited: then the worker limits the loader.
AWAITED = 0.9
QUIET = "close other programs and measure again"
TENSORS = "return tensors from the collate function: they are handed over in shared memory"


def warnings_of(found: Calibration) -> list[HostWarning]:
    """Reasons to trust the calibration less, each with the remedy."""
    result = []
    if found.busy:
        cores = stats.mean([run.others for run in found.runs if found.disturbed(run)])
        value = f"other programs used {cores:.1f} cores"
        result.append(HostWarning("the machine was busy while costs were measured", value, QUIET))
    slowdowns = [run.sampler_s / found.usual_sampler_s[run.workers] for run in found.runs]
    if max(slowdowns) - min(slowdowns) > CONTRADICTION:
        value = f"{min(slowdowns):.2f} to {max(slowdowns):.2f} of its usual CPU time for the same work"
        result.append(HostWarning("the machine changed its speed", value, f"{QUIET}, or take the interval seriously"))
    lone = found.of(1)
    counts = [run.threads for run in lone if run.threads]
    if counts and stats.median([spread for _, spread in counts]) >= SPREAD and max(count for count, _ in counts) > 1:
        count, spread = max(counts)
        value = f"{count} threads, {spread:.1f} times the work of the busiest"
        result.append(HostWarning("libraries run threads inside workers", value, CURE))
    message, pickling = pickled(found)
    if message:
        cost = f"{format_bytes(message)} each, {format_duration(pickling)} to pickle"
        value = f"{cost}; the rest of one waits in its worker until the trainer reads"
        result.append(HostWarning("batches are pickled through a pipe", value, TENSORS))
    return result


def agreeing(run: Callable[[], Calibration]) -> Calibration:
    """What ``run`` measures; it runs again while its parts contradict one another.

    Raises:
        CoresimError: they did so `TIMES` times.
    """
    for _ in range(TIMES):
        found = run()
        missed = contradiction(found)
        if abs(missed) <= CONTRADICTION:
            return found
    told = f"batches took {abs(missed):.0%} {'longer' if missed > 0 else 'less'} than the sum of their parts"
    often = f"and parts contradicted batches in each of {TIMES} calibrations"
    raise CoresimError(f"{found.subject.loader}: {told}, {often}; {QUIET}, or report this with your data set")


def contradiction(found: Calibration) -> float:
    """The share by which one worker's batches took longer than the sum of their parts; 0 where none can be told.

    A batch's time is the wall time between batches in the trainer's hands, which the parts do not use. If batches wait
    for the trainer, that is its own time. With stages, other threads make parts of a batch. The parts are those of the
    same batches, and waiting for a core is one of them, as other programs and the machine change from batch to batch.
    """
    missed = list[float]()
    for run in () if found.subject.threads else found.of(1):
        streamed = [step for step, kind in zip(run.trial.steps, run.kinds, strict=True) if kind == STREAMED]
        kinds = (FIRST, *run.kinds)
        pairs = [(note, after) for number, note, after in successive(run) if kinds[number] == STREAMED]
        if pairs and len(streamed) > 2 and sum(step.ready > step.asked for step in streamed) >= AWAITED * len(streamed):
            parts = [
                sum(note.wall) + note.collate + beyond_of(note, after) + turns(note, after) for note, after in pairs
            ]
            took = (streamed[-1].got - streamed[0].got) / (len(streamed) - 1)
            missed.append(took / stats.mean(parts) - 1.0)
    return stats.median(missed) if missed else 0.0
