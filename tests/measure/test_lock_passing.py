"""What threads lose when they pass the interpreter's lock."""

from __future__ import annotations

import pytest

from coresim.measure.lock_passing import ROUNDS, interpreted, measure_passing, passing, turn
from coresim.model import lock


def test_the_share_is_the_one_that_the_model_takes() -> None:
    alone = 0.002
    assert passing({count: alone * lock.longer(count, 0.3) for count in (1, 2, 4, 8)}) == pytest.approx(0.3)
    assert passing({1: alone, 2: alone, 4: alone}) == 0.0


def test_threads_take_turns_and_every_round_is_told() -> None:
    [found] = measure_passing()
    assert found.name == "lock.passing" and len(found.values) == ROUNDS and all(0.0 <= one < 2.0 for one in found.flat)
    # One turn is the same work however many take turns, so that two threads need about as long for it as one.
    assert 0.3 < turn(interpreted, 2, 0.05) / turn(interpreted, 1, 0.05) < 3.0
