"""A recommendation's option over the step's time, the cost of a sample and the cores, for a reader to slide along.

X is the batches per second of one accelerator, G the rate of one that never waits, and P that of a loader whose batches
are taken at once. X is near min(G, P): 1 / G is linear in the step's time, 1 / P in the cost of a sample, and what is
left, the share X / min(G, P), varies little. So a coarse table of each is enough, and what is in between is
interpolated, the share along logarithms, in the table's cells cut along the diagonal on which G = P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coresim.advise.candidates import JobSetting
from coresim.advise.epochs import endless
from coresim.advise.recommend import Recommendation
from coresim.advise.sweep import pipeline_of
from coresim.model.scenario import with_services
from coresim.sim.estimate import Engine, Estimate, Plan, estimate
from coresim.sim.variation import held_by

#: What the step's time and the cost of a sample are multiplied by: equal ratios, so that G = P runs along diagonals.
FACTORS = tuple(2.0 ** (power / 2) for power in range(-5, 6))
#: Core counts of the table at the most.
CORES = 12
#: Of the step's time, for the rate of a loader whose batches are taken at once.
AT_ONCE = 1e-3
LEAST_STEPS = 100


@dataclass(frozen=True)
class Surface:
    """The table. Times in seconds, rates in batches per second of one accelerator.

    Attributes:
        steps, costs: the step's times and the costs of a sample (both in equal ratios), rising.
        cores: core counts per accelerator, rising.
        accelerator: G of each step's time.
        loader: P by core count and cost.
        share: X / min(G, P) by core count, step's time and cost.
        busy: seconds of the accelerator's work per batch, by step's time.
        step, cost, core: where the recommendation is.
        samples: samples of a batch, of all accelerators of the host.
        target: largest acceptable idle, a share.
        simulations: how many runs the table is made of.
    """

    steps: tuple[float, ...]
    costs: tuple[float, ...]
    cores: tuple[int, ...]
    accelerator: tuple[float, ...]
    loader: tuple[tuple[float, ...], ...]
    share: tuple[tuple[tuple[float, ...], ...], ...]
    busy: tuple[float, ...]
    step: float
    cost: float
    core: int
    samples: int
    target: float
    simulations: int


def surface_of(answer: Recommendation, engine: Engine) -> Surface | None:
    """The surface of the recommended option; None where no sample's cost is known, or the stages are the user's own."""
    scenario = answer.scenario
    if scenario.stages or scenario.workload.preprocess.is_zero:
        return None
    return _Simulated(answer, engine).surface()


class _Simulated:
    """The runs of one surface; `count` of them so far."""

    def __init__(self, answer: Recommendation, engine: Engine) -> None:
        self.answer, self.option, self.engine = answer, answer.chosen, engine
        self.scenario, self.count = answer.scenario, 0
        # What an epoch's start costs is said elsewhere, and a short run would be all start.
        self.endless = endless(answer.scenario)
        self.points = {point.cores: point for point in self.option.curve} | {answer.point.cores: answer.point}
        self.cores = chosen_cores(sorted(self.points), answer.point.cores)

    def surface(self) -> Surface:
        scenario, middle = self.scenario, FACTORS.index(1.0)
        step, cost = scenario.accelerator.step.mean, scenario.workload.preprocess.mean
        # Without waiting: the cheapest samples, and as many cores as there are.
        ample = [self._run(factor, FACTORS[0] * AT_ONCE, self.cores[-1]) for factor in FACTORS]
        accelerator = tuple(self._rate(found) for found in ample)
        loader = tuple(tuple(self._rate(self._run(AT_ONCE, f, cores)) for f in FACTORS) for cores in self.cores)
        share = []
        for cores, most in zip(self.cores, loader, strict=True):
            table = [[self._rate(self._run(one, two, cores)) for two in FACTORS] for one in FACTORS]
            # The report's own numbers, where they are what is shown.
            table[middle][middle] = self._rate(self.points[cores].estimate)
            share.append(
                tuple(
                    tuple(found / min(fast, slow) for found, slow in zip(row, most, strict=True))
                    for row, fast in zip(table, accelerator, strict=True)
                )
            )
        return Surface(
            steps=tuple(step * factor for factor in FACTORS),
            costs=tuple(cost * factor for factor in FACTORS),
            cores=self.cores,
            accelerator=accelerator,
            loader=loader,
            share=tuple(share),
            busy=tuple((1.0 - found.gpu_idle) / self._rate(found) for found in ample),
            step=step,
            cost=cost,
            core=self.answer.point.cores,
            samples=scenario.workload.batch_size * scenario.accelerator.count,
            target=scenario.target.gpu_idle,
            simulations=self.count,
        )

    def _rate(self, found: Estimate) -> float:
        return found.throughput_samples_per_s / (self.scenario.workload.batch_size * self.scenario.accelerator.count)

    def _run(self, step: float, cost: float, cores: int) -> Estimate:
        point, loader = self.points[cores], self.scenario.loader
        # As many workers as cores: where the work is dearer, what was enough for it is not.
        limits = [loader.max_workers, self.option.capped.workers if self.option.capped else None]
        workers = min([max(point.workers, cores), *(limit for limit in limits if limit is not None)])
        changed = with_services(with_services(self.endless, step, "step"), cost, "preprocess")
        line = pipeline_of(JobSetting(changed, point.option, cores, workers, point.prefetch_factor))
        plan = Plan(steps=LEAST_STEPS + 2 * held_by(line), grow=False, least=1, most=1, inputs=0)
        self.count += 1
        return estimate(line, plan, self.engine)


def chosen_cores(there: Sequence[int], answer: int) -> tuple[int, ...]:
    """At most `CORES` of the counts: the ends, those about the answer, and others in equal ratios."""
    near = {cores for cores in there if abs(cores - answer) <= 1} | {there[0], there[-1]}
    spread = (there[-1] / there[0]) ** (1.0 / CORES)
    wanted = (there[0] * spread**power for power in range(CORES + 1))
    others = dict.fromkeys(min(there, key=lambda cores, at=at: abs(math.log(cores / at))) for at in wanted)  # type: ignore[misc]
    found = set(near)
    for cores in others:
        if len(found) < CORES:
            found.add(cores)
    return tuple(sorted(found))
