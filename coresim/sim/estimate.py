"""From runs to an answer: replications, the interval of GPU idle, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coresim import stats
from coresim.errors import InputError
from coresim.model.pipeline import Pipeline
from coresim.sim.draws import Draws, draw, perturb_speed
from coresim.sim.run import Run, RunLength

Engine = Callable[[Pipeline, Draws, RunLength], Run]


@dataclass(frozen=True)
class Plan:
    """How much to simulate.

    Attributes:
        steps: steps per replication and rank, warm-up included.
        least: replications at the least.
        most: replications at the most.
        half_width: the simulation's half-width of GPU idle at which to stop, between the two.
        level: confidence level of the interval.
        seed: of the whole study.
        rows: service times drawn per replication, instead of one for each step; a shorter run then sees the
            beginning of the same tape.
    """

    steps: int = 400
    least: int = 8
    most: int = 32
    half_width: float = 0.005
    level: float = 0.95
    seed: int = 1
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 10:
            raise InputError(f"steps = {self.steps}: at least 10 are needed to tell a steady state from its start")


@dataclass(frozen=True)
class Estimate:
    """Predicted behaviour of one setting. Shares are of the window after warm-up; times in seconds.

    Attributes:
        gpu_idle: share of wall time in which the accelerator does no step's work, over all ranks.
        gpu_idle_low, gpu_idle_high: its interval at ``level``: simulation noise and uncertain inputs together.
        simulation_half_width: the part of the half-width that more simulation would remove.
        input_half_width: the part that only better measurements would remove.
        throughput_samples_per_s: over all ranks.
        makespan_s: time of a whole run of ``steps`` steps from its start, mean over replications.
        data_stall_s: time in which the accelerator is starved in such a run: the window's rate times the makespan.
        accelerator, starved_by, trainer: shares of the window by state.
        stations: per stage its name, servers, utilisation, waiting_for_core, blocked, starved.
        busy_cores: mean number of busy cores on a host.
    """

    gpu_idle: float
    gpu_idle_low: float
    gpu_idle_high: float
    level: float
    simulation_half_width: float
    input_half_width: float
    throughput_samples_per_s: float
    makespan_s: float
    data_stall_s: float
    accelerator: Mapping[str, float]
    starved_by: Mapping[str, float]
    trainer: Mapping[str, float]
    stations: tuple[Mapping[str, Any], ...]
    busy_cores: float
    steps: int
    warm_up: int
    replications: int

    @property
    def accelerator_utilisation(self) -> float:
        """Step-busy share of wall time (AU)."""
        return 1.0 - self.gpu_idle

    def probability(self, target: float) -> float:
        """Probability that GPU idle is at most ``target``, the interval read as a normal distribution."""
        half = math.hypot(self.simulation_half_width, self.input_half_width)
        if half == 0.0:
            return 1.0 if self.gpu_idle <= target else 0.0
        deviation = half / stats.normal_quantile(0.5 + self.level / 2)
        return stats.normal_probability((target - self.gpu_idle) / deviation)


def warm_up_steps(pipeline: Pipeline, steps: int) -> int:
    """Steps to discard: two fillings of the line, and at least a tenth of the run, but never more than half.

    The line is full after as many steps as batches fit in it; twice that forgets the start.
    """
    held = pipeline.credits or sum(stage.servers + (stage.buffer or 0) for stage in pipeline.stages)
    return min(max(2 * held, math.ceil(steps / 10)), steps // 2)


def is_uncertain(pipeline: Pipeline) -> bool:
    """Whether any input is measured and so uncertain itself."""
    services = [phase.service for _, phase, _ in pipeline.phases()]
    measured = any(service.uncertainty or service.distribution == "values" for service in services)
    return measured or pipeline.speed_uncertainty > 0


def estimate(pipeline: Pipeline, plan: Plan, engine: Engine, cache: dict[Any, Any] | None = None) -> Estimate:
    """Predict the behaviour of a pipeline by independent replications.

    Each replication draws its own service times and, where inputs are uncertain, its own inputs (bootstrap).
    Replications go on until simulation noise is within the plan's half-width. The interval combines
    ``t s / sqrt(R)`` (noise of the mean over R replications) and ``z s_input`` (spread that stays however long one
    simulates): s_input^2 is the variance between replications less the part that batch means within them explain.
    """
    length = RunLength(plan.steps, warm_up_steps(pipeline, plan.steps), _blocks(pipeline, plan))
    uncertain = is_uncertain(pipeline)
    runs: list[Run] = []
    while len(runs) < plan.least or (len(runs) < plan.most and _noise(runs, plan)[0] > plan.half_width):
        replication = len(runs)
        draws = draw(pipeline, plan.rows or plan.steps, plan.seed, replication, uncertain, cache)
        runs.append(engine(perturb_speed(pipeline, plan.seed, replication) if uncertain else pipeline, draws, length))
    return _summary(pipeline, plan, length, runs, uncertain)


def _blocks(pipeline: Pipeline, plan: Plan) -> int:
    return max(1, min(10, (plan.steps - warm_up_steps(pipeline, plan.steps)) // 5))


def idle_of(run: Run) -> float:
    """GPU idle of one run, over its ranks."""
    busy = math.fsum(rank.accelerator["busy"] for rank in run.ranks)
    return 1.0 - busy / _duration(run)


def _duration(run: Run) -> float:
    total = math.fsum(rank.end - rank.begin for rank in run.ranks)
    if total <= 0.0:
        raise InputError("the simulated steps take no time: every time in the scenario is zero")
    return total


def _noise(runs: Sequence[Run], plan: Plan) -> tuple[float, float]:
    """Half-widths of the mean idle: of the simulation's noise, and of the inputs' spread."""
    idles = [idle_of(run) for run in runs]
    if len(runs) < 2:
        return 0.0, 0.0
    between = stats.variance(idles)
    within = min(between, stats.mean([_within(run) for run in runs]))
    simulation = stats.t_quantile(0.5 + plan.level / 2, len(runs) - 1) * math.sqrt(between / len(runs))
    return simulation, stats.normal_quantile(0.5 + plan.level / 2) * math.sqrt(max(0.0, between - within))


def _within(run: Run) -> float:
    """Variance of a run's idle as its batch means tell it (mean over ranks: shared steps make ranks alike)."""
    variances = []
    for rank in run.ranks:
        ends = (rank.begin, *rank.block_ends)
        lengths = [end - begin for begin, end in pairwise(ends)]
        idles = [1.0 - busy / length for busy, length in zip(rank.block_busy, lengths, strict=True) if length > 0]
        variances.append(stats.variance(idles) / max(1, len(idles)))
    return stats.mean(variances)


def _summary(pipeline: Pipeline, plan: Plan, length: RunLength, runs: list[Run], uncertain: bool) -> Estimate:
    simulation, inputs = _noise(runs, plan)
    inputs = inputs if uncertain else 0.0
    half = math.hypot(simulation, inputs)
    idle = stats.mean([idle_of(run) for run in runs])
    samples = (length.steps - length.warm_up) * pipeline.batch_size
    makespan = stats.mean([float(run.makespan) for run in runs])
    accelerator = _shares(runs, lambda rank: rank.accelerator)
    return Estimate(
        gpu_idle=_clip(idle),
        gpu_idle_low=_clip(idle - half),
        gpu_idle_high=_clip(idle + half),
        level=plan.level,
        simulation_half_width=simulation,
        input_half_width=inputs,
        throughput_samples_per_s=stats.mean([_throughput(run, samples) for run in runs]),
        makespan_s=makespan,
        data_stall_s=accelerator["starved"] * makespan,
        accelerator=accelerator,
        starved_by=_shares(runs, lambda rank: rank.starved_by),
        trainer=_shares(runs, lambda rank: rank.trainer),
        stations=tuple(_station(pipeline, runs, index) for index in range(len(pipeline.stages))),
        busy_cores=stats.mean([float(cores) for run in runs for cores in run.busy_cores]),
        steps=length.steps,
        warm_up=length.warm_up,
        replications=len(runs),
    )


def _throughput(run: Run, samples: int) -> float:
    return math.fsum(samples / (rank.end - rank.begin) for rank in run.ranks)


def _clip(share: float) -> float:
    return min(1.0, max(0.0, float(share)))


def _shares(runs: Sequence[Run], table: Callable[[Any], Mapping[str, Any]]) -> dict[str, float]:
    total = math.fsum(_duration(run) for run in runs)
    names: Iterable[str] = table(runs[0].ranks[0])
    return {name: math.fsum(table(rank)[name] for run in runs for rank in run.ranks) / total for name in names}


def _station(pipeline: Pipeline, runs: Sequence[Run], index: int) -> dict[str, Any]:
    stage = pipeline.stages[index]
    parts = [rank.stations[index].fractions(rank.end - rank.begin) for run in runs for rank in run.ranks]
    shares = {name: stats.mean([float(part[name]) for part in parts]) for name in parts[0]}
    return {"name": stage.name, "servers": stage.servers, **shares}
