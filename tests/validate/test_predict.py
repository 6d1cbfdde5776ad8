"""What is predicted for a trial: rates, hand-overs, the machine's speed, ranks, and how long it lasts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from accuracy import at_sampled_speed, is_calibrated, repredict
from effects import effects_of, without, worth
from made_up import COSTS as TRAINED_COSTS
from made_up import SETTING as TRAINED
from made_up import STEP, with_work
from trial_kit import COSTS, SETTING, ledger, measured, point

from coresim.sim.accounts import idle_of
from coresim.sim.draws import draw
from coresim.sim.fast import simulate
from coresim.sim.reference import simulate as reference
from coresim.sim.run import RunLength
from coresim.validate.grid import Setting
from coresim.validate.predict import (
    LONGEST,
    MOST_CHANCE,
    Costs,
    by_buffer,
    by_rates,
    chance,
    long_enough,
    predict,
    rate_period,
    runs_of,
    step_time,
    straggling,
    trial_idles,
    trial_length,
    trial_pipeline,
    trial_scenario,
)
from coresim.validate.training import StepCost


def test_the_ratio_fixes_the_step_time_by_rates():
    assert rate_period(COSTS, replace(SETTING, workers=1)) == pytest.approx(0.025)
    assert rate_period(COSTS, SETTING) == pytest.approx(0.0125 / 0.9)
    assert rate_period(COSTS, replace(SETTING, cores=1)) == pytest.approx(0.025)
    assert step_time(COSTS, SETTING) == pytest.approx(0.8 * 0.0125 / 0.9)
    assert step_time(COSTS, replace(SETTING, workers=4, at=1)) == pytest.approx(0.8 * 0.025)
    assert step_time(COSTS, replace(SETTING, step_s=0.1)) == 0.1
    assert by_rates(COSTS, SETTING) == pytest.approx(0.2)
    assert by_buffer(COSTS, SETTING) > 0.2


def test_waiting_needs_workers_and_not_cores():
    waiting = with_work(COSTS, fetch="10 ms")
    assert rate_period(waiting, replace(SETTING, workers=4)) == pytest.approx(0.125 / 4)
    assert rate_period(waiting, replace(SETTING, workers=20)) == pytest.approx(0.0125 / 0.9)


def test_a_trial_is_whole_rounds_of_its_workers_after_a_warm_up_of_two_fillings():
    length = trial_length(COSTS, replace(SETTING, workers=3), seconds=2.0)
    assert length.warm_up == 2 * 6 + 2
    assert (length.steps - length.warm_up) % 3 == 0


def test_the_interval_holds_the_prediction_and_every_effect_can_be_switched_off():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    found = predict(COSTS, SETTING, length, simulate)
    assert found.low < found.idle < found.high
    assert found.seconds_per_step == pytest.approx(step_time(COSTS, SETTING) / (1 - found.idle), rel=1e-3)
    idles = {effect: without(effect, COSTS, SETTING, length, simulate) for effect in effects_of(COSTS)}
    assert idles["receiving a batch"] < found.idle
    assert idles["collation and sending"] < found.idle
    assert idles["core sharing"] < found.idle
    assert idles["s(k)"] < found.idle


def test_a_spinning_trainer_takes_a_core_from_the_workers():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    spin = predict(COSTS, replace(SETTING, sync="spin"), length, simulate)
    assert spin.idle > predict(COSTS, SETTING, length, simulate).idle + 0.1


def test_worth_is_the_error_without_an_effect_less_that_with_it():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    exact = predict(COSTS, SETTING, length, simulate)
    base = replace(point(SETTING, exact.idle, exact.idle), step_s=step_time(COSTS, SETTING))
    found = worth(ledger(replace(base, steps=length.steps - length.warm_up, warm_up=length.warm_up)), simulate)
    assert set(found) == set(effects_of(COSTS))
    collation = found["collation and sending"]
    assert collation["all"] == collation["images"] > 0.01
    assert list(collation) == ["all", "images"]
    again = repredict(ledger(replace(base, steps=length.steps - length.warm_up, warm_up=length.warm_up)), simulate)
    assert again.points[0].prediction == exact


# Hand-overs

WAITING = "waiting for the hand-over"
#: The same costs where busy cores slow no other one down.
STEADY = replace(COSTS, tables={**COSTS.tables, "host": {"cores": 2, "speed": [1.0]}})


def test_a_trainer_waits_for_the_hand_over_of_a_batch_that_is_ready():
    length = trial_length(STEADY, replace(SETTING, workers=1), seconds=2.0)
    spare = replace(SETTING, workers=1, ratio=1.5)
    slow = with_work(STEADY, handover={"rest_free": "10 ms"})
    plain, waits = (predict(costs, spare, length, simulate).idle for costs in (STEADY, slow))
    step_s, receive = 1.5 * 0.025, 0.001  # beside a worker that rests
    assert plain == pytest.approx(receive / (step_s + receive), abs=0.001)
    assert waits == pytest.approx((receive + 0.01) / (step_s + receive + 0.01), abs=0.001)
    assert without(WAITING, slow, spare, length, simulate) == pytest.approx(plain, abs=1e-9)
    assert without("receiving a batch", slow, spare, length, simulate) == pytest.approx(0.0, abs=0.001)


def test_who_waits_for_a_hand_over_holds_no_core():
    """One core, and work for all of it in the workers: a trainer that waits leaves it to them."""
    one = replace(SETTING, cores=1, workers=2, step_s=0.001)
    length = trial_length(STEADY, one, seconds=2.0)
    slow = with_work(STEADY, handover={"rest_free": "10 ms", "work_crowded": "10 ms"})
    plain, waits = (predict(costs, one, length, simulate).seconds_per_step for costs in (STEADY, slow))
    assert waits == pytest.approx(plain, rel=0.05)


def test_a_trainer_that_really_trains_waits_for_hand_overs_too():
    """41 ms to be handed a batch and to launch a step of 10.2 ms; workers enough."""
    setting, length = replace(TRAINED, workers=8, cores=16), RunLength(80, 40)
    slow = with_work(TRAINED_COSTS, handover={"rest_free": "40 ms"})
    assert predict(slow, setting, length, simulate).idle == pytest.approx(0.75, abs=0.02)
    assert without(WAITING, slow, setting, length, simulate) < 0.2


def test_a_loader_in_the_trainer_hands_nothing_over():
    inline = replace(SETTING, option=1, workers=0)
    length = trial_length(COSTS, inline, seconds=1.0)
    slow = with_work(COSTS, handover={"rest_free": "1 s"})
    assert predict(slow, inline, length, simulate) == predict(COSTS, inline, length, simulate)


@pytest.mark.parametrize(
    ("effect", "workers", "costs", "more"),
    [
        ("copying to the device", 8, {"copy_pinned": (0.005,)}, 0.005 / 0.0152),
        # A step that takes twice as long beside workers computes no more.
        ("busy-host slowdown", 8, {"slowdown": (1.0, 2.0)}, 0.5),
    ],
)
def test_what_only_real_training_has_is_switched_off_there(
    effect: str, workers: int, costs: dict[str, object], more: float
):
    setting, length = replace(TRAINED, workers=workers, cores=16), RunLength(80, 40)
    step = replace(STEP, **({"launch": (0.001,), "copy_pinned": (0.0,)} | costs))  # type: ignore[arg-type]
    trained = replace(TRAINED_COSTS, training=step)
    idle, idle_without = (
        by(trained, setting, length, simulate) for by in (lambda *a: predict(*a).idle, partial(without, effect))
    )
    assert idle - idle_without == pytest.approx(more, abs=0.06)
    assert effect in effects_of(trained) and effect not in effects_of(COSTS)


def test_with_one_batch_out_a_worker_waits_until_the_last_one_is_received():
    length = trial_length(STEADY, replace(SETTING, workers=1), seconds=2.0)
    slow = with_work(STEADY, handover={"rest_free": "10 ms"})
    bound = replace(SETTING, workers=1, ratio=0.5)
    one, many = (
        predict(slow, replace(bound, prefetch_factor=factor), length, simulate).seconds_per_step for factor in (1, 4)
    )
    assert many == pytest.approx(0.025, rel=0.03)
    assert one == pytest.approx(0.025 + 0.011, rel=0.03)


# The machine's speed


def test_work_at_another_speed_costs_more_and_waiting_does_not():
    waiting = with_work(COSTS, fetch="10 ms", handover={"rest_free": "3 ms"})
    usual, slow = waiting.scenario.workload, replace(waiting, slower=1.2).scenario.workload
    for name in ("preprocess", "collate", "send", "consumer"):
        assert getattr(slow, name).mean == pytest.approx(1.2 * getattr(usual, name).mean)
    assert (slow.fetch, slow.handover) == (usual.fetch, usual.handover)


def test_a_launch_is_work_and_as_uncertain_as_the_speed_of_the_machine():
    """On a device that steps in 10 ms, launches of 20 ms make steps of 20 ms, or less where they are quicker.

    The device computes for 10 ms of them, whatever its events cover.
    """
    step = StepCost(step=(0.01,), launch=(0.02,), copy=(), copy_pinned=(), slowdown=(1.0,), sync="block")
    costs = replace(with_work(COSTS, preprocess="1 us", collate="0 s", consumer="0 s"), training=step)
    setting = replace(SETTING, model="tiny", device="cuda")
    length = trial_length(costs, setting, seconds=1.0)
    usual, quick = (predict(replace(costs, slower=slower), setting, length, simulate) for slower in (1.0, 0.75))
    assert (usual.seconds_per_step, quick.seconds_per_step) == pytest.approx((0.02, 0.015), rel=0.02)
    assert (usual.idle, quick.idle) == pytest.approx((1 / 2, 1 / 3), abs=0.01)
    unsure = trial_scenario(replace(costs, spread=0.1), setting).accelerator.launch
    assert (unsure.mean, unsure.uncertainty) == pytest.approx((0.02, 0.1))
    # What samples the machine's speed takes its share of a launch too.
    assert trial_scenario(replace(costs, sampled=0.2), setting).accelerator.launch.mean == pytest.approx(0.025)


def test_a_step_that_waits_for_launches_makes_a_device_that_waits_for_batches_no_less_idle():
    """Half of the launch comes before the step of 10 ms; its one worker needs longer for a batch."""
    step = StepCost(step=(0.01,), launch=(0.008,), copy=(), copy_pinned=(), slowdown=(1.0,), sync="block")
    costs = with_work(COSTS, preprocess=f"{50 / COSTS.tables['workload']['batch_size']} ms", collate="0 s", send="0 s")
    setting = replace(SETTING, model="tiny", device="cuda", workers=1, cores=8)
    length = trial_length(replace(costs, training=step), setting, seconds=1.0)
    without, led = (
        predict(replace(costs, training=replace(step, lead=lead)), setting, length, simulate) for lead in (0.0, 0.5)
    )
    assert led.seconds_per_step == pytest.approx(without.seconds_per_step)
    assert led.idle == pytest.approx(without.idle, abs=0.001)


def test_a_launch_on_an_emulated_device_is_a_declared_cpu_time_on_any_machine():
    step = StepCost(step=(0.01,), launch=(0.02,), copy=(), copy_pinned=(), slowdown=(1.0,), sync="block")
    costs, setting = (
        replace(COSTS, training=step, spread=0.1),
        replace(SETTING, model="tiny", device="emulated:step=1s"),
    )
    launch = trial_scenario(replace(costs, slower=0.75), setting).accelerator.launch
    assert (launch.mean, launch.uncertainty) == (0.02, 0.0)


def test_what_sampling_takes_of_a_cpu_is_predicted():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    setting = replace(SETTING, ratio=0.6, step_s=step_time(COSTS, replace(SETTING, ratio=0.6)))
    plain, sampled = (
        predict(c, setting, length, simulate).seconds_per_step for c in (COSTS, replace(COSTS, sampled=0.1))
    )
    assert sampled == pytest.approx(plain / 0.9, rel=0.02)


def test_a_point_is_predicted_anew_for_the_speed_around_its_trials():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    found = point(replace(SETTING, step_s=0.01), 0.3, 0.3)
    found = replace(found, steps=length.steps - length.warm_up, warm_up=length.warm_up)
    recorded = ledger(replace(found, trials=(measured(0.3), measured(0.3, slowdown=2.0))))
    usual = predict(COSTS, found.setting, length, simulate)
    slow = predict(replace(COSTS, slower=2.0), found.setting, length, simulate)
    assert slow.seconds_per_step == pytest.approx(2.0 * usual.seconds_per_step, rel=0.03)
    again = at_sampled_speed(recorded, simulate)[0].prediction
    assert again.idle == pytest.approx((usual.idle + slow.idle) / 2.0)


def test_points_are_predicted_anew_from_the_costs_of_their_own_jobs():
    samples = {"values": [0.002, 0.006], "unit": "s"}
    dear = with_work(COSTS, preprocess=samples, collate="6 ms", send="4 ms", consumer="2 ms")
    length = trial_length(COSTS, SETTING, seconds=1.0)
    first = replace(point(replace(SETTING, step_s=0.01), 0.3, 0.3), steps=length.steps, warm_up=length.warm_up)
    found = ledger(first, replace(first, job=1))
    both = replace(found, jobs=(found.jobs[0], replace(found.jobs[0], costs=dear)))
    cheap, twice = (one.prediction.seconds_per_step for one in at_sampled_speed(both, simulate))
    assert twice == pytest.approx(2.0 * cheap, rel=0.03)


def test_recommend_counts_the_idle_that_a_trial_is_judged_by():
    """Beside busy cores a step takes 1.5 times as long. Idle is the same by the accounts and by the period."""
    step = StepCost(step=(0.03,), launch=(0.001,), copy=(), copy_pinned=(), slowdown=(1.0, 1.5), sync="block")
    costs, setting = replace(COSTS, training=step), replace(SETTING, model="tiny", device="cuda")
    length = trial_length(costs, setting, seconds=2.0)
    runs = runs_of(trial_pipeline(trial_scenario(costs, setting), setting), length, simulate, 1.0)
    assert [idle_of(run) for run in runs] == pytest.approx(trial_idles(runs, 0.03, length))
    assert min(run.ranks[0].accelerator["slowed"] for run in runs) > 0.0


# How long a trial lasts

READING = Setting(
    workload="made up", batch_size=4, option=2, workers=4, cores=2, prefetch_factor=2, ratio=1.0, step_s=0.01
)


def reading_costs(**read: float) -> Costs:
    fetch = {"mean": "10 ms", "cv": read["cv"], "distribution": "lognormal"} if read["cv"] else "10 ms"
    workload = {"batch_size": 4, "preprocess": "0.1 ms", "fetch": fetch}
    return Costs({"workload": workload, "accelerator": {"step": "10 ms"}, "host": {"cores": 2}})


def test_where_samples_are_alike_a_trial_lasts_as_long_as_it_is_told() -> None:
    length = trial_length(reading_costs(cv=0.0), READING, seconds=2.0)
    assert long_enough(reading_costs(cv=0.0), READING, length, simulate) == length


def test_where_reads_differ_a_trial_lasts_longer_and_chance_is_less() -> None:
    heavy = reading_costs(cv=3.0)
    length = trial_length(heavy, READING, seconds=2.0)
    longer = long_enough(heavy, READING, length, simulate)
    assert chance(heavy, READING, length, simulate) > MOST_CHANCE
    assert length.warm_up == longer.warm_up
    counted, more = length.steps - length.warm_up, longer.steps - longer.warm_up
    assert counted < more <= LONGEST * counted + READING.workers
    assert more % READING.workers == counted % READING.workers == 0  # whole rounds of all workers
    assert chance(heavy, READING, longer, simulate) < chance(heavy, READING, length, simulate)


def test_chance_is_what_simulated_trials_differ_by() -> None:
    length = trial_length(reading_costs(cv=1.0), READING, seconds=2.0)
    assert chance(reading_costs(cv=0.0), READING, length, simulate) == pytest.approx(0.0, abs=1e-9)
    short = replace(length, steps=length.warm_up + (length.steps - length.warm_up) // 4)
    assert (
        chance(reading_costs(cv=1.0), READING, short, simulate)
        > chance(reading_costs(cv=1.0), READING, length, simulate)
        > 0.0
    )


# Ranks
#: Batches of 4 that wait 4 x 5 ms and work 4 x 0.1 ms.
RANK_COSTS = Costs(
    {
        "workload": {"batch_size": 4, "preprocess": "0.1 ms", "fetch": {"values": [0.004, 0.006], "unit": "s"}},
        "accelerator": {"step": "1 s"},
        "host": {"cores": 2},
    }
)
RANKED = Setting("slow-reads", 4, 2, 2, 2, 2, 1.0, ranks=4)


def test_ranks_share_the_cores_and_the_slowest_sets_the_rate() -> None:
    assert rate_period(RANK_COSTS, RANKED) == pytest.approx(20.4e-3 / 2)
    assert rate_period(RANK_COSTS, replace(RANKED, straggler=2.0)) == pytest.approx(40.4e-3 / 2)
    work = Costs({**RANK_COSTS.tables, "workload": {"batch_size": 4, "preprocess": "5 ms"}})
    assert rate_period(work, RANKED) == pytest.approx(4 * 20e-3 / 2)
    assert not is_calibrated(SimpleNamespace(setting=replace(RANKED, workers=1)))  # type: ignore[arg-type]


def test_ranks_wait_for_the_slowest_of_them() -> None:
    def idle(setting: Setting) -> float:
        return predict(RANK_COSTS, setting, trial_length(RANK_COSTS, setting, 1.0), simulate).idle

    alone, together = idle(replace(RANKED, ranks=1)), idle(RANKED)
    assert alone < together
    fixed = replace(RANKED, step_s=10.2e-3)
    # A rank whose reads take three times as long sets everybody's pace: three batches' time for each step.
    assert idle(replace(fixed, straggler=3.0)) == pytest.approx(2 / 3, abs=0.02)


def test_the_barrier_takes_cpu_time_of_each_rank() -> None:
    costs = replace(RANK_COSTS, barriers=((4, 1e-3), (8, 9.0)), slower=1.5, sampled=0.25)
    assert trial_scenario(costs, RANKED).accelerator.launch.mean == pytest.approx(1e-3 * 1.5 / 0.75)
    for other in (replace(RANKED, ranks=2), replace(RANKED, ranks=1)):
        assert trial_scenario(costs, other).accelerator.launch.is_zero
    # Four ranks that work for 40 ms on two cores, with steps of 20 ms: the cores bind, and a barrier of 2 ms takes 4.
    work = Costs({**RANK_COSTS.tables, "workload": {"batch_size": 4, "preprocess": "2.5 ms"}}, barriers=((4, 2e-3),))
    setting = replace(RANKED, step_s=1e-3)
    period = predict(work, setting, RunLength(120, 20), simulate).seconds_per_step
    assert period == pytest.approx(20e-3 + 4 * 2e-3 / 2, rel=0.02)


def test_one_straggles_and_the_others_do_not() -> None:
    pipeline = trial_pipeline(trial_scenario(RANK_COSTS, RANKED), RANKED)
    draws = draw(pipeline, 50, seed=1)
    changed = straggling(pipeline, draws, 50, 3.0)
    for index in range(50):
        mine, was = changed.row("loader.fetch", index, 0, 4), draws.service_times["loader.fetch"][index]
        assert mine == pytest.approx(3.0 * was)
        others = [changed.row("loader.fetch", index, rank, 4) for rank in (1, 2, 3)]
        assert all(other in draws.service_times["loader.fetch"] for other in others)
    assert straggling(pipeline, draws, 50, 1.0) is draws
    assert changed.service_times["loader.preprocess"] is draws.service_times["loader.preprocess"]
    length = RunLength(30, 10)
    fast, slow = (engine(pipeline, changed, length) for engine in (simulate, reference))
    assert [rank.accelerator["busy"] for rank in fast.ranks] == pytest.approx(
        [rank.accelerator["busy"] for rank in slow.ranks], rel=1e-9
    )
    assert fast.makespan == pytest.approx(slow.makespan, rel=1e-9)
