"""How fast each of k busy cores prepares samples, beside one core alone: s(k) = droop(k) x memory(k) x overhead(k).

* *Droop*: cores run more slowly when all of them run. With K cores, 1 - D (k - 1) / (K - 1), where D is measured by
  spinning on one and on all cores, or read from the processor's clock tables, or assumed.
* *Memory*: a fraction f of a sample's time alone is memory time, which n cores stretch by r(n) = (1 + (n / c)^4)^(1/4):
  nothing at first, in proportion beyond the c cores whose pure streams the memory can serve. This is the roofline's
  ceiling (Williams, Waterman and Patterson 2009, doi:10.1145/1498765.1498785) with the rounded corner that multicore
  saturation shows (Stengel et al. 2015, doi:10.1145/2751205.2751240). c is known from the bandwidth of several cores
  together, or from the memory channels over one core's bandwidth, measured or usual. f is known from *pressure*, the
  job on one core while others stream (Mars et al. 2011, Bubble-Up, doi:10.1145/2155620.2155650), and is at least the
  share of one core's bandwidth that the job's own bytes take.
* *Overhead*: what working beside others costs at all (waking up, shared queues): 1 / (1 + o (1 - 1 / k)). One of k
  workers meets another in 1 - 1 / k of its turns. The second core pays most of it, so s(2) shows it.
* *Siblings*: a second hardware thread on a busy core adds a share of that core, of the part that is not memory time.

All of D, f, c, o and the siblings' gain are uncertain. `fit` draws them from what is assumed (`Assumed`), by a fixed
sequence of points, and weighs each draw by how well it explains what was measured. The likely value is the median.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coresim.model.speed_draws import (
    ASSUMED,
    Array,
    Assumed,
    Evidence,
    SpeedDraws,
    SpeedPoint,
    Spread,
    posterior,
)

#: Kinds of jobs: their share, and the standard deviation of the logarithm by which they leave the model at a number of
#: cores that was measured. A judgement by the eight jobs of ``calibration/grid.toml``: worker processes of seven mostly
#: keep near the model. In the eighth, memory-bound, two cores lost 10 to 50 % in 18 recordings; the model expects 4 %.
JOBS = ((7 / 8, 0.05), (1 / 8, 0.25))


@dataclass(frozen=True)
class SpeedTable:
    """The result of `fit`."""

    values: tuple[float, ...]  # s(1), s(2), ...; s(1) is 1
    uncertainties: tuple[float, ...]  # relative standard uncertainty of each
    sibling: float = 0.0  # share of a core that a second hardware thread adds to a busy host; 0 where there are none
    sibling_uncertainty: float = 0.0  # its standard deviation
    provenance: tuple[str, ...] = ()  # what was measured and what is assumed, one line for each part


def fit(evidence: Evidence, cores: int = 64, assumed: Assumed = ASSUMED) -> SpeedTable:
    """s(1) to s(``cores``), from what was measured and, where nothing was, from what is assumed.

    Raises:
        InputError: the evidence is not possible (see `Evidence`).
    """
    draws = posterior(evidence, assumed)
    known = _offsets(draws, evidence, assumed)
    values, uncertainties = [1.0], [0.0]
    for count in range(2, cores + 1):
        host = draws.at_least(count) if evidence.cores is None else draws
        value, deviation = draws.middle(np.log(host.speed(count)))
        off = known.get(count) or _unmeasured(known, count, assumed)
        values.append(min(values[-1], math.exp(value + off.value)))
        uncertainties.append(math.hypot(deviation, off.deviation))
    full = evidence.cores or cores
    gain, spread = draws.middle(draws.sibling_gain(full)) if evidence.threads_per_core > 1 else (0.0, 0.0)
    return SpeedTable(tuple(values), tuple(uncertainties), gain, spread, _provenance(draws, evidence))


def _offsets(draws: SpeedDraws, evidence: Evidence, assumed: Assumed) -> dict[int, Spread]:
    """How far the measured curve leaves the model, by cores, without measurement noise."""
    first = evidence.speeds[0] if evidence.speeds else SpeedPoint(1, 1.0, assumed.misfit)
    found = {int(first.at): Spread(0.0, 0.0)}
    alone = draws.middle(np.log(draws.speed(first.at)))[0]
    for point in evidence.speeds[1:]:
        off = math.log(point.value / first.value) - (draws.middle(np.log(draws.speed(point.at)))[0] - alone)
        found[int(point.at)] = _real(off, math.hypot(point.uncertainty, first.uncertainty))
    return found


def _real(off: float, noise: float) -> Spread:
    """The likely real part of a measured distance from the model, by a mixture of two normal distributions."""
    weights, means, variances = [], [], []
    for share, deviation in JOBS:
        whole = math.hypot(deviation, noise)
        weights.append(share / whole * math.exp(-0.5 * (off / whole) ** 2))
        means.append(off * (deviation / whole) ** 2)
        variances.append((deviation * noise / whole) ** 2)
    shares = [weight / math.fsum(weights) for weight in weights]
    mean = math.fsum(p * m for p, m in zip(shares, means, strict=True))
    spread = math.fsum(p * (v + (m - mean) ** 2) for p, v, m in zip(shares, variances, means, strict=True))
    return Spread(mean, math.sqrt(spread))


def _unmeasured(known: dict[int, Spread], count: int, assumed: Assumed) -> Spread:
    """How far a curve leaves the model at a count that was not measured, given where it does so at those that were.

    If s(2) is below the model, s(8) is partly, too: misfits are correlated (`Assumed.kept`). So the likely value
    follows the nearest measured one, and what is left is less than without it (a conditional normal distribution).
    """
    nearest = known[min(known, key=lambda other: (abs(other - count), -other))]
    off = float(np.interp(count, list(known), [offset.value for offset in known.values()]))
    told = max(0.0, 1.0 - (nearest.deviation / assumed.misfit) ** 2) if len(known) > 1 else 0.0
    return Spread(assumed.kept * off, assumed.misfit * math.sqrt(1.0 - assumed.kept**2 * told))


def _provenance(draws: SpeedDraws, evidence: Evidence) -> tuple[str, ...]:
    """Where each factor comes from, for people."""
    seen = [f"{point.at:g}" for point in evidence.speeds]
    told = {"pressure": "the job under pressure", "moved": "the bytes it moves", "bandwidth": "the bandwidth"}
    cores = f"{evidence.cores} cores" if evidence.cores else "a host that does not say how many cores it has"
    lines = [
        f"s(k): measured with {' and '.join(seen)} busy on {cores}" if len(seen) > 1 else f"s(k): one core on {cores}",
        f"droop: {_share(draws, draws.droop)} slower with all cores busy, "
        + ("from its clock, at work or as the system states it" if evidence.droop else "assumed"),
        f"memory: {_share(draws, draws.memory)} of a sample's time, from "
        + (" and ".join(words for name, words in told.items() if getattr(evidence, name)) or "what is usual"),
        f"ceiling: the streams of {_share(draws, draws.ceiling, '.2g')} cores fill the memory, {_ceiling(evidence)}",
        f"overhead: {_share(draws, draws.overhead)} for working beside others, "
        + ("from what two lose" if len(seen) > 1 else "assumed"),
    ]
    if evidence.threads_per_core > 1:
        how = "measured" if evidence.sibling else "assumed"
        lines.append(f"siblings: a second thread adds {_share(draws, draws.sibling)} of a core, {how}")
    return tuple(lines)


def _ceiling(evidence: Evidence) -> str:
    """Where the ceiling comes from."""
    measured, channels = len(evidence.bandwidth), evidence.channels is not None
    if measured < 2 and not channels:
        return "assumed from its cores"
    usual = "the bandwidth" if measured > 1 else "one core's bandwidth" if measured else "what one core usually streams"
    return f"from {usual}" + (" and the processor's memory channels" if channels else "")


def _share(draws: SpeedDraws, values: Array, form: str = ".0%") -> str:
    low, _, high = draws.interval(values)
    return f"{low:{form}} to {high:{form}}"
