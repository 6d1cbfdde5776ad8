"""Memory of the event kernel: one array of counts and one of times, with named places.

Two arrays, because a compiled function that takes dozens of them spends its time passing them on. ``n`` holds counts
(int64) and ``t`` holds times: float64 in compiled runs, Python objects (Fractions, integers) in exact, uncompiled ones.
``n`` begins with a header: scalars of the description, then the place of every table, in ``n`` or in ``t``. A table of
records (host, rank, stage of a rank, actor, item slot) has its count columns in ``n`` and its time columns in ``t``.
Nothing grows with the number of steps unless a trace is asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim.sim.compiled import compiled

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


def table(n: Counts, array: NDArray[Any], place: int, *shape: int) -> NDArray[Any]:
    """A table of one of the two arrays, in shape, for reading results."""
    start = int(n[place])
    return array[start : start + math.prod(shape)].reshape(shape)
