"""One trial: a real input pipeline feeds an accelerator that blocks for the step time, step after step.

The accelerator is emulated as in MLPerf Storage (https://github.com/mlcommons/storage): a step is a wait of known
length, so all that the pipeline does is real. A timer that blocks wakes late, by milliseconds if every core is busy.
The lateness is measured at each step and taken out: the emulated device has a clock of its own, and step i starts at

    start(i) = max(ready(i), end(i - 1)) + (got(i) - max(ready(i), woke(i - 1)))

with ``ready`` the moment at which the batch was there for the trainer, ``woke`` and ``got`` the moments at which the
trainer woke and had the batch in its hands. If it had woken in time, it would have begun to wait or to receive that
much earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coresim.measure.notes import Note, queued_seconds
from coresim.measure.subject import Pipe


class TimedStep(NamedTuple):
    """One step: moments in seconds, and the trainer's CPU seconds.

    Attributes:
        asked, ready, got: when the trainer asked, when the batch was there for it (made, and pinned where the loader
            pins), when it was in the trainer's hands.
        start, end: of the step on the device; of several ranks, the end of the last one's.
        cpu: CPU time of the trainer to receive the batch, and to free the one before.
        queued: seconds meanwhile in which the trainer wanted a core and had none, where the system tells.
        freed: the part of ``cpu`` that freed the batch before.
        launch: seconds for the copy and the call that launches the step; 0 if no call launches it.
    """

    asked: float
    ready: float
    got: float
    start: float
    end: float
    cpu: float
    queued: float = 0.0
    launch: float = 0.0
    freed: float = 0.0


@dataclass(frozen=True)
class Trial:
    """What happened: the steps of the window after warm-up, and what the workers noted of their batches.

    ``before`` is the device's end of the last warm-up step, s, and ``warm_up`` what was noted until then.
    """

    before: float
    steps: tuple[TimedStep, ...]
    notes: tuple[Note, ...]
    warm_up: tuple[Note, ...] = ()

    @property
    def uncovered(self) -> float:
        """Share of the window in which no step was under way on the device, at work or waiting for launches."""
        span = self.steps[-1].end - self.before
        return 1.0 - sum(step.end - step.start for step in self.steps) / span if span > 0 else 0.0

    @property
    def seconds_per_step(self) -> float:
        """Mean time from step to step, device clock."""
        return (self.steps[-1].end - self.before) / len(self.steps)

    @property
    def lateness(self) -> float:
        """Mean seconds by which the timer woke late."""
        ends = [self.before, *(step.end for step in self.steps)]
        return sum(max(0.0, step.asked - end) for step, end in zip(self.steps, ends, strict=False)) / len(self.steps)


def sleep_until(moment: float) -> None:
    """Block until ``moment`` of `time.perf_counter`: holds no core."""
    time.sleep(max(0.0, moment - time.perf_counter()))


def spin_until(moment: float) -> None:
    """Wait for ``moment`` of `time.perf_counter` on the core, as CUDA does by default."""
    while time.perf_counter() < moment:
        pass


def run_trial(
    pipe: Pipe,
    steps_s: Iterable[float],
    warm_up: int,
    *,
    wait: Callable[[float], None] = sleep_until,
    join: Callable[[float], float] = float,
    take: Callable[[Any], None] = lambda batch: None,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.thread_time,
    queue_clock: Callable[[], float] = lambda: queued_seconds() or 0.0,
) -> Trial:
    """Feed the device one batch for each of its steps; the pipe stays open.

    Args:
        steps_s: seconds of each step on the device.
        warm_up: steps that do not count, at least one.
        wait: blocks until a moment of the clock.
        join: with several ranks, waits for all and gives the latest moment at which a rank's device will be done.
        take: called with each batch when the trainer has it.
        clock, cpu_clock, queue_clock: wall seconds; those of the trainer's thread on a core, and waiting for one.
    """
    found: list[TimedStep] = []
    notes: list[Note] = []
    end, batch = None, None
    for step_s in steps_s:
        queued = queue_clock()
        asked, cpu = clock(), cpu_clock()
        received, note = pipe.next()
        freeing = cpu_clock()
        batch = received  # the batch before is let go here, as in any training loop
        del received
        got, used = clock(), cpu_clock()
        queued = queue_clock() - queued
        take(batch)
        # Inline, nothing was ready before it was asked for; at the first step there is no end to be late for.
        ready = asked if pipe.inline else min(note.there, got)
        start = got if end is None else max(ready, end) + (got - max(ready, asked))
        if pipe.inline and end is not None:
            start = end + (got - asked)
        # A step's end is known as it begins, so ranks tell it one another while their devices are busy.
        end = join(start + step_s)
        wait(end)
        found.append(TimedStep(asked, ready, got, start, end, used - cpu, queued, freed=used - freeing))
        notes.append(note)
    return after_warm_up(found, notes, warm_up)


def after_warm_up(steps: Sequence[TimedStep], notes: Sequence[Note], warm_up: int) -> Trial:
    """The trial of all steps but the first ``warm_up``, at least one."""
    return Trial(steps[warm_up - 1].end, tuple(steps[warm_up:]), tuple(notes[warm_up:]), tuple(notes[:warm_up]))
