"""One trial: a real input pipeline feeds an accelerator that blocks for the step time, step after step.

The accelerator is emulated as in MLPerf Storage (https://github.com/mlcommons/storage): a step is a wait of known
length, so all that the pipeline does is real. A timer that blocks wakes late, by milliseconds where every core is
busy. The lateness is measured at each step and taken out: the emulated device has a clock of its own, on which step i
starts at

    start(i) = max(ready(i), end(i - 1)) + (got(i) - max(ready(i), woke(i - 1)))

with ``ready`` the moment at which a worker had the batch, ``woke`` and ``got`` the moments at which the trainer woke
and had the batch in its hands: had it woken in time, it would have begun to wait or to receive that much earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from coresim.validate.loaders import Cost, Pipe


class Step(NamedTuple):
    """One step, seconds: when the trainer asked, when the batch was ready, when it was in hand; the device's start."""

    asked: float
    ready: float
    got: float
    start: float
    cpu: float


@dataclass(frozen=True)
class Trial:
    """What happened: the steps of the window after warm-up, and what the workers noted of their batches.

    Attributes:
        step_s: what each step took on the device, in seconds.
        before: the device's end of the last warm-up step.
        steps: the steps of the window.
        costs: of the same batches.
    """

    step_s: float
    before: float
    steps: tuple[Step, ...]
    costs: tuple[Cost, ...]

    @property
    def idle(self) -> float:
        """Share of the window in which the device did no step."""
        span = self.steps[-1].start + self.step_s - self.before
        return 1.0 - len(self.steps) * self.step_s / span if span > 0 else 0.0

    @property
    def seconds_per_step(self) -> float:
        """Mean time from step to step, device clock."""
        return (self.steps[-1].start + self.step_s - self.before) / len(self.steps)

    @property
    def lateness(self) -> float:
        """Mean seconds by which the timer woke late."""
        ends = [self.before, *(step.start + self.step_s for step in self.steps)]
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
    step_s: float,
    warm_up: int,
    steps: int,
    *,
    wait: Callable[[float], None] = sleep_until,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> Trial:
    """Feed the device ``warm_up`` and then ``steps`` steps.

    Args:
        pipe: where batches come from; it stays open.
        step_s: seconds of one step on the device.
        warm_up: steps that do not count, at least one.
        steps: steps that count.
        wait: blocks until a moment of the clock.
        clock: wall seconds.
        cpu_clock: CPU seconds of the trainer's thread.
    """
    found: list[Step] = []
    costs: list[Cost] = []
    end = None
    for _ in range(warm_up + steps):
        asked, cpu = clock(), cpu_clock()
        batch, cost = pipe.next()
        got, used = clock(), cpu_clock() - cpu
        # Inline, nothing was ready before it was asked for; at the first step there is no end to be late for.
        ready = asked if pipe.inline else min(cost.made, got)
        start = got if end is None else max(ready, end) + (got - max(ready, asked))
        if pipe.inline and end is not None:
            start = end + (got - asked)
        del batch
        end = start + step_s
        wait(end)
        found.append(Step(asked, ready, got, start, used))
        costs.append(cost)
    before = found[warm_up - 1].start + step_s
    return Trial(step_s, before, tuple(found[warm_up:]), tuple(costs[warm_up:]))
