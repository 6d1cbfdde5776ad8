"""Workers and credits that are worth trying with so many cores, the least memory first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from coresim.advise.memory import memory_of
from coresim.model.build import batches_out
from coresim.model.option import Option
from coresim.model.scenario import Scenario

#: Prefetch factors that are tried beside the scenario's own.
FACTORS = (1, 2, 4, 8)
#: The most workers for each core; if samples wait without a core, at least this many in all.
PER_CORE, WAITING = 4, 64
MOST_WORKERS = 256
#: Worker counts are all tried up to here; beyond it those that differ by a sixteenth.
EVERY = 32
#: Bytes of a worker process of its own where that was not measured, to order settings alone: an interpreter with numpy
#: and torch keeps about as much to itself (a judgement).
WORKER = 1e8


@dataclass(frozen=True)
class JobSetting:
    """One way to run a job, per accelerator; cores may be a fraction.

    ``cost`` orders what is tried: bytes, or where those of a batch are not known, batches and workers.
    """

    scenario: Scenario
    option: Option
    cores: float
    workers: int
    prefetch_factor: int
    cost: float = 0.0

    def __lt__(self, other: JobSetting) -> bool:
        mine, theirs = ((one.cost, one.workers, one.prefetch_factor) for one in (self, other))
        return mine < theirs


def candidates(scenario: Scenario, option: Option, cores: float) -> list[JobSetting]:
    """Every setting worth trying with so many cores per accelerator, within memory and /dev/shm."""
    factors = {*FACTORS, scenario.loader.prefetch_factor}
    pairs = [(count, factor) for count in spaced(most_workers(scenario, option, cores), EVERY) for factor in factors]
    return _fitting(scenario, option, cores, pairs)


def ladder(scenario: Scenario, option: Option, cores: float) -> list[JobSetting]:
    """A few of `candidates`: from about one worker for each core to the most, each with the scenario's own prefetch
    factor and with the largest that fits.
    """
    own, pairs = scenario.loader.prefetch_factor, list[tuple[int, int]]()
    for count in _rungs(scenario, option, cores):
        able = [factor for factor in FACTORS if fits(JobSetting(scenario, option, cores, count, factor))]
        pairs += [(count, own), (count, max(able, default=1))]
    return _fitting(scenario, option, cores, pairs)


def widest(scenario: Scenario, option: Option, cores: float) -> JobSetting:
    """The most workers and credits worth trying, whether they fit into memory or not: their bounds are the loosest."""
    return _setting(scenario, option, cores, most_workers(scenario, option, cores), FACTORS[-1])


def beyond_memory(scenario: Scenario, cores: float) -> list[JobSetting]:
    """Settings of option 2 like those of `ladder` that do not fit."""
    option = Option.OVERLAPPED
    counts = _rungs(scenario, option, cores)
    found = [_setting(scenario, option, cores, count, factor) for count in counts for factor in FACTORS]
    return sorted(one for one in found if not fits(one))


def _rungs(scenario: Scenario, option: Option, cores: float) -> set[int]:
    most, each = most_workers(scenario, option, cores), cores / scenario.loader.split
    near = (each - 1, each, each + 1, 1.5 * each, 2 * each, 3 * each, most / 2, most)
    return {min(most, max(1, math.floor(count))) for count in near}


def most_workers(scenario: Scenario, option: Option, cores: float) -> int:
    """The most workers worth trying: more would share the same cores and wait for the same storage.

    Workers that prepare whole batches are idle beyond the batches of an epoch.
    """
    if option == Option.NO_OVERLAP or scenario.stages:
        return 1
    workload, loader = scenario.workload, scenario.loader
    most = math.ceil(PER_CORE * cores / loader.split)
    waiting = workload.batch_size * workload.fetch.mean if option == Option.OVERLAPPED else 0.0
    if waiting:
        busy = workload.batch_size * workload.preprocess.mean + workload.collate.mean + workload.send.mean
        stretch = min(1.0 + waiting / busy, 16.0) if busy else 16.0
        most = max(most, WAITING, math.ceil((cores + 1) * stretch / loader.split))
    whole = loader.grain == "batch" and scenario.batches_per_epoch
    return max(1, min(most, MOST_WORKERS, whole or most, loader.max_workers or most))


def fits(setting: JobSetting) -> bool:
    """Whether memory and /dev/shm are large enough for a setting, as far as known; other options than 2 always fit."""
    memory = memory_of(setting.scenario, setting.workers, setting.prefetch_factor)
    return setting.option != Option.OVERLAPPED or memory is None or memory.fits


def spaced(most: int, every: int) -> list[int]:
    """Counts from one to ``most``: all up to ``every``, and beyond it those that differ by two ``every``-ths."""
    counts, count = [], 1
    while count < most:
        counts.append(count)
        count += max(1, 2 * count // every) if count >= every else 1
    return [*counts, most]


def _fitting(scenario: Scenario, option: Option, cores: float, pairs: Iterable[tuple[int, int]]) -> list[JobSetting]:
    """Those that fit, the least memory first; where none does, the least of all, and it is said."""
    able = {one for pair in pairs if fits(one := _setting(scenario, option, cores, *pair))}
    return sorted(able) or [_setting(scenario, option, cores, 1, 1)]


def _setting(scenario: Scenario, option: Option, cores: float, workers: int, factor: int) -> JobSetting:
    """Credits are option 2's alone, and option 1 has no workers."""
    if option != Option.OVERLAPPED or scenario.stages:
        own = 0 if option == Option.NO_OVERLAP else workers
        return JobSetting(scenario, option, cores, own, scenario.loader.prefetch_factor, float(workers))
    memory = memory_of(scenario, workers, factor)
    if memory is None:
        cost = float(batches_out(scenario, workers, factor) + workers)
    else:
        known = memory.workers is not None or scenario.loader.in_process
        cost = memory.total + (0.0 if known else WORKER * workers)
    return JobSetting(scenario, option, cores, workers, factor, cost)
