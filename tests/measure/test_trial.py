"""One trial: the emulated device's own clock, on a clock that only moves when it is told to."""

from __future__ import annotations

import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kit import made_note

from coresim.measure.notes import Note
from coresim.measure.subject import Pipe
from coresim.measure.trial import Trial, after_warm_up, run_trial, sleep_until, spin_until


class Scripted(Pipe):
    """Batches that are ready at given moments of a clock that only moves when told, and take time to receive."""

    def __init__(self, ready: list[float], receive: float = 0.0, inline: float | None = None) -> None:
        self.now, self.late, self.inline = 0.0, 0.0, inline is not None
        self._ready, self._receive, self._prepare = iter(ready), receive, inline or 0.0

    def next(self) -> tuple[object, Note]:
        ready = next(self._ready)
        self.now = max(self.now, ready) + self._receive + self._prepare
        return None, made_note(ready, ready)

    def wait(self, moment: float) -> None:
        self.now = max(self.now, moment) + self.late


def trial(pipe: Scripted, step: float, warm_up: int, steps: int) -> Trial:
    planned = [step] * (warm_up + steps)
    return run_trial(pipe, planned, warm_up, wait=pipe.wait, clock=lambda: pipe.now, cpu_clock=lambda: pipe.now / 2)


def test_a_device_fed_in_time_idles_only_while_a_batch_is_received():
    found = trial(Scripted([0.0] * 12, receive=0.25), step=1.0, warm_up=2, steps=10)
    assert found.uncovered == pytest.approx(0.25 / 1.25)
    assert found.seconds_per_step == pytest.approx(1.25)


def test_a_device_that_waits_for_batches_idles_until_they_are_ready():
    found = trial(Scripted([4.0 * n for n in range(12)]), step=1.0, warm_up=2, steps=10)
    assert found.uncovered == pytest.approx(0.75)


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_the_lateness_of_the_timer_is_taken_out(late: float):
    for ready, idle in (([0.0] * 12, 0.2), ([4.0 * n for n in range(12)], 0.75)):
        pipe = Scripted(ready, receive=0.25)
        pipe.late = late
        found = trial(pipe, step=1.0, warm_up=2, steps=10)
        assert found.lateness == pytest.approx(late)
        assert found.uncovered == pytest.approx(idle)


def test_passing_the_barrier_costs_nothing_while_the_device_is_busy():
    pipe = Scripted([0.0] * 12, receive=0.25)

    def join(end: float) -> float:
        pipe.now += 0.5
        return end

    found = run_trial(
        pipe, [1.0] * 12, 2, wait=pipe.wait, join=join, clock=lambda: pipe.now, cpu_clock=lambda: pipe.now
    )
    assert found.lateness == pytest.approx(0.0)
    assert found.seconds_per_step == pytest.approx(1.25)


def test_an_inline_loader_is_late_by_no_more_than_its_work():
    pipe = Scripted([0.0] * 12, inline=0.5)
    pipe.late = 0.2
    assert trial(pipe, step=1.0, warm_up=2, steps=10).uncovered == pytest.approx(0.5 / 1.5)


def test_a_trainer_lets_a_batch_go_when_it_has_the_next_as_a_training_loop_does():
    held: list[weakref.ref] = []

    class Batch:
        pass

    class Watched(Scripted):
        def next(self) -> tuple[object, Note]:
            assert [batch for batch in held if batch()] == held[-1:]
            _, note = super().next()
            batch = Batch()
            held.append(weakref.ref(batch))
            return batch, note

        def wait(self, moment: float) -> None:
            assert [batch for batch in held if batch()] == held[-1:]
            super().wait(moment)

    trial(Watched([0.0] * 12), step=1.0, warm_up=2, steps=10)
    assert len(held) == 12


def test_what_freeing_the_batch_before_takes_is_told_apart():
    class Freed:
        def __del__(self) -> None:
            pipe.now += 0.125

    class Held(Scripted):
        def next(self) -> tuple[object, Note]:
            return Freed(), super().next()[1]

    pipe = Held([0.0] * 12, receive=0.5)
    found = trial(pipe, step=1.0, warm_up=2, steps=10)
    # By a CPU clock that runs half as fast.
    assert [(step.cpu, step.freed) for step in found.steps] == [(0.3125, 0.0625)] * 10


def test_each_step_may_have_its_own_length_and_they_are_asked_for_one_by_one():
    asked: list[float] = []
    pipe = Scripted([0.0] * 4)

    def lengths() -> Any:
        for seconds in (1.0, 0.5, 0.0, 2.0):
            asked.append(pipe.now)
            yield seconds

    found = run_trial(pipe, lengths(), 1, wait=pipe.wait, clock=lambda: pipe.now, cpu_clock=lambda: 0.0)
    assert [step.end - step.start for step in found.steps] == [0.5, 0.0, 2.0]
    assert asked == [0.0, 1.0, 1.5, 1.5]  # each only when the last one is over
    assert (found.before, found.seconds_per_step, found.uncovered) == (1.0, pytest.approx(2.5 / 3), 0.0)


def test_the_trainer_s_cpu_time_of_a_step_is_that_of_receiving():
    found = trial(Scripted([0.0] * 12, receive=0.25), step=1.0, warm_up=2, steps=10)
    assert [step.cpu for step in found.steps] == pytest.approx([0.125] * 10)


def test_what_comes_before_the_window_is_kept_apart():
    found = trial(Scripted([float(n) for n in range(12)]), step=1.0, warm_up=3, steps=9)
    assert (len(found.warm_up), len(found.notes), len(found.steps)) == (3, 9, 9)
    assert [note.made for note in found.warm_up] == [0.0, 1.0, 2.0]
    assert after_warm_up(found.steps, found.notes, 2).before == found.steps[1].end


def test_a_moment_is_waited_for_on_the_core_or_off_it():
    for wait in (sleep_until, spin_until):
        moment = time.perf_counter() + 0.02
        wait(moment)
        assert time.perf_counter() >= moment
        wait(moment)  # one that is over is not waited for


def test_a_common_end_is_what_the_barrier_says() -> None:
    """Whatever the timer does: the next step begins no earlier than the end of all."""
    pipe = SimpleNamespace(inline=False, next=lambda: (None, SimpleNamespace(there=0.0)))
    moments = iter(np.arange(0.0, 1000.0))
    trial = run_trial(
        pipe, [1.0] * 5, 1, wait=lambda _: None, join=lambda end: end + 7.0,  # type: ignore[arg-type]
        clock=lambda: float(next(moments)), cpu_clock=lambda: 0.0,
    )  # fmt: skip
    ends = [trial.before, *(step.end for step in trial.steps)]
    assert all(step.start >= end and step.end >= step.start + 8.0 for step, end in zip(trial.steps, ends, strict=False))
