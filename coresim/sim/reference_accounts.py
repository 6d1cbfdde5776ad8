"""The reference engine's accounts: where all the time went, from the record of all that happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coresim.model.pipeline import Number
from coresim.sim import run as found
from coresim.sim.reference_line import StageServers

if TYPE_CHECKING:
    from coresim.sim.reference import ReferenceRank


def span(since: Number, until: Number | None, begin: Number, end: Number) -> Number:
    """Length of the part of [since, until] (still open: None) that lies in [begin, end]."""
    last = end if until is None else min(until, end)
    return max(last - max(since, begin), end - end)


def account(rank: ReferenceRank) -> found.RankAccount:
    """All the time of one rank in its window."""
    begin, end, trainer = rank.sums[0], rank.sums[-1], rank.pipeline.trainer
    waits = ["handover"] if trainer.handover else []
    phases = [*(phase.name for phase in trainer.inline), *waits, trainer.consumer.name]
    device = ("launch", "barrier", "copy", "startup", "starved", *phases)
    at_work = end["accelerator"]["busy"] - begin["accelerator"]["busy"]
    work = at_work if set(rank.pipeline.slowdown) == {1} else busy(rank)
    tasks = ("starved", "device", "copy", "startup", *phases, trainer.launch.name)
    return found.RankAccount(
        begin["clocks"]["wait"],
        end["clocks"]["wait"],
        {"busy": work, "slowed": at_work - work}
        | {name: end["accelerator"][name] - begin["accelerator"][name] for name in device},
        starved_by(rank),
        {name: end["trainer"][name] - begin["trainer"][name] for name in tasks},
        tuple(station_account(station, begin["clocks"], end["clocks"]) for station in rank.stations),
    )


def busy(rank: ReferenceRank) -> Number:
    """What the steps of the window take beside idle cores."""
    total, zero = rank.pipeline.total_ranks, rank.env.now * 0
    steps = range(rank.length.warm_up, rank.length.steps)
    return sum((rank.draws.row("accelerator.step", step, rank.number, total).tolist()[0] for step in steps), zero)


def station_account(station: StageServers, first: dict[str, Number], last: dict[str, Number]) -> found.StageAccount:
    """The servers' time between two states of the resources' clocks; work is how far these went during it."""
    begin, end, visits = first["wait"], last["wait"], station.visits.values()
    busy = sum((span(visit.taken, visit.done, begin, end) for visit in visits), end - end)
    blocked = sum((span(visit.done, visit.out, begin, end) for visit in visits if visit.done is not None), end - end)
    works = (work for visit in visits for work in visit.works)
    work = sum((span(since, until, first[clock], last[clock]) for clock, since, until in works), end - end)
    return found.StageAccount(station.stage.servers, busy, work, blocked)


def starved_by(rank: ReferenceRank) -> dict[str, Number]:
    """What the awaited batches were doing."""
    stages, zero = rank.pipeline.stages, rank.env.now * 0
    names = [f"{stage.name}.{part}" for stage in stages for part in ("queue", *(phase.name for phase in stage.phases))]
    names += [f"{stage.name}.handover" for stage in stages[-1:]]
    totals = dict.fromkeys(names, zero)
    for step in range(rank.length.warm_up, rank.length.steps) if stages else ():
        waited_from, picked, batch = rank.picks[step]
        at = max(waited_from, rank.ends[step - 1] if step else zero)
        for name, until in [*batch.marks, (names[-1], picked)]:
            totals[name] += max(until - at, zero)
            at = max(at, until)
    return totals


def trace(rank: ReferenceRank) -> found.Trace:
    """The times of every event of one rank before the end of the run."""
    steps, end = rank.length.steps, rank.env.now

    def column(station: StageServers, name: str) -> tuple[Number, ...]:
        grain = rank.pipeline.batch_size if station.stage.grain == "sample" else 1
        visits = [station.visits.get(item) for item in range(steps * grain)]
        values = [getattr(visit, name) if visit and visit.taken < end else None for visit in visits]
        return tuple(values if name == "server" else [at if at is not None and at < end else None for at in values])

    return found.Trace(
        tuple(pick for _, pick, _ in rank.picks[:steps]),
        tuple(rank.starts[:steps]),
        tuple(rank.ends[:steps]),
        tuple(batch.number for _, _, batch in rank.picks[:steps]),
        *(tuple(column(station, name) for station in rank.stations) for name in ("taken", "done", "out", "server")),
    )
