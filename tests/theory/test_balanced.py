"""Balanced job bounds: around exact mean-value analysis, around a closed form, around the simulation, else nowhere."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from birth_death import closed_line, example

from coresim.errors import InputError
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.service import Service
from coresim.report.simulated import bound_lines
from coresim.sim.draws import draw
from coresim.sim.fast import simulate
from coresim.sim.run import RunLength
from coresim.theory.balanced import balanced_job_bounds, batch_rate_bounds


def mean_value_analysis(demands: list[float], customers: int) -> float:
    """Exact throughput by the recursion of Reiser and Lavenberg (1980): an arrival sees the network without itself."""
    queues, rate = [0.0] * len(demands), 0.0
    for number in range(1, customers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        rate = number / sum(times)
        queues = [rate * time for time in times]
    return rate


def exponential(mean: float) -> Phase:
    return Phase("work", service=Service(mean, 1.0, "exponential"))


def tandem(*means: float, step: float, credits: int) -> Pipeline:
    stages = tuple(Stage(f"s{at}", 1, (replace(exponential(mean), name=f"p{at}"),)) for at, mean in enumerate(means))
    return Pipeline(stages, Trainer(copy_mode="none", spin=False), replace(exponential(step), name="step"),
                    cores=8.0, credits=credits)  # fmt: skip


def test_around_exact_analysis_and_exact_where_jobs_are_balanced() -> None:
    draws = random.Random(4)
    for _ in range(300):
        demands = [draws.uniform(0.05, 2.0) for _ in range(draws.randint(1, 5))]
        customers = draws.randint(1, 12)
        low, high = balanced_job_bounds(demands, customers)
        exact = mean_value_analysis(demands, customers)
        assert low * (1 - 1e-12) <= exact <= high * (1 + 1e-12)
    low, high = balanced_job_bounds([0.7] * 4, 9)
    assert low == pytest.approx(high) == pytest.approx(mean_value_analysis([0.7] * 4, 9))
    # One customer never queues.
    assert balanced_job_bounds([0.2, 0.9], 1) == pytest.approx((1 / 1.1, 1 / 1.1))


@pytest.mark.parametrize("credits", [1, 2, 5])
def test_around_the_closed_form_of_one_worker(credits: int) -> None:
    for step in (0.2, 1.0, 3.0):
        low, high = batch_rate_bounds(example(1, 2.0, credits, 1.0, step)) or (0.0, 0.0)
        exact = closed_line(1, 2.0, credits, 1.0, step).throughput
        # With both times alike the jobs are balanced, and the upper bound is the rate itself.
        assert 0 < low < exact and (exact == pytest.approx(high) if step == 1.0 else exact < high)


def test_around_the_simulation_of_a_tandem() -> None:
    line, steps = tandem(1.0, 0.6, step=0.8, credits=3), 40_000
    low, high = batch_rate_bounds(line) or (0.0, 0.0)
    (rank,) = simulate(line, draw(line, steps, 3), RunLength(steps, 500)).ranks
    assert 0 < low < (steps - 500) / (rank.end - rank.begin) < high
    assert high / low < 1.6
    assert "Balanced job bounds" in bound_lines(line)[1]


def test_only_where_they_hold() -> None:
    line = tandem(1.0, step=0.8, credits=3)
    (stage,) = line.stages
    constant = replace(stage, phases=(Phase("work", service=Service(1.0)),))
    for other in (
        replace(line, credits=None, stages=(replace(stage, buffer=2),)),
        replace(line, stages=(replace(stage, servers=2),)),
        replace(line, stages=(constant,)),
        replace(line, stages=(replace(stage, phases=(exponential(0.5), replace(exponential(0.5), name="b"))),)),
        replace(line, cores=0.5),
        replace(line, speed=(1.0, 0.5)),
        replace(line, slowdown=(1.0, 2.0)),
        replace(line, epoch_batches=50),
        replace(line, ranks=2),
        replace(line, trainer=replace(line.trainer, run_ahead=1)),
        replace(line, trainer=replace(line.trainer, launch=replace(exponential(0.1), name="launch"))),
    ):
        assert batch_rate_bounds(other) is None
        assert len(bound_lines(other)) == 1
    assert batch_rate_bounds(line) is not None


def test_nobody_and_nothing_are_refused() -> None:
    for demands, customers in (([1.0], 0), ([], 1), ([1.0, 0.0], 2)):
        with pytest.raises(InputError, match="must be positive"):
            balanced_job_bounds(demands, customers)
