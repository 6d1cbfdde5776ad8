"""The machine's speed around trials, in what is predicted and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from accuracy import at_sampled_speed, with_own_costs
from made_up import with_work
from validate.test_validate import COSTS, SETTING, ledger, measured, point

from coresim.sim.accounts import idle_of
from coresim.sim.fast import simulate
from coresim.validate.grid import Setting
from coresim.validate.ledger import MeasuredTrial, RecordedJob
from coresim.validate.predict import (
    predict,
    runs_of,
    step_time,
    trial_idles,
    trial_length,
    trial_pipeline,
    trial_scenario,
)
from coresim.validate.score import LAUNCHING, PINNING, WORK, cause, cost_changes
from coresim.validate.session import judged
from coresim.validate.training import StepCost


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


def test_a_trial_on_a_slower_machine_counts_where_the_sampler_knew():
    slow = measured(0.2, sample_s=0.003, collate_s=0.0015, slowdown=1.5)
    known = judged(replace(point(SETTING, 0.3), trials=(measured(0.3), slow)))
    assert [trial.dirty for trial in known.trials] == ["", ""]


def test_what_a_trial_noted_is_held_against_the_calibration_without_the_share_of_sampling():
    """Of 10 samples of 2 ms and 3 ms to join them; the calibration has a batch in that time too."""
    same = replace(point(replace(SETTING, workers=1), 0.3), trials=(measured(0.3),))
    assert cost_changes(same, replace(COSTS, sampled=0.1))[WORK] == pytest.approx(0.0)


def test_without_overlap_all_that_the_trainer_did_for_a_batch_is_held_against_the_calibration():
    """The calibrated collation of such a trainer has the loader's own work in it, which notes of samples have not."""
    alone = with_work(COSTS, in_process_collate=2.0)  # 20 ms of samples, and 6 ms
    found = replace(point(replace(SETTING, option=1, workers=0), 0.3), trials=(measured(0.3, receive_s=0.039),))
    assert cost_changes(found, alone)[WORK] == pytest.approx(0.5)
    (own,) = with_own_costs(replace(ledger(found), jobs=(RecordedJob("images", "imagenet-like", alone),)), simulate)
    assert own.prediction.seconds_per_step == pytest.approx(found.step_s + 0.039, rel=0.01)


def test_pinning_is_a_cause_where_a_trial_noted_it():
    costs, slow = with_work(COSTS, pin="10 ms"), measured(0.3, pin_s=0.013)
    changes = cost_changes(replace(point(SETTING, 0.3), trials=(slow,)), costs)
    assert changes[PINNING] == pytest.approx(0.3)
    assert PINNING not in cost_changes(replace(point(SETTING, 0.3), trials=(measured(0.3),)), costs)
    missed, job = replace(point(SETTING, 0.1), trials=(slow,)), RecordedJob("images", "imagenet-like", costs)
    assert "pinning a batch +30%" in cause(missed, job)


def test_launching_is_a_cause_where_the_trainer_has_a_core_and_waits_for_no_copy():
    """A launch of 20 ms takes 25 beside cores that all run at 0.8; the trial's took 30. Its workers keep one core."""
    step = StepCost(step=(0.01,), launch=(0.02,), copy=(0.01,), copy_pinned=(0.01,), slowdown=(1.0,), sync="block")
    tables = {**COSTS.tables, "host": {**COSTS.tables["host"], "speed": [1.0, 0.8]}}
    costs = replace(COSTS, training=step, tables=tables)
    pinned = replace(SETTING, model="tiny", device="cuda", cores=4, workers=2, pin_memory=True)
    trial = measured(0.3, launch_s=0.03, seconds_per_step=0.05)

    def changes(setting: Setting, noted: MeasuredTrial) -> Mapping[str, float]:
        return cost_changes(replace(point(setting, 0.1), trials=(noted,)), costs)

    assert changes(pinned, trial)[LAUNCHING] == pytest.approx(0.2)
    # What sampling takes of a CPU is predicted, so it is no change.
    sampled = cost_changes(replace(point(pinned, 0.1), trials=(trial,)), replace(costs, sampled=0.2))
    assert sampled[LAUNCHING] == pytest.approx(1.2 * 0.8 - 1.0)
    missed = replace(point(pinned, 0.1), trials=(trial,))
    assert "launching a step +20%" in cause(missed, RecordedJob("images", "imagenet-like", costs))
    # What is left of the miss with the launches that the trial had is less.
    job = RecordedJob("images", "imagenet-like", costs)
    (own,) = with_own_costs(replace(ledger(missed), jobs=(job,)), simulate)
    assert own.prediction.seconds_per_step == pytest.approx(0.03, rel=0.1)
    without_pin = replace(pinned, pin_memory=False)  # a copy waits for the device
    crowded = replace(pinned, cores=2)  # one for its workers, one for the thread that pins
    for other, noted in ((without_pin, trial), (crowded, trial), (pinned, replace(trial, launch_s=None))):
        assert LAUNCHING not in changes(other, noted)


def test_recommend_counts_the_idle_that_a_trial_is_judged_by():
    """Beside busy cores a step takes 1.5 times as long. Idle is the same by the accounts and by the period."""
    step = StepCost(step=(0.03,), launch=(0.001,), copy=(), copy_pinned=(), slowdown=(1.0, 1.5), sync="block")
    costs, setting = replace(COSTS, training=step), replace(SETTING, model="tiny", device="cuda")
    length = trial_length(costs, setting, seconds=2.0)
    runs = runs_of(trial_pipeline(trial_scenario(costs, setting), setting), length, simulate, 1.0)
    assert [idle_of(run) for run in runs] == pytest.approx(trial_idles(runs, 0.03, length))
    assert min(run.ranks[0].accelerator["slowed"] for run in runs) > 0.0


def test_option_3_s_threads_are_no_cause_that_a_trial_notes():
    """The calibration has what its threads need, by the clock; the trial, CPU time, and another thread's receiving."""
    slow = replace(
        point(replace(SETTING, option=3), 0.1), trials=(measured(0.3, sample_s=0.009, receive_s=0.0, slowdown=1.4),)
    )
    assert cost_changes(slow, COSTS) == {"the CPU time of the sampler's work": pytest.approx(0.4)}
    recorded = ledger(slow)
    (own,), (paced,) = with_own_costs(recorded, simulate), at_sampled_speed(recorded, simulate)
    assert own.prediction.idle == pytest.approx(paced.prediction.idle, abs=1e-6)


def test_a_miss_at_another_speed_names_it():
    slow = replace(point(SETTING, 0.1), trials=(measured(0.3, slowdown=1.4),))
    assert "the CPU time of the sampler's work +40%" in cause(slow, ledger(slow).jobs[0])
