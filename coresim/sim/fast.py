"""The fast engine: the event kernel, and the recurrence where it applies, behind the interface of the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from coresim.errors import CoresimError
from coresim.model.pipeline import Number, Pipeline
from coresim.sim import kernel, plain
from coresim.sim import layout as L
from coresim.sim.arrays import build
from coresim.sim.draws import Draws
from coresim.sim.layout import Counts, Times, table
from coresim.sim.run import RankAccount, Run, RunLength, Station, Trace

#: What whoever asks is told where `must_compile` says so.
COMPILING = "compiling the simulator, once on this machine (about half a minute)"


def must_compile() -> bool:
    """Whether the first simulation will compile the event kernel, which takes long; the rest takes seconds."""
    return not kernel.run.at_hand()


def simulate(pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
    """Run the recurrence of the plain line where it applies, else the event kernel.

    Raises:
        CoresimError: nothing can ever happen again in the described pipeline.
    """
    if plain.applies(pipeline, draws, length):
        return plain.simulate(pipeline, draws, length)
    return simulate_events(pipeline, draws, length)


def simulate_events(pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
    """Run the event kernel: compiled on float tapes, uncompiled and exact on tapes of Python numbers.

    Raises:
        CoresimError: nothing can ever happen again in the described pipeline.
    """
    exact = any(tape.dtype == object for tape in draws.tapes.values())
    number = object if exact else np.float64
    counts, times = build(pipeline, draws, length, number)
    engine = kernel.run.plain if exact else kernel.run
    if engine(counts, times) == kernel.STUCK:
        raise CoresimError("the described pipeline is stuck: no batch can move; check its stages and buffers")
    return _result(pipeline, length, counts, times)


def _result(pipeline: Pipeline, length: RunLength, n: Counts, t: Times) -> Run:
    hosts = table(n, t, L.HOST_TIME, pipeline.hosts, L.H_TIMES)
    makespan = max(hosts[:, L.H_NOW].tolist())
    ranks = range(pipeline.total_ranks)
    return Run(
        ranks=tuple(_accounts(pipeline, length, n, t)),
        makespan=makespan,
        busy_cores=tuple(busy / makespan if makespan else busy for busy in hosts[:, L.H_BUSY].tolist()),
        events=int(table(n, n, L.HOST, pipeline.hosts, L.H_COUNTS)[:, L.H_EVENTS].sum()),
        traces=tuple(_trace(pipeline, length, n, t, rank) for rank in ranks) if length.trace else (),
    )


def _accounts(pipeline: Pipeline, length: RunLength, n: Counts, t: Times) -> Iterator[RankAccount]:
    """One account for each rank; every table is read at once."""
    device, trainer, segments = _names(pipeline)
    unit = pipeline.batch_size if pipeline.stages and pipeline.stages[0].grain == "sample" else 1

    def rows(place: int, columns: int) -> list[list[Any]]:
        found: list[list[Any]] = table(n, t, place, pipeline.total_ranks, columns).tolist()
        return found

    for record, accelerator, starved, trained, stations, ends, busy in zip(
        rows(L.RANK_TIME, L.R_TIMES),
        rows(L.DEVICE_TIME, len(device)),
        rows(L.STARVED, len(segments)),
        rows(L.TRAINER_TIME, len(trainer)),
        _stations(pipeline, n, t),
        rows(L.BLOCK_END, length.blocks),
        rows(L.BLOCK_BUSY, length.blocks),
        strict=True,
    ):
        yield RankAccount(
            begin=record[L.R_BEGIN],
            end=record[L.R_END],
            accelerator=_named(device, accelerator),
            starved_by=_named(segments, starved),
            trainer=_named(trainer, trained),
            stations=stations,
            outstanding=record[L.R_OUTSTANDING_TIME] / unit,
            block_ends=tuple(ends),
            block_busy=tuple(now - before for before, now in zip([0, *busy], busy, strict=False)),
        )


def _names(pipeline: Pipeline) -> tuple[list[str], list[str], list[str]]:
    """What the accelerator's, the trainer's and the starved time are by, in the order of their tables."""
    inline = [phase.name for phase in pipeline.trainer.inline]
    device = ["busy", "launch", "barrier", "copy", "startup", "starved", *inline, "consumer"]
    trainer = ["starved", "device", "copy", "startup", *inline, "consumer", "launch"]
    return device, trainer, segment_names(pipeline)


def _named(names: list[str], times: list[Any]) -> Mapping[str, Number]:
    """Sum by name: two phases may have the same one."""
    sums: dict[str, Number] = {}
    for name, time in zip(names, times, strict=True):
        sums[name] = sums.get(name, 0) + time
    return sums


def segment_names(pipeline: Pipeline) -> list[str]:
    """What an awaited batch can be doing, in the order of the line (the keys of ``RankAccount.starved_by``)."""
    names: list[str] = []
    for stage in pipeline.stages:
        names += [f"{stage.name}.queue", *(f"{stage.name}.{phase.name}" for phase in stage.phases)]
    return [*names, *(f"{stage.name}.handover" for stage in pipeline.stages[-1:])]


def _stations(pipeline: Pipeline, n: Counts, t: Times) -> list[tuple[Station, ...]]:
    """The stations of every rank."""
    shape, servers = (pipeline.total_ranks, len(pipeline.stages)), [stage.servers for stage in pipeline.stages]
    times = table(n, t, L.STAGE_TIME, *shape, L.J_TIMES).tolist()
    items = table(n, n, L.STAGE, *shape, L.J_COUNTS)[:, :, L.J_ITEMS].tolist()
    return [
        tuple(
            Station(count, time[L.J_BUSY_TIME], time[L.J_WORK], time[L.J_BLOCKED_TIME], done)
            for count, time, done in zip(servers, *rank, strict=True)
        )
        for rank in zip(times, items, strict=True)
    ]


def _trace(pipeline: Pipeline, length: RunLength, n: Counts, t: Times, rank: int) -> Trace:
    total, stages, room = pipeline.total_ranks, len(pipeline.stages), length.steps * pipeline.batch_size
    step = table(n, t, L.TRACE_STEP, total, 3, length.steps)[rank]
    batch = table(n, n, L.TRACE_BATCH, total, length.steps)[rank]
    items = table(n, t, L.TRACE_ITEM, total, stages, 3, room)[rank]
    servers = table(n, n, L.TRACE_SERVER, total, stages, room)[rank]
    sizes = [room if stage.grain == "sample" else length.steps for stage in pipeline.stages]
    taken, done, out = (
        tuple(_happened(items[stage, row, :size]) for stage, size in enumerate(sizes)) for row in range(3)
    )
    server = tuple(_happened(servers[stage, :size]) for stage, size in enumerate(sizes))
    pick_up, start, end = (tuple(row) for row in step.tolist())
    return Trace(pick_up, start, end, tuple(batch.tolist()), taken, done, out, server)


def _happened(values: Any) -> tuple[Any, ...]:
    return tuple(None if value == -1 else value for value in values.tolist())
