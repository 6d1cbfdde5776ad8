"""One setting, and the best one at a core count: workers and credits are scanned, never bisected, because idle is not
monotone in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from coresim.advise.candidates import JobSetting, beyond_memory, ladder, widest
from coresim.advise.memory import MemoryCap, memory_of
from coresim.model.build import batches_out, build
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Engine, Estimate, Plan, estimate
from coresim.sim.noise import NOISE
from coresim.theory.bounds import binding, bounds, demands

LARGEST_SWEEP = 256
#: Replications that are enough to choose between settings, or far from the target.
FEW = 4
#: Turns of all workers in a short run.
ROUGH_CYCLES = 5
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Point:
    """One setting of one option and what is predicted for it; ``cores`` and ``workers`` are per accelerator."""

    option: Option
    cores: int
    workers: int
    prefetch_factor: int
    estimate: Estimate

    @classmethod
    def of(cls, setting: JobSetting, estimate: Estimate) -> Point:
        """A setting with its estimate; a part of a core counts as one."""
        cores = math.ceil(setting.cores)
        return cls(setting.option, cores, setting.workers, setting.prefetch_factor, estimate)

    def at(self, scenario: Scenario) -> JobSetting:
        """Its setting of a job."""
        return JobSetting(scenario, self.option, self.cores, self.workers, self.prefetch_factor)


@dataclass(frozen=True)
class Study:
    """What a sweep needs besides the scenario: an engine, a plan, and where to run."""

    engine: Engine
    plan: Plan = field(default_factory=Plan)
    executor: Executor | None = None
    progress: Progress | None = None
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def planned(self, **changes: Any) -> Study:
        """The same with changes of its plan."""
        return replace(self, plan=replace(self.plan, **changes))

    @cached_property
    def rough(self) -> Study:
        """The same with a cheaper plan, to choose between settings that are then simulated in full."""
        steps, scatter = max(60, self.plan.steps // 3), 2 * self.plan.scatter
        return self.planned(steps=steps, least=1, most=1, inputs=0, scatter=scatter, cycles=ROUGH_CYCLES, settle=False)

    @cached_property
    def brief(self) -> Study:
        """The same with a few full runs of the unchanged inputs, which a longer simulation continues."""
        few = min(FEW, self.plan.least)
        return self.planned(least=few, most=few, inputs=0)

    @cached_property
    def first_pass(self) -> Study:
        """The same with the fewest full runs that are enough, with which a longer simulation begins."""
        # If these may stop, the intervals of four runs hold less often than stated (`tests/together/test_coverage.py`).
        return self.planned(least=min(FEW + 1, self.plan.least), most=self.plan.least)


@lru_cache(maxsize=1 << 11)
def pipeline_of(setting: JobSetting) -> Pipeline:
    """The pipeline of all accelerators of the host."""
    cores = setting.cores * setting.scenario.accelerator.count
    return build(setting.scenario, setting.option, cores, setting.workers, setting.prefetch_factor)


def predict(setting: JobSetting, study: Study) -> Estimate:
    """The estimate of one setting."""
    pipeline = pipeline_of(setting)
    # Cores beyond those that can be busy change nothing: option 1 is the same at every count.
    if pipeline.cores > pipeline.busiest():
        pipeline = replace(pipeline, cores=float(pipeline.busiest()), cpus=None)
    key = (study.plan, pipeline)
    if key not in study.cache:
        study.cache[key] = estimate(pipeline, study.plan, study.engine, study.cache, bound_of(pipeline))
    found: Estimate = study.cache[key]
    return found


def sure_enough(setting: JobSetting, confidence: float, study: Study) -> Estimate:
    """Predict a setting; stop after the fewest runs if these show that more cannot make it as sure as that."""
    found = predict(setting, study.first_pass)
    sure = found.probability_at_best(setting.scenario.target.gpu_idle) >= confidence
    return predict(setting, study) if sure else found


def sensible_maximum(scenario: Scenario) -> int:
    """Cores per accelerator beyond which nothing can change: half as much again as all CPU work of a step needs.

    CPU work per step over the accelerator's time per step is the number of cores that would be busy if it never idled.
    """
    whole = demands(build(scenario, Option.OVERLAPPED, 1.0, 1))
    work = sum(demand.seconds for demand in whole if demand.resource == "cores")
    waits = 1.0 if scenario.accelerator.sync == "spin" else 0.0
    slowest = min(scenario.host.speed)
    needed = work / scenario.accelerator.step.mean / slowest + waits
    own = math.ceil((scenario.host.cores or 0) / scenario.accelerator.count)
    return max(4, min(LARGEST_SWEEP, max(math.ceil(1.5 * needed) + 4, own)))


def best_point(scenario: Scenario, option: Option, cores: float, study: Study) -> Point:
    """The best of a few settings with so many cores (`coresim.advise.candidates.ladder`)."""
    return choose(ladder(scenario, option, cores), study)


def choose(tried: Sequence[JobSetting], study: Study, stride: float = 4.0, confidence: float = 0.0) -> Point:
    """The setting with the least memory that is within noise of the one that idles least, all with as many cores.

    Short runs of all settings that no bound forbids choose between them. They may miss rare stalls, and so take a
    setting with too few credits. So if it idles notably more in a full simulation, settings of ``stride`` times its
    memory, and so on, are simulated in full, too. The same happens if the setting is less sure to be within the target
    than ``confidence``, because inputs may be worse than stated: then the first that is so sure is chosen. It does not
    happen if in short runs none is within the target, and the best one surely is not. What uncertain inputs add is left
    out if it cannot matter to the choice.
    """
    target = tried[0].scenario.target.gpu_idle

    def full(one: JobSetting) -> Estimate:
        found = predict(one, study.brief)
        surely_beyond = found.gpu_idle - found.simulation_half_low > target
        return found if surely_beyond or not confidence else sure_enough(one, confidence, study)

    if len(tried) == 1:
        return Point.of(tried[0], predict(tried[0], study))
    idles = short_idles(tried, study)
    best = next(one for one in idles if idles[one] <= min(idles.values()) + NOISE)
    found = {best: full(best)}
    seen = max(idles[best], lowest_idle(best.scenario, best.option, best.cores)) + NOISE
    # What the model itself misses is the same for all of them.
    known = math.hypot(found[best].simulation_half_low, found[best].input_half_low)
    hopeless = min(found[best].gpu_idle - known, *idles.values()) > target + NOISE
    for one in tried[tried.index(best) + 1 :]:
        sure = hopeless or max(estimate.probability(target) for estimate in found.values()) >= confidence
        if sure and min(estimate.gpu_idle for estimate in found.values()) <= seen:
            break
        if one.cost >= stride * max(found).cost or one == tried[-1]:
            found[one] = full(one)
    best = _chosen(found, target, confidence)
    return Point.of(best, predict(best, study))


def _chosen(found: dict[JobSetting, Estimate], target: float, confidence: float) -> JobSetting:
    """The least memory that idles least, or that is as sure as any."""
    least = min(estimate.gpu_idle for estimate in found.values())
    best = next(one for one in sorted(found) if found[one].gpu_idle <= least + NOISE)
    chances = {one: estimate.probability(target) for one, estimate in found.items()}
    if chances[best] >= confidence:
        return best
    return next(one for one in sorted(found) if chances[one] >= min(confidence, max(chances.values())))


def short_idles(tried: Sequence[JobSetting], study: Study) -> dict[JobSetting, float]:
    """Idle of short runs, without those that by a bound cannot change which is the first within noise of the least."""
    floor = lowest_idle(tried[0].scenario, tried[0].option, tried[0].cores)
    idles, first = dict[JobSetting, float](), math.inf
    for one in tried:
        if least_idle(one) >= first - NOISE:
            continue
        idles[one] = predict(one, study.rough).gpu_idle
        most = min(idles.values()) + NOISE
        first = next(idle for idle in idles.values() if idle <= most)
        if floor >= first - NOISE:
            break
    return idles


@lru_cache(maxsize=1 << 10)
def bound_of(pipeline: Pipeline) -> float:
    """The least GPU idle that any schedule of a pipeline can have, by the bounds."""
    return max(0.0, 1.0 - binding(bounds(pipeline)).limit_batches_per_s * pipeline.step.service.mean)


def least_idle(setting: JobSetting) -> float:
    """`bound_of` for one setting, or a little less, computed quickly, because a search asks for very many settings."""
    least, by_worker, by_credit = _allowed(setting.scenario, setting.option, setting.cores)
    if by_credit < math.inf:
        by_credit *= batches_out(setting.scenario, setting.workers, setting.prefetch_factor)
    return max(least, 1.0 - max(1, setting.workers) * by_worker, 1.0 - by_credit)


def lowest_idle(scenario: Scenario, option: Option, cores: float) -> float:
    """The least GPU idle that any workers and credits can have with so many cores, by the bounds."""
    return _allowed(scenario, option, cores)[0]


@lru_cache(maxsize=1 << 10)
def _allowed(scenario: Scenario, option: Option, cores: float) -> tuple[float, float, float]:
    """The least idle of all settings, and the share of time that each worker and each credit lets the GPU be busy.

    The bounds of servers and credits are in proportion to them (`coresim.theory.bounds`), and all others are loosest
    where there are most. More workers also make the work longer, so a bound of all is without that.
    """
    loader, workload = replace(scenario.loader, library_threads=1), scenario.workload
    quickest = min(workload.consumer_by_workers)
    workload = replace(workload, consumer_growth=0.0, consumer_by_workers=(quickest,))
    alone = replace(scenario, loader=loader, workload=workload)
    one = widest(alone, option, cores)
    line = pipeline_of(one)
    limits = {bound.name: bound.limit_batches_per_s * line.step.service.mean for bound in bounds(line)}
    pools = [f"servers of {stage.name}" for stage in line.stages if stage.servers == one.workers > 1]
    # What takes no time has no bound.
    by_worker = min((limits[name] for name in pools if name in limits), default=math.inf) / max(1, one.workers)
    by_credit = limits.get("credits", math.inf) / line.credits if line.credits else math.inf
    return max(0.0, 1.0 - min(limits.values(), default=math.inf)), by_worker, by_credit


def memory_cap(scenario: Scenario, point: Point, study: Study) -> MemoryCap | None:
    """Where memory stops option 2 below the workers and credits that idle less with so many cores; None: nowhere."""
    if point.option != Option.OVERLAPPED or scenario.stages:
        return None
    wanted, rough = beyond_memory(scenario, point.cores), study.rough
    if not wanted:
        return None
    least = predict(wanted[-1], rough).gpu_idle
    if least >= predict(point.at(scenario), rough).gpu_idle - NOISE:
        return None
    better = next(one for one in wanted if predict(one, rough).gpu_idle <= least + NOISE)
    memory = memory_of(scenario, better.workers, better.prefetch_factor)
    return None if memory is None else MemoryCap(point.workers, better.workers, memory)
