"""The reference engine: the semantics of `coresim.model.pipeline` as SimPy processes, for exactness and not for speed.

Numbers stay what the pipeline and the draws hold, so a run on Fractions is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import simpy

from coresim.errors import InputError
from coresim.model.handover import state_of
from coresim.model.pipeline import Number, Pipeline
from coresim.sim.draws import Draws
from coresim.sim.reference_accounts import Record, account, busy_cores, trace
from coresim.sim.reference_line import DealtFeed, Feed, Gatherer, Outlet, Splitter, Station
from coresim.sim.reference_parts import Barrier, Bell, Host, Process, Quiet, Timeline
from coresim.sim.run import Run, RunLength


def simulate(pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
    """Run the job until every rank has finished its steps.

    Raises:
        InputError: the line came to a stop for good (an ordered stage whose buffer is full of later items).
    """
    zero: Number = 0.0 if isinstance(pipeline.cores, float) else Fraction(0)
    env = simpy.Environment(zero)
    ranks = _build(env, pipeline, draws, length)
    try:
        env.run(until=env.all_of([rank.over for rank in ranks]))
    except RuntimeError as stopped:
        raise InputError("the line stops: an ordered stage waits for an item that cannot enter") from stopped
    hosts = [rank.host for rank in ranks[:: pipeline.ranks]]
    makespan = max(rank.record.ends[length.steps - 1] for rank in ranks)
    return Run(
        tuple(account(rank.record, length) for rank in ranks),
        makespan,
        tuple(busy_cores(host, pipeline, makespan) for host in hosts),
        sum(host.events for host in hosts),
        tuple(trace(rank.record, length, makespan) for rank in ranks) if length.trace else (),
    )


def _build(env: simpy.Environment, pipeline: Pipeline, draws: Draws, length: RunLength) -> list[Rank]:
    barrier = Barrier(env, pipeline.total_ranks, pipeline.allreduce) if pipeline.barrier else None
    bell = Bell(env)
    hosts = [Host(env, pipeline) for _ in range(pipeline.hosts)]
    job = Job(env, pipeline, draws, length, bell, barrier)
    ranks = [Rank(job, number, hosts[number // pipeline.ranks]) for number in range(pipeline.total_ranks)]
    env.process(_take_turns(env, ranks, bell))
    return ranks


def _take_turns(env: simpy.Environment, ranks: list[Rank], bell: Bell) -> Process:
    """All that is finished first; then hand-overs; then one take; then again from the top."""
    turns = [move for moves in zip(*(rank.moves for rank in ranks), strict=True) for move in moves]
    while True:
        yield Quiet(env)
        for rank in ranks:
            for station in rank.stations:
                station.hand_over()
        if not any(move() for move in turns):
            yield bell.wait()


@dataclass(frozen=True)
class Job:
    """What all ranks have in common."""

    env: simpy.Environment
    pipeline: Pipeline
    draws: Draws
    length: RunLength
    bell: Bell
    barrier: Barrier | None


class Step:
    """What trainer, copy engine and accelerator tell each other about one step."""

    def __init__(self, env: simpy.Environment) -> None:
        self.handed = env.event()  # the copy, to whoever performs it
        self.copied = env.event()
        self.begun = env.event()  # the launch
        self.launched = env.event()
        self.finished = env.event()


class Rank:
    """One accelerator with its trainer and its loader."""

    def __init__(self, job: Job, number: int, host: Host) -> None:
        self.job, self.number, self.host = job, number, host
        self.env, self.pipeline, self.trainer = job.env, job.pipeline, job.pipeline.trainer
        self.steps: list[Step] = []
        self.started: dict[int, float] = {}  # the epoch for which each server of stage 0 has started
        self.over = self.env.event()
        self.wanted: simpy.Event | None = None
        self.state = 0  # of the hand-over of the batch that was picked up last
        self.engaged: str | None = None
        self.doing = "startup"
        dealt = bool(self.pipeline.stages) and self.pipeline.stages[0].dispatch == "round_robin"
        self.feed = DealtFeed(self.pipeline) if dealt else Feed(self.pipeline)
        self._lay_line()
        timelines = Timeline(self.env, self.doing), Timeline(self.env, self.doing)
        self.record = Record(self.pipeline, host, self.stations, self.gatherers, *timelines)
        for process in (self._train(), self._compute(), self._run_copy_engine()):
            self.env.process(process)

    # The line

    def _lay_line(self) -> None:
        self.stations: list[Station] = []
        self.gatherers: dict[int, Gatherer] = {}
        self.moves: list[Callable[[], bool]] = []
        outlet: Outlet = self.feed
        for stage in self.pipeline.stages:
            station = Station(self.host, stage, self._join(outlet, stage.grain), self._row, self.job.bell.ring)
            self.stations.append(station)
            self.moves.append(station.move)
            outlet = station
        if self.stations:
            self.stations[0].start_up = self._worker_startup
            self.host.loaders.append(self.stations[0])
        self.outlet = self._join(outlet, "batch")
        self.moves.append(self._pick_up)

    def _join(self, outlet: Outlet, grain: str) -> Outlet:
        """The outlet, behind what turns its items into the grain that follows."""
        if not isinstance(outlet, Station) or outlet.stage.grain == grain:
            return outlet
        if grain == "sample":
            splitter = Splitter(outlet, self.pipeline.batch_size)
            self.moves.append(splitter.move)
            return splitter
        gatherer = self.gatherers[len(self.stations) - 1] = Gatherer(outlet, self.pipeline.batch_size)
        self.moves.append(gatherer.move)
        return gatherer

    def _pick_up(self) -> bool:
        wanted = self.wanted
        if wanted is None or self.outlet.offer(0) is None:
            return False
        self.wanted = None
        batch = self.outlet.take(0)
        self.feed.pick(batch)
        self.state = self._handover_state(batch) if self.trainer.handover else 0
        wanted.succeed(batch)
        return True

    def _handover_state(self, batch: int) -> int:
        """What the maker of a batch that is picked up does, and how crowded the cores are: a number of `STATES`."""
        loader = self.stations[0]
        server = loader.visits[batch].server
        item = loader.serves(server)
        others = sum(station.serves(place) is not None for station in self.host.loaders for place in station.places)
        maker = "rest" if item is None else "begin" if loader.visits[item].taken == self.env.now else "work"
        return state_of(maker, others - (item is not None), self.pipeline.cores, self.pipeline.ranks)

    def _worker_startup(self, server: int, item: int) -> Number | None:
        """Work of a server of stage 0 before this item, if it is its first of an epoch that begins with a start-up."""
        epoch = item // self.feed.grain // self.feed.epoch
        first = self.started.get(server) != epoch
        self.started[server] = epoch
        due = first and (epoch == 0 or not self.pipeline.persistent)
        return self.pipeline.worker_startup if due else None

    # The trainer

    def _train(self) -> Process:
        for step in itertools.count():
            if step % self.feed.epoch == 0:
                if step == 0 or not self.pipeline.persistent:
                    self._do("startup")
                    yield self.env.timeout(self.pipeline.startup)
                self.feed.open_epoch()
            yield from self._obtain(step)
            yield from self._host_work(self.trainer.consumer.name, "cores", step)
            yield from self._copy(step)
            self._step(step).begun.succeed()
            yield from self._host_work(self.trainer.launch.name, "cores", step)
            self._step(step).launched.succeed()
            yield from self._await_device(step - self.trainer.run_ahead)

    def _obtain(self, step: int) -> Process:
        batch = step
        waited_from = self.env.now
        for phase in self.trainer.inline:
            yield from self._host_work(phase.name, phase.resource, step)
        if self.stations:
            self._do("starved")
            self.wanted = self.env.event()
            self.job.bell.ring()
            batch = yield self.wanted
        self.record.picks.append((waited_from, self.env.now, batch))
        if self.trainer.handover:
            self._do("handover")
            name = self.trainer.handover[self.state].name
            yield from self.host.perform("wait", self._row(f"trainer.{name}", step))

    def _copy(self, step: int) -> Process:
        mode = self.trainer.copy_mode
        if mode == "sync":
            yield from self._await_device(step - 1)
            self._do("copy")
            yield from self._on_core(self.env.timeout(self._time("trainer", self.trainer.copy.name, step)))
        if mode in ("sync", "none"):
            self._step(step).copied.succeed()
        else:
            self._step(step).handed.succeed()

    def _await_device(self, step: int) -> Process:
        if step >= 0:
            self._do("device")
            yield from self._on_core(self._step(step).finished)

    def _on_core(self, event: simpy.Event) -> Process:
        """Wait for it, holding a core if the trainer spins."""
        spin = int(self.trainer.spin)
        self.host.cores.hold(spin)
        yield event
        self.host.cores.hold(-spin)

    def _host_work(self, name: str, resource: str, step: int) -> Process:
        self._do(name)
        yield from self.host.perform(resource, self._row(f"trainer.{name}", step))

    # The copy engine and the accelerator

    def _run_copy_engine(self) -> Process:
        for step in itertools.count() if self.trainer.copy_mode == "overlap" else ():
            yield self._step(step).handed
            yield from self._perform_copy(step)

    def _perform_copy(self, step: int) -> Process:
        yield self.env.timeout(self._time("trainer", self.trainer.copy.name, step))
        self._step(step).copied.succeed()

    def _compute(self) -> Process:
        for number in itertools.count():
            step = self._step(number)
            if self.trainer.copy_mode == "stream":
                yield step.handed
                self._engage("copy")
                yield from self._perform_copy(number)
            yield step.begun
            self._engage("copy")
            yield step.copied
            yield from self._perform_step(step, number)
            self._finish(step, number)

    def _perform_step(self, step: Step, number: int) -> Process:
        self.record.starts.append(self.env.now)
        self._engage("busy")
        yield self.host.accelerators.start(self._time("accelerator", "step", number))
        self.host.events += 1
        self._engage("launch")
        yield step.launched
        if self.job.barrier is not None:
            self._engage("barrier")
            yield self.job.barrier.arrive()

    def _finish(self, step: Step, number: int) -> None:
        self._engage(None)
        self.record.ends.append(self.env.now)
        if number in (self.job.length.warm_up - 1, self.job.length.steps - 1):
            self.record.stamp()
        if number == self.job.length.steps - 1:
            self.over.succeed()
        step.finished.succeed()

    # Odds and ends

    def _step(self, number: int) -> Step:
        while len(self.steps) <= number:
            self.steps.append(Step(self.env))
        return self.steps[number]

    def _row(self, key: str, item: int) -> list[Number]:
        row: list[Number] = self.job.draws.row(key, item, self.number, self.pipeline.total_ranks).tolist()
        return row

    def _time(self, owner: str, name: str, step: int) -> Number:
        return self._row(f"{owner}.{name}", step)[0]

    def _do(self, doing: str) -> None:
        """What the trainer does now."""
        self.doing = doing
        self.record.trainer.note(doing)
        self._engage(self.engaged)

    def _engage(self, engaged: str | None) -> None:
        """What the accelerator is occupied with now; if with nothing, it idles for what the trainer does."""
        self.engaged = engaged
        self.record.accelerator.note(engaged or self.doing)
