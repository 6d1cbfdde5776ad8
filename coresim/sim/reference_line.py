"""What the reference engine simulates: a host's resources, and the lines of batches of its ranks.

Each part of a line takes items from what stands before it (`has`, `take`) when it may (`move`). *Words* like these name
the paragraph of `coresim.model.pipeline` that a part follows.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import simpy

from coresim.model.pipeline import Number, Phase, Pipeline, Stage

Process: TypeAlias = Generator[simpy.Event, Any, Any]
Outlet: TypeAlias = "Feed | StageServers | Joint"


class ReferenceHost:
    """What the ranks of one host share: tasks on cores, of storage and of accelerators, and what is left of each."""

    def __init__(self, env: simpy.Environment, pipeline: Pipeline) -> None:
        self.env, self.pipeline, self.events = env, pipeline, 0
        self.left: dict[str, dict[simpy.Event, Number]] = {"cores": {}, "storage": {}, "accelerator": {}}
        self.rates: dict[str, Number] = {}
        self.busy_cores: Number = 0
        self.core_seconds: Number = env.now
        self.unused: Number = math.inf  # of the quota of this period
        self.period_end: Number = env.now if pipeline.has_quota else math.inf
        self.alarm: simpy.Event | None = None

    def start(self, resource: str, work: Number) -> simpy.Event:
        """A task of so much work; the event is its end."""
        task = self.env.event()
        if work > 0:
            self.left[resource][task] = work
        else:
            task.succeed()
        return task

    def perform(self, resource: str, works: list[Number]) -> Process:
        """Parallel tasks, to the end of the last."""
        if resource == "wait":
            yield self.env.timeout(max(works))
        else:
            yield self.env.all_of([self.start(resource, work) for work in works])
        self.events += len(works)

    def hold_core(self, event: simpy.Event) -> Process:
        """Wait for it, as a runnable task if trainers spin."""
        task = self.start("cores", math.inf if self.pipeline.trainer.spin else 0)
        yield event
        self.left["cores"].pop(task, None)

    def go_on(self) -> None:
        """All goes on at the rates that hold from now on, until a task ends, or the *quota* is used up or renewed."""
        if self.env.now >= self.period_end:
            self.unused = self.pipeline.cores * self.pipeline.quota_period
            self.period_end += self.pipeline.quota_period
        running = len(self.left["cores"]) if self.unused > 0 else 0
        spinning = list(self.left["cores"].values()).count(math.inf)
        self.busy_cores = min(running, self.pipeline.width)
        self.rates = {
            "wait": 1,
            "cores": self.pipeline.core_rate(running, spinning) if running else 0,
            "storage": self.pipeline.storage_rate(len(self.left["storage"])),
            "accelerator": self.pipeline.accelerator_rate(running),
        }
        progressing = ((name, tasks) for name, tasks in self.left.items() if tasks and self.rates[name])
        ahead = [(min(tasks.values()) / self.rates[name], name) for name, tasks in progressing]
        ahead += [(self.unused / self.busy_cores, "quota")] if running else []
        seconds, first = min([*ahead, (self.period_end - self.env.now, "period")])
        self.alarm = None
        if seconds < math.inf:
            self.alarm = self.env.timeout(max(seconds, 0))  # rounding may leave less than nothing
            self.alarm.callbacks.append(lambda alarm: self._ring(alarm, first))

    def _ring(self, alarm: simpy.Event, first: str) -> None:
        if alarm is not self.alarm:  # set before something changed
            return
        if first == "quota":
            self.unused = 0
        for name, tasks in self.left.items():
            over = min(tasks.values()) if name == first else 0  # whatever rounding has left
            for task in [task for task, work in tasks.items() if work <= over]:
                del tasks[task]
                task.succeed()

    def pass_time(self, seconds: Number) -> None:
        """Account for time in which nothing changes."""
        for name, tasks in self.left.items():
            done = self.rates[name] * seconds
            self.left[name] = {task: work - done for task, work in tasks.items()}
        self.core_seconds += self.busy_cores * seconds
        self.unused -= self.busy_cores * seconds


@dataclass(eq=False)
class ReferenceItem:
    """A batch or a sample at one stage; a time that has not come is infinite."""

    number: int
    owner: int  # the server of stage 0 that took it
    #: What it was doing, and until when: at each stage its queue, then the phases.
    marks: list[tuple[str, Number]] = field(default_factory=list)
    server: int = 0
    taken: Number = math.inf
    service: simpy.Event = field(init=False)
    resource: str = ""  # that its service takes now; empty when it is done
    done: Number = math.inf
    out: Number = math.inf


class Feed:
    """*Dispatch*: what stands in front of stage 0."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.stage = stage = pipeline.stages[0] if pipeline.stages else Stage("none", 1, (Phase("none"),))
        self.credits = math.inf if pipeline.credits is None else pipeline.credits
        self.epoch = math.inf if pipeline.epoch_batches is None else pipeline.epoch_batches
        self.grain = pipeline.items(stage.grain)
        self.own: list[deque[int]] = [deque() for _ in range(stage.servers)]  # batches of each server, if dealt
        self.started: list[float] = [-1] * stage.servers  # for which epoch
        self.opened: float = 0
        self.picked = self.dealt = self.taken = 0

    def open_epoch(self) -> None:
        """Let the batches of one more epoch be dispatched."""
        self.opened += self.epoch
        self._deal(0)

    def pick_up(self, batch: ReferenceItem) -> None:
        """The trainer has picked up a batch."""
        self.picked += 1
        self._deal(batch.owner)

    def _dispatched(self) -> float:
        return min(self.opened, self.picked + self.credits)

    def _deal(self, owner: int) -> None:
        while self.stage.dispatch == "round_robin" and self.dealt < self._dispatched():
            place = int(self.dealt % self.epoch)
            in_turn = self.stage.ordered or place < self.credits
            self.own[place % self.stage.servers if in_turn else owner].append(self.dealt)
            self.dealt += 1

    def has(self, server: int) -> bool:
        """Whether there is an item that this server may take."""
        shared = self.stage.dispatch == "shared"
        return self.taken < self._dispatched() * self.grain if shared else bool(self.own[server])

    def take(self, server: int) -> ReferenceItem:
        """Take it."""
        self.taken += 1
        return ReferenceItem(self.taken - 1 if self.stage.dispatch == "shared" else self.own[server].popleft(), server)

    def start_up(self, item: ReferenceItem) -> list[Number]:
        """Work of its server before this item, if that is its first of an epoch that begins with a start-up."""
        epoch = item.number // self.grain // self.epoch
        first, self.started[item.owner] = self.started[item.owner] != epoch, epoch
        return [self.pipeline.worker_startup] if first and (epoch == 0 or not self.pipeline.persistent) else []


class StageServers:
    """One stage of one rank: its servers and the buffer behind them."""

    def __init__(
        self, host: ReferenceHost, stage: Stage, source: Outlet, times: Callable[[str, int], list[Number]]
    ) -> None:
        self.host, self.env, self.stage, self.source, self.times = host, host.env, stage, source, times
        self.servers: list[ReferenceItem | None] = [None] * stage.servers  # what each serves, or has finished and holds
        self.ready: list[ReferenceItem] = []
        self.passed = 0
        self.items: dict[int, ReferenceItem] = {}  # all that were taken

    def move(self) -> bool:
        """Let the first free server that can take an item do so."""
        for server, held in enumerate(self.servers):
            if held is None and self.source.has(server):
                before = self.source.take(server)
                item = ReferenceItem(before.number, before.owner, before.marks, server, self.env.now)
                item.service = self.env.process(self._serve(item))
                self.servers[server] = self.items[item.number] = item
                return True
        return False

    def _serve(self, item: ReferenceItem) -> Process:
        """*Service*."""
        for work in self.source.start_up(item) if isinstance(self.source, Feed) else []:
            item.resource = "cores"
            yield from self.host.perform("cores", [work])
        item.marks.append((f"{self.stage.name}.queue", self.env.now))
        for key, phase in ((f"{self.stage.name}.{phase.name}", phase) for phase in self.stage.phases):
            item.resource = phase.resource
            yield from self.host.perform(phase.resource, self.times(key, item.number))
            item.marks.append((key, self.env.now))
        item.resource, item.done = "", self.env.now

    def hand_over(self) -> None:
        """*Hand-over* of what is finished, as far as there is room and it is its turn."""
        ordered, buffer = self.stage.ordered, self.stage.buffer
        finished = [item for item in self.servers if item and not item.resource]
        for item in sorted(finished, key=lambda item: (0 if ordered else item.done, item.number)):
            is_early = ordered and item.number > self.passed + len(self.ready)
            if buffer is not None and (is_early or len(self.ready) == buffer):
                return
            item.out, self.servers[item.server] = self.env.now, None
            bisect.insort(self.ready, item, key=lambda item: (0 if ordered else item.out, item.number))

    def has(self, server: int = 0) -> bool:
        """Whether the item whose turn it is stands ready."""
        return bool(self.ready) and (not self.stage.ordered or self.ready[0].number == self.passed)

    def take(self, server: int = 0) -> ReferenceItem:
        """Take it."""
        self.passed += 1
        return self.ready.pop(0)

    def find_early(self, received: Collection[int]) -> ReferenceItem | None:
        """*Receiving early*: the first finished item, unless its turn has come or that in turn has been received."""
        there = [item for item in self.ready if item.number not in received]
        first = min(there, key=lambda item: (item.out, item.number), default=None)
        return first if first and self.passed not in (first.number, *received) else None

    def column(self, name: str, steps: int) -> tuple[Any, ...]:
        """One part of the trace: of the items of so many steps, what came before now."""
        count = steps * self.host.pipeline.items(self.stage.grain)
        items, time = [self.items.get(number) for number in range(count)], "taken" if name == "server" else name
        return tuple(getattr(item, name) if item and getattr(item, time) < self.env.now else None for item in items)


@dataclass
class Joint:
    """*Grain*: a splitter takes one batch and offers its samples; a gatherer takes samples and offers a full batch."""

    source: StageServers
    splits: bool
    batch_size: int
    samples: deque[ReferenceItem] = field(default_factory=deque)

    def move(self) -> bool:
        """Take an item if there is one, unless something is offered."""
        if self.has() or not self.source.has():
            return False
        item, size = self.source.take(), self.batch_size if self.splits else 1
        first = item.number * size
        self.samples.extend(ReferenceItem(first + at, item.owner, [*item.marks]) for at in range(size))
        return True

    def has(self, server: int = 0) -> bool:
        """Whether there is a sample, or a full batch of them."""
        return len(self.samples) >= (1 if self.splits else self.batch_size)

    def take(self, server: int = 0) -> ReferenceItem:
        """Take it; of a gathered batch the last sample counts, and its number is its turn."""
        if self.splits:
            return self.samples.popleft()
        last = self.samples[-1]
        self.samples.clear()
        return ReferenceItem(self.source.passed // self.batch_size - 1, last.owner, last.marks)


class Line:
    """What stands between the batches of one rank and its trainer; ``moves`` take, the lowest first."""

    def __init__(self, pipeline: Pipeline, host: ReferenceHost, times: Callable[[str, int], list[Number]]) -> None:
        self.feed = Feed(pipeline)
        self.outlet: Outlet = self.feed
        self.stations: list[StageServers] = []
        self.moves: list[Callable[[], bool]] = []
        for stage in pipeline.stages:
            self._join(stage.grain, pipeline.batch_size)
            self.outlet = StageServers(host, stage, self.outlet, times)
            self.stations.append(self.outlet)
            self.moves.append(self.outlet.move)
        self._join("batch", pipeline.batch_size)

    def _join(self, grain: str, batch_size: int) -> None:
        """Turn what leaves the last stage so far into the grain that follows."""
        if isinstance(self.outlet, StageServers) and self.outlet.stage.grain != grain:
            self.outlet = Joint(self.outlet, grain == "sample", batch_size)
            self.moves.append(self.outlet.move)

    def served_by_maker(self, batch: ReferenceItem) -> ReferenceItem | None:
        """What the server of stage 0 that made the batch serves now."""
        item = self.stations[0].servers[batch.owner]
        return item if item and item.resource else None
