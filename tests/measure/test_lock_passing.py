"""What threads lose when they pass the interpreter's lock."""

from __future__ import annotations

import pytest

from coresim.measure import lock_passing
from coresim.measure.lock_passing import interpreted, measure_passing, passing, turn
from coresim.model import lock


def test_the_share_is_the_one_that_the_model_takes() -> None:
    alone = 0.002
    assert passing({count: alone * lock.longer(count, 0.3) for count in (1, 2, 4, 8)}) == pytest.approx(0.3)
    assert passing({1: alone, 2: alone, 4: alone}) == 0.0


def test_a_loop_of_the_interpreter_in_several_threads_tells_it() -> None:
    assert 0.0 <= measure_passing() < 2.0
    # One turn is the same work however many take turns, so that two threads need about as long for it as one.
    assert 0.3 < turn(interpreted, 2, 0.05) / turn(interpreted, 1, 0.05) < 3.0


def test_the_fastest_turns_of_all_rounds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round in which all took twice as long changes nothing, and no loss is below 0."""
    rounds = iter([2.0, 1.0, 1.5])
    factor = 1.0

    def timed(_: object, count: int, seconds: float) -> float:
        nonlocal factor
        factor = next(rounds) if count == 1 else factor
        return factor * lock.longer(count, 0.2)

    monkeypatch.setattr(lock_passing, "turn", timed)
    assert measure_passing() == pytest.approx(0.2)
    monkeypatch.setattr(lock_passing, "turn", lambda work, count, seconds: 1.0 / count)
    assert measure_passing() == 0.0
