"""What all lines of a host share in the reference engine: cores, storage and accelerators.

Everything that happens stays on record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import simpy

from coresim.model.pipeline import Number, Pipeline

Process: TypeAlias = Generator[simpy.Event, Any, None]


class Pool:
    """Tasks that progress at one common rate; the remaining work of each is brought up to date at every change."""

    def __init__(self, env: simpy.Environment, rate: Callable[[int], Number]) -> None:
        self.env, self.rate = env, rate
        self.changed: Callable[[], None] = lambda: None
        self.left: dict[simpy.Event, Number] = {}
        self.endless = 0
        self.speed: Number = 0
        self.since = self.progress = env.now
        self.alarm: simpy.Event | None = None
        self.times: dict[int, Number] = defaultdict(lambda: env.now * 0)  # by the number of tasks

    def tasks(self) -> int:
        """Tasks that progress."""
        return len(self.left) + self.endless

    def start(self, work: Number) -> simpy.Event:
        """A task of so much work; the event is its end."""
        self.clock()
        done = self.env.event()
        self.left[done] = work
        self.refresh()
        return done

    def hold(self, change: int) -> None:
        """Start (1) or stop (-1) a task that has no end of its own."""
        self.clock()
        self.endless += change
        self.refresh()

    def refresh(self) -> None:
        """Go on at the rate that holds from now on."""
        self.clock()
        self.speed = self.rate(self.tasks()) if self.tasks() else 0
        self.alarm = None
        least = min(self.left.values(), default=1)
        if least <= 0 or (self.left and self.speed):
            self.alarm = self.env.timeout(least / self.speed if least > 0 else 0)
            self.alarm.callbacks.append(self._finish)
        self.changed()

    def clock(self) -> Number:
        """Work that a task present from the beginning would have had done by now."""
        passed, self.since = self.env.now - self.since, self.env.now
        if passed > 0:
            self.times[self.tasks()] += passed
            self.progress += self.speed * passed
            self.left = {task: left - self.speed * passed for task, left in self.left.items()}
        return self.progress

    def _finish(self, alarm: simpy.Event) -> None:
        if alarm is not self.alarm:  # set before the rate changed
            return
        self.clock()
        least = min(self.left.values())
        for task in [task for task, work in self.left.items() if work == least]:
            del self.left[task]
            task.succeed()
        self.refresh()


class Turn(simpy.Timeout):
    """The quota is used up, or its next period begins: by itself it brings nothing on."""


class CorePool(Pool):
    """The cores, with their quota if there is one."""

    def __init__(self, env: simpy.Environment, pipeline: Pipeline) -> None:
        super().__init__(env, lambda tasks: pipeline.core_rate(tasks, self.endless))
        self.pipeline, self.limited = pipeline, pipeline.has_quota
        self.quota = self.unused = pipeline.cores * pipeline.quota_period
        self.period_end = pipeline.quota_period
        self.turn: Turn | None = None

    def tasks(self) -> int:
        """Tasks that progress: none where the quota of this period is used up."""
        return 0 if self.limited and self.unused <= 0 else super().tasks()

    def busy(self, tasks: int) -> Number:
        """Cores that so many tasks keep busy."""
        return min(tasks, self.pipeline.width)

    def clock(self) -> Number:
        """As of any pool; what the tasks have used of the quota meanwhile is gone."""
        used = self.busy(self.tasks()) * (self.env.now - self.since)
        progress = super().clock()
        self.unused -= used
        return progress

    def refresh(self) -> None:
        """Go on at the rate that holds from now on, until the quota is used up or its next period begins."""
        self.clock()
        while self.limited and self.env.now >= self.period_end:
            self.period_end, self.unused = self.period_end + self.pipeline.quota_period, self.quota
        super().refresh()
        self.turn = None
        if self.limited and super().tasks():
            ahead, busy = self.period_end - self.env.now, self.busy(self.tasks())
            used_up = self.unused < ahead * busy
            self.turn = Turn(self.env, self.unused / busy if used_up else ahead)
            self.turn.callbacks.append(lambda turn: self._turn(turn, used_up))

    def _turn(self, turn: simpy.Event, used_up: bool) -> None:
        if turn is self.turn:  # not set before something changed
            self.clock()
            self.unused = 0 if used_up else self.unused
            self.refresh()


class ReferenceHost:
    """What the ranks of one host share; accelerators share nothing but the cores that slow them down."""

    def __init__(self, env: simpy.Environment, pipeline: Pipeline) -> None:
        self.env, self.pipeline, self.events = env, pipeline, 0
        self.cores, storage = CorePool(env, pipeline), Pool(env, pipeline.storage_rate)
        accelerators = Pool(env, lambda _: pipeline.accelerator_rate(self.cores.tasks()))
        self.cores.changed = accelerators.refresh
        self.pools = {"cores": self.cores, "storage": storage, "accelerator": accelerators}

    def is_over(self) -> bool:
        """Whether nothing can happen any more: turns of the quota are all that is awaited, by no task."""
        return not self.cores.left and all(isinstance(event, Turn) for *_, event in self.env._queue)

    def perform(self, resource: str, works: list[Number]) -> Process:
        """Parallel tasks, to the end of the last."""
        if resource == "wait":
            yield self.env.timeout(max(works))
        else:
            yield self.env.all_of([self.pools[resource].start(work) for work in works])
        self.events += len(works)

    def busy(self) -> Number:
        """Core-seconds so far."""
        self.cores.clock()
        return sum(self.cores.busy(tasks) * seconds for tasks, seconds in self.cores.times.items())

    def clocks(self) -> dict[str, Number]:
        """Clocks that advance with what one task of each resource gets done."""
        return {"wait": self.env.now, **{name: pool.clock() for name, pool in self.pools.items()}}
