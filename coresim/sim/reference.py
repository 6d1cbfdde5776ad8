"""The reference engine: the semantics of `coresim.model.pipeline` as SimPy processes.

It is for exactness and for reading beside that text, not for speed: numbers stay what the pipeline and the draws hold,
so a run on Fractions is exact. Here are the ties rule, the trainer and the accelerator of each rank, and the accounts;
`coresim.sim.reference_line` has the hosts and the lines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import count

import simpy

from coresim.errors import InputError
from coresim.model.handover import resting, state_of
from coresim.model.pipeline import Number, Pipeline
from coresim.sim import run as found
from coresim.sim.draws import Draws
from coresim.sim.reference_line import Line, Process, ReferenceHost, ReferenceItem


def simulate(pipeline: Pipeline, draws: Draws, length: found.RunLength) -> found.Run:
    """Run the job until every rank has finished its steps.

    Raises:
        InputError: the line came to a stop for good (an ordered stage whose buffer is full of later items).
    """
    env = simpy.Environment(pipeline.one * 0)
    hosts = [ReferenceHost(env, pipeline) for _ in range(pipeline.hosts)]
    ranks: list[ReferenceRank] = []
    for number in range(pipeline.total_ranks):
        ranks.append(ReferenceRank(pipeline, draws, length, hosts[number // pipeline.ranks], ranks))
    play(env, hosts, ranks)
    return found.Run(
        tuple(rank.account() for rank in ranks),
        env.now,
        tuple(host.core_seconds / env.now if env.now else env.now for host in hosts),
        sum(host.events for host in hosts),
        tuple(rank.trace() for rank in ranks) if length.trace else (),
    )


def play(env: simpy.Environment, hosts: list[ReferenceHost], ranks: list[ReferenceRank]) -> None:
    """*Ties*: all that finishes at an instant first; then hand-overs; then one take; then again from the top."""
    parts: list[ReferenceHost | ReferenceRank] = [*hosts, *ranks]
    stations = [station for rank in ranks for station in rank.stations]
    turns = [move for moves in zip(*(rank.moves for rank in ranks), strict=True) for move in moves]
    while any(len(rank.ends) < rank.length.steps for rank in ranks):
        if env.peek() > env.now:
            for station in stations:
                station.hand_over()
            if any(move() for move in turns):
                continue
            if any(rank.is_stuck() for rank in ranks):
                raise InputError("the line stops: an ordered stage waits for an item that cannot enter")
            # Nothing more happens at this instant.
            for host in hosts:
                host.go_on()
            for part in parts:
                part.pass_time(env.peek() - env.now)
        env.step()


class ReferenceRank:
    """One accelerator with its trainer and its line."""

    def __init__(
        self, pipeline: Pipeline, draws: Draws, length: found.RunLength, host: ReferenceHost, ranks: list[ReferenceRank]
    ) -> None:
        self.pipeline, self.draws, self.length = pipeline, draws, length
        self.host, self.env, self.ranks, self.number = host, host.env, ranks, len(ranks)
        self.line = Line(pipeline, host, self._times)
        self.stations, self.feed = self.line.stations, self.line.feed
        self.moves = [*self.line.moves, self._pick_up]
        self.wanted: simpy.Event | None = None  # the batch that the trainer waits for
        self.early: set[int] = set()  # batches that were received before their turn
        self.wanting = 0  # how many wanted a core at the last pick-up
        #: What happens to a step: its copy is handed over and made, its launch begins and ends, it is done, it ends.
        self.events: dict[tuple[str, int], simpy.Event] = defaultdict(self.env.event)
        # The record: when each step's batch was picked up, and which; when its work began, and when it finished.
        self.picks: list[tuple[Number, int]] = []
        self.starts: list[Number] = []
        self.ends: list[Number] = []
        #: What the accelerator and the trainer do now: if the one does nothing, it idles for the other.
        self.engaged, self.doing = "", "startup"
        #: Seconds so far, by account and by what they went to; and both ends of the window with these.
        self.spent: defaultdict[tuple[str | int, str], Number] = defaultdict(lambda: host.env.now * 0)
        self.borders = [] if length.warm_up else [(self.env.now, self.spent.copy())]
        for process in (self._train(), self._compute(), self._run_copy_engine()):
            self.env.process(process)

    def is_stuck(self) -> bool:
        """Whether the trainer waits for a batch of the run for ever: it could not take one, and no server works."""
        waits = self.wanted is not None and len(self.picks) < self.length.steps
        return waits and not any(item and item.resource for station in self.stations for item in station.servers)

    # The trainer

    def _train(self) -> Process:
        trainer = self.pipeline.trainer
        for step in count():
            if step % self.feed.epoch == 0:
                if step == 0 or not self.pipeline.persistent:
                    self.doing = "startup"
                    yield self.env.timeout(self.pipeline.startup)
                self.feed.open_epoch()
            yield from self._obtain(step)
            yield from self._copy(step)
            yield from self._launch(step)
            yield from self._await_device(step - trainer.run_ahead)

    def _obtain(self, step: int) -> Process:
        """(1) Perform the inline phases, or wait for a batch and pick it up; (2) receive it."""
        for phase in self.pipeline.trainer.inline:
            self.doing = phase.name
            yield from self.host.perform(phase.resource, self._times(f"trainer.{phase.name}", step))
        batch = (yield from self._await_batch(step)) if self.stations else ReferenceItem(step, 0)
        self.picks.append((self.env.now, batch.number))
        yield from self._receive(batch, step)

    def _await_batch(self, step: int) -> Process:
        """Wait for a batch and pick it up; others may be *received early* meanwhile."""
        since, is_in_turn = self.env.now, False
        while not is_in_turn:
            self.doing, self.wanted = "starved", self.env.event()
            batch, is_in_turn = yield self.wanted
            if not is_in_turn:
                yield from self._receive(batch, batch.number, early=True)
        # From when on the accelerator was starved: at the earliest from when it had finished the step before.
        since = max([since, *self.ends[-1:]]) if len(self.ends) == step else self.env.now
        for name, until in [*batch.marks, (f"{self.pipeline.stages[-1].name}.handover", self.env.now)]:
            self.spent["starved_by", name] += max(until - since, 0)
            since = max(since, until)
        return batch

    def _pick_up(self) -> bool:
        """The trainer, if it waits, takes the batch whose turn it is, or begins with another one."""
        early = self.stations[-1].find_early(self.early) if self.wanted and self.pipeline.receives_early else None
        if self.wanted is None or not (early or self.line.outlet.has(0)):
            return False
        batch, wanted, self.wanted = early or self.line.outlet.take(0), self.wanted, None
        if early:
            self.early.add(batch.number)
        else:
            self.feed.pick_up(batch)
            self.wanting = self._count_wanting(batch)
        wanted.succeed((batch, not early))
        return True

    def _receive(self, batch: ReferenceItem, number: int, early: bool = False) -> Process:
        """Receive a batch now, or do what is left of an *early* one; ``number`` says which of the times."""
        trainer, left = self.pipeline.trainer, batch.number in self.early and not early
        if trainer.handover and not left:
            self.doing = "starved" if early else "handover"
            yield from self._await_handover(batch, number)
        self.doing = "starved" if early else trainer.consumer.name
        share = trainer.release if left else 1 - trainer.release if early else 1
        yield from self.host.perform("cores", [share * self._times(f"trainer.{trainer.consumer.name}", number)[0]])

    def _await_handover(self, batch: ReferenceItem, number: int) -> Process:
        """*State of a hand-over*: wait for a batch that is picked up now."""
        pipeline, later = self.pipeline, len(self.stations) > 1
        maker = None if later else self.line.served_by_maker(batch)
        doing = "begin" if maker or later else "send"
        if batch.done < self.env.now:
            doing = "work" if maker else "rest"
        state = state_of(doing, self._count_wanting(batch) - 1 - pipeline.ranks, pipeline.width, pipeline.ranks)
        wait, rest = (pipeline.trainer.handover[at].name for at in (state, resting(state)))
        end: simpy.Event = self.env.timeout(*self._times(f"trainer.{wait}", number))
        if maker:
            yield end | maker.service
            end |= self.env.timeout(*self._times(f"trainer.{rest}", number))
        yield end
        self.host.events += 1

    def _count_wanting(self, batch: ReferenceItem) -> int:
        """How many want a core if the batch is picked up now: its maker, the trainers, and other servers at work."""
        lines = [rank.stations[0] for rank in self.ranks if rank.host is self.host]
        at_work = [item for line in lines for item in line.servers if item and item.resource == "cores"]
        return len(at_work) - (self.line.served_by_maker(batch) in at_work) + 1 + self.pipeline.ranks

    def _copy(self, step: int) -> Process:
        """(3) Copy the batch, or hand the copy over."""
        mode = self.pipeline.trainer.copy_mode
        if mode == "sync":
            yield from self._await_device(step - 1)
            self.doing = "copy"
            yield from self.host.hold_core(self._copying(step))
        self.events["copied" if mode in ("sync", "none") else "handed over", step].succeed()

    def _copying(self, step: int) -> simpy.Event:
        return self.env.timeout(*self._times(f"trainer.{self.pipeline.trainer.copy.name}", step))

    def _launch(self, step: int) -> Process:
        """(4) Launch the step, after *waiting for turns*."""
        trainer, cpus = self.pipeline.trainer, self.pipeline.width * self.pipeline.one
        [work] = self._times(f"trainer.{trainer.launch.name}", step)
        lead, self.doing = work * trainer.lead, trainer.launch.name
        if not lead:
            self.events["begun", step].succeed()
        if cpus < self.wanting < 2 * cpus and trainer.settling:
            yield from self.host.perform("wait", [min(work, trainer.settling) * (2 - self.wanting / cpus)])
        if lead:
            yield from self.host.perform("cores", [lead])
            self.events["begun", step].succeed()
        yield from self.host.perform("cores", [work - lead])
        self.events["launched", step].succeed()

    def _await_device(self, step: int) -> Process:
        """(5) Wait until the accelerator has finished that step."""
        if step >= 0:
            self.doing = "device"
            yield from self.host.hold_core(self.events["finished", step])

    def _times(self, key: str, item: int) -> list[Number]:
        return list(self.draws.row(key, item, self.number, self.pipeline.total_ranks).tolist())

    # The accelerator

    def _run_copy_engine(self) -> Process:
        for step in count() if self.pipeline.trainer.copy_mode == "overlap" else ():
            yield self.events["handed over", step]
            yield self._copying(step)
            self.events["copied", step].succeed()

    def _compute(self) -> Process:
        for step in count():
            if self.pipeline.trainer.copy_mode == "stream":
                yield self.events["handed over", step]
                self.engaged = "copy"
                yield self._copying(step)
                self.events["copied", step].succeed()
                self.engaged = ""
            yield self.events["begun", step]
            self.engaged = "copy"
            yield self.events["copied", step]
            self.starts.append(self.env.now)
            self.engaged = "busy"
            yield from self.host.perform("accelerator", self._times("accelerator.step", step))
            self.engaged = "launch"
            yield self.events["launched", step]
            if self.pipeline.barrier:
                self.engaged = "barrier"
                self.events["done", step].succeed()
                yield self.env.all_of([rank.events["done", step] for rank in self.ranks])
                yield self.env.timeout(self.pipeline.allreduce)
            self.engaged = ""
            self.ends.append(self.env.now)
            if step + 1 in (self.length.warm_up, self.length.steps):
                self.borders.append((self.env.now, self.spent.copy()))
            self.events["finished", step].succeed()

    # The accounts

    def pass_time(self, seconds: Number) -> None:
        """Account for time in which nothing changes."""
        rates = self.host.rates
        self.spent["trainer", self.doing] += seconds
        self.spent["accelerator", self.engaged or self.doing] += seconds
        if self.engaged == "busy":
            slowed = seconds * (1 - rates["accelerator"])
            self.spent["accelerator", "busy"] -= slowed
            self.spent["accelerator", "slowed"] += slowed
        for index, station in enumerate(self.stations):
            for resource, servers in Counter(item.resource for item in station.servers if item).items():
                self.spent[index, "busy" if resource else "blocked"] += servers * seconds
                self.spent[index, "work"] += servers * seconds * rates.get(resource, 0)

    def account(self) -> found.RankAccount:
        """All the time of the rank in its window."""
        (begin, before), (end, after) = self.borders
        device, segments, trainer = found.account_names(self.pipeline)

        def times(account: str | int, names: Iterable[str]) -> dict[str, Number]:
            return {name: after[account, name] - before[account, name] for name in names}

        return found.RankAccount(
            begin,
            end,
            times("accelerator", ("busy", "slowed", *device)),
            times("starved_by", segments),
            times("trainer", trainer),
            tuple(
                found.StageAccount(stage.servers, **times(index, ("busy", "work", "blocked")))
                for index, stage in enumerate(self.pipeline.stages)
            ),
        )

    def trace(self) -> found.Trace:
        """The times of all that happened before the end of the run."""
        steps, names = self.length.steps, ("taken", "done", "out", "server")
        return found.Trace(
            tuple(pick for pick, _ in self.picks[:steps]),
            tuple(self.starts[:steps]),
            tuple(self.ends[:steps]),
            tuple(number for _, number in self.picks[:steps]),
            *(tuple(station.column(name, steps) for station in self.stations) for name in names),
        )
