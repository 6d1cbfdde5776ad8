"""Trainers and accelerators of the event kernel. Follows `coresim.model.pipeline` to the letter."""

from __future__ import annotations

from coresim.sim import layout as L
from coresim.sim.books import (
    BARRED,
    BEHIND,
    CLOSED,
    CONSUMING,
    COPYING,
    FETCHING,
    IDLE,
    IS_STARVED,
    LAUNCHING,
    PREPARING,
    STARTING,
    SYNCING,
    UNLAUNCHED,
    WAITING,
    WORKING,
    close_books,
    count_outstanding,
    settle,
)
from coresim.sim.clocks import push
from coresim.sim.compiled import compiled
from coresim.sim.items import accept, drop_slot, offered
from coresim.sim.layout import Counts, Times
from coresim.sim.line import mark
from coresim.sim.servers import begin_phase, dispatch, tape_row

SYNC, STREAM, OVERLAP, NONE = 0, 1, 2, 3  # copy modes, in the order of coresim.model.pipeline.COPY_MODES
PICK_UP, BEGIN, FINISH = 0, 1, 2  # rows of table TRACE_STEP


@compiled
def begin_step(n: Counts, t: Times, host: int, rank: int) -> None:
    """The trainer turns to its next step, perhaps the first of an epoch."""
    r = L.rank_at(n, rank)
    if n[r + L.R_STEP] == n[r + L.R_OPENED]:
        if n[r + L.R_STEP] == 0 or n[L.PERSISTENT] == 0:
            n[r + L.R_STATE] = STARTING
            push(n, t, host, L.WAIT, t[L.STARTUP], rank * n[L.ACTORS] + n[L.ACTORS] - 3)
            return
        open_epoch(n, t, host, rank)
    seek_batch(n, t, host, rank)


@compiled
def open_epoch(n: Counts, t: Times, host: int, rank: int) -> None:
    """The batches of the next epoch may be dispatched."""
    r = L.rank_at(n, rank)
    if t[L.WORKER_STARTUP] > 0 and n[L.STAGES] > 0 and (n[r + L.R_STEP] == 0 or n[L.PERSISTENT] == 0):
        for local in range(n[n[L.SERVERS]]):
            n[L.actor_at(n, rank * n[L.ACTORS] + local) + L.A_FRESH] = 1
    n[r + L.R_OPENED] = n[r + L.R_OPENED] + n[L.EPOCH] if n[L.EPOCH] > 0 else L.UNBOUNDED
    dispatch(n, t, rank, 0)


@compiled
def seek_batch(n: Counts, t: Times, host: int, rank: int) -> None:
    """The trainer prepares a batch itself, or waits for one."""
    r = L.rank_at(n, rank)
    if n[L.INLINE] > 0:
        n[r + L.R_STATE] = PREPARING
        n[r + L.R_PHASE] = 0
        trainer = rank * n[L.ACTORS] + n[L.ACTORS] - 3
        begin_phase(n, t, host, rank, trainer, n[L.CONSUMER] - n[L.INLINE], n[r + L.R_STEP])
    else:
        n[r + L.R_STATE] = WAITING
        mark(n, t, host, rank)


@compiled
def end_inline(n: Counts, t: Times, host: int, rank: int) -> None:
    """One parallel task of the trainer's own preparation is over."""
    r = L.rank_at(n, rank)
    trainer = rank * n[L.ACTORS] + n[L.ACTORS] - 3
    n[L.actor_at(n, trainer) + L.A_PENDING] -= 1
    if n[L.actor_at(n, trainer) + L.A_PENDING] > 0:
        return
    n[r + L.R_PHASE] += 1
    if n[r + L.R_PHASE] < n[L.INLINE]:
        begin_phase(n, t, host, rank, trainer, n[L.CONSUMER] - n[L.INLINE] + n[r + L.R_PHASE], n[r + L.R_STEP])
    else:
        consume(n, t, host, rank, n[r + L.R_STEP])


@compiled
def consume(n: Counts, t: Times, host: int, rank: int, batch: int) -> None:
    """The trainer has a batch in hand and does its own work on it."""
    r = L.rank_at(n, rank)
    if n[L.TRACE] == 1 and n[r + L.R_STEP] < n[L.STEPS]:
        t[n[L.TRACE_STEP] + (rank * 3 + PICK_UP) * n[L.STEPS] + n[r + L.R_STEP]] = t[L.host_times(n, host) + L.H_NOW]
        n[n[L.TRACE_BATCH] + rank * n[L.STEPS] + n[r + L.R_STEP]] = batch
    n[r + L.R_PICKED] += 1
    n[r + L.R_STATE] = CONSUMING
    begin_phase(n, t, host, rank, rank * n[L.ACTORS] + n[L.ACTORS] - 3, n[L.CONSUMER], n[r + L.R_STEP])


@compiled
def pick_up(n: Counts, t: Times, host: int, rank: int) -> bool:
    """The trainer takes its batch, if it waits for one and there is one; whether it did."""
    r = L.rank_at(n, rank)
    if n[r + L.R_STATE] != WAITING:
        return False
    slot = offered(n, t, rank, n[L.STAGES] - 1)
    if slot < 0:
        return False
    accept(n, t, rank, n[L.STAGES] - 1)
    blame(n, t, host, rank, slot)
    count_outstanding(n, t, host, rank, -n[L.BATCH] if n[n[L.SAMPLE]] else -1)
    drop_slot(n, t, rank, slot)
    consume(n, t, host, rank, n[L.slot_at(n, slot) + L.S_NUMBER])
    dispatch(n, t, rank, n[L.slot_at(n, slot) + L.S_SERVER])
    settle(n, t, host, rank)
    return True


@compiled
def blame(n: Counts, t: Times, host: int, rank: int, slot: int) -> None:
    """Divide the time for which the accelerator was starved of this batch by what the batch was doing."""
    r = L.rank_at(n, rank)
    rt = L.rank_times(n, rank)
    if n[r + L.R_DEVICE_STATE] != IS_STARVED or n[r + L.R_IN_WINDOW] == CLOSED:
        return
    since = t[rt + L.R_STARVED_SINCE]
    for segment in range(n[L.SEGMENTS] - 1):
        until = t[n[L.STAMP] + slot * n[L.SEGMENTS] + segment]
        if until > since:
            t[n[L.STARVED] + rank * n[L.SEGMENTS] + segment] += until - since
            since = until
    t[n[L.STARVED] + rank * n[L.SEGMENTS] + n[L.SEGMENTS] - 1] += t[L.host_times(n, host) + L.H_NOW] - since


@compiled
def copy_batch(n: Counts, t: Times, host: int, rank: int) -> None:
    """The batch goes to the accelerator, in the way of the copy mode."""
    r = L.rank_at(n, rank)
    if n[L.COPY_MODE] == SYNC:
        n[L.host_at(n, host) + L.H_SPINNING] += n[L.SPIN]
        if n[r + L.R_DONE] < n[r + L.R_STEP]:
            n[r + L.R_STATE] = SYNCING
        else:
            start_copy(n, t, host, rank)
        return
    if n[L.COPY_MODE] == OVERLAP:
        n[r + L.R_COPIES] += 1
        if n[r + L.R_COPIES] == n[r + L.R_COPIED] + 1:
            begin_phase(n, t, host, rank, rank * n[L.ACTORS] + n[L.ACTORS] - 1, n[L.CONSUMER] + 1, n[r + L.R_COPIED])
    launch(n, t, host, rank)


@compiled
def start_copy(n: Counts, t: Times, host: int, rank: int) -> None:
    """A synchronous copy begins."""
    n[L.rank_at(n, rank) + L.R_STATE] = COPYING
    begin_phase(
        n, t, host, rank, rank * n[L.ACTORS] + n[L.ACTORS] - 3, n[L.CONSUMER] + 1, n[L.rank_at(n, rank) + L.R_STEP]
    )


@compiled
def end_copy(n: Counts, t: Times, host: int, rank: int) -> None:
    """The copy engine has finished a copy."""
    r = L.rank_at(n, rank)
    n[r + L.R_COPIED] += 1
    if n[r + L.R_COPIED] < n[r + L.R_COPIES]:
        begin_phase(n, t, host, rank, rank * n[L.ACTORS] + n[L.ACTORS] - 1, n[L.CONSUMER] + 1, n[r + L.R_COPIED])
    start_device(n, t, host, rank)


@compiled
def launch(n: Counts, t: Times, host: int, rank: int) -> None:
    """The trainer begins to launch the step; the accelerator may begin with it."""
    r = L.rank_at(n, rank)
    n[r + L.R_STATE] = LAUNCHING
    n[r + L.R_SUBMITTED] += 1
    phase = n[L.CONSUMER] + 2
    if t[n[L.TAPE] + n[n[L.TAPE_AT] + phase] + tape_row(n, phase, n[r + L.R_STEP], rank)] > 0:
        begin_phase(n, t, host, rank, rank * n[L.ACTORS] + n[L.ACTORS] - 3, phase, n[r + L.R_STEP])
        start_device(n, t, host, rank)
        return
    # One that takes no time is over in this instant: a turn of the event loop for it would cost as much as any.
    start_device(n, t, host, rank)
    n[L.host_at(n, host) + L.H_EVENTS] += 1
    end_launch(n, t, host, rank)


@compiled
def end_launch(n: Counts, t: Times, host: int, rank: int) -> None:
    """The step is launched; the trainer goes on, or waits for the accelerator."""
    r = L.rank_at(n, rank)
    n[r + L.R_LAUNCHED] += 1
    n[r + L.R_STEP] += 1
    if n[r + L.R_DEVICE] == UNLAUNCHED:
        arrive(n, t, host, rank)
    if n[r + L.R_DONE] >= n[r + L.R_STEP] - n[L.RUN_AHEAD]:
        begin_step(n, t, host, rank)
    else:
        n[r + L.R_STATE] = BEHIND
        n[L.host_at(n, host) + L.H_SPINNING] += n[L.SPIN]


@compiled
def start_device(n: Counts, t: Times, host: int, rank: int) -> None:
    """The accelerator begins its next step, if all that the step needs is there."""
    r = L.rank_at(n, rank)
    if n[r + L.R_DEVICE] != IDLE or n[r + L.R_DONE] == n[r + L.R_SUBMITTED]:
        return
    if n[L.COPY_MODE] == STREAM:
        n[r + L.R_DEVICE] = FETCHING
        begin_phase(n, t, host, rank, rank * n[L.ACTORS] + n[L.ACTORS] - 2, n[L.CONSUMER] + 1, n[r + L.R_DONE])
    elif n[L.COPY_MODE] != OVERLAP or n[r + L.R_COPIED] > n[r + L.R_DONE]:
        start_work(n, t, host, rank)


@compiled
def start_work(n: Counts, t: Times, host: int, rank: int) -> None:
    """The accelerator's work on a step begins."""
    r = L.rank_at(n, rank)
    n[r + L.R_DEVICE] = WORKING
    if n[L.TRACE] == 1 and n[r + L.R_DONE] < n[L.STEPS]:
        t[n[L.TRACE_STEP] + (rank * 3 + BEGIN) * n[L.STEPS] + n[r + L.R_DONE]] = t[L.host_times(n, host) + L.H_NOW]
    phase = n[L.CONSUMER] + 3
    row = tape_row(n, phase, n[r + L.R_DONE], rank)
    push(n, t, host, L.ACCELERATOR, t[n[L.TAPE] + n[n[L.TAPE_AT] + phase] + row], rank * n[L.ACTORS] + n[L.ACTORS] - 2)


@compiled
def end_work(n: Counts, t: Times, host: int, rank: int) -> None:
    """The accelerator has done the work of a step (or the copy before it)."""
    r = L.rank_at(n, rank)
    if n[r + L.R_DEVICE] == FETCHING:
        start_work(n, t, host, rank)
    elif n[r + L.R_LAUNCHED] == n[r + L.R_DONE]:
        n[r + L.R_DEVICE] = UNLAUNCHED
    else:
        arrive(n, t, host, rank)


@compiled
def arrive(n: Counts, t: Times, host: int, rank: int) -> None:
    """A step is done on this rank; with a barrier it waits for the others."""
    if n[L.BARRIER] == 0:
        end_step(n, t, host, rank)
        return
    n[L.rank_at(n, rank) + L.R_DEVICE] = BARRED
    n[L.host_at(n, host) + L.H_ARRIVED] += 1
    if n[L.host_at(n, host) + L.H_ARRIVED] == n[L.RANKS]:
        n[L.host_at(n, host) + L.H_PAUSED] = 1


@compiled
def end_step(n: Counts, t: Times, host: int, rank: int) -> None:
    """The accelerator has finished a step."""
    r = L.rank_at(n, rank)
    settle(n, t, host, rank)
    if n[L.TRACE] == 1 and n[r + L.R_DONE] < n[L.STEPS]:
        t[n[L.TRACE_STEP] + (rank * 3 + FINISH) * n[L.STEPS] + n[r + L.R_DONE]] = t[L.host_times(n, host) + L.H_NOW]
    n[r + L.R_DEVICE] = IDLE
    n[r + L.R_DONE] += 1
    close_books(n, t, host, rank)
    if n[r + L.R_STATE] == SYNCING and n[r + L.R_DONE] == n[r + L.R_STEP]:
        start_copy(n, t, host, rank)
    elif n[r + L.R_STATE] == BEHIND and n[r + L.R_DONE] >= n[r + L.R_STEP] - n[L.RUN_AHEAD]:
        n[L.host_at(n, host) + L.H_SPINNING] -= n[L.SPIN]
        begin_step(n, t, host, rank)
    start_device(n, t, host, rank)
