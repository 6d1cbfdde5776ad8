"""The score: errors, which numbers of workers would have been chosen, and what a miss shows of its cause."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from accuracy import at_sampled_speed, headline, is_calibrated, near_knee, with_own_costs
from made_up import with_work
from trial_kit import COSTS, SETTING, ledger, measured, point

from coresim.report.validation import trusted, validation_text
from coresim.sim.fast import simulate
from coresim.stats import t_quantile
from coresim.validate.grid import Setting
from coresim.validate.ledger import MeasuredTrial, RecordedJob, RecordedPoint
from coresim.validate.score import (
    LAUNCHING,
    PINNING,
    RECEIVING,
    WORK,
    cause,
    choices,
    cost_changes,
    missing_term,
    score,
)
from coresim.validate.training import StepCost


def test_the_score_counts_what_it_says():
    found = score([point(SETTING, 0.30, 0.28, 0.30), point(replace(SETTING, ratio=0.5), 0.5, 0.6)])
    assert found.idle_mean == pytest.approx((0.01 + 0.1) / 2)
    assert found.idle_max == pytest.approx(0.1)
    assert found.bias == pytest.approx((0.01 - 0.1) / 2)
    assert found.covered == 0.5
    assert found.noise_median == pytest.approx(0.02)
    assert found.rate_mean == pytest.approx((0.09 + 0.4) / 2)
    assert point(SETTING, 0.5, 0.6).throughput_error == pytest.approx(0.025 / 0.02 - 1)


def test_only_overlapped_points_about_equal_rates_are_near_the_knee():
    points = [point(replace(SETTING, ratio=r), 0.1, 0.1) for r in (0.5, 0.8, 1.25, 2.0)]
    points.append(point(replace(SETTING, option=1, workers=0, ratio=1.0), 0.1, 0.1))
    assert [p.setting.ratio for p in near_knee(points)] == [0.8, 1.25]


def test_the_recommended_workers_are_the_fewest_that_are_as_good():
    def scan(*idles: tuple[float, float]) -> list[RecordedPoint]:
        return [point(replace(SETTING, workers=n, at=2), p, m) for n, (p, m) in enumerate(idles, start=1)]

    agreed = choices(scan((0.5, 0.5), (0.1, 0.11), (0.095, 0.1)))[0]
    assert (agreed.recommended, agreed.best, agreed.agrees) == (2, 3, True)
    missed = choices(scan((0.5, 0.5), (0.1, 0.2), (0.095, 0.1)))[0]
    assert (missed.recommended, missed.best, missed.agrees) == (2, 3, False)
    assert choices(scan((0.5, 0.5), (0.1, 0.1))) == []
    noisy = [
        replace(p, trials=(measured(p.idle - 0.06), measured(p.idle + 0.06)))
        for p in scan((0.5, 0.5), (0.1, 0.2), (0.095, 0.1))
    ]
    within = choices(noisy)[0]
    assert (within.recommended, within.best, within.agrees) == (2, 3, True)
    # Repeats that differ by 0.12 have a deviation of 0.12 / sqrt(2), as has the difference of two means of two.
    assert within.lost == pytest.approx(0.1) and within.deviation == pytest.approx(0.12 / 2**0.5)
    assert within.noise == pytest.approx(within.deviation * t_quantile(0.95, 3))


@pytest.mark.slow
def test_numbers_of_workers_that_are_equally_good_count_so_in_nine_scans_of_ten():
    rng = random.Random(1)

    def agreed(better: float, scans: int = 2000) -> float:
        """The share that agrees where the last of four numbers idles less by so much; trials deviate by 0.03."""
        count = 0
        for _ in range(scans):
            idles = [[rng.gauss(0.5 - better * (n == 4), 0.03) for _ in range(2)] for n in (1, 2, 3, 4)]
            scan = [point(replace(SETTING, workers=n, at=2), 0.5, *found) for n, found in enumerate(idles, start=1)]
            count += choices(scan)[0].agrees
        return count / scans

    assert 0.89 < agreed(0.0) < 0.95
    assert agreed(0.15) < 0.2


def test_the_setting_that_was_calibrated_says_little_of_the_model():
    same = point(replace(SETTING, workers=1), 0.3, 0.3)
    changes = ({"workers": 2}, {"cores": 1}, {"prefetch_factor": 4}, {"ordered": False}, {"sync": "spin"})
    others = [replace(same, setting=replace(same.setting, **change)) for change in changes]
    assert is_calibrated(same) and not any(map(is_calibrated, others))
    assert headline([same, *others]) == others and headline([same]) == [same]


def test_a_miss_names_what_its_trial_shows():
    # Ten samples of 2.6 ms and their joining are 26 % dearer, and 13 % where two busy cores run at 0.9 of their speed.
    found = ledger(replace(point(SETTING, 0.1, 0.3), trials=(measured(0.3, sample_s=0.0026),)))
    assert "CPU time to prepare a batch +13%" in cause(found.points[0], found.jobs[0])
    alone = replace(found.points[0], setting=replace(SETTING, workers=1))
    assert "CPU time to prepare a batch +26%" in cause(alone, found.jobs[0])
    # Dearer samples do not explain that a trial idled less than predicted.
    less = replace(found.points[0], prediction=replace(found.points[0].prediction, idle=0.5))
    assert "CPU time to prepare a batch" not in cause(less, found.jobs[0])
    assert "CPU time to prepare a batch" in missing_term(found)
    assert not trusted(found)
    text = validation_text(found)
    assert text.startswith("Do not trust") and "CPU time to prepare a batch" in text
    assert "structure" in cause(point(SETTING, 0.1, 0.3), found.jobs[0])
    assert "repeats differ" in cause(point(SETTING, 0.1, 0.1, 0.4), found.jobs[0])
    assert "organisation" in missing_term(ledger(point(SETTING, 0.1, 0.3)))


def test_a_machine_whose_repeats_differ_too_much_cannot_tell():
    noisy = ledger(point(SETTING, 0.1, 0.2, 0.3))
    text = validation_text(noisy)
    assert not trusted(noisy) and "repeats of one setting differ by 10.0 points" in text
    assert text.startswith("This machine cannot tell") and "Most likely missing" not in text
    assert validation_text(ledger(point(SETTING, 0.1, 0.25, 0.25))).startswith("Do not trust")


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


def test_receiving_is_held_against_that_beside_the_workers_of_all_ranks():
    """Workers of four ranks that do not wait keep cores from resting: receiving takes half as long there."""
    costs = with_work(COSTS, consumer_by_workers=[1.0, 1.0, 1.0, 1.0, 0.5])
    half = replace(point(SETTING, 0.3), trials=(measured(0.3, receive_s=0.0005),))
    assert cost_changes(half, costs)[RECEIVING] == pytest.approx(-0.5)
    of_ranks = replace(half, setting=replace(SETTING, ranks=4))
    assert cost_changes(of_ranks, costs)[RECEIVING] == pytest.approx(0.0)


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
