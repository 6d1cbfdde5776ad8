"""The reference engine: the semantics of `coresim.model.pipeline` as SimPy processes.

It is for exactness and for reading beside that text, not for speed: numbers stay what the pipeline and the draws hold,
so a run on Fractions is exact. Here are the ties rule, the trainer, the accelerator, and the accounts, which are taken
when the run is over, from the record of all that happened; `coresim.sim.reference_line` has the line, and
`coresim.sim.reference_host` what lines share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import count

import simpy

from coresim.errors import InputError
from coresim.model.handover import resting, state_of
from coresim.model.pipeline import Number, Phase, Pipeline
from coresim.sim import run as found
from coresim.sim.draws import Draws
from coresim.sim.reference_accounts import account, trace
from coresim.sim.reference_host import Process, ReferenceHost
from coresim.sim.reference_line import Feed, Gatherer, LineItem, Outlet, Splitter, StageServers, Visit


def simulate(pipeline: Pipeline, draws: Draws, length: found.RunLength) -> found.Run:
    """Run the job until every rank has finished its steps.

    Raises:
        InputError: the line came to a stop for good (an ordered stage whose buffer is full of later items).
    """
    start: Number = 0.0 if isinstance(pipeline.cores, float) else Fraction(0)
    env = simpy.Environment(start)
    hosts = [ReferenceHost(env, pipeline) for _ in range(pipeline.hosts)]
    ranks: list[ReferenceRank] = []
    for number in range(pipeline.total_ranks):
        ranks.append(ReferenceRank(pipeline, draws, length, hosts[number // pipeline.ranks], ranks))
    play(env, ranks)
    return found.Run(
        tuple(account(rank) for rank in ranks),
        env.now,
        tuple(host.busy() / env.now if env.now else env.now for host in hosts),
        sum(host.events for host in hosts),
        tuple(trace(rank) for rank in ranks) if length.trace else (),
    )


def play(env: simpy.Environment, ranks: list[ReferenceRank]) -> None:
    """*Ties*: all that finishes at an instant first; then hand-overs; then one take; then again from the top."""
    stations = [station for rank in ranks for station in rank.stations]
    turns = [move for moves in zip(*(rank.moves for rank in ranks), strict=True) for move in moves]
    while any(len(rank.ends) < rank.length.steps for rank in ranks):
        if env.peek() > env.now:
            for station in stations:
                station.hand_over()
            if any(move() for move in turns):
                continue
            if all(rank.host.is_over() for rank in ranks):
                raise InputError("the line stops: an ordered stage waits for an item that cannot enter")
        env.step()


class ReferenceRank:
    """One accelerator with its trainer and its line."""

    def __init__(
        self, pipeline: Pipeline, draws: Draws, length: found.RunLength, host: ReferenceHost, ranks: list[ReferenceRank]
    ) -> None:
        self.pipeline, self.draws, self.length = pipeline, draws, length
        self.host, self.env, self.ranks, self.number = host, host.env, ranks, len(ranks)
        self.feed = Feed(pipeline)
        self.stations: list[StageServers] = []
        self.moves: list[Callable[[], bool]] = []
        self.outlet = self._lay_line()
        self.wanted: simpy.Event | None = None
        self.early: set[int] = set()  # batches that were received before their turn
        self.receives = False  # one now
        self.turns: Number = 0  # what the next launch waits for turns, over its work
        self.events: dict[tuple[str, int], simpy.Event] = {}
        self.engaged, self.doing, self.since = "", "startup", self.env.now
        # The record: the accelerator's and the trainer's time by what it went to; of each step, from when it was waited
        # for, when it was picked up, and its batch; when its work began, and when it finished; sums at the borders.
        self.accelerator, self.trainer = (defaultdict[str, Number](lambda: host.env.now * 0) for _ in range(2))
        self.picks: list[tuple[Number, Number, LineItem]] = []
        self.starts: list[Number] = []
        self.ends: list[Number] = []
        self.borders = (length.warm_up, length.steps)
        self.sums = [] if length.warm_up else [self._sums()]
        for process in (self._train(), self._compute(), self._run_copy_engine()):
            self.env.process(process)

    def _lay_line(self) -> Outlet:
        outlet: Outlet = self.feed
        for stage in self.pipeline.stages:
            outlet = StageServers(self.host, stage, self._join(outlet, stage.grain), self._times)
            self.stations.append(outlet)
            self.moves.append(outlet.move)
        outlet = self._join(outlet, "batch")
        self.moves.append(self._pick_up)
        return outlet

    def _join(self, outlet: Outlet, grain: str) -> Outlet:
        """The outlet, behind what turns its items into the grain that follows."""
        if not isinstance(outlet, StageServers) or outlet.stage.grain == grain:
            return outlet
        joint = (Splitter if grain == "sample" else Gatherer)(outlet, self.pipeline.batch_size)
        self.moves.append(joint.move)
        return joint

    def _pick_up(self) -> bool:
        if self.wanted is None or self.receives:
            return False
        if self.pipeline.receives_early and self._receive_early():
            return True
        if not self.outlet.has(0):
            return False
        batch, wanted, self.wanted = self.outlet.take(0), self.wanted, None
        state, self.turns = self._handover_state(batch)
        self.feed.pick_up(batch)
        wanted.succeed((batch, state))
        return True

    def _receive_early(self) -> bool:
        """*Receiving early*: begin with the batch that arrived first, unless the one whose turn it is can be had."""
        station = self.stations[-1]
        there = {number for _, number, _ in station.ready}
        if station.passed in self.early or not there - self.early:
            return False
        first = min((station.visits[number].out, number) for number in there - self.early)[1]
        if first == station.passed:
            return False
        self.early.add(first)
        self.receives = True
        batch = next(item for _, number, item in station.ready if number == first)
        self.env.process(self._receive_before_its_turn(batch, self._handover_state(batch)[0]))
        return True

    def _receive_before_its_turn(self, batch: LineItem, state: int) -> Process:
        if self.pipeline.trainer.handover:
            yield from self._await_handover(batch, state, batch.number)
        consumer = self.pipeline.trainer.consumer
        yield from self.host.perform(consumer.resource, self._times(f"trainer.{consumer.name}", batch.number))
        self.receives = False

    def _await_handover(self, batch: LineItem, state: int, number: int) -> Process:
        """*State of a hand-over*: wait for a batch that is picked up now; ``number`` says which of the times."""
        least = resting(state) if len(self.stations) == 1 else state  # with more stages it never ends early
        names = (self.pipeline.trainer.handover[at].name for at in (state, least))
        [wait], [rest] = (self._times(f"trainer.{name}", number) for name in names)
        end, ends = self.env.timeout(wait), self.env.now + wait
        for visit in self._served_by(batch.owner):
            yield end | visit.over
        yield self.env.timeout(rest) if self.env.now + rest < ends else end
        self.host.events += 1

    def _handover_state(self, batch: LineItem) -> tuple[int, Number]:
        """*State of a hand-over*, and what the launch *waits for turns*, over its work: if it is picked up now."""
        lines = [rank.stations[0] for rank in self.ranks if rank.host is self.host]
        served = [visit for line in lines for visit in line.visits.values() if visit.done is None]
        own = self._served_by(batch.owner)
        since = batch.marks[-1][1] if len(self.stations) > 1 else own[0].taken if own else None
        maker = "begin" if since == self.env.now else "work" if own and len(self.stations) == 1 else "rest"
        on_cores, of_own = ([visit.works[-1][0] for visit in some].count("cores") for some in (served, own))
        cpus, wanted = self.pipeline.width * self.pipeline.one, on_cores - of_own + 1 + self.pipeline.ranks
        turns = (2 * cpus - wanted) / cpus if cpus < wanted < 2 * cpus else 0
        return state_of(maker, on_cores - of_own, self.pipeline.width, self.pipeline.ranks), turns

    def _served_by(self, server: int) -> list[Visit]:
        """The visit that this server of stage 0 serves, if any."""
        return [visit for visit in self.stations[0].visits.values() if visit.done is None and visit.server == server]

    def _train(self) -> Process:
        trainer = self.pipeline.trainer
        for step in count():
            if step % self.feed.epoch == 0:
                if step == 0 or not self.pipeline.persistent:
                    self._do("startup")
                    yield self.env.timeout(self.pipeline.startup)
                self.feed.open_epoch()
            yield from self._obtain(step)
            yield from self._copy(step)
            yield from self._launch(trainer.launch, step)
            self._event("launched", step).succeed()
            yield from self._await_device(step - trainer.run_ahead)

    def _launch(self, phase: Phase, step: int) -> Process:
        [work] = self._times(f"trainer.{phase.name}", step)
        lead, begun = work * self.pipeline.trainer.lead, self._event("begun", step)
        self._do(phase.name)
        if not lead:
            begun.succeed()
        if (turns := min(work, self.pipeline.trainer.settling) * self.turns) > 0:
            yield from self.host.perform("wait", [turns])
        if lead:
            yield from self.host.perform(phase.resource, [lead])
            begun.succeed()
        yield from self.host.perform(phase.resource, [work - lead])

    def _obtain(self, step: int) -> Process:
        batch, waited_from = LineItem(step, 0), self.env.now
        for phase in self.pipeline.trainer.inline:
            yield from self._perform(phase, step)
        state = 0
        if self.stations:
            self._do("starved")
            self.wanted = self.env.event()
            batch, state = yield self.wanted
        self.picks.append((waited_from, self.env.now, batch))
        if batch.number in self.early:
            return
        if self.pipeline.trainer.handover:
            self._do("handover")
            yield from self._await_handover(batch, state, step)
        yield from self._perform(self.pipeline.trainer.consumer, step)

    def _perform(self, phase: Phase, step: int) -> Process:
        self._do(phase.name)
        yield from self.host.perform(phase.resource, self._times(f"trainer.{phase.name}", step))

    def _copy(self, step: int) -> Process:
        mode = self.pipeline.trainer.copy_mode
        if mode == "sync":
            yield from self._await_device(step - 1)
            self._do("copy")
            yield from self._hold_core(self._copying(step))
        self._event("copied" if mode in ("sync", "none") else "handed over", step).succeed()

    def _copying(self, step: int) -> simpy.Event:
        return self.env.timeout(self._times(f"trainer.{self.pipeline.trainer.copy.name}", step)[0])

    def _await_device(self, step: int) -> Process:
        if step >= 0:
            self._do("device")
            yield from self._hold_core(self._event("finished", step))

    def _hold_core(self, event: simpy.Event) -> Process:
        """Wait for it, holding a core if the trainer spins."""
        self.host.cores.hold(int(self.pipeline.trainer.spin))
        yield event
        self.host.cores.hold(-int(self.pipeline.trainer.spin))

    def _run_copy_engine(self) -> Process:
        for step in count() if self.pipeline.trainer.copy_mode == "overlap" else ():
            yield self._event("handed over", step)
            yield self._copying(step)
            self._event("copied", step).succeed()

    def _compute(self) -> Process:
        for step in count():
            if self.pipeline.trainer.copy_mode == "stream":
                yield self._event("handed over", step)
                self._engage("copy")
                yield self._copying(step)
                self._event("copied", step).succeed()
                self._engage("")
            yield self._event("begun", step)
            self._engage("copy")
            yield self._event("copied", step)
            self.starts.append(self.env.now)
            self._engage("busy")
            yield from self.host.perform("accelerator", self._times("accelerator.step", step))
            self._engage("launch")
            yield self._event("launched", step)
            if self.pipeline.barrier:
                self._engage("barrier")
                self._event("done", step).succeed()
                yield self.env.all_of([rank._event("done", step) for rank in self.ranks])
                yield self.env.timeout(self.pipeline.allreduce)
            self._engage("")
            self.ends.append(self.env.now)
            if step + 1 in self.borders:
                self.sums.append(self._sums())
            self._event("finished", step).succeed()

    def _event(self, name: str, step: int) -> simpy.Event:
        """What happens to a step: its copy is handed over and made, its launch begins and ends, it is done, it ends."""
        if (name, step) not in self.events:
            self.events[name, step] = self.env.event()
        return self.events[name, step]

    def _times(self, key: str, item: int) -> list[Number]:
        return list(self.draws.row(key, item, self.number, self.pipeline.total_ranks).tolist())

    def _do(self, doing: str) -> None:
        """What the trainer does from now on."""
        self._engage(self.engaged)
        self.doing = doing

    def _engage(self, engaged: str) -> None:
        """What the accelerator is occupied with from now on; if with nothing, it idles for what the trainer does."""
        passed, self.since = self.env.now - self.since, self.env.now
        self.accelerator[self.engaged or self.doing] += passed
        self.trainer[self.doing] += passed
        self.engaged = engaged

    def _sums(self) -> dict[str, dict[str, Number]]:
        clocks = self.host.clocks()
        return {"accelerator": self.accelerator.copy(), "trainer": self.trainer.copy(), "clocks": clocks}
