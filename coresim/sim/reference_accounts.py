"""The reference engine's accounts, taken from the record of everything that happened once the run is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from coresim.model.pipeline import RESOURCES, Number, Pipeline, Stage
from coresim.sim.reference_line import Gatherer, Station
from coresim.sim.reference_parts import Host, Timeline, span
from coresim.sim.run import RankAccount, RunLength, Trace
from coresim.sim.run import Station as StationAccount

_ACCELERATOR = ("busy", "launch", "barrier", "copy", "startup", "starved")
_TRAINER = ("starved", "device", "copy", "startup")


@dataclass
class Record:
    """Everything that happened to one rank."""

    pipeline: Pipeline
    host: Host
    stations: list[Station]
    #: By the stage that they stand behind.
    gatherers: dict[int, Gatherer]
    accelerator: Timeline
    trainer: Timeline
    #: Of each step: when the trainer began to wait, when it picked up its batch, and which.
    picks: list[tuple[Number, Number, int]] = field(default_factory=list)
    starts: list[Number] = field(default_factory=list)
    ends: list[Number] = field(default_factory=list)
    #: The resources' clocks at the ends of the window.
    stamps: list[dict[str, Number]] = field(default_factory=list)

    def stamp(self) -> None:
        """Note the resources' clocks."""
        self.stamps.append({resource: self.host.clock(resource) for resource in RESOURCES})


def account(record: Record, length: RunLength) -> RankAccount:
    """All the time of one rank in its window."""
    borders = _borders(record, length)
    begin, end = borders[0], borders[-1]
    trainer = record.pipeline.trainer
    waits = ["handover"] if trainer.handover else []
    idle_for = [*(phase.name for phase in trainer.inline), *waits, trainer.consumer.name]
    busy = [record.accelerator.totals(*block)["busy"] for block in pairwise(borders)]
    return RankAccount(
        begin,
        end,
        _filled((*_ACCELERATOR, *idle_for), record.accelerator.totals(begin, end), end - end),
        _starved_by(record, length),
        _filled((*_TRAINER, *idle_for, trainer.launch.name), record.trainer.totals(begin, end), end - end),
        tuple(_station(record, station, begin, end) for station in record.stations),
        _outstanding(record, begin, end),
        tuple(borders[1:]),
        tuple(busy),
    )


def _borders(record: Record, length: RunLength) -> list[Number]:
    """Begin of the window, then the end of each block."""
    window = length.steps - length.warm_up
    after = [length.warm_up + block * window // length.blocks for block in range(length.blocks + 1)]
    zero = record.ends[0] - record.ends[0]
    return [record.ends[step - 1] if step else zero for step in after]


def _filled(names: Iterable[str], totals: Mapping[str, Number], zero: Number) -> dict[str, Number]:
    return {name: totals.get(name, zero) for name in names}


def _station(record: Record, station: Station, begin: Number, end: Number) -> StationAccount:
    visits = station.visits.values()
    zero = end - end
    busy = sum((span(visit.taken, visit.done, begin, end) for visit in visits), zero)
    blocked = sum((span(visit.done, visit.out, begin, end) for visit in visits if visit.done is not None), zero)
    items = sum(visit.done is not None and begin <= visit.done < end for visit in visits)
    return StationAccount(station.stage.servers, busy, _work(record, station), blocked, items)


def _work(record: Record, station: Station) -> Number:
    """The clocks' advance during the pieces of work, as far as it lies in the window."""
    at_end = record.stamps[-1]
    at_begin = record.stamps[0] if len(record.stamps) > 1 else dict.fromkeys(RESOURCES, at_end["wait"] * 0)
    pieces = [piece for visit in station.visits.values() for piece in visit.works]
    parts = (span(since, until, at_begin[of], at_end[of]) for of, since, until in pieces)
    return sum(parts, at_end["wait"] * 0)


def _outstanding(record: Record, begin: Number, end: Number) -> Number:
    if not record.stations:
        return end - end
    first = record.stations[0]
    grain = record.pipeline.batch_size if first.stage.grain == "sample" else 1
    taken = sum((span(visit.taken, None, begin, end) for visit in first.visits.values()), end - end)
    picked = sum((span(pick, None, begin, end) for _, pick, _ in record.picks), end - end)
    return taken / grain - picked


def _starved_by(record: Record, length: RunLength) -> dict[str, Number]:
    stages = record.pipeline.stages
    zero = record.ends[0] - record.ends[0]
    totals = dict.fromkeys(_waits(stages), zero)
    for step in range(length.warm_up, length.steps) if stages else ():
        waited_from, picked, batch = record.picks[step]
        at = max(waited_from, record.ends[step - 1] if step else zero)
        for label, until in [*_path(record, len(stages) - 1, batch), (f"{stages[-1].name}.handover", picked)]:
            totals[label] += max(until - at, zero)
            at = max(at, until)
    return totals


def _waits(stages: tuple[Stage, ...]) -> list[str]:
    """What a batch can be waited for, in the order of the line."""
    names = [f"{stage.name}.{part}" for stage in stages for part in ("queue", *(phase.name for phase in stage.phases))]
    return [*names, *(f"{stage.name}.handover" for stage in stages[-1:])]


def _path(record: Record, index: int, item: int) -> list[tuple[str, Number]]:
    """What an item that left this stage (a batch, if gathered behind it) had been doing, and until when."""
    if index in record.gatherers:
        item = record.gatherers[index].last[item]
    marks = record.stations[index].visits[item].marks
    return marks if index == 0 else _path(record, index - 1, _source(record, index, item)) + marks


def _source(record: Record, index: int, item: int) -> int:
    """Number of the item in the outlet of the stage before."""
    before, here = record.pipeline.stages[index - 1 : index + 1]
    return item // record.pipeline.batch_size if (before.grain, here.grain) == ("batch", "sample") else item


def busy_cores(host: Host, pipeline: Pipeline, makespan: Number) -> Number:
    """Mean number of busy cores to the end of the run (0 for a run that took no time)."""
    if not makespan:
        return makespan
    totals = host.cores.population.totals(makespan - makespan, makespan)
    return sum(min(tasks, pipeline.cores) * time for tasks, time in totals.items()) / makespan


def trace(record: Record, length: RunLength, makespan: Number) -> Trace:
    """The times of every event of one rank before the end of the run."""
    picks = record.picks[: length.steps]
    return Trace(
        tuple(pick for _, pick, _ in picks),
        tuple(record.starts[: length.steps]),
        tuple(record.ends[: length.steps]),
        tuple(batch for _, _, batch in picks),
        *_item_times(record, length, makespan),
    )


def _item_times(record: Record, length: RunLength, makespan: Number) -> Iterable[tuple[tuple[Number | None, ...], ...]]:
    """Of each stage: taken, done, out and server of its items."""
    rows = [_stage_times(record, station, length, makespan) for station in record.stations]
    return tuple(zip(*rows, strict=True)) if rows else ((), (), (), ())


def _stage_times(
    record: Record, station: Station, length: RunLength, makespan: Number
) -> tuple[tuple[Number | None, ...], ...]:
    grain = record.pipeline.batch_size if station.stage.grain == "sample" else 1
    visits = [station.visits.get(item) for item in range(length.steps * grain)]
    seen = [visit if visit is not None and visit.taken < makespan else None for visit in visits]

    def before_end(name: str) -> tuple[Number | None, ...]:
        times = [getattr(visit, name) if visit else None for visit in seen]
        return tuple(time if time is not None and time < makespan else None for time in times)

    servers = tuple(visit.server if visit else None for visit in seen)
    return before_end("taken"), before_end("done"), before_end("out"), servers
