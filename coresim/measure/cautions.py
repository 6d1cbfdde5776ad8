"""Reasons to trust a calibration less: a busy machine, a speed that changed, parts that contradict one another."""

from __future__ import annotations

from collections.abc import Callable

from coresim import stats
from coresim.measure.calibrate import Calibration
from coresim.measure.handover import beyond, pickled
from coresim.measure.pacing import STREAMED
from coresim.model.crowding import CURE, SPREAD
from coresim.model.warning import HostWarning
from coresim.units import format_bytes, format_duration

#: The share by which the parts of a batch may differ from its whole time before a warning says so.
CONTRADICTION = 0.25
TENSORS = "return tensors from the collate function: they are handed over in shared memory"


def cautions_of(found: Calibration) -> list[HostWarning]:
    """Reasons to trust the calibration less, each with the remedy."""
    remedy = "close other programs and measure again"
    result = []
    if found.busy:
        cores = stats.mean([run.others for run in found.runs if found.disturbed(run)])
        value = f"other programs used {cores:.1f} cores"
        result.append(HostWarning("the machine was busy while costs were measured", value, remedy))
    paces = [run.pace / found.usual_pace[run.workers] for run in found.runs]
    if max(paces) - min(paces) > CONTRADICTION:
        value = f"{min(paces):.2f} to {max(paces):.2f} of its usual CPU time for the same work"
        result.append(HostWarning("the machine changed its speed", value, f"{remedy}, or take the interval seriously"))
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
    missed = contradiction(found)
    if abs(missed) > CONTRADICTION:
        value = f"a batch took {missed:+.0%} against the sum of its parts"
        result.append(HostWarning("the parts of a batch contradict what it took", value, remedy))
    return result


def agreeing(run: Callable[[], Calibration]) -> Calibration:
    """What ``run`` measures, again if its parts contradict one another; then the better of both counts."""
    found = run()
    return min(found, run(), key=_missed) if _missed(found) > CONTRADICTION else found


def _missed(found: Calibration) -> float:
    return abs(contradiction(found))


def contradiction(found: Calibration) -> float:
    """The share by which one worker's batches took longer than the sum of their parts.

    A batch's time is the wall time between batches in the trainer's hands, which the parts do not use.
    """
    missed = []
    for run in found.of(1):
        streamed = [step.got for step, kind in zip(run.trial.steps, run.kinds, strict=True) if kind == STREAMED]
        if len(streamed) > 2:
            parts = [sum(note.wall) + note.collate for note in run.later]
            took = (streamed[-1] - streamed[0]) / (len(streamed) - 1)
            missed.append(took / (stats.mean(parts) + stats.mean(beyond(run) or [0.0])) - 1.0)
    return stats.median(missed) if missed else 0.0
