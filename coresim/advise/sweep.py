"""One setting, and the best one at a core count: workers are scanned, never bisected (idle is not monotone in them)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from coresim.advise.memory import MemoryCap, memory_of
from coresim.model.build import build
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Engine, Estimate, Plan, estimate
from coresim.theory.bounds import demands

#: Idle that two settings may differ by and still count as equal: half a point.
NOISE = 0.005
LARGEST_SWEEP = 256
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Point:
    """One setting of one option and what is predicted for it; ``cores`` and ``workers`` are per accelerator."""

    option: int
    cores: int
    workers: int
    prefetch_factor: int
    estimate: Estimate


@dataclass(frozen=True)
class Study:
    """What a sweep needs besides the scenario: an engine, a plan, and where to run."""

    engine: Engine
    plan: Plan = field(default_factory=Plan)
    executor: Executor | None = None
    progress: Progress | None = None
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], what: str, before: int, total: int
    ) -> list[Any]:
        """Apply a function to all items, on the executor if there is one; report progress, of ``before`` and these."""
        results = []
        for result in (self.executor.map if self.executor else map)(function, items):
            results.append(result)
            if self.progress:
                self.progress(what, (before + len(results)) / total)
        return results

    @property
    def rough(self) -> Plan:
        """A cheaper plan, to choose between settings that are then simulated in full."""
        return replace(self.plan, steps=max(60, self.plan.steps // 3), least=1, most=1, inputs=0)


def pipeline_of(scenario: Scenario, option: int, cores: float, workers: int, prefetch_factor: int) -> Pipeline:
    """The pipeline of a host with ``cores`` cores *per accelerator*."""
    return build(scenario, option, cores * scenario.accelerator.count, workers, prefetch_factor)


def predict(
    scenario: Scenario, option: int, cores: float, workers: int, prefetch_factor: int, study: Study
) -> Estimate:
    """The estimate of one setting."""
    pipeline = pipeline_of(scenario, option, cores, workers, prefetch_factor)
    # Cores beyond those that can be busy change nothing: option 1 is the same at every count.
    if pipeline.cores > pipeline.busiest():
        pipeline = replace(pipeline, cores=float(pipeline.busiest()))
    key = (study.plan, pipeline)
    if key not in study.cache:
        study.cache[key] = estimate(pipeline, study.plan, study.engine, study.cache)
    found: Estimate = study.cache[key]
    return found


def sensible_maximum(scenario: Scenario) -> int:
    """Cores per accelerator beyond which nothing can change: half as much again as all CPU work of a step needs.

    CPU work per step over the accelerator's time per step is the number of cores that would be busy if it never idled.
    """
    work = sum(demand.seconds for demand in demands(build(scenario, 2, 1.0, 1)) if demand.resource == "cores")
    waits = 1.0 if scenario.accelerator.sync == "spin" else 0.0
    slowest = min(scenario.host.speed)
    needed = work / scenario.accelerator.step.mean / slowest + waits
    own = math.ceil((scenario.host.cores or 0) / scenario.accelerator.count)
    return max(4, min(LARGEST_SWEEP, max(math.ceil(1.5 * needed) + 4, own)))


def best_point(scenario: Scenario, option: int, cores: float, study: Study) -> Point:
    """Scan the workers that could be best with so many cores; simulate in full the fewest within noise of the best."""
    factor = scenario.loader.prefetch_factor
    tried = worker_candidates(scenario, option, cores)
    workers = tried[0]
    if len(tried) > 1:
        rough = replace(study, plan=study.rough)
        idles = dict[int, float]()
        for count in tried:
            idles[count] = predict(scenario, option, cores, count, factor, rough).gpu_idle
            if idles[count] <= NOISE / 2:
                break  # more workers cannot be better by more than noise
        workers = min(n for n, idle in idles.items() if idle <= min(idles.values()) + NOISE / 2)
    return Point(option, math.ceil(cores), workers, factor, predict(scenario, option, cores, workers, factor, study))


def worker_candidates(scenario: Scenario, option: int, cores: float) -> list[int]:
    """Worker counts worth trying: about one for each core, and more where workers wait for storage without a core.

    Epochs of few batches cap the useful workers, and so does memory.
    """
    counts = _useful_workers(scenario, option, cores)
    if option != 2 or scenario.stages:
        return counts
    cap = _most_that_fit(scenario)
    return sorted({min(count, cap) for count in counts})


def memory_cap(scenario: Scenario, option: int, cores: float) -> MemoryCap | None:
    """Where memory stops the workers of an option below those worth trying with so many cores; None: nowhere."""
    if option != 2 or scenario.stages:
        return None
    wanted, cap = _useful_workers(scenario, option, cores)[-1], _most_that_fit(scenario)
    memory = memory_of(scenario, wanted, scenario.loader.prefetch_factor)
    return None if memory is None or wanted <= cap else MemoryCap(cap, wanted, memory)


def _useful_workers(scenario: Scenario, option: int, cores: float) -> list[int]:
    if option == 1:
        return [0]
    if scenario.stages:
        return [1]
    workload, split = scenario.workload, scenario.loader.split
    busy = workload.batch_size * workload.preprocess.mean + workload.collate.mean + workload.send.mean
    waiting = workload.batch_size * workload.fetch.mean if option == 2 else 0.0
    stretch = (1.0 + waiting / busy) if busy else 8.0
    most = min(LARGEST_SWEEP, math.ceil((cores + 1) * min(stretch, 16.0) / split) + 1)
    # Workers that prepare whole batches are idle beyond the batches of an epoch.
    cap = (scenario.loader.grain == "batch" and scenario.batches_per_epoch) or most
    cap = min(cap, scenario.loader.max_workers or cap)
    near = {max(1, math.floor(cores / split) + shift) for shift in (-2, -1, 0, 1)}
    wide = {max(1, math.ceil(most * share)) for share in (0.25, 0.5, 0.75, 1.0)} if stretch > 1.2 else set()
    return sorted({min(count, cap) for count in near | wide})


def fits(scenario: Scenario, workers: int, prefetch_factor: int) -> bool:
    """Whether nothing known says that memory or /dev/shm is too small for a setting of option 2."""
    memory = memory_of(scenario, workers, prefetch_factor)
    return memory is None or memory.fits


def _most_that_fit(scenario: Scenario) -> int:
    """The most workers that fit; one, where none does (it is said)."""
    factor, counts = scenario.loader.prefetch_factor, range(1, LARGEST_SWEEP + 1)
    return max(1, bisect_left(counts, True, key=lambda count: not fits(scenario, count, factor)))


def scan_prefetch(scenario: Scenario, point: Point, study: Study) -> Point:
    """The point with a better prefetch factor, if one helps by more than noise where the target is missed."""
    if point.option != 2 or scenario.stages or point.estimate.gpu_idle <= scenario.target.gpu_idle:
        return point
    best = point
    for factor in (1, 2, 3, 4, 8):
        if not fits(scenario, point.workers, factor):
            continue
        found = predict(scenario, 2, point.cores, point.workers, factor, study)
        if found.gpu_idle < best.estimate.gpu_idle - NOISE:
            best = replace(point, prefetch_factor=factor, estimate=found)
    return best
