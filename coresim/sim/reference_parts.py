"""The reference engine's shared resources and signals: work is kept up task by task, every change stays on record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable
from typing import Any

import simpy
from simpy.events import EventPriority

from coresim.model.pipeline import Number, Pipeline

#: A SimPy process.
Process = Generator[simpy.Event, Any, None]

#: Later than anything else at an instant (SimPy's own events have priorities 0 and 1).
_LAST = EventPriority(2)


class Quiet(simpy.Event):
    """Fires at this instant, when nothing else is left to happen in it."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, priority=_LAST)


class Bell:
    """Calls whoever makes the takes, when there may be something to take."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.rung = env.event()

    def ring(self) -> None:
        """Something has changed."""
        if not self.rung.triggered:
            self.rung.succeed()

    def wait(self) -> simpy.Event:
        """The next ring."""
        self.rung = self.env.event()
        return self.rung


class Barrier:
    """Lets all ranks go on when the last of them has come, and the all-reduce is over."""

    def __init__(self, env: simpy.Environment, ranks: int, allreduce: Number) -> None:
        self.env, self.ranks, self.allreduce = env, ranks, allreduce
        self.waiting: list[simpy.Event] = []

    def arrive(self) -> simpy.Event:
        """One rank is here; the event is its leave to go on."""
        leave = self.env.event()
        self.waiting.append(leave)
        if len(self.waiting) == self.ranks:
            self.env.process(self._release(self.waiting))
            self.waiting = []
        return leave

    def _release(self, waiting: list[simpy.Event]) -> Process:
        yield self.env.timeout(self.allreduce)
        for leave in waiting:
            leave.succeed()


class Timeline:
    """A state and the times of its changes."""

    def __init__(self, env: simpy.Environment, state: Hashable) -> None:
        self.env = env
        self.changes = [(env.now, state)]

    def note(self, state: Hashable) -> None:
        """From now on it is ``state``; what lasts no time is forgotten."""
        if self.changes[-1][0] == self.env.now:
            self.changes.pop()
        self.changes.append((self.env.now, state))

    def totals(self, begin: Number, end: Number) -> dict[Any, Number]:
        """Time in each state between ``begin`` and ``end``."""
        totals: dict[Any, Number] = defaultdict(lambda: end - end)
        ends = [at for at, _ in self.changes[1:]] + [end]
        for (at, state), until in zip(self.changes, ends, strict=True):
            totals[state] += span(at, until, begin, end)
        return totals


def span(since: Number, until: Number | None, begin: Number, end: Number) -> Number:
    """Length of the part of [since, until] (still open: None) that lies in [begin, end]."""
    last = end if until is None else min(until, end)
    return max(last - max(since, begin), end - end)


class Pool:
    """Tasks that progress at one common rate; the remaining work of each is brought up to date at every change."""

    def __init__(
        self, env: simpy.Environment, rate: Callable[[int], Number], changed: Callable[[], None] = lambda: None
    ) -> None:
        self.env, self.rate, self.changed = env, rate, changed
        self.left: dict[simpy.Event, Number] = {}
        self.endless = 0
        self.speed: Number = 0
        self.since = self.progress = env.now
        self.alarm: simpy.Event | None = None
        self.population = Timeline(env, 0)

    @property
    def tasks(self) -> int:
        """Tasks under way."""
        return len(self.left) + self.endless

    def start(self, work: Number) -> simpy.Event:
        """A task of so much work; the event is its end."""
        self._settle()
        done = self.env.event()
        self.left[done] = work
        self.refresh()
        return done

    def hold(self, change: int) -> None:
        """Start (1) or stop (-1) a task that has no end of its own."""
        self.endless += change
        self.refresh()

    def clock(self) -> Number:
        """Work that a task present from the beginning would have had done by now."""
        self._settle()
        return self.progress

    def refresh(self) -> None:
        """Go on at the rate that holds from now on."""
        self._settle()
        self.population.note(self.tasks)
        self.speed = self.rate(self.tasks) if self.tasks else 0
        self.alarm = None
        if self.left:
            self.alarm = self.env.timeout(max(min(self.left.values()) / self.speed, 0))
            self.alarm.callbacks.append(self._finish)
        self.changed()

    def _settle(self) -> None:
        if self.env.now == self.since:
            return
        work = self.speed * (self.env.now - self.since)
        self.since = self.env.now
        self.progress += work
        for task in self.left:
            self.left[task] -= work

    def _finish(self, alarm: simpy.Event) -> None:
        if alarm is not self.alarm:  # set before the rate changed
            return
        self._settle()
        least = min(self.left.values())
        for task in [task for task, work in self.left.items() if work == least]:
            del self.left[task]
            task.succeed()
        self.refresh()


class Host:
    """What the ranks of one host share; accelerators share nothing but the cores that slow them down."""

    def __init__(self, env: simpy.Environment, pipeline: Pipeline) -> None:
        self.env = env
        self.events = 0
        self.loaders: list[Any] = []  # the station of stage 0 of each rank
        self.accelerators = Pool(env, lambda _: pipeline.accelerator_rate(self.cores.tasks))
        self.cores = Pool(env, pipeline.core_rate, self.accelerators.refresh)
        self.storage = Pool(env, pipeline.storage_rate)

    def perform(self, resource: str, works: list[Number]) -> Process:
        """Parallel tasks, to the end of the last."""
        if resource == "wait":
            yield self.env.timeout(max(works))
        else:
            pool = self.cores if resource == "cores" else self.storage
            yield self.env.all_of([pool.start(work) for work in works])
        self.events += len(works)

    def clock(self, resource: str) -> Number:
        """A clock that advances with what one task of this resource gets done."""
        if resource == "wait":
            return self.env.now
        return self.cores.clock() if resource == "cores" else self.storage.clock()
