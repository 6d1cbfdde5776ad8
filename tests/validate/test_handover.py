"""What a hand-over takes, and what only real training shows, in predictions of trials."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from effects import effects_of, without
from made_up import COSTS as TRAINED_COSTS
from made_up import SETTING as TRAINED
from made_up import STEP, with_work
from validate.test_validate import COSTS, SETTING

from coresim.sim.fast import simulate
from coresim.sim.run import RunLength
from coresim.validate.predict import predict, trial_length

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
