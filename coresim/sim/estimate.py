"""From runs to an answer: replications, the interval of GPU idle, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coresim import stats
from coresim.errors import InputError
from coresim.model.pipeline import Pipeline
from coresim.sim.draws import Draws, draw, perturb_speed
from coresim.sim.run import Run, RunLength

#: Cycles of all workers in a window, at the least.
CYCLES = 10
LEAST_ROWS = 512
#: Fewer replications than this are enough only where they agree to this share of the half-width that is wanted: a few
#: can agree by chance.
FEW, AGREEING = 5, 0.25
#: Runs that stop because they agree agree by chance now and then, so that Student's interval holds less than it says:
#: 90 to 94 % of 500 to 1,150 trials in each of 18 cases with a closed form. So much wider it held 93 to 96 %.
SEQUENTIAL = 1.15
#: Noise that is allowed far from the target, as a share of the distance to it.
OF_DISTANCE = 0.05

Engine = Callable[[Pipeline, Draws, RunLength], Run]


@dataclass(frozen=True)
class Plan:
    """How much to simulate.

    Attributes:
        steps: steps per replication and rank, warm-up included.
        grow: whether to run longer where many workers need it (see `run_length`).
        least: replications at the least.
        most: replications at the most.
        inputs: further replications that draw uncertain inputs; 0: the interval leaves those out.
        half_width: the simulation's half-width of GPU idle at which to stop, between the two.
        target: GPU idle that is asked about, if any; far from it a twentieth of the distance is narrow enough.
        level: confidence level of the interval.
        seed: of the whole study.
    """

    steps: int = 400
    grow: bool = True
    least: int = 3
    most: int = 32
    inputs: int = 8
    half_width: float = 0.005
    target: float | None = None
    level: float = 0.95
    seed: int = 1

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
        input_half_low, input_half_high: the parts below and above that only better measurements would remove.
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
    input_half_low: float
    input_half_high: float
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
        """Probability that GPU idle is at most ``target``: each side of the interval read as half a normal curve."""
        inputs = self.input_half_high if target >= self.gpu_idle else self.input_half_low
        half = math.hypot(self.simulation_half_width, inputs)
        if half == 0.0:
            return 1.0 if self.gpu_idle <= target else 0.0
        deviation = half / stats.normal_quantile(0.5 + self.level / 2)
        return stats.normal_probability((target - self.gpu_idle) / deviation)


def run_length(pipeline: Pipeline, plan: Plan) -> RunLength:
    """How long a replication runs, and how much of its start is discarded.

    Warm-up: two fillings of the line (forgets the empty start), at least a tenth of the steps. Workers that start
    together deliver in bursts of one batch each, so the window is a whole number of such cycles: a part of one would
    count a burst's stall without its run, or the other way about. A plan that may grow has at least `CYCLES` of them;
    one that may not discards at most half of its steps.
    """
    held = pipeline.credits or sum(stage.servers + (stage.buffer or 0) for stage in pipeline.stages)
    cycle = pipeline.stages[0].servers if pipeline.stages else 1
    warm_up = max(2 * held, math.ceil(plan.steps / 10))
    if plan.grow:
        cycles = max(CYCLES, math.ceil((plan.steps - warm_up) / cycle))
        return RunLength(warm_up + cycles * cycle, warm_up)
    warm_up = min(warm_up, plan.steps // 2)
    cycles = (plan.steps - warm_up) // cycle
    return RunLength(plan.steps, plan.steps - cycles * cycle if cycles else warm_up)


def is_uncertain(pipeline: Pipeline) -> bool:
    """Whether any input is measured and so uncertain itself."""
    services = [phase.service for _, phase, _ in pipeline.phases()]
    measured = any(service.uncertainty or service.distribution == "values" for service in services)
    return measured or pipeline.speed_uncertainty > 0


def estimate(pipeline: Pipeline, plan: Plan, engine: Engine, cache: dict[Any, Any] | None = None) -> Estimate:
    """Predict the behaviour of a pipeline by independent replications.

    Replications of the inputs as they are go on until simulation noise is within the plan's half-width (Student's t
    over replications, each with its own service times, times `SEQUENTIAL`); their mean is the prediction. Where inputs
    are measured, and so uncertain, further replications draw their inputs too (bootstrap of raw values, means and s(k)
    moved by their uncertainty), half as long where a single run is within the half-width. Their root mean square
    deviations below and above the prediction, without what the draws do, are the spread that stays however long one
    simulates.
    """
    length = run_length(pipeline, plan)
    # Powers of two, so that the points of a sweep share their tapes although their lengths differ.
    rows = max(LEAST_ROWS, 1 << (length.steps - 1).bit_length())
    runs, found = list[Run](), list[float]()
    while not _enough(found, plan):
        runs.append(engine(pipeline, draw(pipeline, rows, plan.seed, len(runs), cache=cache), length))
        found.append(idle_of(runs[-1]))
    moved = [0.0, 0.0]
    if plan.inputs and is_uncertain(pipeline):
        brief = _half(pipeline, length) if _deviation(found, plan) <= plan.half_width else length
        idles = [idle_of(engine(moved_by, draws, brief)) for moved_by, draws in _moved(pipeline, rows, plan, cache)]
        moved = _input_spread(idles, found, plan)
    return _summary(pipeline, plan, length, runs, found, moved)


def _enough(idles: Sequence[float], plan: Plan) -> bool:
    """Whether noise is as narrow as the plan wants it, or there are as many replications as it allows."""
    if not plan.least <= len(idles) < plan.most:
        return len(idles) >= plan.least
    wanted = plan.half_width
    if plan.target is not None:
        # Near an idle of 1 throughput is what a share of the distance must be small beside.
        idle = stats.mean(idles)
        wanted = max(wanted, OF_DISTANCE * min(abs(idle - plan.target), 1.0 - idle))
    return _noise(idles, plan) <= wanted * (AGREEING if len(idles) < FEW else 1.0)


def _moved(pipeline: Pipeline, rows: int, plan: Plan, cache: dict[Any, Any] | None) -> Iterator[tuple[Pipeline, Draws]]:
    """Replications with drawn inputs."""
    for replication in range(plan.inputs):
        draws = draw(pipeline, rows, plan.seed, replication, inputs=plan.inputs, cache=cache)
        yield perturb_speed(pipeline, plan.seed, replication, plan.inputs), draws


def _half(pipeline: Pipeline, length: RunLength) -> RunLength:
    """Half of the window, in whole cycles where it has any."""
    window = length.steps - length.warm_up
    cycle = min(window, pipeline.stages[0].servers if pipeline.stages else 1)
    return RunLength(length.warm_up + cycle * math.ceil(window / cycle / 2), length.warm_up)


def _deviation(idles: Sequence[float], plan: Plan) -> float:
    """How far a single run may be from the mean."""
    return stats.normal_quantile(0.5 + plan.level / 2) * math.sqrt(stats.variance(idles))


def _input_spread(moved: Sequence[float], idles: Sequence[float], plan: Plan) -> list[float]:
    """Half-widths below and above: of a symmetric distribution each side holds half of the squared deviations.

    Each from the run with the same service times, where there are as many: what the draw did is then in both. Else from
    their mean, less the noise of a single run, which is small where few runs were enough.
    """
    z, paired = stats.normal_quantile(0.5 + plan.level / 2), len(idles) >= len(moved)
    centres = idles if paired else [stats.mean(idles)] * len(moved)
    noise = 0.0 if paired else stats.variance(idles)
    halves = []
    for sign in (-1.0, 1.0):
        squares = [max(0.0, sign * (idle - centre)) ** 2 for idle, centre in zip(moved, centres, strict=False)]
        halves.append(z * math.sqrt(max(0.0, 2.0 * stats.mean(squares) - noise)))
    return halves


def idle_of(run: Run) -> float:
    """GPU idle of one run, over its ranks."""
    busy = math.fsum(rank.accelerator["busy"] for rank in run.ranks)
    return 1.0 - busy / _duration(run)


def _duration(run: Run) -> float:
    total = math.fsum(rank.end - rank.begin for rank in run.ranks)
    if total <= 0.0:
        raise InputError("the simulated steps take no time: every time in the scenario is zero")
    return total


def _noise(idles: Sequence[float], plan: Plan) -> float:
    """Half-width of the mean idle over replications, whose number is the plan's or follows from how they agree."""
    if len(idles) < 2:
        return 0.0
    student = stats.t_quantile(0.5 + plan.level / 2, len(idles) - 1) * math.sqrt(stats.variance(idles) / len(idles))
    return student if plan.least == plan.most else SEQUENTIAL * student


def _summary(
    pipeline: Pipeline, plan: Plan, length: RunLength, runs: list[Run], idles: list[float], moved: Sequence[float]
) -> Estimate:
    simulation = _noise(idles, plan)
    low, high = (math.hypot(simulation, half) for half in moved)
    idle = stats.mean(idles)
    samples = (length.steps - length.warm_up) * pipeline.batch_size
    makespan = stats.mean([float(run.makespan) for run in runs])
    accelerator = _shares(runs, lambda rank: rank.accelerator)
    return Estimate(
        gpu_idle=_clip(idle),
        gpu_idle_low=_clip(idle - low),
        gpu_idle_high=_clip(idle + high),
        level=plan.level,
        simulation_half_width=simulation,
        input_half_low=moved[0],
        input_half_high=moved[1],
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
    names: Iterable[str] = table(runs[0].ranks[0])
    spans = [(run, _duration(run)) for run in runs]
    return {
        name: stats.mean([math.fsum(table(rank)[name] for rank in run.ranks) / span for run, span in spans])
        for name in names
    }


def _station(pipeline: Pipeline, runs: Sequence[Run], index: int) -> dict[str, Any]:
    stage = pipeline.stages[index]
    parts = [rank.stations[index].fractions(rank.end - rank.begin) for run in runs for rank in run.ranks]
    shares = {name: _clip(stats.mean([float(part[name]) for part in parts])) for name in parts[0]}
    return {"name": stage.name, "servers": stage.servers, **shares}
