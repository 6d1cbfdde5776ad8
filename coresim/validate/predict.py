"""Predictions for a trial: by the simulation, and by the field's two simple models.

Everything rests on the scenario that `coresim recommend` would take from the same measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from coresim import stats
from coresim.measure.subject import Layout
from coresim.model.build import build
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Accelerator, Scenario, read_scenario, with_services
from coresim.model.service import ZERO, Service, empirical
from coresim.sim.draws import Draws, draw, perturb_speed
from coresim.sim.estimate import LEAST_ROWS, Engine
from coresim.sim.noise import model_half
from coresim.sim.run import Run, RunLength
from coresim.theory.queues import buffer_idle, rate_idle
from coresim.validate.grid import Setting
from coresim.validate.training import StepCost

LEVEL = 0.8
NOMINAL, PERTURBED, SEED = 8, 40, 1
#: Steps of a trial: enough to last about this long, within bounds.
LEAST_STEPS, MOST_STEPS = 12, 500
#: A trial is up to so many times as long where chance alone would change its idle by more than this standard deviation,
#: a share: then two trials differ by more than the model is held to.
LONGEST, MOST_CHANCE = 12.0, 0.0125
ENDLESS = 1e12
#: CPU times of a scenario: they change with the machine's speed.
WORK = ("preprocess", "collate", "send", "consumer", "pin", "pages")


@dataclass(frozen=True)
class Costs:
    """What a job's calibration found, as predictions take it.

    Attributes:
        tables: the scenario tables of the profile.
        sampled: share of each CPU that sampling the machine's speed takes, of a trial too.
        training: what a step of the model in training costs; None: the accelerator is emulated.
        slower: how many times as much CPU time work takes as in the calibration.
        spread: relative standard uncertainty of the machine's speed in the calibration.
        drift: ``spread`` over the speed's own spread in the calibration; ledgers without it took 2.
        barriers: pairs of a number of ranks and the CPU seconds of each of them for the barrier of one step.
    """

    tables: Mapping[str, Any]
    sampled: float = 0.0
    training: StepCost | None = None
    slower: float = 1.0
    spread: float = 0.0
    drift: float = 2.0
    barriers: tuple[tuple[int, float], ...] = ()

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario of the calibration, at the machine's speed that ``slower`` gives."""
        # Whatever runs on a CPU lacks the share that sampling takes of it.
        return with_services(read_scenario(dict(self.tables)), self.slower / (1.0 - self.sampled), *WORK)


@dataclass(frozen=True)
class Prediction:
    """GPU idle (a share) with the interval in which one trial should fall, and seconds from step to step.

    The interval may begin below 0, as a trial's idle may be below 0 (`idle_share`).
    """

    idle: float
    low: float
    high: float
    seconds_per_step: float


def rate_period(costs: Costs, setting: Setting) -> float:
    """Seconds per batch that the preparation can do, by rates alone: fetchers, workers, then cores at speed s(k).

    The bottleneck law: no station can do more than its servers allow.
    """
    scenario = costs.scenario
    workload = scenario.workload
    wait = workload.batch_size * workload.fetch.mean * setting.straggler
    work = workload.batch_size * workload.preprocess.mean + workload.collate.mean
    if setting.option == Option.NO_OVERLAP:
        return wait + work
    busy, speeds = setting.busy, scenario.host.speed
    speed = speeds[min(busy, len(speeds)) - 1]
    if setting.option == Option.STAGED:
        return max(wait / Layout.fetchers, work / busy / speed)
    work += workload.send.mean
    return max((wait + work) / setting.workers, setting.ranks * work / busy / speed)


def step_time(costs: Costs, setting: Setting) -> float:
    """Seconds per step at which preparation rate / ingestion rate is the setting's ``ratio``, or its own."""
    if costs.training is not None:
        return stats.mean(costs.training.step)
    if setting.step_s:
        return setting.step_s
    return setting.ratio * rate_period(costs, replace(setting, workers=setting.at or setting.workers))


def trial_length(costs: Costs, setting: Setting, seconds: float) -> RunLength:
    """Warm-up until the empty start is forgotten, then whole rounds of all workers for about ``seconds``."""
    step, prepare = step_time(costs, setting), rate_period(costs, setting)
    period = step + prepare if setting.option == Option.NO_OVERLAP else max(step, prepare)
    cycle = max(1, setting.workers)
    wanted = min(MOST_STEPS, max(LEAST_STEPS, seconds / period))
    warm_up = 2 * cycle * setting.prefetch_factor + 2
    return RunLength(warm_up + cycle * round(wanted / cycle), warm_up)


def trial_scenario(costs: Costs, setting: Setting) -> Scenario:
    """The scenario of a trial."""
    scenario = costs.scenario
    loader = replace(
        scenario.loader,
        ordered=setting.ordered,
        prefetch_factor=setting.prefetch_factor,
        fetchers=Layout.fetchers,
        pin_memory=setting.pin_memory,
    )
    # A trial is one endless epoch that starts with a warm-up.
    workload = replace(scenario.workload, samples_per_epoch=None, startup=0.0, worker_startup=0.0, worker_wait=0.0)
    host = scenario.host
    if setting.limit == "quota":  # its processes may run on all cores
        host = replace(host, machine_cores=host.cores)
    scenario = replace(scenario, loader=loader, workload=workload, host=host)
    if costs.training is not None:
        return _in_training(scenario, costs, costs.training, setting)
    # Each rank passes the barrier when its step begins, so that is simulated as a launch, which waits for turns, too.
    barrier = dict(costs.barriers).get(setting.ranks, 0.0) * costs.slower / (1.0 - costs.sampled)
    step = Service(step_time(costs, setting))
    device = Accelerator(
        step=step, launch=Service(barrier, uncertainty=costs.spread), sync=setting.sync, count=setting.ranks
    )
    return replace(scenario, accelerator=device)


def _in_training(scenario: Scenario, costs: Costs, step: StepCost, setting: Setting) -> Scenario:
    """Real training: the device's own step, launch and copies.

    A launch is work of the trainer's CPU, and takes longer on a slower machine. On an emulated device it is a declared
    CPU time, however fast the machine is.
    """
    launch = empirical(step.launch)
    if not setting.is_emulated:
        launch = launch.scaled(costs.slower, costs.spread)
    pinned = scenario.loader.pin_memory and bool(step.copy_pinned)
    copy = step.copy_pinned if pinned else step.copy
    device = Accelerator(
        step=empirical(step.step),
        launch=launch.scaled(1.0 / (1.0 - costs.sampled)),
        lead=step.lead,
        run_ahead=setting.run_ahead,
        sync=step.sync,
        slowdown=step.slowdown,
    )
    workload = replace(scenario.workload, copy=empirical(copy) if copy else ZERO)
    loader = replace(scenario.loader, copy_mode="stream" if pinned else "sync")
    return replace(scenario, workload=workload, accelerator=device, loader=loader)


def long_enough(costs: Costs, setting: Setting, length: RunLength, engine: Engine) -> RunLength:
    """The length of a trial, or a longer one where samples differ so much that a trial of that length is mostly chance.

    The variance of a trial's idle falls in proportion to its steps.
    """
    by_chance = chance(costs, setting, length, engine) / MOST_CHANCE
    steps, cycle = length.steps - length.warm_up, max(1, setting.workers)
    wanted = steps * min(LONGEST, max(1.0, by_chance**2))
    return replace(length, steps=length.warm_up + steps + cycle * round((wanted - steps) / cycle))


def chance(costs: Costs, setting: Setting, length: RunLength, engine: Engine) -> float:
    """Standard deviation of a trial's idle, a share, if all costs are as the calibration says: samples differ."""
    pipeline = trial_pipeline(trial_scenario(costs, setting), setting)
    runs = runs_of(pipeline, length, engine, setting.straggler)
    return math.sqrt(stats.variance(trial_idles(runs, step_time(costs, setting), length)))


def idle_share(step_s: float, seconds_per_step: float) -> float:
    """GPU idle: the share of the time from step to step that a step alone does not need.

    1 - AU, with the accelerator utilisation of MLPerf Storage: compute time over run time, where compute time is that
    of as many steps without a loader (https://github.com/mlcommons/storage). A step that the loader or a crowded host
    keeps waiting for its launches is longer by the device's events, and no more is computed meanwhile. Below 0 where
    steps took less time than ``step_s``.
    """
    return 1.0 - step_s / seconds_per_step


def trial_idles(runs: Sequence[Run], step_s: float, length: RunLength) -> list[float]:
    """`idle_share` of each run."""
    return [idle_share(step_s, _period([run], length)) for run in runs]


def predict(costs: Costs, setting: Setting, length: RunLength, engine: Engine) -> Prediction:
    """The simulation's prediction for trials of that length.

    The interval at level `LEVEL` holds one trial: each of the simulated ones is as long as the real one and draws its
    own inputs within their uncertainty, so the noise of a short run is in it too. So is what the model itself misses.
    """
    pipeline = trial_pipeline(trial_scenario(costs, setting), setting)
    runs, step_s = runs_of(pipeline, length, engine, setting.straggler), step_time(costs, setting)
    idles = trial_idles(runs_of(pipeline, length, engine, setting.straggler, PERTURBED), step_s, length)
    low, high = (stats.quantile(idles, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    idle, model = stats.mean(trial_idles(runs, step_s, length)), model_half(LEVEL)
    low, high = idle - math.hypot(max(0.0, idle - low), model), idle + math.hypot(max(0.0, high - idle), model)
    return Prediction(idle, low, min(1.0, high), _period(runs, length))


def by_rates(costs: Costs, setting: Setting) -> float:
    """Idle by min(F, P, G); F is without limit here, because fetching is part of the workers' time."""
    return rate_idle(ENDLESS, 1.0 / rate_period(costs, setting), 1.0 / step_time(costs, setting))


def by_buffer(costs: Costs, setting: Setting) -> float:
    """Idle by M/M/1/K, as tf.data's autotuner has it, with all credits as the buffer."""
    room = max(1, setting.workers * setting.prefetch_factor)
    return buffer_idle(1.0 / rate_period(costs, setting), 1.0 / step_time(costs, setting), room)


def trial_pipeline(scenario: Scenario, setting: Setting) -> Pipeline:
    """The line of a trial."""
    return build(scenario, setting.option, setting.cores, max(1, setting.workers), setting.prefetch_factor)


def runs_of(pipeline: Pipeline, length: RunLength, engine: Engine, straggler: float, inputs: int = 0) -> list[Run]:
    """`NOMINAL` runs with the costs as they are, or so many with ``inputs`` drawn within their uncertainty."""
    # Where one rank has times of its own, batches are drawn for each of them, as many as it may be dealt.
    rows = max(LEAST_ROWS, length.steps + (pipeline.credits or 0) if straggler > 1.0 else length.steps)
    found = []
    for number in range(inputs or NOMINAL):
        drawn = draw(pipeline, rows, SEED, number, inputs=inputs)
        line = perturb_speed(pipeline, SEED, number, inputs) if inputs else pipeline
        found.append(engine(line, straggling(pipeline, drawn, rows, straggler), length))
    return found


def straggling(pipeline: Pipeline, draws: Draws, rows: int, factor: float) -> Draws:
    """The draws with the reads of rank 0 ``factor`` times as long, in its first ``rows`` batches.

    Each rank reads the times of a phase from a place of its own (`Draws.row`), so the first of as many equal parts as
    there are ranks is rank 0's alone.
    """
    if factor == 1.0:
        return draws
    ranks, service_times = pipeline.total_ranks, dict(draws.service_times)
    for key, phase, grain in pipeline.phases():
        if phase.name == "fetch":
            count = rows * pipeline.items(grain)
            drawn_times = np.resize(service_times[key], (count * ranks, service_times[key].shape[1]))
            drawn_times[:count] *= factor
            service_times[key] = drawn_times
    return Draws(MappingProxyType(service_times))


def _period(runs: Sequence[Run], length: RunLength) -> float:
    spans = [float(rank.end - rank.begin) for run in runs for rank in run.ranks]
    return stats.mean(spans) / (length.steps - length.warm_up)
