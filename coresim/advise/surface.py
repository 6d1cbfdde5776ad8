"""A recommendation's option over the step's time, the cost of a sample and the cores, for a reader to slide along.

X is the batches per second of one accelerator, G the rate of one that never waits, and P that of a loader whose batches
are taken at once. X is near min(G, P): 1 / G is linear in the step's time, 1 / P in the cost of a sample, and what is
left, the share X / min(G, P), varies little. So a coarse table of each is enough, and what is in between is
interpolated, the share along logarithms, in the table's cells cut along the diagonal on which G = P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

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
    scenario, middle = answer.scenario, FACTORS.index(1.0)
    if scenario.stages or scenario.workload.preprocess.is_zero:
        return None
    step, cost = scenario.accelerator.step.mean, scenario.workload.preprocess.mean
    samples = scenario.workload.batch_size * scenario.accelerator.count
    points = {point.cores: point for point in answer.chosen.curve} | {answer.point.cores: answer.point}
    counts = chosen_cores(sorted(points), answer.point.cores)

    def run(step: float, cost: float, cores: int) -> Estimate:
        """A short run of a changed job with the setting of a point."""
        # As many workers as cores: where the work is dearer, what was enough for it is not.
        limits = [scenario.loader.max_workers, answer.chosen.capped.workers if answer.chosen.capped else None]
        workers = min([max(points[cores].workers, cores), *(limit for limit in limits if limit is not None)])
        # What an epoch's start costs is said elsewhere, and a short run would be all start.
        changed = with_services(with_services(endless(scenario), step, "step"), cost, "preprocess")
        line = pipeline_of(replace(points[cores].at(changed), workers=workers))
        plan = Plan(steps=LEAST_STEPS + 2 * held_by(line), grow=False, least=1, most=1, inputs=0)
        return estimate(line, plan, engine)

    def rate(found: Estimate) -> float:
        return found.throughput_samples_per_s / samples

    # Without waiting: the cheapest samples, and as many cores as there are.
    ample = [run(factor, FACTORS[0] * AT_ONCE, counts[-1]) for factor in FACTORS]
    accelerator = np.array([rate(found) for found in ample])
    loader = np.array([[rate(run(AT_ONCE, factor, cores)) for factor in FACTORS] for cores in counts])
    found = np.array([[[rate(run(one, two, cores)) for two in FACTORS] for one in FACTORS] for cores in counts])
    # The report's own numbers, where they are what is shown.
    found[:, middle, middle] = [rate(points[cores].estimate) for cores in counts]
    share = found / np.minimum(accelerator[:, None], loader[:, None, :])
    return Surface(
        steps=tuple(step * factor for factor in FACTORS),
        costs=tuple(cost * factor for factor in FACTORS),
        cores=counts,
        accelerator=tuple(accelerator.tolist()),
        loader=tuple(map(tuple, loader.tolist())),
        share=tuple(tuple(map(tuple, table)) for table in share.tolist()),
        busy=tuple((1.0 - found.gpu_idle) / rate(found) for found in ample),
        step=step,
        cost=cost,
        core=answer.point.cores,
        samples=samples,
        target=scenario.target.gpu_idle,
        simulations=len(ample) + loader.size + found.size,
    )


def chosen_cores(there: Sequence[int], answer: int) -> tuple[int, ...]:
    """At most `CORES` of the counts: the ends, those about the answer, and others in equal ratios."""
    near = {cores for cores in there if abs(cores - answer) <= 1} | {there[0], there[-1]}
    spread = (there[-1] / there[0]) ** (1.0 / CORES)
    wanted = (there[0] * spread**power for power in range(CORES + 1))
    others = dict.fromkeys(min(there, key=lambda cores, at=at: abs(math.log(cores / at))) for at in wanted)  # type: ignore[misc]
    more = [cores for cores in others if cores not in near]
    return tuple(sorted([*near, *more[: CORES - len(near)]]))
