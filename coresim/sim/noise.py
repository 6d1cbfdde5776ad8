"""The long-run share of idle time from independent runs, with an interval that holds where stalls are rare, too.

* *Ratio.* The share is all idle time over all time. A mean of the runs' own shares is too low, because a run with a
  stall lasts longer. Deviations are those of the ratio, to first order (Crane and Iglehart, Operations Research 23,
  1975).
* *Control variates.* The mean of what a run draws differs from the mean that it draws from, and much of the noise
  follows from that difference. Regression on it takes that part away (Lavenberg and Welch, Management Science 27,
  1981).
* *Rare events.* Idle time that comes in a few large stalls is no normal number: a run that happens to see none says
  little. The limits are those of a gamma distribution as skewed as the runs. The upper one counts one event more than
  was seen, as large as the largest that was seen or drawn (Fay and Feuer, Statistics in Medicine 16, 1997): where none
  was seen it is the rule of three, at two sides 3.7 events. Many small events give Student's interval. Quantiles of the
  gamma distribution by Wilson and Hilferty (PNAS 17, 1931).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coresim import stats
from coresim.model.pipeline import Phase, Pipeline
from coresim.sim.accounts import duration_of
from coresim.sim.draws import Draws
from coresim.sim.run import Run, RunLength
from coresim.sim.variation import held_by

Array = NDArray[np.float64]
#: Idle that two settings may differ by and still count as equal: half a point.
NOISE = 0.005
#: What the model itself misses: standard deviation of GPU idle. Intervals of 80 % hold 76 to 86 % of the trials with it
#: in seven recordings of the declared grid, and 63 to 75 % without (docs/accuracy.md).
MODEL = 0.012
#: Skewness of the runs from which on few of them had most of the idle time.
SKEWED = 1.0
#: Degrees of freedom that a regression must leave.
_LEAST_DEGREES = 4


@dataclass(frozen=True)
class Observation:
    """What one run says; times over all ranks, s.

    Attributes:
        idle: time that the steps would not have needed alone.
        total: time of the windows.
        controls: relative excess of the means drawn over those drawn from: of the line's work, of the step.
        unseen: a stall, s, that the longest time that was drawn might have caused, and that a longer one may cause.
    """

    idle: float
    total: float
    controls: tuple[float, float]
    unseen: float


@dataclass(frozen=True)
class Interval:
    """A share and the half-widths of its interval below and above."""

    share: float
    below: float
    above: float


def model_half(level: float) -> float:
    """Half-width of an interval of GPU idle by what the model itself misses, a share."""
    return MODEL * stats.normal_quantile(0.5 + level / 2)


def observe(pipeline: Pipeline, draws: Draws, length: RunLength, run: Run) -> Observation:
    """What a run says of the long run."""
    total = duration_of(run)
    idle = total - math.fsum(rank.accelerator["busy"] for rank in run.ranks)
    line, step, longest = [0.0, 0.0], [0.0, 0.0], (0.0, 0.0)
    for key, phase, grain in pipeline.phases():
        drawn_times, expected = draws.service_times[key], phase.service.mean * phase.repeats
        # A constant has no excess, and that of a pool's completions is not known.
        if len(drawn_times) == 1 or phase.pooled > 1:
            continue
        unit = pipeline.items(grain)
        if phase is pipeline.step:
            step = [_mean(_drawn(drawn_times, pipeline, length, unit)), expected]
            continue
        longest = max(longest, _longest(phase))
        in_line = not key.startswith("trainer.") or phase in pipeline.trainer.inline
        # No time that is drawn from measured ones is longer than the longest of these.
        if not in_line and phase.repeats == 1 and phase.service.values:
            continue
        drawn = _drawn(drawn_times, pipeline, length, unit)
        most = float(np.maximum.reduce(drawn, axis=None))
        longest = max(longest, (most - expected, most))
        if in_line:
            line = [line[0] + unit * _mean(drawn), line[1] + unit * expected]
    return Observation(float(idle), float(total), (_excess(*line), _excess(*step)), _unseen(pipeline, *longest))


@lru_cache(maxsize=256)
def _longest(phase: Phase) -> tuple[float, float]:
    """Excess and time of a batch with the longest of measured values, drawn or not."""
    excess = max(phase.service.values, default=phase.service.mean) - phase.service.mean
    return excess, excess + phase.service.mean * phase.repeats


def _unseen(pipeline: Pipeline, excess: float, time: float) -> float:
    """A stall that a time may cause which exceeds its mean so far, where the line holds no batches for as long.

    A time ten times rarer than the longest of many that were drawn is about twice as long where their distribution has
    a heavy tail, and workers that share cores take it longer.
    """
    servers = max((stage.servers for stage in pipeline.stages), default=1)
    shared = max(1.0, pipeline.ranks * servers / float(pipeline.cores))
    held = (held_by(pipeline) if pipeline.stages else 0) * pipeline.step.service.mean
    return max(0.0, min(excess, 2.0 * shared * time - held))


def _drawn(drawn_times: Array, pipeline: Pipeline, length: RunLength, unit: int) -> Array:
    """The times of the window's items, of every rank; see `coresim.sim.draws.Draws.row`."""
    if pipeline.total_ranks == 1 and length.steps * unit <= len(drawn_times):
        one = drawn_times[length.warm_up * unit : length.steps * unit]
        return one[:, 0] if one.shape[1] == 1 else np.add.reduce(one, axis=1)
    places = np.arange(length.warm_up * unit, length.steps * unit)
    first = np.arange(pipeline.total_ranks) * (len(drawn_times) // pipeline.total_ranks)
    times: Array = drawn_times[(places[None, :] + first[:, None]) % len(drawn_times)].sum(axis=2, dtype=np.float64)
    return times


def _mean(times: Array) -> float:
    # As the method does, which takes longer for few times than their sum.
    return float(np.add.reduce(times, axis=None)) / times.size


def _excess(found: float, expected: float) -> float:
    return found / expected - 1.0 if expected else 0.0


def interval(found: Sequence[Observation], level: float) -> Interval:
    """The long-run idle share from some runs of one length, and its interval at ``level``."""
    seen = np.array([[one.idle, one.total] for one in found])
    if len(found) < 2:
        return Interval(min(1.0, max(0.0, float(seen[0, 0] / seen[0, 1]))), 0.0, 0.0)
    (idle, total), left, degrees, spread = _adjusted(seen, np.array([one.controls for one in found]))
    share = min(1.0, max(0.0, float(idle / total)))
    left = (left[:, 0] - share * left[:, 1]) / total
    half = stats.t_quantile(0.5 + level / 2, degrees) * math.sqrt(float(left @ left) / degrees * spread)
    skewness, z = _skewness(left), stats.normal_quantile(0.5 + level / 2)
    # Where little idle time was seen, or few runs had most of it, the largest time drawn may be a stall that just did
    # not happen.
    unseen = max(one.unseen for one in found) / total - (0.0 if skewness > SKEWED else share * len(found))
    event, skewness = max(float(left.max()), unseen) / len(found), skewness / math.sqrt(len(found))
    low = share + _deviation(-z, share, half / z, skewness)
    high = share + event + _deviation(z, share + event, math.hypot(half / z, event), skewness)
    return Interval(share, max(0.0, share - max(low, 0.0)), max(0.0, min(high, 1.0) - share))


def _adjusted(seen: Array, controls: Array) -> tuple[Array, Array, int, float]:
    """Means of the columns where the controls are zero, what they leave of each row, degrees of freedom, and the
    variance of a mean as a share of that of a row.
    """
    count = len(seen)
    controls = controls[:, controls.std(axis=0) > 1e-12] if count - 2 >= _LEAST_DEGREES else controls[:, :0]
    if not controls.size or count - 1 - controls.shape[1] < _LEAST_DEGREES:
        mean = np.add.reduce(seen) / count
        return mean, seen - mean, count - 1, 1.0 / count
    terms = np.column_stack([np.ones(count), controls])
    weights = np.linalg.pinv(terms)
    found = weights @ seen
    return found[0], seen - terms @ found, count - terms.shape[1], float(weights[0] @ weights[0])


def _skewness(values: Array) -> float:
    """Sample skewness of values whose mean is zero (G1 of Joanes and Gill, The Statistician 47, 1998)."""
    count, variance = len(values), float((values**2).mean())
    # Below rounding there is nothing to see.
    if count < 3 or variance <= 1e-18:
        return 0.0
    return float((values**3).mean()) / math.pow(variance, 1.5) * math.sqrt(count * (count - 1)) / (count - 2)


def _deviation(z: float, mean: float, deviation: float, skewness: float) -> float:
    """How far from its mean a quantile of a gamma distribution lies, one that starts at 0 or that is more skewed."""
    if deviation <= 0.0:
        return 0.0
    skewness = max(2.0 * deviation / mean if mean > 0.0 else 0.0, skewness)
    root = max(0.0, 1.0 + skewness * z / 6.0 - skewness**2 / 36.0)
    return deviation * (root**3 - 1.0) * 2.0 / skewness if skewness > 0.0 else deviation * z
