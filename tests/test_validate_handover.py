"""What a hand-over takes depends on what its maker does and on who wants a core: seen, simulated and mixed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from coresim.validate.costs import NOTHING
from coresim.validate.costs import Cost as Spent
from coresim.validate.loaders import Cost
from coresim.validate.trial import Step, Trial
from made_up import COSTS as TRAINED_COSTS
from made_up import SETTING as TRAINED
from made_up import STEP
from test_validate import CALIBRATION, SETTING

from coresim.sim.fast import simulate
from coresim.sim.run import RunLength, Trace
from coresim.validate import handover
from coresim.validate.predict import WAITING, effects_of, handover_shares, predict, trial_length, without


def step(asked: float, ready: float, got: float, cpu: float = 0.01) -> Step:
    return Step(asked, ready, got, got, got + 1.0, cpu)


def noted(began: float, made: float, worker: int = 7) -> Cost:
    return Cost(began, made, (made - began,), (made - began,), 0.0, worker)


def test_the_maker_is_seen_to_rest_to_be_early_or_late_in_another_batch_or_to_begin_one():
    """One worker, two batches out: batch n is dealt when batch n - 2 is wanted."""
    trial = Trial(
        0.0,
        (
            step(1.2, 1.0, 1.31),  # batch 1 is made from 1.0 to 2.0: early
            step(2.9, 2.0, 3.01),  # batch 2 is made from 2.0 to 3.0: late
            step(5.0, 3.0, 5.02),  # batch 3 was over at 4.0: rest
            step(5.5, 4.0, 5.53),  # batch 4 was dealt at 5.0: late
            step(5.8, 6.0, 6.11),  # not ready: batch 5 is begun when it is
            step(6.2, 7.0, 7.03),  # nor is this one
        ),
        (noted(0.0, 1.0), noted(1.1, 2.0), noted(2.2, 3.0), noted(3.3, 4.0), noted(5.1, 6.0), noted(6.1, 7.0)),
    )
    seen = handover.seen(trial, workers=1, prefetch_factor=2, cpus=2)
    assert {state: pytest.approx(waited) for state, waited in seen.items()} == {
        "early": [0.1], "late": [0.1, 0.02], "rest": [0.01], "now": [0.1, 0.02],
    }  # fmt: skip


def test_others_at_work_crowd_the_cores_and_the_trainer_s_own_work_on_a_shared_core_is_no_waiting():
    costs = (noted(0.0, 1.0), noted(0.0, 9.0, worker=8))
    trial = Trial(0.0, (step(4.0, 1.0, 4.03), step(9.5, 9.0, 9.52)), costs)
    shared = handover.seen(trial, workers=2, prefetch_factor=2, cpus=2)
    assert shared == {"rest, shared": [pytest.approx(0.015)], "rest": [pytest.approx(0.01)]}
    assert set(handover.seen(trial, workers=2, prefetch_factor=2, cpus=1)) == {"rest, crowded"}
    assert set(handover.seen(trial, workers=2, prefetch_factor=2, cpus=8)) == {"rest"}


def trace(taken: tuple[float, ...], done: tuple[float, ...], picked: tuple[float, ...]) -> Trace:
    count = tuple(range(len(picked)))
    return Trace(picked, picked, picked, count, (taken,), (done,), (done,), ((0,) * len(done),))


def test_a_simulated_run_tells_the_share_of_each_state_after_its_warm_up():
    run = trace((0.0, 1.0, 2.0, 5.0), (1.0, 2.0, 3.0, 6.0), (1.2, 2.9, 5.0, 6.0))
    assert handover.simulated(run, 0, 2, cpus=2) == {"early": 0.25, "late": 0.25, "rest": 0.25, "now": 0.25}
    assert handover.simulated(run, 2, 2, cpus=2) == {"rest": 0.5, "now": 0.5}
    # With one batch out per worker, the next one is dealt by the hand-over itself: until then its maker rests.
    assert handover.simulated(run, 2, 1, cpus=2) == {"rest": 1.0}


def test_one_worker_with_time_to_spare_rests_at_every_hand_over_and_one_without_begins_the_next_batch():
    length = trial_length(CALIBRATION, replace(SETTING, workers=1), seconds=2.0)
    spare = replace(SETTING, workers=1, ratio=1.5)
    assert handover_shares(CALIBRATION, spare, length, simulate) == {"rest": 1.0}
    assert handover_shares(CALIBRATION, replace(spare, ratio=0.7), length, simulate)["now"] > 0.9
    crowded = handover_shares(CALIBRATION, replace(spare, cores=1), length, simulate)
    assert crowded == {"rest, crowded": 1.0}
    by_quota = handover_shares(CALIBRATION, replace(spare, cores=1, limit="quota"), length, simulate)
    assert by_quota == {"rest": 1.0}  # all CPUs are there, if not all the time


def test_a_slow_hand_over_counts_where_its_state_comes_up():
    length = trial_length(CALIBRATION, replace(SETTING, workers=1), seconds=2.0)
    spare = replace(SETTING, workers=1, ratio=1.5)
    plain, slow = (
        predict(replace(CALIBRATION, handover=costs), spare, length, simulate).idle
        for costs in ({"rest": NOTHING, "now": Spent((0.01,))}, {"rest": Spent((0.01,)), "now": NOTHING})
    )
    step_s, receive = 1.5 * 0.025, 0.001 / CALIBRATION.speed  # beside a worker that begins its next batch
    assert plain == pytest.approx(receive / (step_s + receive), abs=0.001)
    assert slow == pytest.approx((receive + 0.01) / (step_s + receive + 0.01), abs=0.001)


def test_a_mixture_has_each_state_s_values_in_its_share():
    costs = {"rest": Spent((0.001,), 0.1), "late": Spent((0.002, 0.004), 0.3)}
    mixed = handover.mixture(costs, {"rest": 0.75, "late": 0.25})
    assert mixed.mean == pytest.approx(0.75 * 0.001 + 0.25 * 0.003)
    assert mixed.values.count(0.004) == pytest.approx(handover.FINE / 8, abs=1)
    assert mixed.uncertainty == pytest.approx(0.75 * 0.1 + 0.25 * 0.3)
    assert handover.mixture({}, {"rest": 1.0}).mean == 0.0
    assert handover.mixture(costs, {}) == NOTHING


@pytest.mark.parametrize(
    ("state", "taken"),
    [
        ("rest", "rest"), ("late", "rest"), ("now", "now"), ("late, shared", "early, shared"),
        ("rest, shared", "early, shared"), ("now, crowded", "early, shared"),
    ],
)  # fmt: skip
def test_a_state_that_was_not_seen_costs_what_the_most_similar_one_does(state: str, taken: str):
    costs = {name: Spent((number + 1.0,)) for number, name in enumerate(("now", "rest", "early, shared"))}
    assert handover.nearest(costs, state) == costs[taken]


def test_a_trainer_that_really_trains_waits_for_hand_overs_too():
    """41 ms to be handed a batch and to launch a step of 10.2 ms; workers enough."""
    setting, length = replace(TRAINED, workers=8, cores=16), RunLength(80, 40)
    slow = replace(TRAINED_COSTS, handover={"rest": Spent((0.040,)), "now": Spent((1.0,))})
    assert predict(slow, setting, length, simulate).idle == pytest.approx(0.75, abs=0.02)
    assert without(WAITING, slow, setting, length, simulate) < 0.2


@pytest.mark.parametrize(
    ("effect", "workers", "costs", "more"),
    [
        ("copying to the device", 8, {"copy_pinned": 0.005}, 0.005 / 0.0152),
        ("launch", 8, {"launch": (0.0204,)}, 0.5),
        # One worker makes a batch in 25 ms. A step that takes twice as long beside it idles less.
        ("busy-host slowdown", 1, {"slowdown": (1.0, 2.0)}, -0.0102 / 0.025),
    ],
)
def test_what_only_real_training_has_is_switched_off_there(
    effect: str, workers: int, costs: dict[str, object], more: float
):
    setting, length = replace(TRAINED, workers=workers, cores=16), RunLength(80, 40)
    step = replace(STEP, **({"launch": (0.001,), "copy_pinned": 0.0} | costs))  # type: ignore[arg-type]
    calibration = replace(TRAINED_COSTS, training=step)
    idle, idle_without = (
        by(calibration, setting, length, simulate) for by in (lambda *a: predict(*a).idle, partial(without, effect))
    )
    assert idle - idle_without == pytest.approx(more, abs=0.06)
    assert effect in effects_of(calibration) and effect not in effects_of(CALIBRATION)


def test_with_one_batch_out_a_worker_waits_until_the_last_one_is_received():
    length = trial_length(CALIBRATION, replace(SETTING, workers=1), seconds=2.0)
    slow = replace(CALIBRATION, handover={"rest": Spent((0.01,))})
    bound = replace(SETTING, workers=1, ratio=0.5)
    one, many = (
        predict(slow, replace(bound, prefetch_factor=factor), length, simulate).seconds_per_step for factor in (1, 4)
    )
    assert many == pytest.approx(0.025, rel=0.03)
    assert one == pytest.approx(0.025 + 0.011, rel=0.03)
