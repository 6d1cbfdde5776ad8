"""Make an estimate from runs: replications, the interval of GPU idle, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coresim import stats
from coresim.errors import InputError
from coresim.model.pipeline import Pipeline
from coresim.sim.accounts import clipped, duration_of, idle_of, settled, shares_of, station_of
from coresim.sim.draws import Draws
from coresim.sim.noise import Interval, Observation, interval, model_half
from coresim.sim.replications import Replications
from coresim.sim.run import Run, RunLength
from coresim.sim.variation import half_of, held_by, is_random, turn_of, variation

#: Turns of all workers in a window, at the least.
CYCLES = 10
#: Turns after which workers that starve no longer remember where they began, where times vary.
SETTLING = 20
#: Idle beyond the target from which on workers are taken to starve.
STARVED = 0.1
LEAST_ROWS = 512
#: The longest run that the variation of the times asks for, steps.
LONGEST = 1 << 14
#: Noise that is allowed, as a share: of the distance from the target, above it and below it; of what inputs add.
OF_DISTANCE, OF_ROOM, OF_INPUTS = 0.05, 0.4, 0.1

Engine = Callable[[Pipeline, Draws, RunLength], Run]


@dataclass(frozen=True)
class Plan:
    """How much to simulate.

    Attributes:
        steps: steps per replication and rank, warm-up included.
        grow: whether to run longer where many workers or times that vary much need it (see `run_length`).
        least: the fewest replications; one is enough for a line whose times do not vary.
        most: the most replications.
        inputs: further replications that draw uncertain inputs; 0: the interval leaves those out.
        half_width: the simulation's half-width of GPU idle at which to stop, between the two.
        target: GPU idle that is asked about, if any; far from it the half-width may be a share of the distance.
        level: confidence level of the interval.
        seed: of the whole study.
        scatter: relative standard deviation of a run's work, from one run to the next, at which a run is long enough.
        cycles: turns of all workers that a window holds at the least.
        settle: whether to wait for `SETTLING` where workers starve.
        under_way: whether the line was at work before the run (`coresim.sim.draws.under_way`), as in a long run; else
            its workers begin together, as a program's do.
    """

    steps: int = 400
    grow: bool = True
    least: int = 8
    most: int = 32
    inputs: int = 8
    half_width: float = 0.005
    target: float | None = None
    level: float = 0.95
    seed: int = 1
    scatter: float = 0.03
    cycles: int = CYCLES
    settle: bool = True
    under_way: bool = True

    def __post_init__(self) -> None:
        if self.steps < 10:
            raise InputError(f"steps = {self.steps}: at least 10 are needed to tell a steady state from its start")


@dataclass(frozen=True)
class Estimate:
    """Predicted behaviour of one setting. Shares are of the window after warm-up; times in seconds.

    Attributes:
        gpu_idle: share of wall time that the steps would not need alone, beside idle cores, over all ranks.
        gpu_idle_low, gpu_idle_high: its interval at ``level``: simulation noise, uncertain inputs, the model's error.
        simulation_half_low, simulation_half_high: the parts below and above that more simulation would remove.
        input_half_low, input_half_high: the parts below and above that only better measurements would remove.
        throughput_samples_per_s: over all ranks.
        makespan_s: time of a whole run of ``steps`` steps from its start, mean over replications; see `Plan.under_way`.
        data_stall_s: time in which the accelerator is starved in such a run: the window's rate times the makespan.
        accelerator, starved_by, trainer: shares of the window by state.
        stations: per stage its name, servers, utilisation, waiting_for_core, blocked, starved.
        busy_cores: mean number of busy cores on a host.
        model_half: the part on each side that only a better model would remove; 0 where no input is measured.
    """

    gpu_idle: float
    gpu_idle_low: float
    gpu_idle_high: float
    level: float
    simulation_half_low: float
    simulation_half_high: float
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
    model_half: float = 0.0

    @property
    def accelerator_utilisation(self) -> float:
        """Step-busy share of wall time (AU)."""
        return 1.0 - self.gpu_idle

    def probability(self, target: float) -> float:
        """Probability that GPU idle is at most ``target``: each side of the interval read as half a normal curve."""
        above = target >= self.gpu_idle
        half = self.gpu_idle_high - self.gpu_idle if above else self.gpu_idle - self.gpu_idle_low
        if half <= 0.0:
            return 1.0 if above else 0.0
        deviation = half / stats.normal_quantile(0.5 + self.level / 2)
        return stats.normal_probability((target - self.gpu_idle) / deviation)

    def probability_at_best(self, target: float) -> float:
        """The probability if the true idle lies at the lower end of the simulation's noise."""
        idle = self.gpu_idle - self.simulation_half_low
        low, high = (math.hypot(half, self.model_half) for half in (self.input_half_low, self.input_half_high))
        return replace(self, gpu_idle=idle, gpu_idle_low=idle - low, gpu_idle_high=idle + high).probability(target)


def run_length(pipeline: Pipeline, plan: Plan, starved: bool = False) -> RunLength:
    """How long a replication runs, and how much of its start is discarded.

    Warm-up: two fillings of the line (forgets the empty start), at least a tenth of the steps. Workers that start
    together deliver in bursts of one batch each, so the window is a whole number of such turns: a part of one would
    count a burst's stall without its run, or the other way about. A plan that may grow has as many of them as it says,
    steps enough for the variation of the times, and where workers are ``starved`` it waits until they have forgotten
    their start; one that may not discards at most half of its steps.
    """
    held, turn = held_by(pipeline), turn_of(pipeline)
    if plan.grow:
        steps = max(plan.steps, min(LONGEST, math.ceil((variation(pipeline) / plan.scatter) ** 2)))
        settling = SETTLING * turn if starved and plan.settle and is_random(pipeline) else 0
        warm_up = max(2 * held, math.ceil(steps / 10), settling)
        turns = max(plan.cycles, math.ceil((steps - warm_up) / turn))
        return RunLength(warm_up + turns * turn, warm_up)
    warm_up = min(max(2 * held, math.ceil(plan.steps / 10)), plan.steps // 2)
    turns = (plan.steps - warm_up) // turn
    return RunLength(plan.steps, plan.steps - turns * turn if turns else warm_up)


def is_uncertain(pipeline: Pipeline) -> bool:
    """Whether any input is measured and so uncertain itself."""
    services = (phase.service for _, phase, _ in pipeline.phases())
    return pipeline.speed_uncertainty > 0 or any(one.uncertainty or one.distribution == "values" for one in services)


def estimate(
    pipeline: Pipeline, plan: Plan, engine: Engine, cache: dict[Any, Any] | None = None, least: float = 0.0
) -> Estimate:
    """Predict the behaviour of a pipeline by independent replications.

    Replications of the inputs as they are, each with its own service times, go on until simulation noise is within the
    plan's half-width (`coresim.sim.noise`) or little beside what uncertain inputs add. Where inputs are measured, and
    so uncertain, further replications draw their inputs too (bootstrap of raw values, means and s(k) moved by their
    uncertainty), half as long where a single run is within the half-width. Their root mean square deviations below and
    above the run with the same service times are the spread that stays however long one simulates.

    Short runs of times with heavy tails may idle less than ``least``, a proven bound of the long run
    (`coresim.theory.bounds`); the estimate is never below it.
    """
    line = Replications(pipeline, engine, plan.seed, plan.under_way, {} if cache is None else cache)
    length = _length(line, plan)
    rows = _rows(pipeline, length)
    runs, found, moved = list[Run](), list[Observation](), [0.0, 0.0]
    for count in _counts(pipeline, plan):
        for number in range(len(runs), count):
            run, seen = line.run(length, rows, number)
            runs.append(run)
            found.append(seen)
        noise = _noise(pipeline, found, length, plan, least)
        if len(runs) <= plan.least and plan.inputs and is_uncertain(pipeline):
            moved = _input_spread(line, plan, length, rows, [idle_of(run) for run in runs])
        if noise.above <= max(_wanted(noise.share, plan), OF_INPUTS * max(moved)):
            break
    return _summary(pipeline, plan, length, runs, noise, moved)


def _length(line: Replications, plan: Plan) -> RunLength:
    """The length for workers that starve, unless a first run says that they are near the target that is asked about."""
    starved = run_length(line.pipeline, plan, starved=True)
    length = run_length(line.pipeline, plan)
    if plan.target is None or starved == length:
        return starved
    first, _ = line.run(length, _rows(line.pipeline, length), 0)
    return starved if idle_of(first) > plan.target + STARVED else length


def _rows(pipeline: Pipeline, length: RunLength) -> int:
    """Batches to draw for each rank, in few sizes, so that the points of a sweep share what is drawn.

    A power of two, because several ranks read the same times from evenly spaced places; for one rank no more than its
    run comes to.
    """
    whole = max(LEAST_ROWS, 1 << (length.steps - 1).bit_length())
    if pipeline.total_ranks > 1:
        return whole
    # What is in the line when the last step ends; a splitter or a gatherer of a stage holds one more.
    begun = held_by(pipeline) + pipeline.trainer.run_ahead + 2 * len(pipeline.stages) + 2
    return min(whole, LEAST_ROWS * math.ceil((length.steps + begun) / LEAST_ROWS))


def _counts(pipeline: Pipeline, plan: Plan) -> Iterator[int]:
    """Replications after which the noise is tested: half as many again each time, because a test may stop too early."""
    if not is_random(pipeline):
        yield 1
        return
    count = plan.least
    while count < plan.most:
        yield count
        count = max(count + 1, count * 3 // 2)
    yield max(plan.least, plan.most)


def _noise(pipeline: Pipeline, found: Sequence[Observation], length: RunLength, plan: Plan, least: float) -> Interval:
    """The long-run idle by the runs; no finer than one step of all that were simulated, unless no time varies."""
    seen = interval(found, plan.level)
    if not is_random(pipeline):
        return seen
    share, steps = max(seen.share, least), len(found) * pipeline.total_ranks * (length.steps - length.warm_up)
    finest = 1.0 / steps if len(found) > 1 else 0.0
    below = min(max(seen.below, min(finest, share)), share - least)
    return Interval(share, below, max(seen.above, finest))


def _wanted(idle: float, plan: Plan) -> float:
    """The half-width at which to stop."""
    if plan.target is None:
        return plan.half_width
    if idle <= plan.target:
        return max(plan.half_width, OF_ROOM * (plan.target - idle))
    # Near an idle of 1 throughput is what a share of the distance must be small beside.
    return max(plan.half_width, OF_DISTANCE * min(idle - plan.target, 1.0 - idle))


def _input_spread(line: Replications, plan: Plan, length: RunLength, rows: int, idles: Sequence[float]) -> list[float]:
    """Half-widths below and above: of a symmetric distribution each side holds half of the squared deviations.

    Each from the run with the same service times, where there are as many: what the draw did is then in both. Else from
    their mean, less the noise of a single run, which is small where few runs were enough.
    """
    z = stats.normal_quantile(0.5 + plan.level / 2)
    narrow = z * math.sqrt(stats.variance(idles)) <= plan.half_width
    brief = half_of(line.pipeline, length) if narrow else length
    moved = [line.moved_idle(brief, rows, number, plan.inputs) for number in range(plan.inputs)]
    paired = len(idles) >= len(moved)
    centres = idles if paired else [stats.mean(idles)] * len(moved)
    noise = 0.0 if paired else stats.variance(idles)
    halves = []
    for sign in (-1.0, 1.0):
        squares = [max(0.0, sign * (idle - centre)) ** 2 for idle, centre in zip(moved, centres, strict=False)]
        halves.append(z * math.sqrt(max(0.0, 2.0 * stats.mean(squares) - noise)))
    return halves


def _summary(
    pipeline: Pipeline, plan: Plan, length: RunLength, runs: list[Run], noise: Interval, moved: Sequence[float]
) -> Estimate:
    idle, samples = noise.share, (length.steps - length.warm_up) * pipeline.batch_size
    makespan = stats.mean([float(run.makespan) for run in runs])
    seen, starved = (shares_of(runs, account) for account in ("accelerator", "starved_by"))
    accelerator, total = settled(seen, "busy", 1.0 - idle), math.fsum(starved.values())
    model = model_half(plan.level) if is_uncertain(pipeline) else 0.0
    rate = samples * pipeline.total_ranks**2 * len(runs) / math.fsum(map(duration_of, runs))
    return Estimate(
        gpu_idle=idle,
        gpu_idle_low=clipped(idle - math.hypot(noise.below, moved[0], model)),
        gpu_idle_high=clipped(idle + math.hypot(noise.above, moved[1], model)),
        level=plan.level,
        simulation_half_low=noise.below,
        simulation_half_high=noise.above,
        input_half_low=moved[0],
        input_half_high=moved[1],
        throughput_samples_per_s=rate * (accelerator["busy"] / seen["busy"] if seen["busy"] else 1.0),
        makespan_s=makespan,
        data_stall_s=accelerator["starved"] * makespan,
        accelerator=accelerator,
        starved_by={name: share * accelerator["starved"] / total if total else 0.0 for name, share in starved.items()},
        trainer=shares_of(runs, "trainer"),
        stations=tuple(station_of(pipeline, runs, index) for index in range(len(pipeline.stages))),
        busy_cores=stats.mean([float(cores) for run in runs for cores in run.busy_cores]),
        steps=length.steps,
        warm_up=length.warm_up,
        replications=len(runs),
        model_half=model,
    )
