"""Short runs of a fleet plan, and settings that stay far from the target: too few cores, slow reads, or no overlap.

Far from the target one thing is busy all the time, and a simulation is within a few points of its bound
(`coresim.theory.bounds`): two short runs show by how many. The effect of uncertain inputs needs no simulation.

* *Too few cores.* R GPUs share F CPU seconds per second, and a batch takes D: 1 - idle = g F / (R D) is a product of
  the step's time g, F and one over a sum of times D_i.
* *Slow reads.* The storage, or a stage that only waits, is busy all the time: as with cores, D its own time, F fixed.
* *No overlap.* One process does all: idle / (1 - idle) = D / g, with D all that it does besides the step.

With relative standard uncertainties u (of logarithms) the product's is sqrt(u_g^2 + u_F^2 + sum (u_i D_i / D)^2), to
first order in the shares D_i / D; z times that moves its logarithm to both ends of the interval.
"""

from __future__ import annotations

import math
from dataclasses import replace

from coresim import stats
from coresim.advise.candidates import JobSetting, ladder, widest
from coresim.advise.sweep import FEW, Point, Study, best_point, bound_of, lowest_idle, pipeline_of, predict
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Estimate, Plan, run_length
from coresim.sim.noise import NOISE
from coresim.theory.bounds import Demand, binding, bounds, demands

#: What the interval of an outcome rests on.
SIMULATED, BOUNDED = "simulated", "simulated; what uncertain inputs add, by the bound"
SEARCHED = "simulated; all settings searched"
#: Idle beyond the target, by the bounds alone, from which on a setting is far from it.
FAR = 0.1
#: Of a run, however many GPUs share it.
LEAST_STEPS = 48


def predicted(setting: JobSetting, study: Study) -> Estimate:
    """One setting, all GPUs of the host together simulated for as many steps as one alone (see `brief`)."""
    return predict(setting, replace(study, plan=brief(study.plan, pipeline_of(setting))))


def brief(plan: Plan, pipeline: Pipeline) -> Plan:
    """The plan with the steps of a window shared by the host's GPUs, each of which counts equally in the mean.

    The line is filled as before where the window is as long as that; at the least it is filled once (a run that may not
    grow discards half of its steps at the most, `coresim.sim.estimate.run_length`).
    """
    length = run_length(pipeline, plan)
    window = math.ceil((length.steps - length.warm_up) / pipeline.ranks)
    steps = max(LEAST_STEPS, length.warm_up + max(window, length.warm_up // 2))
    return replace(plan, steps=min(length.steps, steps), grow=False)


def short_of_cores(scenario: Scenario, option: Option, cores: float, study: Study) -> tuple[Point, str]:
    """The setting for a host whose cores do not reach the target, and the provenance of its interval."""
    # Without overlap one core for each GPU does all, or as many as a batch is split for.
    if option == Option.NO_OVERLAP:
        cores = min(cores, float(scenario.loader.split))
    what = ("short of cores", scenario, option, cores, study.plan)
    if what not in study.cache:
        study.cache[what] = _short_of_cores(scenario, option, cores, study)
    found: tuple[Point, str] = study.cache[what]
    return found


def short_of_reads(scenario: Scenario, option: Option, cores: float) -> bool:
    """Whether with so many cores every setting stays far from the target because reads are slow."""
    busy = _far(scenario, option, cores)
    return bool(busy) and all(row.resource != "cores" for row in busy)


def _far(scenario: Scenario, option: Option, cores: float) -> list[Demand]:
    """What keeps every setting far from the target; nothing: none is, or that is not known."""
    if lowest_idle(scenario, option, cores) <= scenario.target.gpu_idle + FAR:
        return []
    # The most workers and credits have the loosest bound, so what it says of them it says of all.
    return _busy(pipeline_of(widest(scenario, option, cores)))


def _short_of_cores(scenario: Scenario, option: Option, cores: float, study: Study) -> tuple[Point, str]:
    if not _far(scenario, option, cores):
        return best_point(scenario, option, cores, study), SIMULATED
    # The least memory that can keep every core busy, and one more worker for when they wait for each other.
    tried = ladder(scenario, option, cores)
    idles = [bound_of(pipeline_of(one)) for one in tried]
    enough = next(one for one, idle in zip(tried, idles, strict=True) if idle <= min(idles) + NOISE)
    one = next((found for found in tried if found > enough and found.workers > enough.workers), enough)
    # There a single run has little noise; where these say that they are too few, there are more.
    found = predicted(one, study.planned(least=min(FEW, study.plan.least), inputs=0))
    return Point.of(one, with_interval(found, pipeline_of(one), study.plan)), BOUNDED


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
        gpu_idle_low=max(0.0, idle - math.hypot(found.simulation_half_low, idle - low, found.model_half)),
        gpu_idle_high=min(1.0, idle + math.hypot(found.simulation_half_high, high - idle, found.model_half)),
        input_half_low=idle - low,
        input_half_high=high - idle,
    )


def uncertainty(pipeline: Pipeline) -> float:
    """Relative standard uncertainty of what is busy all the time, beside the step (see above): of cores by default."""
    busy = _busy(pipeline) or [row for row in demands(pipeline) if row.resource == "cores"]
    known = {key: phase.service.uncertainty for key, phase, _ in pipeline.phases()}
    total = sum(row.seconds for row in busy)
    shares = [row.seconds / total * known[row.name] for row in busy]
    speed = pipeline.speed_uncertainty if any(row.resource == "cores" for row in busy) else 0.0
    return math.hypot(pipeline.step.service.uncertainty, speed, *shares)


def _busy(pipeline: Pipeline) -> list[Demand]:
    """What one batch needs of that which is busy all the time, by the tightest bound; nothing: that is not known."""
    rows, name = demands(pipeline), binding(bounds(pipeline)).name
    # Without overlap the cores' own bound says the same as the serial trainer's.
    if pipeline.trainer.inline:
        return [row for row in rows if row.resource in ("cores", "storage", "wait")]
    if name.startswith("cores"):
        return [row for row in rows if row.resource == "cores"]
    if name == "storage":
        return [row for row in rows if row.resource == "storage"]
    stages = [stage for stage in pipeline.stages if name == f"servers of {stage.name}"]
    mine = [row for row in rows if any(row.name.startswith(f"{stage.name}.") for stage in stages)]
    # Servers that share cores are slowed by one another, and more of them may do more.
    return [] if any(row.resource == "cores" for row in mine) else mine
