"""The interval means what it says; shares add up; replications stop when they should."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from birth_death import example

from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.scenario import read_scenario
from coresim.sim.draws import draw
from coresim.sim.estimate import CYCLES, SETTLING, Plan, _rows, estimate, is_uncertain, run_length
from coresim.sim.fast import simulate
from coresim.sim.noise import MODEL
from coresim.sim.run import RunLength

LINE = {"workers": 4, "cores": 2, "credits": 6, "prepare": 1.0, "step": 0.6}


def scenario(**preprocess):
    workload = {"batch_size": 8, "preprocess": preprocess or {"mean": "5 ms", "cv": 0.5}}
    return read_scenario({"workload": workload, "accelerator": {"step": "20 ms"}, "host": {"cores": 4}})


def test_replications_go_on_until_the_half_width_is_within_the_bound():
    pipeline = example(**LINE)
    few = estimate(pipeline, Plan(steps=200, least=4, most=64, half_width=1.0), simulate)
    many = estimate(pipeline, Plan(steps=200, least=4, most=64, half_width=0.01), simulate)
    assert few.replications == 4
    assert 4 < many.replications <= 64
    assert many.simulation_half_high <= 0.01 or many.replications == 64


def test_a_deterministic_pipeline_has_no_interval_and_an_uncertain_one_says_what_part_is_input():
    certain = estimate(build(scenario(mean="5 ms"), 2, 4, 2), Plan(), simulate)
    assert certain.gpu_idle_low == pytest.approx(certain.gpu_idle_high, abs=1e-12)
    assert certain.replications == 1
    pipeline = build(scenario(mean="10 ms", uncertainty=0.2), 2, 4, 2)
    assert is_uncertain(pipeline)
    found = estimate(pipeline, Plan(), simulate)
    assert found.simulation_half_high == pytest.approx(0.0, abs=1e-12)
    assert found.input_half_low > 0.02
    assert found.input_half_high > 0.02


def test_where_inputs_are_measured_the_interval_holds_what_the_model_itself_misses():
    certain = estimate(build(scenario(mean="5 ms"), 2, 4, 2), Plan(), simulate)
    assert certain.model_half == 0.0
    # Nearly certain inputs, whose idle hardly varies: the model can still be wrong.
    line = build(scenario(mean="10 ms", uncertainty=1e-6), 2, 4, 2)
    found = estimate(line, Plan(level=0.8), simulate)
    assert found.model_half == pytest.approx(1.2816 * MODEL, rel=1e-4)
    assert found.gpu_idle - found.gpu_idle_low == pytest.approx(found.model_half, rel=1e-3)
    assert found.gpu_idle_high - found.gpu_idle == pytest.approx(found.model_half, rel=1e-3)
    assert found.probability(found.gpu_idle + MODEL) == pytest.approx(0.8413, abs=1e-3)
    assert found.probability_at_best(found.gpu_idle + MODEL) == pytest.approx(0.8413, abs=1e-3)
    # It is independent of the uncertainty of the inputs, and no part of it.
    unsure = estimate(build(scenario(mean="10 ms", uncertainty=0.05), 2, 4, 2), Plan(level=0.8), simulate)
    below = math.hypot(unsure.simulation_half_low, unsure.input_half_low, unsure.model_half)
    assert unsure.gpu_idle - unsure.gpu_idle_low == pytest.approx(below)


def test_input_spread_grows_with_the_uncertainty_of_the_inputs():
    spreads = [
        estimate(
            build(scenario(mean="10 ms", uncertainty=u), 2, 4, 2), Plan(least=16, inputs=16), simulate
        ).input_half_high
        for u in (0.02, 0.1)
    ]
    # Loader-bound: idle = 1 - step / preparation, so its spread is the share of stalls times the relative spread.
    assert spreads[0] == pytest.approx(1.96 * 0.02 * 0.5, rel=0.1)
    assert spreads[1] > 3 * spreads[0]


def test_shares_add_up_to_the_whole():
    found = estimate(build(scenario(), 2, 2, 3), Plan(), simulate)
    assert math.fsum(found.accelerator.values()) == pytest.approx(1.0)
    assert math.fsum(found.trainer.values()) == pytest.approx(1.0)
    assert math.fsum(found.starved_by.values()) == pytest.approx(found.accelerator["starved"])
    for station in found.stations:
        shares = [station[name] for name in ("utilisation", "waiting_for_core", "blocked", "starved")]
        assert math.fsum(shares) == pytest.approx(1.0)
    assert found.gpu_idle == pytest.approx(1 - found.accelerator["busy"])


def test_utilisation_law_holds_in_the_estimate():
    found = estimate(build(scenario(), 2, 2, 3), Plan(steps=2000), simulate)
    per_batch = 8 * 0.005
    rate = found.throughput_samples_per_s / 8
    assert found.stations[0]["utilisation"] == pytest.approx(rate * per_batch / 3, rel=0.01)


def test_probability_follows_the_interval():
    found = estimate(example(**LINE), Plan(), simulate)
    assert found.probability(found.gpu_idle) == pytest.approx(0.5)
    assert found.probability(found.gpu_idle_high) == pytest.approx(0.975, abs=1e-6)
    assert found.probability(found.gpu_idle_low) == pytest.approx(0.025, abs=1e-6)


def test_more_simulation_does_not_find_a_setting_likelier_than_its_noise_leaves_room_for():
    line = build(scenario(mean="9 ms", cv=3, distribution="lognormal", uncertainty=0.05), 2, 4, 6)
    few, many = (estimate(line, Plan(least=4, most=most, target=0.05), simulate) for most in (4, 64))
    assert few.replications < many.replications
    for target in (0.02, few.gpu_idle, 0.3):
        at_best = few.probability_at_best(target)
        assert max(few.probability(target), many.probability(target) - 0.05) <= at_best
    # With inputs that are known only the noise is left.
    known = estimate(example(**LINE), Plan(), simulate)
    just_below = known.gpu_idle - known.simulation_half_low
    assert [known.probability_at_best(just_below + by) for by in (-1e-9, 1e-9)] == [0.0, 1.0]


def test_the_window_holds_whole_cycles_of_the_workers_behind_two_fillings_of_the_line():
    pipeline = build(scenario(), 2, 4, 48)
    grown = run_length(pipeline, Plan(steps=400))
    assert grown.warm_up == 2 * 96
    assert grown.steps - grown.warm_up == 48 * CYCLES
    assert run_length(pipeline, Plan(steps=400), starved=True).warm_up == 48 * SETTLING
    fixed = run_length(pipeline, Plan(steps=400, grow=False))
    assert fixed.steps == 400
    assert fixed.warm_up >= 2 * 96
    assert (fixed.steps - fixed.warm_up) % 48 == 0
    assert run_length(pipeline, Plan(steps=40, grow=False)).warm_up == 20


def test_bursts_of_many_starved_workers_do_not_bias_the_estimate():
    tables = {"workload": {"batch_size": 32, "preprocess": "300 ms"}, "accelerator": {"step": "100 ms"}}
    pipeline = build(read_scenario(tables), 2, 49, 48)
    assert estimate(pipeline, Plan(), simulate).gpu_idle == pytest.approx(0.5, abs=1e-9)


def test_a_short_run_of_bursts_agrees_with_a_long_one():
    preprocess = {"mean": "300 ms", "cv": 0.5}
    tables = {"workload": {"batch_size": 32, "preprocess": preprocess}, "accelerator": {"step": "100 ms"}}
    pipeline = build(read_scenario(tables), 2, 49, 48)
    short = estimate(pipeline, Plan(least=16, inputs=16), simulate)
    long = estimate(pipeline, Plan(steps=20_000), simulate)
    assert short.gpu_idle == pytest.approx(long.gpu_idle, abs=0.01)


@pytest.mark.parametrize("cv", [0.2, 0.4])
@pytest.mark.parametrize("workers", [48, 63])
def test_many_workers_that_lose_their_beat_slowly_do_no_work_for_nothing(workers, cv):
    # 31 cores do 31 s of work in each second, and a batch takes 384 ms: 4 % idle, with any workers.
    step = 0.96 * 384 / 31
    tables = {
        "workload": {"batch_size": 64, "preprocess": {"mean": "6 ms", "cv": cv}},
        "accelerator": {"step": f"{step} ms", "sync": "block"},
    }
    pipeline = build(read_scenario(tables), 2, 31, workers, 1)
    found = estimate(pipeline, Plan(target=0.05), simulate)
    assert found.gpu_idle_high >= 0.04 and found.gpu_idle == pytest.approx(0.04, abs=0.003)
    # Those that begin together have nearly whole batches done when the window begins, which it counts for nothing.
    together = estimate(pipeline, Plan(target=0.05, under_way=False), simulate)
    assert together.gpu_idle_high < 0.04


def test_too_few_steps_are_refused():
    with pytest.raises(InputError, match="steps = 5"):
        Plan(steps=5)


def test_far_from_the_target_fewer_replications_do():
    pipeline = example(**LINE)
    plan = Plan(least=4, most=200, half_width=0.0015)
    near, above, below = (estimate(pipeline, replace(plan, target=target), simulate) for target in (None, 0.01, 0.5))
    assert max(above.replications, below.replications) < near.replications


def test_noise_that_is_little_beside_uncertain_inputs_is_left():
    preprocess = {"mean": "5 ms", "cv": 3, "distribution": "lognormal"}
    tables = {"workload": {"batch_size": 8, "preprocess": preprocess}, "accelerator": {"step": {"mean": "20 ms"}}}
    certain = estimate(build(read_scenario(tables), 2, 4, 3), Plan(target=0.1), simulate)
    tables["accelerator"]["step"]["uncertainty"] = 0.4
    found = estimate(build(read_scenario(tables), 2, 4, 3), Plan(target=0.1), simulate)
    assert found.replications < certain.replications
    assert found.simulation_half_high <= 0.1 * max(found.input_half_low, found.input_half_high)


def test_what_inputs_add_is_seen_through_heavy_noise():
    preprocess = {"mean": "5 ms", "cv": 3, "distribution": "lognormal"}
    tables = {"workload": {"batch_size": 8, "preprocess": preprocess}, "accelerator": {"step": {"mean": "20 ms"}}}
    tables["accelerator"]["step"]["uncertainty"] = 0.1
    pipeline = build(read_scenario(tables), 2, 4, 3)
    long = estimate(pipeline, Plan(steps=20_000, least=8, most=8), simulate)
    for seed in range(1, 6):
        found = estimate(pipeline, Plan(least=8, most=8, seed=seed), simulate)
        assert found.input_half_high == pytest.approx(long.input_half_high, rel=0.25)


def test_no_estimate_idles_less_than_what_is_proven_and_its_shares_still_add_up():
    pipeline = build(scenario(mean="10 ms", cv=4, distribution="lognormal"), 2, 2, 8)
    plan = Plan(steps=60, least=4, most=4, inputs=0)
    free = estimate(pipeline, plan, simulate)
    low, high = free.gpu_idle - free.simulation_half_low / 2, free.gpu_idle + 0.01
    near, bound = (estimate(pipeline, plan, simulate, least=least) for least in (low, high))
    assert near.gpu_idle == free.gpu_idle and near.gpu_idle_low == pytest.approx(low)
    assert bound.gpu_idle == bound.gpu_idle_low == high < bound.gpu_idle_high
    assert bound.probability(high - 1e-6) == 0.0 and bound.probability(high) == 0.5
    assert math.fsum(bound.accelerator.values()) == pytest.approx(1.0)
    assert bound.accelerator["busy"] == pytest.approx(1.0 - high)
    # Where no time varies the run is the truth, and nothing is to be added.
    certain = build(scenario(mean="10 ms"), 2, 2, 8)
    assert estimate(certain, plan, simulate, least=0.99) == estimate(certain, plan, simulate)


@pytest.mark.parametrize(
    "preset, option", [("pytorch", 1), ("pytorch", 2), ("pytorch", 3), ("tf.data", 2), ("spdl", 2)]
)
def test_what_a_run_does_not_come_to_is_not_drawn(preset, option):
    workload = {"batch_size": 4, "preprocess": {"mean": "5 ms", "cv": 1}, "fetch": {"mean": "2 ms", "cv": 1}}
    device = {"step": {"mean": "20 ms", "cv": 0.2}}
    job = read_scenario({"workload": workload, "accelerator": device, "loader": {"preset": preset}})
    line = build(job, option, 4, 8, 4)
    for steps in (2100, 2540, 2559, 3000):
        length = RunLength(steps, 400)
        rows = _rows(line, length)
        assert rows < 4096
        assert simulate(line, draw(line, rows, 1), length) == simulate(line, draw(line, 4096, 1), length)


def test_estimates_that_differ_in_when_they_stop_share_their_runs():
    lengths = []

    def counting(line, draws, length):
        lengths.append(length)
        return simulate(line, draws, length)

    pipeline, cache = build(scenario(mean="10 ms", cv=2, uncertainty=0.1), 2, 4, 3), {}
    few, many = Plan(least=6, most=6, target=0.3), Plan(least=6, most=20, half_width=1e-6)
    assert estimate(pipeline, few, counting, cache) == estimate(pipeline, few, simulate)
    assert estimate(pipeline, many, counting, cache) == estimate(pipeline, many, simulate)
    assert len(lengths) == 20 + many.inputs
