"""Memory of the event kernel: one array of counts and one of times, with named places.

Two arrays, because a compiled function that takes dozens of them spends its time passing them on. ``n`` holds counts
(int64) and ``t`` holds times: float64 in compiled runs, Python objects (Fractions, integers) in exact, uncompiled ones.
``n`` begins with a header: scalars of the description, then the place of every table, in ``n`` or in ``t``. A table of
records (host, rank, stage of a rank, actor, item slot) has its count columns in ``n`` and its time columns in ``t``.
Nothing grows with the number of steps unless a trace is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import COPY_MODES, Pipeline
from coresim.sim.compiled import compiled
from coresim.sim.draws import Draws
from coresim.sim.run import RunLength

Counts = NDArray[np.int64]
Times = NDArray[Any]

WAIT, CORES, STORAGE, ACCELERATOR = 0, 1, 2, 3  # clocks; a phase's resource is one of the first three
CLOCKS = {"wait": WAIT, "cores": CORES, "storage": STORAGE}
UNBOUNDED = 1 << 40
TRAINER, DEVICE, COPIER = -1, -2, -3  # what an actor is that is no server of a stage

# Header: scalars of the description; -1 where a bound is absent.
(RANKS, HOSTS, BATCH, STAGES, ACTORS, SEGMENTS, SLOTS, HEAP_ROOM, CREDITS, EPOCH, PERSISTENT, COPY_MODE, SPIN,
 RUN_AHEAD, BARRIER, ROBIN, INLINE, CONSUMER, STEPS, WARM_UP, BLOCKS, TRACE, ITEMS,
 DEVICE_COLUMNS, TRAINER_COLUMNS, MASK) = range(26)  # fmt: skip

# Header: places in n of tables by stage, phase and task; of the tables of records; of heaps, queues and traces.
(SERVERS, FIRST_ACTOR, FIRST_PHASE, PHASES, SAMPLE, BUFFER, ORDERED, STAGE_OF, RESOURCE, SPLIT, TAPE_AT, TAPE_ROWS,
 TAPE_STRIDE, HOST, RANK, STAGE, ACTOR, SLOT, FREE_SLOT, HEAP_ACTOR, HEAP_SIZE, FREE_SERVER, RING, ASSIGNED, DIRTY,
 TRACE_BATCH, TRACE_SERVER) = range(26, 53)  # fmt: skip

# Header: places in t.
(TAPE, CORE_RATE, STORAGE_RATE, ACCELERATOR_RATE, BUSY_CORES, HOST_TIME, RANK_TIME, STAGE_TIME, SLOT_TIME, STAMP,
 HEAP_TIME, REMAINING, DEVICE_TIME, TRAINER_TIME, STARVED, BLOCK_END, BLOCK_BUSY,
 TRACE_STEP, TRACE_ITEM) = range(53, 72)  # fmt: skip
HEADER = 72

STARTUP, WORKER_STARTUP, ALLREDUCE, T_HEADER = 0, 1, 2, 3  # scalars in t

# Columns of the records: counts, then times.
H_SPINNING, H_EVENTS, H_ARRIVED, H_FINISHED, H_PAUSED, H_DIRTY, H_COUNTS = range(7)
H_NOW, H_V_CORES, H_V_STORAGE, H_V_ACCELERATOR, H_BUSY, H_TIMES = range(6)
(R_STEP, R_STATE, R_PHASE, R_SUBMITTED, R_LAUNCHED, R_DONE, R_COPIES, R_COPIED, R_DEVICE, R_PICKED, R_NEXT, R_OPENED,
 R_DISPATCHED, R_DEALT, R_IS_DIRTY, R_OUTSTANDING, R_FREE_SLOTS, R_BLOCK, R_BLOCK_AT, R_IN_WINDOW, R_DEVICE_STATE,
 R_TRAINER_STATE, R_COUNTS) = range(23)  # fmt: skip
R_STARVED_SINCE, R_SETTLED, R_OUTSTANDING_SINCE, R_OUTSTANDING_TIME, R_BEGIN, R_END, R_TIMES = range(7)
(J_FREE, J_HEAD, J_READY, J_HANDED, J_NEXT_TAKE, J_NEXT_HAND, J_BUSY, J_BLOCKED, J_ITEMS, J_SPLIT_SLOT, J_SPLIT_LEFT,
 J_GATHERED, J_GATHER_SLOT, J_TURN, J_RANK, J_STAGE, J_AT_ONCE, J_COUNTS) = range(18)  # fmt: skip
J_BUSY_TIME, J_BLOCKED_TIME, J_WORK, J_SINCE, J_LAST, J_TIMES = range(6)
A_PHASE, A_PENDING, A_SLOT, A_NEXT, A_FRESH, A_QUEUED, A_QUEUE_HEAD, A_RANK, A_STAGE, A_COUNTS = range(10)
S_NUMBER, S_SERVER, S_ACTOR, S_COUNTS = range(4)
S_DONE, S_OUT, S_TIMES = range(3)


@compiled
def host_at(n: Counts, host: int) -> int:
    """Place in n of a host's record."""
    return n[HOST] + host * H_COUNTS


@compiled
def host_times(n: Counts, host: int) -> int:
    """Place in t of a host's record."""
    return n[HOST_TIME] + host * H_TIMES


@compiled
def rank_at(n: Counts, rank: int) -> int:
    """Place in n of a rank's record."""
    return n[RANK] + rank * R_COUNTS


@compiled
def rank_times(n: Counts, rank: int) -> int:
    """Place in t of a rank's record."""
    return n[RANK_TIME] + rank * R_TIMES


@compiled
def stage_at(n: Counts, index: int) -> int:
    """Place in n of the record of a stage of a rank (index = rank * stages + stage)."""
    return n[STAGE] + index * J_COUNTS


@compiled
def stage_times(n: Counts, index: int) -> int:
    """Place in t of the record of a stage of a rank."""
    return n[STAGE_TIME] + index * J_TIMES


@compiled
def actor_at(n: Counts, actor: int) -> int:
    """Place in n of an actor's record: a rank's servers in order, then its trainer, accelerator and copy engine."""
    return n[ACTOR] + actor * A_COUNTS


@compiled
def slot_at(n: Counts, slot: int) -> int:
    """Place in n of an item's record."""
    return n[SLOT] + slot * S_COUNTS


@compiled
def slot_times(n: Counts, slot: int) -> int:
    """Place in t of an item's record."""
    return n[SLOT_TIME] + slot * S_TIMES


def build(pipeline: Pipeline, draws: Draws, length: RunLength, number: Any) -> tuple[Counts, Times]:
    """Both arrays at time 0, before the trainers have begun; ``number`` is the dtype of times (float64 or object)."""
    tapes = [np.asarray(draws.tapes[key], dtype=number) for key, _, _ in pipeline.phases()]
    form = _Form(pipeline.structure, length, tuple(tape.shape for tape in tapes), number, pipeline)
    # A trace is large: not one to keep.
    counts, times = (_blank.__wrapped__ if length.trace else _blank)(form)
    counts, times = counts.copy(), times.copy()
    for place, values in zip((CORE_RATE, STORAGE_RATE, ACCELERATOR_RATE, BUSY_CORES), _rates(pipeline, number), strict=True):
        times[counts[place] : counts[place] + len(values)] = values
    times[counts[TAPE] : counts[TAPE] + sum(tape.size for tape in tapes)] = np.concatenate([t.ravel() for t in tapes])
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
    counts, times = _Table(HEADER), _Table(T_HEADER)
    _add_description(counts, times, pipeline, form.tapes)
    _add_state(counts, times, pipeline, scalars)
    places = counts.places | times.places
    header = [*scalars, *(places[place] for place in range(SERVERS, HEADER))]
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


def _add_description(
    counts: _Table, times: _Table, pipeline: Pipeline, tapes: tuple[tuple[int, ...], ...]
) -> None:
    stages, keyed = pipeline.stages, list(pipeline.phases())
    servers = [stage.servers for stage in stages]
    phases = [len(stage.phases) for stage in stages]
    counts.add(SERVERS, servers)
    counts.add(FIRST_ACTOR, _starts(servers))
    counts.add(FIRST_PHASE, _starts(phases))
    counts.add(PHASES, phases)
    counts.add(SAMPLE, [int(stage.grain == "sample") for stage in stages])
    counts.add(BUFFER, [_or(stage.buffer, -1) for stage in stages])
    counts.add(ORDERED, [int(stage.ordered) for stage in stages])
    owners = [index for index, stage in enumerate(stages) for _ in range(stage.servers)]
    counts.add(STAGE_OF, [*owners, TRAINER, DEVICE, COPIER])
    counts.add(RESOURCE, [CLOCKS[phase.resource] for _, phase, _ in keyed])
    counts.add(SPLIT, [phase.split for _, phase, _ in keyed])
    counts.add(TAPE_ROWS, [rows for rows, _ in tapes])
    counts.add(TAPE_STRIDE, [rows // pipeline.total_ranks for rows, _ in tapes])
    counts.add(TAPE_AT, _starts([rows * tasks for rows, tasks in tapes]))
    times.reserve(TAPE, sum(rows * tasks for rows, tasks in tapes))
    for place in (CORE_RATE, STORAGE_RATE, ACCELERATOR_RATE, BUSY_CORES):
        times.reserve(place, pipeline.busiest() + 1)


def _rates(pipeline: Pipeline, number: Any) -> tuple[Times, ...]:
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
    stages, actors, slots = total * n[STAGES], total * n[ACTORS], total * n[SLOTS]
    assigned = total * pipeline.stages[0].servers * n[CREDITS] if n[ROBIN] == 2 else 0
    for place, size in (
        (HOST, pipeline.hosts * H_COUNTS), (RANK, total * R_COUNTS), (STAGE, stages * J_COUNTS),
        (ACTOR, actors * A_COUNTS), (SLOT, slots * S_COUNTS), (FREE_SLOT, slots), (HEAP_ACTOR, heaps * n[HEAP_ROOM]),
        (HEAP_SIZE, heaps), (FREE_SERVER, actors), (ASSIGNED, assigned), (DIRTY, total),
    ):  # fmt: skip
        counts.reserve(place, size)
    counts.reserve(RING, stages * n[SLOTS], filler=-1)
    counts.reserve(TRACE_BATCH, total * n[TRACE] * n[STEPS], filler=-1)
    counts.reserve(TRACE_SERVER, stages * n[ITEMS], filler=-1)
    for place, size in (
        (HOST_TIME, pipeline.hosts * H_TIMES), (RANK_TIME, total * R_TIMES), (STAGE_TIME, stages * J_TIMES),
        (SLOT_TIME, slots * S_TIMES), (STAMP, slots * n[SEGMENTS]), (HEAP_TIME, heaps * n[HEAP_ROOM]),
        (REMAINING, actors), (DEVICE_TIME, total * n[DEVICE_COLUMNS]), (TRAINER_TIME, total * n[TRAINER_COLUMNS]),
        (STARVED, total * n[SEGMENTS]), (BLOCK_END, total * n[BLOCKS]), (BLOCK_BUSY, total * n[BLOCKS]),
    ):  # fmt: skip
        times.reserve(place, size)
    # No time is negative: -1 marks what has not happened.
    times.reserve(TRACE_STEP, total * 3 * n[TRACE] * n[STEPS], filler=-1)
    times.reserve(TRACE_ITEM, stages * 3 * n[ITEMS], filler=-1)


def table(n: Counts, array: NDArray[Any], place: int, *shape: int) -> NDArray[Any]:
    """A table of one of the two arrays, in shape, for reading results."""
    start = int(n[place])
    return array[start : start + math.prod(shape)].reshape(shape)
