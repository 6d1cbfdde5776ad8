"""The reference engine's line: what stands between the batches of one rank and its trainer, and takes from each other.

Everything that happens to an item stays on record, so that accounts can be taken when the run is over.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from coresim.model.pipeline import Number, Pipeline, Stage
from coresim.sim.reference_parts import Host, Process


class Outlet(Protocol):
    """Where items are taken from."""

    def offer(self, server: int) -> int | None:
        """Number of the item that this server may take now, if any."""

    def take(self, server: int) -> int:
        """Take that item."""


class Feed:
    """The batches of one rank in front of stage 0."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.credits = math.inf if pipeline.credits is None else pipeline.credits
        self.epoch = math.inf if pipeline.epoch_batches is None else pipeline.epoch_batches
        self.grain = pipeline.batch_size if pipeline.stages and pipeline.stages[0].grain == "sample" else 1
        self.opened: float = 0
        self.picked = self.next = 0

    @property
    def dispatched(self) -> float:
        """Batches dispatched so far."""
        return min(self.opened, self.picked + self.credits)

    def open_epoch(self) -> None:
        """Let the batches of one more epoch be dispatched."""
        self.opened += self.epoch

    def pick(self, batch: int) -> None:
        """The trainer has picked up a batch."""
        self.picked += 1

    def offer(self, server: int) -> int | None:
        """The next item, whoever asks."""
        return self.next if self.next < self.dispatched * self.grain else None

    def take(self, server: int) -> int:
        """Take the next item."""
        self.next += 1
        return self.next - 1


class DealtFeed(Feed):
    """Batches that belong to a server from their dispatch on."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.stage = pipeline.stages[0]
        self.queues: list[deque[int]] = [deque() for _ in range(self.stage.servers)]
        self.owners: list[int] = []

    def open_epoch(self) -> None:
        """Deal the first batches of the epoch."""
        super().open_epoch()
        self._deal(0)

    def pick(self, batch: int) -> None:
        """Deal one more batch."""
        super().pick(batch)
        self._deal(self.owners[batch])

    def offer(self, server: int) -> int | None:
        """The oldest batch of this server."""
        return self.queues[server][0] if self.queues[server] else None

    def take(self, server: int) -> int:
        """Take that batch."""
        return self.queues[server].popleft()

    def _deal(self, freed: int) -> None:
        while len(self.owners) < self.dispatched:
            batch = len(self.owners)
            place = batch if self.epoch == math.inf else batch % int(self.epoch)
            in_turn = self.stage.ordered or place < self.credits
            self.owners.append(place % self.stage.servers if in_turn else freed)
            self.queues[self.owners[-1]].append(batch)


@dataclass
class Visit:
    """What happened to one item at one stage."""

    server: int
    taken: Number
    #: What the item was doing, and until when: its queue, then each phase.
    marks: list[tuple[str, Number]] = field(default_factory=list)
    #: Resource, and its clock at the begin and the end (None: under way) of each piece of work.
    works: list[tuple[str, Number, Number | None]] = field(default_factory=list)
    done: Number | None = None
    out: Number | None = None


class Splitter:
    """Takes one batch and offers its samples."""

    def __init__(self, source: Outlet, batch_size: int) -> None:
        self.source, self.batch_size = source, batch_size
        self.samples: deque[int] = deque()

    def move(self) -> bool:
        """Take a batch if empty and there is one."""
        if self.samples or self.source.offer(0) is None:
            return False
        first = self.source.take(0) * self.batch_size
        self.samples.extend(range(first, first + self.batch_size))
        return True

    def offer(self, server: int) -> int | None:
        """The next sample."""
        return self.samples[0] if self.samples else None

    def take(self, server: int) -> int:
        """Take that sample."""
        return self.samples.popleft()


class Station:
    """One stage of one rank: its servers and the buffer behind them."""

    def __init__(
        self,
        host: Host,
        stage: Stage,
        source: Outlet,
        row: Callable[[str, int], list[Number]],
        ring: Callable[[], None],
    ) -> None:
        self.host, self.stage, self.source, self.row, self.ring = host, stage, source, row, ring
        self.env = host.env
        self.holding: list[int | None] = [None] * stage.servers
        self.visits: dict[int, Visit] = {}
        self.finished: list[tuple[Number, int]] = []
        self.ready: list[tuple[Number, int]] = []
        self.handed = self.passed = 0
        self.start_up: Callable[[int, int], Number | None] = lambda server, item: None

    @property
    def places(self) -> range:
        """The numbers of the servers."""
        return range(len(self.holding))

    def serves(self, server: int) -> int | None:
        """The item that a server serves, from its taking to the end of its last phase."""
        item = self.holding[server]
        return item if item is not None and self.visits[item].done is None else None

    def move(self) -> bool:
        """Let the first free server that can take an item do so."""
        for server, item in enumerate(self.holding):
            if item is None and self.source.offer(server) is not None:
                item = self.holding[server] = self.source.take(server)
                self.visits[item] = Visit(server, self.env.now)
                self.env.process(self._serve(item, self.visits[item]))
                return True
        return False

    def hand_over(self) -> None:
        """Hand over what is finished, as far as there is room and it is its turn."""
        while self.finished and self._may_hand_over(self.finished[0][1]):
            _, item = heapq.heappop(self.finished)
            visit = self.visits[item]
            visit.out = self.env.now
            self.holding[visit.server] = None
            self.handed += 1
            heapq.heappush(self.ready, self._turn(item))

    def _may_hand_over(self, item: int) -> bool:
        if self.stage.buffer is None:
            return True
        return len(self.ready) < self.stage.buffer and (not self.stage.ordered or item == self.handed)

    def _turn(self, item: int) -> tuple[Number, int]:
        return (0 if self.stage.ordered else self.env.now), item

    def offer(self, server: int) -> int | None:
        """The item whose turn it is, if it stands ready."""
        if not self.ready or (self.stage.ordered and self.ready[0][1] != self.passed):
            return None
        return self.ready[0][1]

    def take(self, server: int) -> int:
        """Take that item."""
        _, item = heapq.heappop(self.ready)
        self.passed += 1
        return item

    def _serve(self, item: int, visit: Visit) -> Process:
        name = self.stage.name
        start_up = self.start_up(visit.server, item)
        if start_up is not None:
            yield from self._work(visit, "cores", [start_up])
        visit.marks.append((f"{name}.queue", self.env.now))
        for phase in self.stage.phases:
            key = f"{name}.{phase.name}"
            yield from self._work(visit, phase.resource, self.row(key, item))
            visit.marks.append((key, self.env.now))
        visit.done = self.env.now
        heapq.heappush(self.finished, self._turn(item))
        self.ring()

    def _work(self, visit: Visit, resource: str, works: list[Number]) -> Process:
        begin = self.host.clock(resource)
        visit.works.append((resource, begin, None))
        yield from self.host.perform(resource, works)
        visit.works[-1] = (resource, begin, self.host.clock(resource))


class Gatherer:
    """Takes the samples of a stage one by one and offers full batches."""

    def __init__(self, source: Outlet, batch_size: int) -> None:
        self.source, self.batch_size = source, batch_size
        self.samples: list[int] = []
        #: The sample that completed each batch taken.
        self.last: list[int] = []

    def move(self) -> bool:
        """Take one sample unless the batch is full."""
        if len(self.samples) == self.batch_size or self.source.offer(0) is None:
            return False
        self.samples.append(self.source.take(0))
        return True

    def offer(self, server: int) -> int | None:
        """The gathered batch."""
        return len(self.last) if len(self.samples) == self.batch_size else None

    def take(self, server: int) -> int:
        """Take that batch."""
        self.last.append(self.samples[-1])
        self.samples = []
        return len(self.last) - 1
