"""One task of a fleet plan: one job transferred to one kind of host, with several core counts.

A task is a picklable value and `run_task` a plain function, so that any executor runs it, here or on another machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from coresim import stats
from coresim.advise.decide import decide
from coresim.advise.minimum_cores import minimum_cores, useful_cores
from coresim.advise.refine import CONFIDENCE, LIKELY
from coresim.advise.starved import SEARCHED, SIMULATED, predicted, short_of_cores, uncertainty
from coresim.advise.sweep import Point, Study, pipeline_of
from coresim.fleet.transfer import Transferred
from coresim.model.option import Option
from coresim.model.scenario import Scenario, with_services
from coresim.sim.engines import engine_named
from coresim.sim.estimate import Plan

#: Short runs: a fleet asks which machine, and inputs that were transferred there widen the interval far more.
FLEET_PLAN = Plan(steps=120, least=2, most=2, inputs=4)


@dataclass(frozen=True)
class Outcome:
    """One option of one pair, as simulated; cores and workers per GPU, throughput of the whole host in samples/s.

    The job uses ``minimum_cores`` of the cores that there are (the rest is for others), or all if they are fewer, or if
    no core count meets the target: then ``minimum_cores`` is None. ``provenance``: of count and interval, `SIMULATED`,
    `coresim.advise.starved.BOUNDED` or `SEARCHED`. ``confidence``: the probability with which ``minimum_cores`` meet
    the target: the one asked for if the host has so many cores, else that of the count which meets it as likely as not;
    None if no core count meets it.
    """

    minimum_cores: int | None
    cores_had: float
    workers: int
    prefetch_factor: int
    gpu_idle: float
    gpu_idle_low: float
    gpu_idle_high: float
    throughput: float
    provenance: str = SIMULATED
    confidence: float | None = LIKELY

    @property
    def has_enough(self) -> bool:
        """Whether the host has the cores needed."""
        return self.minimum_cores is not None and self.cores_had >= self.minimum_cores


@dataclass(frozen=True)
class Cores:
    """The cores per GPU that a candidate has or may be asked for; see `coresim.fleet.description.Candidate`."""

    had: float | None
    most: float | None


@dataclass(frozen=True)
class Task:
    """What a worker simulates: one job transferred to one kind of host, with several core counts.

    ``confidence``: how sure the cores needed are to meet the target. ``searched``: whether they are looked for as
    `coresim.advise.recommend` does, among all settings and with long runs; else to first order, with short ones.
    """

    workload: str
    scenario: Scenario
    transferred: Transferred
    options: tuple[Option, ...]
    cores: tuple[Cores, ...]
    plan: Plan
    engine: str
    confidence: float = CONFIDENCE
    searched: bool = False


def run_task(task: Task) -> dict[tuple[Cores, Option], Outcome]:
    """The outcome of each core count and option of a task."""
    # In the worker, which may be another process on another machine.
    study = Study(engine_named(task.engine), task.plan)
    scenario = task.transferred.scenario(task.scenario)
    found = {}
    for option in task.options:
        likely, sure = _searched(task, option) if task.searched else _needed(scenario, option, task.confidence, study)
        for cores in task.cores:
            room = cores.had or cores.most or math.inf
            surely = sure is not None and sure.cores <= room
            outcome = _outcome(scenario, option, cores, sure if surely else likely, study, task.searched)
            share = task.confidence if surely else None if likely is None else LIKELY
            found[cores, option] = replace(outcome, confidence=share)
    return found


def _searched(task: Task, option: Option) -> tuple[Point | None, Point | None]:
    """The settings that `coresim.advise.recommend` finds for the job on that host."""
    scenario = task.transferred.scenario(task.scenario, condense=False)
    study = Study(engine_named(task.engine), Plan(level=task.plan.level, seed=task.plan.seed))
    answer = decide(scenario, study, (option,), confidence=task.confidence).options[0]
    return answer.answer, answer.sure


def _needed(scenario: Scenario, option: Option, confidence: float, study: Study) -> tuple[Point | None, Point | None]:
    """The settings with the fewest cores that meet the target as likely as not, and with ``confidence``.

    The second is a first-order estimate. Near the first, what binds is a product (`coresim.advise.starved`), so inputs
    that are worse by their share of its uncertainty act like a step that is shorter by as much. The second meets the
    target with that step.
    """
    likely = minimum_cores(scenario, option, study.rough, predicted)
    if likely is None:
        return None, None
    spread = uncertainty(pipeline_of(likely.at(scenario)))
    shorter = math.exp(-stats.normal_quantile(confidence) * spread)
    if shorter == 1.0:
        return likely, likely
    sure = minimum_cores(with_services(scenario, shorter, "step"), option, study.rough, predicted)
    return likely, sure if sure is None or sure.cores > likely.cores else likely


def _outcome(
    scenario: Scenario, option: Option, cores: Cores, needed: Point | None, study: Study, searched: bool
) -> Outcome:
    used = float(needed.cores if needed else useful_cores(scenario))
    had = cores.had or min(used, cores.most or math.inf)
    if needed and had >= needed.cores:
        # In runs that are long enough for an interval.
        whole = needed if searched else replace(needed, estimate=predicted(needed.at(scenario), study))
        point, provenance = whole, SEARCHED if searched else SIMULATED
    else:
        point, provenance = short_of_cores(scenario, option, min(had, used), study)
    estimate = point.estimate
    return Outcome(
        needed.cores if needed else None,
        had,
        point.workers,
        point.prefetch_factor,
        estimate.gpu_idle,
        estimate.gpu_idle_low,
        estimate.gpu_idle_high,
        estimate.throughput_samples_per_s,
        provenance,
    )
