"""Pre-drawn service times: the randomness of a run as data, the same for every engine and every point of a sweep."""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim import stats
from coresim.model.pipeline import Phase, Pipeline
from coresim.model.service import Service
from coresim.sim.kernel import COMPILED, pools

#: Rows of times that are kept of a phase; a longer run starts them again, so memory does not grow with the steps.
MOST_ROWS = 65_536
#: Times drawn at once: what fits in a core's own cache.
_CHUNK = 1 << 15
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class Draws:
    """Service times drawn ahead, by phase.

    ``service_times[key]`` has one row per item and one column per parallel task of the phase, in seconds; the keys are
    those of `Pipeline.phases`. They may be floats, integers or Fractions.
    """

    service_times: Mapping[str, NDArray[Any]]

    def row(self, key: str, index: int, rank: int, total_ranks: int) -> NDArray[Any]:
        """The times of item ``index`` of ``rank``; ranks read the same rows from evenly spaced places."""
        drawn_times = self.service_times[key]
        row: NDArray[Any] = drawn_times[(index + rank * (len(drawn_times) // total_ranks)) % len(drawn_times)]
        return row


def draw(
    pipeline: Pipeline,
    rows: int,
    seed: int,
    replication: int = 0,
    inputs: int = 0,
    cache: dict[Any, Any] | None = None,
) -> Draws:
    """Draw the service times of one replication.

    Each phase has its own stream, named by the seed, the replication and the phase, so that two pipelines that
    differ elsewhere see the same samples (common random numbers).

    Args:
        pipeline: what to draw for.
        rows: batches to draw for each rank (at most `MOST_ROWS` rows of each phase).
        seed: of the whole study.
        replication: number of the independent repeat.
        inputs: the number of replications with uncertain inputs, of which this is one; 0: the inputs are as they are.
            Otherwise every mean is moved by its own uncertainty, stratified over the replications. Empirical values
            without an uncertainty are resampled with replacement (bootstrap); those with one are not, because it
            includes what resampling would give.
        cache: where they are kept between the points of a sweep, which mostly share them: no time is drawn twice.
    """
    cache = {} if cache is None else cache
    # Settings of a job differ in cores, workers and credits: mostly all that is drawn for one is drawn for another.
    stages = tuple((stage.name, stage.grain, stage.phases) for stage in pipeline.stages)
    line = (stages, pipeline.trainer, pipeline.step, pipeline.total_ranks, pipeline.batch_size)
    what = (*line, rows, seed, replication, inputs)
    if what not in cache:
        cache[what] = _drawn(pipeline, rows, seed, replication, inputs, cache)
    found: Draws = cache[what]
    return found


def _drawn(pipeline: Pipeline, rows: int, seed: int, replication: int, inputs: int, cache: dict[Any, Any]) -> Draws:
    service_times = {}
    for key, phase, grain in pipeline.phases():
        count = min(rows * pipeline.total_ranks * pipeline.items(grain), MOST_ROWS)
        service, factor = phase.service, 1.0
        resampled = inputs if service.distribution == "values" and not service.uncertainty else 0
        if inputs and service.uncertainty:
            # A mean that moves takes every time with it: the same draws, longer or shorter.
            factor = math.exp(service.uncertainty * stratified_normal(seed, phase.name, replication, inputs))
        what = (phase, seed, replication, resampled)
        # Of two threads that make one at once, both take the one that is kept.
        stream = cache.get(what) or cache.setdefault(what, _DrawStream(*what))
        times = stream.first(count)
        service_times[key] = times if factor == 1.0 else times * factor
    return Draws(MappingProxyType(service_times))


def under_way(pipeline: Pipeline, draws: Draws, rows: int) -> Draws:
    """The draws of a line that was at work before its run begins: the first items of each server are partly done.

    Servers that begin together hand over in bursts, until the spread of their times has parted them. When a burst is
    used up, each server has done nearly a whole item of the next burst; once they are parted, less. A run that begins
    in the first state and ends in the second counts the difference as throughput, although no core did that work. So
    the servers begin apart: of the first N items of a stage of N servers, item n has the share (n + 1) / N of its work
    left, just in time for servers that are always waited for. If credits let servers with items of their own run ahead,
    each is also ahead by a part of another item; these parts spread evenly over 0 to 1, or to what the credits allow.

    Args:
        pipeline: what was drawn for.
        draws: what was drawn.
        rows: batches that were drawn for each rank; where they are used again within a run, they stay as they are.
    """
    service_times, ranks = dict(draws.service_times), pipeline.total_ranks
    batches = (stage for stage in pipeline.stages if stage.grain == "batch" and stage.servers > 1)
    for stage in batches if rows * ranks <= MOST_ROWS else ():
        own = stage.dispatch == "round_robin" and pipeline.credits is not None
        ahead = min(1.0, (pipeline.credits or 0) / stage.servers - 1.0) if own else 0.0
        left = _left(stage.servers, max(0.0, ahead))[:rows]
        for phase in stage.phases:
            key = f"{stage.name}.{phase.name}"
            # A constant is drawn once.
            times = service_times[key]
            times = np.repeat(times, rows * ranks, axis=0) if len(times) == 1 else times.copy()
            times.reshape(ranks, rows, times.shape[1])[:, : len(left)] *= left[:, None]
            service_times[key] = times
    return Draws(MappingProxyType(service_times))


@lru_cache(maxsize=256)
def _left(servers: int, ahead: float) -> NDArray[np.float64]:
    """Shares of the first two items of each server that are left."""
    place = np.arange(servers)
    # Multiples of the golden ratio modulo 1 are spread evenly, and neighbours are far apart.
    done = 1.0 - (place + 1) / servers + ahead * ((place * _GOLDEN + 0.5) % 1.0)
    return np.concatenate([np.clip(1.0 - done, 0.0, 1.0), np.clip(2.0 - done, 0.0, 1.0)])


class _DrawStream:
    """The times of a phase in one replication, drawn as far as any run has needed: a longer one draws the rest."""

    def __init__(self, phase: Phase, seed: int, replication: int, resampled: int) -> None:
        self._phase, self._lock, self._drawn_for = phase, threading.Lock(), (seed, replication)
        self._constant = phase.service.distribution == "constant" and phase.split == phase.pooled == 1
        self._constant &= not phase.shared_cv
        self._times = np.empty((0, phase.split))
        # The servers of a pool go on from batch to batch.
        self._free, self._completed = np.zeros(phase.pooled), 0.0
        if resampled:
            # In a bootstrap times come from values that are drawn themselves.
            values = self._generator.choice(np.asarray(phase.service.values), len(phase.service.values))
            self._phase = replace(phase, service=replace(phase.service, values=tuple(values.tolist())))

    @cached_property
    def _generator(self) -> np.random.Generator:
        return self._new_generator(self._phase.name)

    @cached_property
    def _factors(self) -> np.random.Generator:
        # The factors have a stream of their own, so that no time depends on how far others were drawn before.
        return self._new_generator(f"{self._phase.name} together")

    def _new_generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([*self._drawn_for, zlib.crc32(name.encode())])

    def first(self, count: int) -> NDArray[np.float64]:
        """The first rows, so many; of a constant a single one."""
        if self._constant:
            return np.array([[self._phase.service.mean * self._phase.repeats]])
        with self._lock:
            if len(self._times) < count:
                more = self._more(count - len(self._times))
                if self._phase.shared_cv:
                    factor = Service(1.0, self._phase.shared_cv, "lognormal")
                    more = more * draw_sums(factor, len(more), 1, self._factors)[:, None]
                self._times = np.concatenate([self._times, more])
            return self._times[:count]

    def _more(self, rows: int) -> NDArray[np.float64]:
        service, repeats, split = self._phase.service, self._phase.repeats, self._phase.split
        if split == self._phase.pooled == 1:
            return draw_sums(service, rows, repeats, self._generator)[:, None]
        samples = draw_sums(service, rows * repeats, 1, self._generator).reshape(rows, repeats)
        if split > 1:
            return _split(samples, split)
        gaps: NDArray[np.float64]
        gaps, self._free, self._completed = (COMPILED or pools).pool_gaps(samples, self._free, self._completed)
        return gaps[:, None]


def perturb_speed(pipeline: Pipeline, seed: int, replication: int, inputs: int) -> Pipeline:
    """The pipeline with its s(k), k > 1, moved by one draw of its uncertainty."""
    if not pipeline.speed_uncertainty:
        return pipeline
    factor = math.exp(pipeline.speed_uncertainty * stratified_normal(seed, "speed", replication, inputs))
    return replace(pipeline, speed=(pipeline.speed[0], *(speed * factor for speed in pipeline.speed[1:])))


@cache
def stratified_normal(seed: int, name: str, replication: int, count: int) -> float:
    """One of ``count`` standard normal numbers, one from the middle of each stratum, in an order drawn for ``name``.

    A few independent numbers can all fall on one side; these always have mean 0 and variance 1. Independent orders for
    independent inputs make a Latin hypercube (McKay, Beckman and Conover, Technometrics 21, 1979).
    """
    order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(count)
    middles = [stats.normal_quantile((rank + 0.5) / count) for rank in range(count)]
    spread = math.sqrt(math.fsum(middle**2 for middle in middles) / count)
    return middles[order[replication]] / spread if spread else 0.0


def draw_sums(service: Service, count: int, repeats: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """``count`` sums of ``repeats`` independent times each, in seconds.

    A sum of gamma times of one scale is a gamma time whose shape is the sum of the shapes (so exponential sums
    are Erlang); the other distributions are summed draw by draw.
    """
    mean, cv = service.mean, service.cv
    if service.distribution == "constant":
        return np.full(count, mean * repeats)
    if service.distribution in ("exponential", "gamma"):
        return generator.gamma(repeats / cv**2, mean * cv**2, count)
    step = max(1, _CHUNK // repeats)
    parts = [_draw(service, (min(step, count - at), repeats), generator).sum(axis=1) for at in range(0, count, step)]
    return np.concatenate(parts)


def _draw(service: Service, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.float64]:
    if service.distribution == "values":
        # The places and the values that the generator's own choice gives, in a third of the time.
        values = np.asarray(service.values)
        chosen: NDArray[np.float64] = values[generator.integers(0, len(values), shape)]
        return chosen
    # In place: fresh memory costs as much as the arithmetic.
    spread = math.log1p(service.cv**2)
    times: NDArray[np.float64] = generator.standard_normal(shape)
    times *= math.sqrt(spread)
    times -= spread / 2
    np.exp(times, out=times)
    times *= service.mean
    return times


def _split(samples: NDArray[np.float64], tasks: int) -> NDArray[np.float64]:
    """Work of each of ``tasks`` threads when sample j of a batch goes to thread j mod ``tasks``."""
    return np.stack([samples[:, task::tasks].sum(axis=1) for task in range(tasks)], axis=1)
