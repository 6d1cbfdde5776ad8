"""The event kernel's arrays at time 0, from a description and its draws; `coresim.sim.layout` says what is where."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import COPY_MODES, Pipeline
from coresim.sim import layout as L
from coresim.sim.draws import Draws
from coresim.sim.layout import Counts, Times
from coresim.sim.run import RunLength

_RATES = (L.CORE_RATE, L.STORAGE_RATE, L.ACCELERATOR_RATE, L.BUSY_CORES)


def build(pipeline: Pipeline, draws: Draws, length: RunLength, number: Any) -> tuple[Counts, Times]:
    """Both arrays at time 0, before the trainers have begun; ``number`` is the dtype of times (float64 or object)."""
    tapes = [np.asarray(draws.tapes[key], dtype=number) for key, _, _ in pipeline.phases()]
    form = _Form(pipeline.structure, length, tuple(tape.shape for tape in tapes), number, pipeline)
    # A trace is large: not one to keep.
    counts, times = (_blank.__wrapped__ if length.trace else _blank)(form)
    counts, times = counts.copy(), times.copy()
    for place, values in zip(_RATES, rates(pipeline, number), strict=True):
        at = int(counts[place])
        times[at : at + len(values)] = values
    at = int(counts[L.TAPE])
    for tape in tapes:
        times[at : at + tape.size] = tape.ravel()
        at += tape.size
    return counts, times


@dataclass(frozen=True)
class _Form:
    """What the two arrays depend on besides the tapes' and the rates' values; ``pipeline`` is any of that structure."""

    structure: tuple[Any, ...]
    length: RunLength
    tapes: tuple[tuple[int, ...], ...]
    number: Any
    pipeline: Pipeline = field(compare=False)


@lru_cache(maxsize=16)
def _blank(form: _Form) -> tuple[Counts, Times]:
    """Both arrays with room for tapes and rates: replications, and settings that differ in speed, begin alike."""
    pipeline, scalars = form.pipeline, _scalars(form.pipeline, form.length)
    counts, times = _Table(L.HEADER), _Table(L.T_HEADER)
    _add_description(counts, times, pipeline, form.tapes)
    _add_state(counts, times, pipeline, scalars)
    places = counts.places | times.places
    header = [*scalars, *(places[place] for place in range(L.SERVERS, L.HEADER))]
    scalar_times = [pipeline.startup, pipeline.worker_startup, pipeline.allreduce]
    return counts.filled(header, np.int64), times.filled(scalar_times, form.number)


class _Table:
    """An array that is laid out table by table, remembers where each begins, and is filled at once."""

    def __init__(self, header: int) -> None:
        self.size = header
        self.places: dict[int, int] = {}
        self.parts: list[tuple[int, int, Any]] = []

    def add(self, place: int, values: Any) -> None:
        """A table of these values."""
        self.reserve(place, len(values))
        self.parts.append((self.places[place], self.size, values))

    def reserve(self, place: int, size: int, filler: int = 0) -> None:
        """A table of ``size`` times the filler."""
        self.places[place] = self.size
        self.size += size
        if filler:
            self.parts.append((self.places[place], self.size, filler))

    def filled(self, header: list[Any], dtype: Any) -> NDArray[Any]:
        array: NDArray[Any] = np.zeros(self.size, dtype)
        array[: len(header)] = header
        for start, stop, values in self.parts:
            array[start:stop] = values
        return array


def _scalars(pipeline: Pipeline, length: RunLength) -> list[int]:
    stages, trainer = pipeline.stages, pipeline.trainer
    phases = sum(len(stage.phases) for stage in stages)
    inline = len(trainer.inline)
    items = length.steps * pipeline.batch_size if length.trace else 0
    heap_room = pipeline.busiest() + 4 * pipeline.ranks + 1
    return [
        pipeline.ranks, pipeline.hosts, pipeline.batch_size, len(stages), sum(stage.servers for stage in stages) + 3,
        phases + len(stages) + 1, _slots(pipeline), heap_room, _or(pipeline.credits, -1), _or(pipeline.epoch_batches,
        0), int(pipeline.persistent), COPY_MODES.index(trainer.copy_mode), int(trainer.spin), trainer.run_ahead,
        int(pipeline.barrier), _robin(pipeline), inline, phases + inline, length.steps, length.warm_up, length.blocks,
        int(length.trace), items, 7 + inline, 6 + inline, _slots(pipeline) - 1,
    ]  # fmt: skip


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


def _robin(pipeline: Pipeline) -> int:
    """0: shared, 1: round robin by number, 2: round robin to the server whose batch was picked up."""
    first = pipeline.stages[0] if pipeline.stages else None
    if first is None or first.dispatch == "shared":
        return 0
    return 1 if first.ordered else 2


def _slots(pipeline: Pipeline) -> int:
    """Room for the most items of one rank in the line at once (plus those being split or gathered).

    A power of two, because rings are indexed by a mask: a division costs as much as all the rest of an access.
    """
    total = 0
    for stage in pipeline.stages:
        grain = pipeline.batch_size if stage.grain == "sample" else 1
        behind = (pipeline.credits or 0) * grain if stage.buffer is None else stage.buffer
        total += stage.servers + behind + 2 * grain + 2
    return 1 << total.bit_length()


def _add_description(counts: _Table, times: _Table, pipeline: Pipeline, tapes: tuple[tuple[int, ...], ...]) -> None:
    stages, keyed = pipeline.stages, list(pipeline.phases())
    servers = [stage.servers for stage in stages]
    phases = [len(stage.phases) for stage in stages]
    counts.add(L.SERVERS, servers)
    counts.add(L.FIRST_ACTOR, _starts(servers))
    counts.add(L.FIRST_PHASE, _starts(phases))
    counts.add(L.PHASES, phases)
    counts.add(L.SAMPLE, [int(stage.grain == "sample") for stage in stages])
    counts.add(L.BUFFER, [_or(stage.buffer, -1) for stage in stages])
    counts.add(L.ORDERED, [int(stage.ordered) for stage in stages])
    owners = [index for index, stage in enumerate(stages) for _ in range(stage.servers)]
    counts.add(L.STAGE_OF, [*owners, L.TRAINER, L.DEVICE, L.COPIER])
    counts.add(L.RESOURCE, [L.CLOCKS[phase.resource] for _, phase, _ in keyed])
    counts.add(L.SPLIT, [phase.split for _, phase, _ in keyed])
    counts.add(L.TAPE_ROWS, [rows for rows, _ in tapes])
    counts.add(L.TAPE_STRIDE, [rows // pipeline.total_ranks for rows, _ in tapes])
    counts.add(L.TAPE_AT, _starts([rows * tasks for rows, tasks in tapes]))
    times.reserve(L.TAPE, sum(rows * tasks for rows, tasks in tapes))
    for place in _RATES:
        times.reserve(place, pipeline.busiest() + 1)


def rates(pipeline: Pipeline, number: Any) -> tuple[Times, ...]:
    """Rates by population: of core tasks, storage phases, accelerators; and busy cores.

    These are the pipeline's own `core_rate`, `storage_rate` and `accelerator_rate`, for all populations at once. None
    is ever read for a population of none; the filler keeps the index equal to the population.
    """
    at = np.arange(pipeline.busiest() + 1)
    one, tasks, cores = pipeline.one, at.astype(number), pipeline.cores
    speed, slowdown = (np.array(table, number) for table in (pipeline.speed, pipeline.slowdown))
    crowded, tasks[0] = tasks > cores, 1
    core = speed[np.minimum(np.maximum(at - 1, 0), len(speed) - 1)] * tasks * one / tasks
    core[crowded] = pipeline.core_work(cores) / tasks[crowded]
    storage, streams = np.full(len(at), one, number), pipeline.storage_streams
    if streams is not None:
        storage[tasks > streams] = streams * one / tasks[tasks > streams]
    accelerator = one / slowdown[np.minimum(at, len(slowdown) - 1)]
    accelerator[crowded] = pipeline.accelerator_rate(len(at))
    return core, storage, accelerator, np.minimum(at.astype(number), cores)


def _starts(sizes: list[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes) + 1)]


def _add_state(counts: _Table, times: _Table, pipeline: Pipeline, n: list[int]) -> None:
    total, heaps = pipeline.total_ranks, pipeline.hosts * 4
    stages, actors, slots = total * n[L.STAGES], total * n[L.ACTORS], total * n[L.SLOTS]
    assigned = total * pipeline.stages[0].servers * n[L.CREDITS] if n[L.ROBIN] == 2 else 0
    for place, size in (
        (L.HOST, pipeline.hosts * L.H_COUNTS), (L.RANK, total * L.R_COUNTS), (L.STAGE, stages * L.J_COUNTS),
        (L.ACTOR, actors * L.A_COUNTS), (L.SLOT, slots * L.S_COUNTS), (L.FREE_SLOT, slots),
        (L.HEAP_ACTOR, heaps * n[L.HEAP_ROOM]),
        (L.HEAP_SIZE, heaps), (L.FREE_SERVER, actors), (L.ASSIGNED, assigned), (L.DIRTY, total),
    ):  # fmt: skip
        counts.reserve(place, size)
    counts.reserve(L.RING, stages * n[L.SLOTS], filler=-1)
    counts.reserve(L.TRACE_BATCH, total * n[L.TRACE] * n[L.STEPS], filler=-1)
    counts.reserve(L.TRACE_SERVER, stages * n[L.ITEMS], filler=-1)
    for place, size in (
        (L.HOST_TIME, pipeline.hosts * L.H_TIMES), (L.RANK_TIME, total * L.R_TIMES), (L.STAGE_TIME, stages * L.J_TIMES),
        (L.SLOT_TIME, slots * L.S_TIMES), (L.STAMP, slots * n[L.SEGMENTS]), (L.HEAP_TIME, heaps * n[L.HEAP_ROOM]),
        (L.REMAINING, actors), (L.DEVICE_TIME, total * n[L.DEVICE_COLUMNS]),
        (L.TRAINER_TIME, total * n[L.TRAINER_COLUMNS]), (L.STARVED, total * n[L.SEGMENTS]),
        (L.BLOCK_END, total * n[L.BLOCKS]), (L.BLOCK_BUSY, total * n[L.BLOCKS]),
    ):  # fmt: skip
        times.reserve(place, size)
    # No time is negative: -1 marks what has not happened.
    times.reserve(L.TRACE_STEP, total * 3 * n[L.TRACE] * n[L.STEPS], filler=-1)
    times.reserve(L.TRACE_ITEM, stages * 3 * n[L.ITEMS], filler=-1)
