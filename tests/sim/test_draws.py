"""Pre-drawn service times: their distributions, common random numbers, uncertain inputs, pools and splits by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coresim.model.build import build
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.scenario import read_scenario
from coresim.model.service import Service, empirical
from coresim.sim import draws
from coresim.sim.draws import (
    MOST_ROWS,
    Draws,
    _split,
    draw,
    draw_sums,
    perturb_speed,
    stratified_normal,
    under_way,
)
from coresim.sim.kernel.pools import pool_gaps
from coresim.sim.variation import is_random, variation
from coresim.stats import normal_quantile

#: Standard errors that a correct mean or variance stays within: one seed in 15,000 would not.
SIGMAS = 4.0
MANY = 60_000
SERVICES = {
    "constant": Service(0.005),
    "exponential": Service(0.005, 1.0, "exponential"),
    "gamma, even": Service(0.005, 0.4, "gamma"),
    "gamma, uneven": Service(0.005, 1.7, "gamma"),
    "lognormal": Service(0.005, 0.6, "lognormal"),
    "values": empirical((0.001, 0.002, 0.002, 0.009)),
}


def pipeline(service: Service, **phase: Any) -> Pipeline:
    """A loader whose workers do this and nothing else."""
    stage = Stage("load", 2, (Phase("work", service=service, **phase),))
    return Pipeline((stage,), Trainer(), Phase("step", service=Service(0.1)), batch_size=4, credits=4)


def times_of(
    service: Service, rows: int = 100, seed: int = 1, replication: int = 0, inputs: int = 0, **phase: Any
) -> Any:
    """The times drawn for that work."""
    return draw(pipeline(service, **phase), rows, seed, replication, inputs).service_times["load.work"]


def spread(service: Service) -> float:
    """Standard deviation of one time; of empirical values that of the values as they are, not of a larger whole."""
    return float(np.std(service.values)) if service.values else service.cv * service.mean


def moments_agree(times: Any, mean: float, deviation: float) -> bool:
    """Whether mean and variance of a sample are those of its distribution, within `SIGMAS` standard errors."""
    off, count = times - mean, len(times)
    fourth = float(np.mean(off**4))
    variance_error = math.sqrt(max(fourth - deviation**4, 0.0) / count)
    mean_agrees = abs(float(np.mean(off))) <= SIGMAS * deviation / math.sqrt(count) + 1e-12
    return mean_agrees and abs(float(np.mean(off**2)) - deviation**2) <= SIGMAS * variance_error + 1e-15


# Distributions


@pytest.mark.parametrize("repeats", [1, 16])
@pytest.mark.parametrize("name", SERVICES)
def test_draws_have_the_mean_and_the_spread_asked_for(name: str, repeats: int) -> None:
    service = SERVICES[name]
    times = draw_sums(service, MANY, repeats, np.random.default_rng(5))
    assert times.shape == (MANY,) and (times >= 0).all()
    assert moments_agree(times, repeats * service.mean, math.sqrt(repeats) * spread(service))


@pytest.mark.parametrize("name", SERVICES)
def test_the_check_of_the_moments_sees_a_tenth(name: str) -> None:
    service = SERVICES[name]
    times = draw_sums(service, MANY, 1, np.random.default_rng(5))
    assert not moments_agree(times, 1.1 * service.mean, spread(service))
    assert not moments_agree(times, service.mean, 1.1 * spread(service) + (name == "constant") * 1e-4)


def test_empirical_values_are_drawn_as_they_are_and_equally_often() -> None:
    times = times_of(SERVICES["values"], 40_000)
    seen, counts = np.unique(times, return_counts=True)
    assert seen.tolist() == [0.001, 0.002, 0.009]
    assert counts / len(times) == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_empirical_values_are_the_generators_own_choice() -> None:
    values, generator = np.asarray(SERVICES["values"].values), np.random.default_rng(3)
    drawn = draws.draw_sums(SERVICES["values"], 1000, 1, np.random.default_rng(3))
    assert drawn.tolist() == generator.choice(values, (1000, 1))[:, 0].tolist()


def test_exponential_times_have_no_memory() -> None:
    times = times_of(SERVICES["exponential"], 40_000).ravel()
    for quarter in (0.25, 0.5, 0.75):
        assert np.quantile(times, quarter) == pytest.approx(-0.005 * math.log(1 - quarter), rel=0.03)


def test_lognormal_times_have_the_median_of_a_lognormal() -> None:
    times = times_of(SERVICES["lognormal"], 40_000)
    assert np.median(times) == pytest.approx(0.005 / math.sqrt(1 + 0.6**2), rel=0.02)


# Tapes


def test_drawn_times_have_a_row_per_item_and_a_column_per_task() -> None:
    assert times_of(SERVICES["gamma, even"], 30).shape == (30, 1)
    assert times_of(SERVICES["gamma, even"], 30, repeats=4, split=3).shape == (30, 3)
    assert times_of(SERVICES["gamma, even"], 10 * MOST_ROWS).shape == (MOST_ROWS, 1)
    assert times_of(SERVICES["constant"], 30, repeats=4).tolist() == [[0.02]]
    samples = replace(pipeline(SERVICES["lognormal"]), ranks=3)
    samples = replace(samples, stages=(replace(samples.stages[0], grain="sample"),))
    assert draw(samples, 30, 1).service_times["load.work"].shape == (30 * 3 * 4, 1)


def test_ranks_read_the_same_times_from_evenly_spaced_places() -> None:
    draws = Draws({"a": np.arange(10)[:, None]})
    assert [draws.row("a", 0, rank, 3)[0] for rank in range(3)] == [0, 3, 6]
    assert draws.row("a", 9, 2, 3)[0] == 5


# Common random numbers


def test_pipelines_that_differ_elsewhere_see_the_same_samples() -> None:
    document = {
        "workload": {"batch_size": 4, "preprocess": {"mean": "5 ms", "cv": 0.5}, "fetch": {"mean": "1 ms", "cv": 2.0}},
        "accelerator": {"step": {"mean": "20 ms", "cv": 0.1}},
    }
    scenario = read_scenario(document)
    settings = ((1, 2.0, 1), (2, 2.0, 1), (2, 7.0, 5), (3, 1.0, 2))
    drawn = [draw(build(scenario, *setting), 50, 3, 2).service_times for setting in settings]
    for name, count in (("preprocess", 4), ("step", 4), ("fetch", 3)):  # option 3 fetches in a pool of its own
        same = [times[key] for times in drawn for key in times if key.endswith(f".{name}")][:count]
        assert len(same) == count and len(same[0]) == 50
        assert all(np.array_equal(same[0], other) for other in same)


def test_seeds_replications_and_phases_draw_apart() -> None:
    service = SERVICES["exponential"]
    first = times_of(service, 4000)
    others = [times_of(service, 4000, seed=2), times_of(service, 4000, replication=1)]
    others.append(
        draw(replace(pipeline(service), step=Phase("step", service=service)), 4000, 1).service_times["accelerator.step"]
    )
    for other in others:
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < SIGMAS / math.sqrt(4000)
    assert np.array_equal(first, times_of(service, 4000))


@pytest.mark.parametrize("cv", [0.0, 0.3])
@pytest.mark.parametrize("name", SERVICES)
def test_fewer_drawn_times_are_the_beginning_of_more(name: str, cv: float) -> None:
    short, longer = (times_of(SERVICES[name], rows, repeats=3, shared_cv=cv) for rows in (20, 50))
    assert np.array_equal(short, longer[: len(short)])


def test_a_cache_changes_nothing_and_is_used() -> None:
    cache: dict[Any, Any] = {}
    line = pipeline(SERVICES["lognormal"])
    one, two = (draw(replace(line, cores=cores), 50, 1, cache=cache).service_times for cores in (1.0, 2.0))
    assert all(one[key] is two[key] for key in one)
    assert np.array_equal(one["load.work"], draw(line, 50, 1).service_times["load.work"])
    assert not np.array_equal(one["load.work"], draw(line, 50, 2, cache=cache).service_times["load.work"])


@pytest.mark.parametrize(
    "more", [{}, {"split": 3}, {"pooled": 2}, {"shared_cv": 0.3}], ids=["whole", "split", "pooled", "together"]
)
@pytest.mark.parametrize("inputs", [0, 5])
@pytest.mark.parametrize("name", SERVICES)
def test_what_is_drawn_bit_by_bit_is_what_is_drawn_at_once(name: str, inputs: int, more: dict[str, Any]) -> None:
    cache: dict[Any, Any] = {}
    line = pipeline(SERVICES[name], repeats=6, **more)
    for rows in (20, 5, 50, 37, 400):
        kept = draw(line, rows, 1, 2, inputs, cache).service_times["load.work"]
        assert np.array_equal(kept, draw(line, rows, 1, 2, inputs).service_times["load.work"])


def test_no_time_is_drawn_twice_whatever_the_lengths_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, cache, line = [], dict[Any, Any](), pipeline(SERVICES["lognormal"], repeats=3)
    more = draws._DrawStream._more
    monkeypatch.setattr(draws._DrawStream, "_more", lambda stream, rows: drawn.append(rows) or more(stream, rows))
    for rows in (20, 50, 30, 50, 60):
        draw(line, rows, 1, cache=cache)
    assert drawn == [20, 30, 10]


# Uncertain inputs


def test_a_bootstrap_resamples_the_values_and_moves_their_mean() -> None:
    raw = tuple(np.random.default_rng(2).exponential(0.005, 40).tolist())
    moved = [times_of(empirical(raw), 20_000, replication=number, inputs=150) for number in range(150)]
    assert all(set(np.unique(times)) < set(raw) for times in moved)
    means = [float(times.mean()) for times in moved]
    # The mean of 40 values resampled from 40 deviates by the standard deviation / sqrt(40).
    assert np.mean(means) == pytest.approx(np.mean(raw), rel=0.05)
    assert np.std(means) == pytest.approx(np.std(raw) / math.sqrt(40), rel=0.25)


@pytest.mark.parametrize("name", ["exponential", "constant"])
def test_a_mean_moves_by_its_uncertainty(name: str) -> None:
    service = replace(SERVICES[name], uncertainty=0.1)
    moved = [times_of(service, 20_000, replication=number, inputs=200).mean() for number in range(200)]
    still = [times_of(service, 20_000, replication=number).mean() for number in range(200)]
    # Stratified, so nearly exact; what is left is the noise of the draws themselves.
    assert np.std(np.log(moved)) == pytest.approx(0.1, rel=0.05)
    assert np.mean(np.log(moved)) == pytest.approx(math.log(service.mean), abs=0.002)
    assert np.std(np.log(still)) < 0.01


def test_speed_moves_by_one_factor_beyond_the_first_core() -> None:
    line = replace(pipeline(SERVICES["constant"]), speed=(1.0, 0.9, 0.6), speed_uncertainty=0.1)
    moved = np.array([perturb_speed(line, 1, number, 400).speed for number in range(400)])
    assert (moved[:, 0] == 1.0).all()
    assert moved[:, 2] / moved[:, 1] == pytest.approx(np.full(400, 0.6 / 0.9))
    assert np.std(np.log(moved[:, 1] / 0.9)) == pytest.approx(0.1)
    assert perturb_speed(replace(line, speed_uncertainty=0.0), 1, 0, 8).speed == line.speed


@pytest.mark.parametrize("count", [2, 8, 33])
def test_uncertain_inputs_are_spread_over_the_normal_distribution(count: int) -> None:
    numbers = [stratified_normal(4, "preprocess", number, count) for number in range(count)]
    assert (np.mean(numbers), np.var(numbers)) == pytest.approx((0.0, 1.0))
    # One from each stratum: sorted, they are as far apart as the quantiles are.
    quantiles = [normal_quantile((rank + 0.5) / count) for rank in range(count)]
    assert np.corrcoef(sorted(numbers), quantiles)[0, 1] == pytest.approx(1.0)


def test_the_strata_of_two_inputs_are_in_orders_of_their_own() -> None:
    one, two = ([stratified_normal(4, name, number, 400) for number in range(400)] for name in ("fetch", "preprocess"))
    assert abs(np.corrcoef(one, two)[0, 1]) < SIGMAS / math.sqrt(400)
    assert stratified_normal(4, "fetch", 0, 1) == 0.0


# Pools and splits by hand

SAMPLES = np.array([[3.0, 1.0], [1.0, 1.0], [5.0, 1.0]])


@pytest.mark.parametrize(
    ("servers", "gaps"),
    [
        (1, [4, 2, 6]),  # one after another
        (2, [3, 0, 5]),  # free at 3 and 1; then 1, 2, 3: both at 3; then 8 and 4
        (4, [3, 0, 3]),  # the two of batch 1 at 1; sample 4 from 1 to 6
    ],
)
def test_a_pool_gives_the_times_between_completions(servers: int, gaps: list[int]) -> None:
    found, free, completed = pool_gaps(SAMPLES, np.zeros(servers), 0.0)
    assert found.tolist() == gaps and completed == sum(gaps) == max(free)
    # What is drawn later goes on where the servers were.
    first, free, completed = pool_gaps(SAMPLES[:1], np.zeros(servers), 0.0)
    assert [*first, *pool_gaps(SAMPLES[1:], free, completed)[0]] == gaps


def test_a_pool_of_constant_times_completes_at_its_rate() -> None:
    gaps = times_of(Service(0.010), 20, repeats=8, pooled=4)
    assert gaps.ravel() == pytest.approx(np.full(20, 0.020))


def test_a_split_deals_the_samples_in_turn() -> None:
    assert _split(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]), 2).tolist() == [[9.0, 6.0]]
    assert _split(np.array([[1.0, 2.0, 3.0]]), 3).tolist() == [[1.0, 2.0, 3.0]]
    whole = times_of(SERVICES["lognormal"], 50, repeats=6)
    assert times_of(SERVICES["lognormal"], 50, repeats=6, split=4).sum(axis=1) == pytest.approx(whole.ravel())


# A line that was at work before its run


def test_the_first_items_of_a_line_under_way_are_partly_done() -> None:
    tables = {
        "workload": {"batch_size": 4, "preprocess": {"mean": "5 ms", "cv": 0.5}, "collate": "2 ms"},
        "accelerator": {"step": "20 ms", "count": 2},
    }
    line = build(read_scenario(tables), 2, 8, 4, 1)
    drawn = draw(line, 64, 1)
    begun = under_way(line, drawn, 64)
    whole, left = drawn.service_times["loader.preprocess"], begun.service_times["loader.preprocess"]
    for rank in range(2):
        first = 64 * rank
        assert left[first : first + 4] == pytest.approx(whole[first : first + 4] * [[0.25], [0.5], [0.75], [1.0]])
        assert (left[first + 4 : first + 64] == whole[first + 4 : first + 64]).all()
    # A constant that was drawn once is so for each item, and what no server of several does stays.
    assert begun.service_times["loader.collate"][:5, 0] == pytest.approx([0.0005, 0.001, 0.0015, 0.002, 0.002])
    assert len(begun.service_times["loader.collate"]) == len(whole)
    assert begun.service_times["accelerator.step"] is drawn.service_times["accelerator.step"]


def test_where_credits_allow_servers_are_ahead_of_what_is_waited_for() -> None:
    tables = {"workload": {"batch_size": 1, "preprocess": {"mean": "5 ms", "cv": 0.5}}, "accelerator": {"step": "1 s"}}
    line = build(read_scenario(tables), 2, 8, 50, 2)
    drawn = draw(line, 512, 1)
    left = under_way(line, drawn, 512).service_times["loader.preprocess"] / drawn.service_times["loader.preprocess"]
    first, second = left[:50, 0], left[50:100, 0]
    done = (1 - first) + (1 - second)
    late = done - (1 - np.arange(1, 51) / 50)
    assert (late >= -1e-12).all() and (first[second < 1] == 0).all() and (left[100:] == 1).all()
    assert np.sort(late) == pytest.approx(np.linspace(0.01, 0.99, 50), abs=0.04)
    # With half an item more than the servers have, they are ahead by a half at the most.
    few = under_way(replace(line, credits=75), drawn, 512).service_times["loader.preprocess"]
    done = (
        2
        - few[:50, 0] / drawn.service_times["loader.preprocess"][:50, 0]
        - few[50:100, 0] / drawn.service_times["loader.preprocess"][50:100, 0]
    )
    assert np.max(done - (1 - np.arange(1, 51) / 50)) == pytest.approx(0.5, abs=0.02)


def test_rows_that_are_used_again_within_a_run_stay() -> None:
    line = pipeline(SERVICES["lognormal"])
    drawn = draw(line, 2 * MOST_ROWS, 1)
    assert under_way(line, drawn, 2 * MOST_ROWS).service_times == drawn.service_times


def test_repeats_of_an_item_vary_together_beyond_what_each_varies_by_itself() -> None:
    """The variance of a sum of 16 times is that of independent ones, times 1 + cv^2, and cv^2 of the squared mean."""
    apart, together = (times_of(SERVICES["gamma, even"], MANY, repeats=16, shared_cv=cv)[:, 0] for cv in (0.0, 0.25))
    mean, variance = 16 * 0.005, 16 * (0.4 * 0.005) ** 2
    assert np.mean(apart) == pytest.approx(mean, rel=0.01) == np.mean(together)
    assert np.var(apart) == pytest.approx(variance, rel=0.05)
    assert np.var(together) == pytest.approx(variance * (1 + 0.25**2) + (0.25 * mean) ** 2, rel=0.05)


def test_tasks_of_an_item_share_its_factor_and_a_constant_gets_one_too() -> None:
    times = times_of(SERVICES["constant"], repeats=4, split=2, shared_cv=0.2)
    assert len(times) == 100 and np.array_equal(times[:, 0], times[:, 1])
    assert len(set(times[:, 0].tolist())) == 100


def test_a_line_whose_batches_vary_as_a_whole_alone_is_random() -> None:
    """Of 4 times of 5 ms each, which share a factor."""
    alone, apart = (pipeline(SERVICES["constant"], repeats=4, shared_cv=cv) for cv in (0.2, 0.0))
    assert is_random(alone) and not is_random(apart)
    assert variation(alone) == pytest.approx(0.2) and variation(apart) == 0.0
