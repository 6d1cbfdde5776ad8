"""The uncertain quantities of `coresim.model.speed`, as weighted draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coresim.errors import InputError

Array = NDArray[np.float64]

#: Points of the fixed sequence; that many draws of what is uncertain.
DRAWS = 4096
#: An unusual quantity has so many times the assumed deviation, and this probability; each quantity by itself.
WIDER, UNUSUAL = 4.0, 0.02
#: An interval of this level is twice `LEVEL_DEVIATIONS` standard uncertainties wide.
LEVEL = 0.9
LEVEL_DEVIATIONS = NormalDist().inv_cdf(0.5 + LEVEL / 2)
#: The share of the memory channels' peak that several cores stream; a ratio. STREAM's published share on servers is 75
#: to 90 %.
CHANNELS = (0.8, 0.1)
#: Sharpness of the corner between cores that do not disturb one another and a memory that is full.
CORNER = 4
#: Fewest draws that must share the weight, and rounds of moving the draws to get there.
LEAST_DRAWS, ROUNDS = 200.0, 12


class SpeedPoint(NamedTuple):
    """One measured value; ``uncertainty`` is its relative standard uncertainty."""

    at: float
    value: float
    uncertainty: float


class Spread(NamedTuple):
    """A likely value and its standard deviation; of the logarithm where the quantity is a ratio."""

    value: float
    deviation: float


class Assumed(NamedTuple):
    """The assumptions before anything is measured, and their reasons.

    Attributes:
        droop: D. Published boost tables lose 10 to 15 % from one core to all, of which this is the middle; servers that
            hold one clock lose less.
        memory: f, a ratio. Decoding and augmenting touch memory little; held against published curves in
            `calibration/scaling.py`.
        ceiling: c over the host's cores, a ratio. The middle of the 44 processors in ``coresim/data/machines.csv`` has
            5.9 GB/s a core, of which 80 % arrive; with one core that streams 11 GB/s alone, c is 0.43. Most cores
            stream more (see ``stream``), but 0.2 or 0.26 meet the published curves less well. The processors differ by
            34 %; the curves do not bear out so wide an interval.
        overhead: o, a ratio; from the published curves that begin with one core.
        sibling: what a second hardware thread adds; published: 0 to 25 % of a core.
        cores: of a host that does not say (a virtual machine shows its own share), a ratio: middle and spread of the
            cores per socket of the same processors.
        stream: bytes per second that one core alone streams, a ratio, where the memory channels are known and no
            bandwidth was measured. Published of one thread: 12 GB/s (Skylake), 18 (Broadwell, "CPU battle of the
            decade", AnandTech 2017) and 20 (Haswell, McCalpin in Intel's forum, 2018); measured by this package: 12
            (Sapphire Rapids) and 44 (Zen 4).
        misfit: standard deviation of the logarithm by which a real curve leaves the model
            (where it was measured, see `coresim.model.speed.JOBS`).
        kept: correlation of these misfits at two core counts. The more it is, the better the published curves are
            predicted from two given values; with more than 0.6 the interval holds fewer of them.
        bytes_known: how exactly counted bytes give the memory fraction at the least, a ratio.
    """

    droop: Spread = Spread(0.125, 0.03)
    memory: Spread = Spread(0.10, 0.25)
    ceiling: Spread = Spread(0.43, 0.15)
    overhead: Spread = Spread(0.07, 0.5)
    sibling: Spread = Spread(0.12, 0.10)
    cores: Spread = Spread(48.0, 0.5)
    stream: Spread = Spread(18e9, 0.5)
    misfit: float = 0.06
    kept: float = 0.6
    bytes_known: float = 0.3


ASSUMED = Assumed()


@dataclass(frozen=True)
class Evidence:
    """The measurements of one job on one host, each with its cores or pressure; everything is optional."""

    speeds: tuple[SpeedPoint, ...] = ()  # at cores, work per second of each in any unit; the first is the reference
    bandwidth: tuple[SpeedPoint, ...] = ()  # at cores, from one up, bytes per second of all of them together
    droop: tuple[SpeedPoint, ...] = ()  # at busy cores, clock beside that of one busy core
    pressure: tuple[SpeedPoint, ...] = ()  # at streams beside the job, in units of one core's alone, its slowdown
    sibling: tuple[SpeedPoint, ...] = ()  # at hardware threads per core, work of a full core beside one thread alone
    channels: float | None = None  # bytes per second that the memory's channels carry; None: not known
    moved: float | None = None  # bytes per second that one core moves at this job, at the least; None: not known
    cores: int | None = None  # physical cores that share the memory and the power; None: the host does not say
    threads_per_core: int = 1

    def __post_init__(self) -> None:
        """InputError for a value that is no positive number, or bandwidth that does not begin with one core."""
        for name in ("speeds", "bandwidth", "droop", "pressure", "sibling"):
            for point in getattr(self, name):
                if not all(math.isfinite(x) and x >= 0 for x in point) or point.value <= 0 or point.uncertainty <= 0:
                    raise InputError(f"{name}: {tuple(point)} is not a place, a value and an uncertainty above 0")
        if self.bandwidth and self.bandwidth[0].at != 1:
            raise InputError("bandwidth: the first value must be one core's; measure again, from one core up")


@dataclass(frozen=True)
class SpeedDraws:
    """One column per uncertain quantity, one row per draw."""

    droop: Array
    memory: Array
    ceiling: Array
    overhead: Array
    sibling: Array
    cores: Array
    weights: Array

    def at_least(self, cores: int) -> SpeedDraws:
        """The draws with hosts of at least so many cores, and memory in proportion, for a host that does not say."""
        grown = np.maximum(1.0, cores / self.cores)
        return replace(self, cores=self.cores * grown, ceiling=self.ceiling * grown)

    def clock(self, cores: float) -> Array:
        """Clock of each of so many busy cores, beside that of one alone."""
        host = np.maximum(self.cores, 2.0)
        return 1.0 - self.droop * np.minimum(1.0, (cores - 1) / (host - 1))

    def stretch(self, streams: float) -> Array:
        """r(n) over r(1): how much longer memory time is with so many streams than with one."""
        full = (1.0 + (streams / self.ceiling) ** CORNER) ** (1 / CORNER)
        return full / (1.0 + self.ceiling**-CORNER) ** (1 / CORNER)

    def slowed(self, streams: float) -> Array:
        """A sample's time with so many streams at the memory, its own included, over its time alone."""
        return 1.0 - self.memory + self.memory * self.stretch(streams)

    def speed(self, cores: float) -> Array:
        """s(k) of each draw."""
        return self.clock(cores) / self.slowed(cores) / (1.0 + self.overhead * (1.0 - 1.0 / cores))

    def sibling_gain(self, cores: float) -> Array:
        """The gain from a second hardware thread; memory time gains nothing."""
        return self.sibling * (1.0 - self.memory) / self.slowed(cores)

    def interval(self, values: Array) -> tuple[float, float, float]:
        """Low end of the `LEVEL` interval, median and high end of a value of each draw."""
        order = np.argsort(values)
        weights = self.weights[order]
        places = np.cumsum(weights) - 0.5 * weights
        low, median, high = np.interp([0.5 - LEVEL / 2, 0.5, 0.5 + LEVEL / 2], places, values[order])
        return float(low), float(median), float(high)

    def middle(self, values: Array) -> Spread:
        """Median, and the standard deviation that would give the same width of the interval."""
        low, median, high = self.interval(values)
        return Spread(median, (high - low) / 2 / LEVEL_DEVIATIONS)


@lru_cache(maxsize=1)
def _normals() -> Array:
    """Standard normal values, evenly spread: the additive recurrence of the generalised golden ratio, in 6 dimensions.

    Source: M. Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018.
    """
    ratio = 1.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1 / 7)
    even = (0.5 + np.outer(np.arange(1, DRAWS + 1), ratio ** -np.arange(1.0, 7.0))) % 1.0
    normal = NormalDist().inv_cdf
    return np.array([[normal(value) for value in row] for row in even]).T


def posterior(evidence: Evidence, assumed: Assumed = ASSUMED) -> SpeedDraws:
    """Draws of what is assumed, weighed by the evidence, and moved to where the evidence leaves weight.

    Adaptive importance sampling with a tempered likelihood (Cappé et al. 2004, doi:10.1198/106186004X12803): each round
    draws from a normal distribution with the mean and covariance of the round before, and takes as much of the
    likelihood as leaves enough draws with weight. Evidence that contradicts itself is never taken in full.
    """
    normals = _normals()
    # Half of the draws of each quantity are wide, in all combinations.
    places = normals * np.where(np.arange(DRAWS) >> np.arange(len(normals))[:, None] & 1, WIDER, 1.0)
    proposal = _log_mixture(places, 0.5)
    for turn in range(ROUNDS):
        draws = _drawn(places, evidence, assumed)
        likelihood = _likelihood(draws, evidence, assumed)
        weights, taken = _tempered(_log_mixture(places, UNUSUAL) - proposal, likelihood)
        if taken == 1.0 or turn == ROUNDS - 1:
            break
        middle = places @ weights
        spread = np.cov(places, aweights=weights) * 1.5
        root = np.linalg.cholesky(spread + 1e-6 * np.eye(len(spread)))
        proposal = -0.5 * np.sum(normals**2, axis=0) - float(np.sum(np.log(np.diag(root))))
        places = middle[:, None] + root @ normals
    return replace(draws, weights=weights)


def _tempered(base: Array, likelihood: Array) -> tuple[Array, float]:
    """The weights with as much of the likelihood as leaves `LEAST_DRAWS`, and that part of it."""
    low, part = 0.0, 1.0
    for _ in range(30):
        weights = np.exp((total := base + part * likelihood) - total.max())
        weights /= weights.sum()
        if 1.0 / np.sum(weights**2) >= LEAST_DRAWS:
            if part == 1.0:
                break
            low = part
        else:
            high = part
        part = (low + high) / 2
    return weights, part


def _log_mixture(places: Array, share: float) -> Array:
    """Of standard normal places, each of which is wide with this probability."""
    usual = math.log1p(-share) - 0.5 * places**2
    wide = math.log(share / WIDER) - 0.5 * (places / WIDER) ** 2
    return np.asarray(np.sum(np.logaddexp(usual, wide), axis=0))


def _drawn(places: Array, evidence: Evidence, assumed: Assumed) -> SpeedDraws:
    """The quantities at these places, counted in standard deviations from what is likely."""
    droop, memory, ceiling, overhead, sibling, cores = places
    seen = max((point.at for point in (*evidence.speeds, *evidence.bandwidth)), default=1.0)
    host = np.maximum(seen, _ratio(assumed.cores, cores)) if evidence.cores is None else np.full(DRAWS, evidence.cores)
    return SpeedDraws(
        droop=np.clip(assumed.droop.value + assumed.droop.deviation * droop, 0.0, 0.5),
        memory=np.minimum(1.0, _ratio(assumed.memory, memory)),
        ceiling=host * _ratio(assumed.ceiling, ceiling),
        overhead=_ratio(assumed.overhead, overhead),
        sibling=np.clip(assumed.sibling.value + assumed.sibling.deviation * sibling, 0.0, 1.0),
        cores=host,
        weights=np.full(DRAWS, 1.0 / DRAWS),
    )


def _ratio(spread: Spread, normal: Array) -> Array:
    return np.asarray(spread.value * np.exp(spread.deviation * normal))


def _likelihood(draws: SpeedDraws, evidence: Evidence, assumed: Assumed) -> Array:
    """Logarithm, up to a constant."""
    found = np.zeros(DRAWS)
    for point in evidence.droop:
        found += _normal(np.log(draws.clock(point.at)), math.log(point.value), point.uncertainty)
    for point in evidence.pressure:
        found += _normal(np.log(draws.slowed(1.0 + point.at)), math.log(point.value), point.uncertainty)
    alone = evidence.bandwidth[0] if evidence.bandwidth else SpeedPoint(1, *assumed.stream)
    for point in evidence.bandwidth[1:]:
        stretched = math.log(point.at * alone.value / point.value)
        exact = math.hypot(point.uncertainty, alone.uncertainty)
        found += _normal(np.log(draws.stretch(point.at)), stretched, exact)
    if evidence.channels is not None:
        full = CHANNELS[0] * evidence.channels / alone.value
        found += _normal(np.log(draws.ceiling), math.log(full), math.hypot(CHANNELS[1], alone.uncertainty))
    if evidence.moved is not None:
        exact = math.hypot(assumed.bytes_known, alone.uncertainty)
        found += _at_least(np.log(draws.memory), math.log(evidence.moved / alone.value), exact)
    for point in evidence.sibling:
        gained = 1.0 + draws.sibling * (1.0 - draws.memory)
        found += _normal(np.log(gained), math.log(point.value), point.uncertainty)
    return found + _speeds(draws, evidence, assumed)


def _speeds(draws: SpeedDraws, evidence: Evidence, assumed: Assumed) -> Array:
    """Of the measured speeds, whatever their unit; each is off the model by more than its own noise."""
    if len(evidence.speeds) < 2:
        return np.zeros(DRAWS)
    off = np.array([math.log(point.value) - np.log(draws.speed(point.at)) for point in evidence.speeds])
    exact = np.array([[math.hypot(point.uncertainty, assumed.misfit)] for point in evidence.speeds])
    unit = np.sum(off / exact**2, axis=0) / np.sum(exact**-2)
    return np.asarray(-0.5 * np.sum(((off - unit) / exact) ** 2, axis=0))


def _normal(values: Array, measured: float, deviation: float) -> Array:
    return np.asarray(-0.5 * ((values - measured) / deviation) ** 2)


def _at_least(values: Array, bound: float, deviation: float) -> Array:
    """Logarithm of the logistic function: nothing where the values are above the bound, a penalty below."""
    return np.asarray(-np.logaddexp(0.0, 1.7 * (bound - values) / deviation))
