"""How preparing samples slows down when more cores do it at once, and how far that may be extrapolated.

The model is that of memory bandwidth as the one thing the cores share (the roofline of Williams, Waterman and
Patterson 2009, doi:10.1145/1498765.1498785, and its multicore saturation in Stengel et al. 2015,
doi:10.1145/2751205.2751240). A fraction f of a sample's time alone is memory time. With k cores at work that
part is stretched by r(k), the slowdown per core of a pure memory stream, which `bandwidth` measures::

    t(k) / t(1) = 1 - f + f r(k)        r(k) = k BW(1) / BW(k)        s(k) = t(1) / t(k)

Where bandwidth was not measured, r(k) = k, and f is then the contention of Gunther's Universal Scalability Law
(arXiv:0808.1431) without its coherency term. f is fitted by least squares with the prior 0.1 ± 0.1, an
assumption that decides alone when one core was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from coresim import stats
from coresim.errors import InputError
from coresim.measuring import protocol
from coresim.measuring.bandwidth import bandwidth_curve, saturating_cores
from coresim.measuring.crew import crew, levels, physical_cpus, rounds, serve
from coresim.measuring.processes import HOW_THREADS, TIMEOUT, Link, limit_threads
from coresim.measuring.protocol import Cautions, Clock, Progress
from coresim.model.measurement import Measurement
from coresim.workloads.base import WorkloadSpec, seed_everything

SAMPLES = 8
PRIOR, PRIOR_DEVIATION = 0.1, 0.1
LEAST_DEVIATION = 0.02
UNIT = 0.25
HOW = f"{HOW_THREADS}, pinned to a core each, all at work at once; CPU seconds per sample of the same few samples"


def measure_scaling(
    spec: WorkloadSpec,
    *,
    cpus: Sequence[int] | None = None,
    sample_s: float = 0.0,
    budget_s: float = 10.0,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``scaling.K`` (s/sample): the very same work by K processes at once, for K = 1 .. all cores.

    Args:
        spec: the workload.
        cpus: the hardware threads to use, one per physical core by default. Over 8, only some K are measured.
        sample_s: about how long one sample takes, in seconds, so that slow ones are repeated less.
        budget_s: wall seconds of measuring, all K together; each K is measured once, whatever that takes.
        progress: told what is going on, and the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        InputError: the dataset failed.
        CoresimError: a process died or hangs.
    """
    cpus = physical_cpus() if cpus is None else cpus
    counts = levels(len(cpus))
    found: dict[int, dict[int, list[float]]] = {count: {} for count in counts}
    samples = max(1, min(SAMPLES, int(UNIT / sample_s))) if sample_s > 0 else SAMPLES
    timeout = TIMEOUT + 4 * samples * sample_s
    total = kept = 0
    with crew(_scaling_job, spec, samples, cpus=cpus, doing=f"preparing {spec.target} on several cores") as children:
        for count, members in rounds(children, counts, budget_s, partial(_tell, progress), timeout):
            for place, timings in members.items():
                clean = protocol.clean(timings)
                total, kept = total + len(timings), kept + len(clean)
                found[count].setdefault(place, []).extend(timing.cpu / samples for timing in clean)
    protocol.add(cautions, protocol.dirty_caution("preparing samples on several cores", total - kept, total))
    return [
        Measurement(f"scaling.{count}", "s/sample", tuple(map(tuple, members.values())), HOW)
        for count, members in found.items()
    ]


def _tell(progress: Progress, count: int, fraction: float) -> None:
    protocol.tell(progress, f"preparing samples on {count} cores at once", fraction)


def _scaling_job(link: Link, spec: WorkloadSpec, count: int) -> None:
    workload = spec.build()
    limit_threads()
    stride = max(1, len(workload) // count)
    indices = [i * stride % len(workload) for i in range(count)]
    clock = Clock()

    def prepare_all() -> None:
        samples: list[Any] = []
        for place, index in enumerate(indices):
            value: Any = index
            rng = seed_everything(place)
            for step in workload.steps():
                value = step.call(value, rng)
            samples.append(value)
        workload.collate(samples)

    protocol.warm_up(prepare_all, clock, budget=1.0)
    serve(link, partial(protocol.timed, prepare_all, clock))


def speed_curve(measurements: Sequence[Measurement]) -> tuple[float, ...]:
    """s(1), s(2), ...: the speed of each of k busy cores, as a fraction of one core's alone.

    Medians are compared; a k between two measured ones is interpolated. More than 1 is noise and given as 1.

    Raises:
        InputError: ``scaling.1`` is not among the measurements.
    """
    times = _medians(measurements, "scaling.")
    if 1 not in times:
        raise InputError("no scaling.1 among the measurements: measure the scaling again, from one core up")
    known = sorted(times)
    seconds = np.interp(range(1, known[-1] + 1), known, [times[k] for k in known])
    return tuple(min(1.0, float(times[1] / t)) for t in seconds)


def _medians(measurements: Sequence[Measurement], prefix: str) -> dict[int, float]:
    named = [(m.name.removeprefix(prefix), m) for m in measurements if m.name.startswith(prefix)]
    return {int(count): stats.median(m.flat) for count, m in named if count.isdecimal()}


class Speed(NamedTuple):
    """The speed of each of k busy cores, relative to one alone: likely value and about 95 % range."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class SpeedModel:
    """A speed curve that goes on beyond the measured cores; see the module's text for the model.

    Attributes:
        measured: s(1), s(2), ... as measured.
        memory_fraction: f, the fraction of a sample's time alone that is memory time.
        deviation: standard deviation of f.
        bandwidth: bytes per second of 1, 2, ... cores at once; empty where not measured.
        noise: relative standard deviation of a measured speed.
        assumes: what was assumed rather than measured, for people.
    """

    measured: tuple[float, ...]
    memory_fraction: float
    deviation: float
    bandwidth: tuple[float, ...]
    noise: float
    assumes: str

    def at(self, cores: int) -> Speed:
        """The speed with ``cores`` busy: as measured where it was, else the model joined to the last measured."""
        last = len(self.measured)
        value = self.measured[min(cores, last) - 1]
        margin = 1.0 if cores == 1 else math.exp(2 * self.noise)
        if cores <= last:
            return Speed(value / margin, value, min(1.0, value * margin))
        slow, middle, fast = (self._ratio(cores, growth, shift) for growth, shift in ((0.0, 2), (0.5, 0), (1.0, -2)))
        return Speed(value * slow / margin, value * middle, min(1.0, value * fast * margin))

    def _ratio(self, cores: int, growth: float, shift: float) -> float:
        """s(cores) / s(last measured), with f moved by ``shift`` deviations.

        ``growth`` says how bandwidth goes on where its curve had not saturated: 0 not at all, 1 in proportion.
        """
        fraction = min(1.0, max(0.0, self.memory_fraction + shift * self.deviation))
        last = len(self.measured)
        slowdown = 1 + fraction * (stretch(self.bandwidth, cores, growth) - 1)
        return (1 + fraction * (stretch(self.bandwidth, last, growth) - 1)) / slowdown


def stretch(bandwidth: Sequence[float], cores: int, growth: float = 0.5) -> float:
    """r(k): how many times longer a pure memory stream takes per core with ``cores`` at it than with one."""
    if not bandwidth:
        return float(cores)
    last = len(bandwidth)
    if cores <= last:
        return max(1.0, cores * bandwidth[0] / bandwidth[cores - 1])
    saturated = last > 1 and saturating_cores(bandwidth) < last
    more = 1.0 if saturated else (cores / last) ** growth
    return max(1.0, cores * bandwidth[0] / (max(bandwidth) * more))


def fit_speed(scaling: Sequence[Measurement], bandwidth: Sequence[Measurement] = ()) -> SpeedModel:
    """Fit the memory fraction to ``scaling.K``, with the ``bandwidth.triad.K`` curve where it was measured.

    Raises:
        InputError: ``scaling.1`` is not among the measurements.
    """
    measured = speed_curve(scaling)
    curve = bandwidth_curve(bandwidth) if bandwidth else ()
    noise = _noise(scaling)
    known = sorted(k for k in _medians(scaling, "scaling.") if k > 1)
    pairs = [(stretch(curve, k) - 1, 1 / measured[k - 1] - 1) for k in known]
    precision = 1 / PRIOR_DEVIATION**2 + math.fsum(x * x for x, _ in pairs) / noise**2
    fraction = (PRIOR / PRIOR_DEVIATION**2 + math.fsum(x * y for x, y in pairs) / noise**2) / precision
    return SpeedModel(
        measured, min(1.0, max(0.0, fraction)), precision**-0.5, curve, noise, _assumptions(measured, curve)
    )


def _noise(scaling: Sequence[Measurement]) -> float:
    """Relative deviation of a speed: of the processes' means around theirs, pooled, 2 % at least."""
    ratios = [
        (mean / stats.mean(m.process_means) - 1) ** 2 * len(m.process_means) / (len(m.process_means) - 1)
        for m in scaling
        if len(m.process_means) > 1
        for mean in m.process_means
    ]
    return max(LEAST_DEVIATION, math.sqrt(stats.mean(ratios)) if ratios else 2 * LEAST_DEVIATION)


def _assumptions(measured: Sequence[float], curve: Sequence[float]) -> str:
    last = len(measured)
    if last == 1:
        said = [f"one core measured: a memory fraction of {PRIOR} ± {PRIOR_DEVIATION} is assumed"]
    else:
        said = [f"measured to {last} cores; beyond, memory bandwidth is the one thing that cores share"]
    if not curve:
        said.append("bandwidth not measured: taken not to grow with cores")
    elif saturating_cores(curve) == len(curve):
        said.append(f"bandwidth had not saturated at {len(curve)}: taken to grow with the square root of the cores")
    return "; ".join(said)
