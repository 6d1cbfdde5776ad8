"""Short runs of a fleet plan, and settings that stay far from the target: too few cores, or no overlap.

Far from the target one thing is busy all the time, and a simulation comes out within a few points of its bound
(`coresim.theory.bounds`): two short runs say how many. What uncertain inputs do to it needs no simulation.

* *Too few cores.* R GPUs share F CPU seconds per second, and a batch takes D: 1 - idle = g F / (R D) is a product of
  the step's time g, F and one over a sum of times D_i.
* *No overlap.* One process does all: idle / (1 - idle) = D / g, with D all that it does besides the step.

With relative standard uncertainties u (of logarithms) the product's is sqrt(u_g^2 + u_F^2 + sum (u_i D_i / D)^2), to
first order in the shares D_i / D; z times that moves its logarithm to both ends of the interval.
"""

from __future__ import annotations

import math
from dataclasses import replace

from coresim import stats
from coresim.advise.candidates import LoaderCandidate, ladder, widest
from coresim.advise.sweep import FEW, NOISE, Point, Study, best_point, bound_of, lowest_idle, pipeline_of, predict
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Estimate, Plan, run_length
from coresim.theory.bounds import demands, tightest

#: What the interval of an outcome rests on.
SIMULATED, BOUNDED = "simulated", "simulated; what uncertain inputs add, by the bound"
SEARCHED = "simulated; all settings searched"
#: Idle beyond the target, by the bounds alone, from which on a setting is far from it.
FAR = 0.1
#: Of a run, however many GPUs share it.
LEAST_STEPS = 48


def predicted(
    scenario: Scenario, option: Option, cores: float, workers: int, prefetch_factor: int, study: Study
) -> Estimate:
    """One setting, all GPUs of the host together simulated for as many steps as one alone (see `brief`)."""
    shorter = brief(study.plan, pipeline_of(scenario, option, cores, workers, prefetch_factor))
    return predict(scenario, option, cores, workers, prefetch_factor, replace(study, plan=shorter))


def brief(plan: Plan, pipeline: Pipeline) -> Plan:
    """The plan with the steps of a window shared by the host's GPUs, each of which gives as much to the mean.

    The line is filled as before where the window is as long as that; at the least it is filled once (a run that may not
    grow discards half of its steps at the most, `coresim.sim.estimate.run_length`).
    """
    length = run_length(pipeline, plan)
    window = math.ceil((length.steps - length.warm_up) / pipeline.ranks)
    steps = max(LEAST_STEPS, length.warm_up + max(window, length.warm_up // 2))
    return replace(plan, steps=min(length.steps, steps), grow=False)


def short_of_cores(scenario: Scenario, option: Option, cores: float, study: Study) -> tuple[Point, str]:
    """The setting for a host whose cores do not reach the target, and the basis of its interval."""
    # Without overlap one core for each GPU does all, or as many as a batch is split for.
    if option == Option.NO_OVERLAP:
        cores = min(cores, float(scenario.loader.split))
    what = ("short of cores", scenario, option, cores, study.plan)
    if what not in study.cache:
        study.cache[what] = _short_of_cores(scenario, option, cores, study)
    found: tuple[Point, str] = study.cache[what]
    return found


def _short_of_cores(scenario: Scenario, option: Option, cores: float, study: Study) -> tuple[Point, str]:
    # The most workers and credits have the loosest bound, so what it says of them it says of all.
    most = widest(scenario, option, cores)
    name = tightest(_line(scenario, option, cores, most))[0]
    # Without overlap the cores' own bound says the same as the serial trainer's.
    known = option == Option.NO_OVERLAP or name.startswith("cores")
    if lowest_idle(scenario, option, cores) <= scenario.target.gpu_idle + FAR or not known:
        return best_point(scenario, option, cores, study), SIMULATED
    # The least memory that can keep every core busy, and one more worker for when they wait for each other.
    tried = ladder(scenario, option, cores)
    idles = [bound_of(_line(scenario, option, cores, one)) for one in tried]
    enough = next(one for one, idle in zip(tried, idles, strict=True) if idle <= min(idles) + NOISE)
    one = next((found for found in tried if found > enough and found.workers > enough.workers), enough)
    # There a single run has little noise; where these say that they are too few, there are more.
    brief_study = replace(study, plan=replace(study.plan, least=min(FEW, study.plan.least), inputs=0))
    found = predicted(scenario, option, cores, one.workers, one.prefetch_factor, brief_study)
    found = with_interval(found, _line(scenario, option, cores, one), study.plan)
    return Point(option, math.ceil(cores), one.workers, one.prefetch_factor, found), BOUNDED


def _line(scenario: Scenario, option: Option, cores: float, one: LoaderCandidate) -> Pipeline:
    return pipeline_of(scenario, option, cores, max(1, one.workers), one.prefetch_factor)


def with_interval(found: Estimate, pipeline: Pipeline, plan: Plan) -> Estimate:
    """The estimate of a pipeline that is far from its target, with what its uncertain inputs add."""
    moved = math.exp(stats.normal_quantile(0.5 + plan.level / 2) * uncertainty(pipeline))
    idle, busy = found.gpu_idle, 1.0 - found.gpu_idle
    if pipeline.trainer.inline:
        low, high = idle / (idle + busy * moved), idle / (idle + busy / moved)
    else:
        low, high = max(0.0, 1.0 - busy * moved), 1.0 - busy / moved
    return replace(
        found,
        gpu_idle_low=max(0.0, idle - math.hypot(found.simulation_half_low, idle - low)),
        gpu_idle_high=min(1.0, idle + math.hypot(found.simulation_half_high, high - idle)),
        input_half_low=idle - low,
        input_half_high=high - idle,
    )


def uncertainty(pipeline: Pipeline) -> float:
    """Relative standard uncertainty of what is busy all the time, beside the step (see above)."""
    mine = ("cores", "storage", "wait") if pipeline.trainer.inline else ("cores",)
    costs = {row.name: row.seconds for row in demands(pipeline) if row.resource in mine}
    known = {key: phase.service.uncertainty for key, phase, _ in pipeline.phases()}
    shares = [cost / sum(costs.values()) * known[name] for name, cost in costs.items()]
    return math.hypot(pipeline.step.service.uncertainty, pipeline.speed_uncertainty, *shares)
