"""The reference engine's line: what stands between the batches of one rank and its trainer.

Each takes items from what stands before it (`has`, `take`) when it may (`move`). All that happens stays on record.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import simpy

from coresim.model.pipeline import Number, Phase, Pipeline, Stage
from coresim.sim.reference_host import Process, ReferenceHost

Outlet: TypeAlias = "Feed | StageServers | Splitter | Gatherer"


@dataclass
class LineItem:
    """A batch or a sample."""

    number: int
    owner: int  # the server of stage 0 that took it
    #: What it was doing, and until when: at each stage its queue, then the phases.
    marks: list[tuple[str, Number]] = field(default_factory=list)


class Feed:
    """*Dispatch*: what stands in front of stage 0."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.stage = stage = pipeline.stages[0] if pipeline.stages else Stage("none", 1, (Phase("none"),))
        self.credits = math.inf if pipeline.credits is None else pipeline.credits
        self.epoch = math.inf if pipeline.epoch_batches is None else pipeline.epoch_batches
        self.grain = pipeline.batch_size if stage.grain == "sample" else 1
        self.own: list[deque[int]] = [deque() for _ in range(stage.servers)]  # batches of each server, if dealt
        self.started: list[float] = [-1] * stage.servers  # for which epoch
        self.opened: float = 0
        self.picked = self.dealt = self.next = 0

    def open_epoch(self) -> None:
        """Let the batches of one more epoch be dispatched."""
        self.opened += self.epoch
        self._deal(0)

    def pick_up(self, batch: LineItem) -> None:
        """The trainer has picked up a batch."""
        self.picked += 1
        self._deal(batch.owner)

    def _dispatched(self) -> float:
        return min(self.opened, self.picked + self.credits)

    def _deal(self, owner: int) -> None:
        while self.stage.dispatch == "round_robin" and self.dealt < self._dispatched():
            place = self.dealt if self.epoch == math.inf else self.dealt % int(self.epoch)
            in_turn = self.stage.ordered or place < self.credits
            self.own[place % self.stage.servers if in_turn else owner].append(self.dealt)
            self.dealt += 1

    def has(self, server: int) -> bool:
        """Whether there is an item that this server may take."""
        shared = self.stage.dispatch == "shared"
        return self.next < self._dispatched() * self.grain if shared else bool(self.own[server])

    def take(self, server: int) -> LineItem:
        """Take it."""
        self.next += 1
        return LineItem(self.next - 1 if self.stage.dispatch == "shared" else self.own[server].popleft(), server)

    def start_up(self, server: int, item: LineItem) -> list[Number]:
        """Work of a server before this item, if that is its first of an epoch that begins with a start-up."""
        epoch = item.number // self.grain // self.epoch
        first, self.started[server] = self.started[server] != epoch, epoch
        return [self.pipeline.worker_startup] if first and (epoch == 0 or not self.pipeline.persistent) else []


@dataclass
class Visit:
    """What happened to one item at one stage."""

    server: int
    taken: Number
    over: simpy.Event  # the end of its service
    #: Resource, and its clock at the begin and the end (None: under way) of each piece of work.
    works: list[tuple[str, Number, Number | None]] = field(default_factory=list)
    done: Number | None = None
    out: Number | None = None


class StageServers:
    """One stage of one rank: its servers and the buffer behind them."""

    def __init__(
        self, host: ReferenceHost, stage: Stage, source: Outlet, times: Callable[[str, int], list[Number]]
    ) -> None:
        self.host, self.stage, self.source, self.times = host, stage, source, times
        self.free = [True] * stage.servers
        self.visits: dict[int, Visit] = {}
        self.finished: list[tuple[Number, int, LineItem]] = []
        self.ready: list[tuple[Number, int, LineItem]] = []
        self.handed_over = self.passed = 0

    def move(self) -> bool:
        """Let the first free server that can take an item do so."""
        for server, free in enumerate(self.free):
            if free and self.source.has(server):
                self.free[server] = False
                self.host.env.process(self._serve(self.source.take(server), server))
                return True
        return False

    def _serve(self, item: LineItem, server: int) -> Process:
        """*Service*."""
        name, env = self.stage.name, self.host.env
        visit = self.visits.setdefault(item.number, Visit(server, env.now, env.event()))
        for work in self.source.start_up(server, item) if isinstance(self.source, Feed) else []:
            yield from self._work(visit, "cores", [work])
        item.marks.append((f"{name}.queue", self.host.env.now))
        for key, phase in ((f"{name}.{phase.name}", phase) for phase in self.stage.phases):
            yield from self._work(visit, phase.resource, self.times(key, item.number))
            item.marks.append((key, self.host.env.now))
        visit.done = self.host.env.now
        visit.over.succeed()
        heapq.heappush(self.finished, self._turn(item))

    def _work(self, visit: Visit, resource: str, times: list[Number]) -> Process:
        begin = self.host.clocks()[resource]
        visit.works.append((resource, begin, None))
        yield from self.host.perform(resource, times)
        visit.works[-1] = (resource, begin, self.host.clocks()[resource])

    def _turn(self, item: LineItem) -> tuple[Number, int, LineItem]:
        return (0 if self.stage.ordered else self.host.env.now), item.number, item

    def hand_over(self) -> None:
        """*Hand-over* of what is finished, as far as there is room and it is its turn."""
        while self.finished:
            number, item = self.finished[0][1:]
            has_room = self.stage.buffer is None or len(self.ready) < self.stage.buffer
            early = self.stage.ordered and self.stage.buffer is not None and number > self.handed_over
            if early or not has_room:
                return
            heapq.heappop(self.finished)
            visit = self.visits[item.number]
            visit.out, self.free[visit.server] = self.host.env.now, True
            self.handed_over += 1
            heapq.heappush(self.ready, self._turn(item))

    def has(self, server: int) -> bool:
        """Whether the item whose turn it is stands ready."""
        return bool(self.ready) and (not self.stage.ordered or self.ready[0][1] == self.passed)

    def take(self, server: int) -> LineItem:
        """Take it."""
        self.passed += 1
        return heapq.heappop(self.ready)[-1]


@dataclass
class Splitter:
    """*Grain*: takes one batch and offers its samples."""

    source: Outlet
    batch_size: int
    samples: deque[LineItem] = field(default_factory=deque)

    def move(self) -> bool:
        """Take a batch if empty and there is one."""
        if self.samples or not self.source.has(0):
            return False
        batch = self.source.take(0)
        first = batch.number * self.batch_size
        self.samples.extend(LineItem(first + at, batch.owner, [*batch.marks]) for at in range(self.batch_size))
        return True

    def has(self, server: int) -> bool:
        """Whether there is a sample."""
        return bool(self.samples)

    def take(self, server: int) -> LineItem:
        """Take it."""
        return self.samples.popleft()


@dataclass
class Gatherer:
    """*Grain*: takes the samples of a stage one by one and offers full batches."""

    source: Outlet
    batch_size: int
    samples: list[LineItem] = field(default_factory=list)
    batches: int = 0

    def move(self) -> bool:
        """Take one sample unless the batch is full."""
        if self.has(0) or not self.source.has(0):
            return False
        self.samples.append(self.source.take(0))
        return True

    def has(self, server: int) -> bool:
        """Whether the batch is full."""
        return len(self.samples) == self.batch_size

    def take(self, server: int) -> LineItem:
        """Take it."""
        last, self.samples, self.batches = self.samples[-1], [], self.batches + 1
        return LineItem(self.batches - 1, last.owner, last.marks)
