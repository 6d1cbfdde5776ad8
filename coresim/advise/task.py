"""One task of a fleet plan: one job transferred to one kind of host, with several core counts.

A task is a picklable value and `run_task` a plain function, so that any executor runs it, here or on another machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from coresim.advise.need import cores_needed, useful_cores
from coresim.advise.starved import SIMULATED, predicted, short_of_cores
from coresim.advise.sweep import Point, Study
from coresim.advise.transfer import Transferred
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.sim.engines import engine_named
from coresim.sim.estimate import Estimate, Plan

#: Short runs: a fleet asks which machine, and inputs that were transferred there widen the interval far more.
FLEET_PLAN = Plan(steps=120, least=2, most=2, inputs=4)


@dataclass(frozen=True)
class Outcome:
    """One option of one pair, as simulated; cores and workers per GPU, throughput of the whole host in samples/s.

    The job uses ``cores_needed`` of the cores that there are (the rest is for others), or all where they are fewer or
    where no core count meets the target: then ``cores_needed`` is None. ``basis``: what the interval rests on,
    `SIMULATED` or `coresim.advise.starved.BOUNDED`.
    """

    cores_needed: int | None
    cores_had: float
    workers: int
    prefetch_factor: int
    gpu_idle: float
    gpu_idle_low: float
    gpu_idle_high: float
    throughput: float
    basis: str = SIMULATED


@dataclass(frozen=True)
class Cores:
    """The cores per GPU that a candidate has or may be asked for; see `coresim.model.fleet.Candidate`."""

    had: float | None
    most: float | None


@dataclass(frozen=True)
class Task:
    """What a worker simulates: one job transferred to one kind of host, with several core counts."""

    workload: str
    scenario: Scenario
    transferred: Transferred
    options: tuple[Option, ...]
    cores: tuple[Cores, ...]
    plan: Plan
    engine: str


def run_task(task: Task) -> dict[tuple[Cores, Option], Outcome]:
    """The outcome of each core count and option of a task."""
    # In the worker, which may be another process on another machine.
    study = Study(engine_named(task.engine), task.plan)
    scenario = task.transferred.scenario(task.scenario)
    found = {}
    for option in task.options:
        needed = cores_needed(scenario, option, replace(study, plan=study.rough), predicted)
        for cores in task.cores:
            found[cores, option] = _outcome(scenario, option, cores, needed, study)
    return found


def _outcome(scenario: Scenario, option: Option, cores: Cores, needed: Point | None, study: Study) -> Outcome:
    used = float(needed.cores if needed else useful_cores(scenario))
    had = cores.had or min(used, cores.most or math.inf)
    if needed and had >= needed.cores:
        point, basis = replace(needed, estimate=_whole(scenario, needed, study)), SIMULATED
    else:
        point, basis = short_of_cores(scenario, option, min(had, used), study)
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
        basis,
    )


def _whole(scenario: Scenario, point: Point, study: Study) -> Estimate:
    return predicted(scenario, point.option, point.cores, point.workers, point.prefetch_factor, study)
