"""Book-keeping of the event kernel: where the accelerator's, the trainer's and the servers' time goes."""

from __future__ import annotations

from coresim.sim import layout as L
from coresim.sim.clocks import clock_time
from coresim.sim.compiled import compiled
from coresim.sim.layout import Counts, Times

# States of a trainer.
STARTING, PREPARING, WAITING, CONSUMING, SYNCING, COPYING, LAUNCHING, BEHIND = 0, 1, 2, 3, 4, 5, 6, 7
# States of an accelerator.
IDLE, FETCHING, WORKING, UNLAUNCHED, BARRED = 0, 1, 2, 3, 4
# Columns of table DEVICE_TIME; the trainer's phases that the accelerator idles for come after IS_PHASE.
IS_BUSY, IS_LAUNCH, IS_BARRIER, IS_COPY, IS_STARTUP, IS_STARVED, IS_PHASE = 0, 1, 2, 3, 4, 5, 6
# Columns of table TRAINER_TIME; the trainer's own phases come after IN_PHASE.
IN_STARVED, IN_DEVICE, IN_COPY, IN_STARTUP, IN_PHASE = 0, 1, 2, 3, 4
# A rank's window: before it (0), in it, after it.
OPEN, CLOSED = 1, 2


@compiled
def device_column(n: Counts, t: Times, rank: int) -> int:
    """What the accelerator's time counts as now."""
    state = n[L.rank_at(n, rank) + L.R_DEVICE]
    if state == WORKING:
        return IS_BUSY
    if state == UNLAUNCHED:
        return IS_LAUNCH
    if state == BARRED:
        return IS_BARRIER
    r = L.rank_at(n, rank)
    trainer = n[r + L.R_STATE]
    if state == FETCHING or trainer >= SYNCING or n[r + L.R_DONE] < n[r + L.R_SUBMITTED]:
        return IS_COPY
    if trainer == STARTING:
        return IS_STARTUP
    if trainer == WAITING:
        return IS_STARVED
    return IS_PHASE + (n[r + L.R_PHASE] if trainer == PREPARING else n[L.INLINE])


@compiled
def trainer_column(n: Counts, t: Times, rank: int) -> int:
    """What the trainer's time counts as now."""
    state = n[L.rank_at(n, rank) + L.R_STATE]
    if state == WAITING:
        return IN_STARVED
    if state == COPYING:
        return IN_COPY
    if state in (SYNCING, BEHIND):
        return IN_DEVICE
    if state == STARTING:
        return IN_STARTUP
    if state == PREPARING:
        return IN_PHASE + n[L.rank_at(n, rank) + L.R_PHASE]
    return IN_PHASE + n[L.INLINE] + (1 if state == LAUNCHING else 0)


@compiled
def settle(n: Counts, t: Times, host: int, rank: int) -> None:
    """Book the time since the last change of the accelerator's or the trainer's state, then note the new states."""
    r = L.rank_at(n, rank)
    rt = L.rank_times(n, rank)
    now = t[L.host_times(n, host) + L.H_NOW]
    passed = now - t[rt + L.R_SETTLED]
    if passed > 0 and n[r + L.R_IN_WINDOW] < CLOSED:
        t[n[L.DEVICE_TIME] + rank * n[L.DEVICE_COLUMNS] + n[r + L.R_DEVICE_STATE]] += passed
        t[n[L.TRAINER_TIME] + rank * n[L.TRAINER_COLUMNS] + n[r + L.R_TRAINER_STATE]] += passed
    t[rt + L.R_SETTLED] = now
    device = device_column(n, t, rank)
    if device == IS_STARVED and n[r + L.R_DEVICE_STATE] != IS_STARVED:
        t[rt + L.R_STARVED_SINCE] = now
    n[r + L.R_DEVICE_STATE] = device
    n[r + L.R_TRAINER_STATE] = trainer_column(n, t, rank)


@compiled
def count_servers(n: Counts, t: Times, host: int, stage: int, busy: int, blocked: int) -> None:
    """Book a stage's busy and blocked server time, then change how many of its servers are busy and blocked."""
    j = L.stage_at(n, stage)
    jt = L.stage_times(n, stage)
    now = t[L.host_times(n, host) + L.H_NOW]
    passed = now - t[jt + L.J_SINCE]
    if passed > 0 and n[L.rank_at(n, n[j + L.J_RANK]) + L.R_IN_WINDOW] < CLOSED:
        t[jt + L.J_BUSY_TIME] += n[j + L.J_BUSY] * passed
        t[jt + L.J_BLOCKED_TIME] += n[j + L.J_BLOCKED] * passed
    t[jt + L.J_SINCE] = now
    n[j + L.J_BUSY] += busy
    n[j + L.J_BLOCKED] += blocked


@compiled
def count_item(n: Counts, t: Times, host: int, index: int) -> None:
    """Book a completed service; those of the present instant are counted apart, for the edges of the window."""
    j, jt = L.stage_at(n, index), L.stage_times(n, index)
    now = t[L.host_times(n, host) + L.H_NOW]
    if n[L.rank_at(n, n[j + L.J_RANK]) + L.R_IN_WINDOW] < CLOSED:
        n[j + L.J_ITEMS] += 1
    n[j + L.J_AT_ONCE] = 1 + (n[j + L.J_AT_ONCE] if t[jt + L.J_LAST] == now else 0)
    t[jt + L.J_LAST] = now


@compiled
def items_now(n: Counts, t: Times, host: int, index: int) -> int:
    """Services completed at the present instant so far: a window holds those at its begin, not those at its end."""
    if t[L.stage_times(n, index) + L.J_LAST] == t[L.host_times(n, host) + L.H_NOW]:
        return n[L.stage_at(n, index) + L.J_AT_ONCE]
    return 0


@compiled
def count_outstanding(n: Counts, t: Times, host: int, rank: int, change: int) -> None:
    """Book the items in the line, then change how many there are."""
    r = L.rank_at(n, rank)
    rt = L.rank_times(n, rank)
    now = t[L.host_times(n, host) + L.H_NOW]
    if n[r + L.R_IN_WINDOW] < CLOSED:
        t[rt + L.R_OUTSTANDING_TIME] += n[r + L.R_OUTSTANDING] * (now - t[rt + L.R_OUTSTANDING_SINCE])
    t[rt + L.R_OUTSTANDING_SINCE] = now
    n[r + L.R_OUTSTANDING] += change


@compiled
def add_remaining(n: Counts, t: Times, host: int, rank: int, sign: int) -> None:
    """Add (or take away) the work that the servers of a rank still have to do on the items they have begun.

    A phase's work is booked when it begins; at the edges of the window the part outside must go.
    """
    low, high = rank * n[L.ACTORS], rank * n[L.ACTORS] + n[L.ACTORS] - 3
    for actor in range(low, high):
        t[n[L.REMAINING] + actor] = 0
    for clock in (L.WAIT, L.CORES, L.STORAGE):
        heap = host * 4 + clock
        for at in range(heap * n[L.HEAP_ROOM], heap * n[L.HEAP_ROOM] + n[n[L.HEAP_SIZE] + heap]):
            actor = n[n[L.HEAP_ACTOR] + at]
            if low <= actor < high:
                left = t[n[L.HEAP_TIME] + at] - clock_time(n, t, host, clock)
                if left > t[n[L.REMAINING] + actor]:
                    t[n[L.REMAINING] + actor] = left
    for actor in range(low, high):
        stage = rank * n[L.STAGES] + n[n[L.STAGE_OF] + actor - low]
        t[L.stage_times(n, stage) + L.J_WORK] += sign * t[n[L.REMAINING] + actor]


@compiled
def open_window(n: Counts, t: Times, host: int, rank: int) -> None:
    """Begin a rank's window: forget what was booked so far."""
    for column in range(n[L.DEVICE_COLUMNS]):
        t[n[L.DEVICE_TIME] + rank * n[L.DEVICE_COLUMNS] + column] = 0
    for column in range(n[L.TRAINER_COLUMNS]):
        t[n[L.TRAINER_TIME] + rank * n[L.TRAINER_COLUMNS] + column] = 0
    for column in range(n[L.SEGMENTS]):
        t[n[L.STARVED] + rank * n[L.SEGMENTS] + column] = 0
    for stage in range(rank * n[L.STAGES], rank * n[L.STAGES] + n[L.STAGES]):
        count_servers(n, t, host, stage, 0, 0)
        j = L.stage_at(n, stage)
        jt = L.stage_times(n, stage)
        t[jt + L.J_BUSY_TIME] = 0
        t[jt + L.J_BLOCKED_TIME] = 0
        t[jt + L.J_WORK] = 0
        n[j + L.J_ITEMS] = items_now(n, t, host, stage)
    add_remaining(n, t, host, rank, 1)
    count_outstanding(n, t, host, rank, 0)
    t[L.rank_times(n, rank) + L.R_OUTSTANDING_TIME] = 0
    t[L.rank_times(n, rank) + L.R_BEGIN] = t[L.host_times(n, host) + L.H_NOW]
    n[L.rank_at(n, rank) + L.R_IN_WINDOW] = OPEN


@compiled
def close_window(n: Counts, t: Times, host: int, rank: int) -> None:
    """End a rank's window; what happens later is no longer booked."""
    for stage in range(rank * n[L.STAGES], rank * n[L.STAGES] + n[L.STAGES]):
        count_servers(n, t, host, stage, 0, 0)
        n[L.stage_at(n, stage) + L.J_ITEMS] -= items_now(n, t, host, stage)
    add_remaining(n, t, host, rank, -1)
    count_outstanding(n, t, host, rank, 0)
    t[L.rank_times(n, rank) + L.R_END] = t[L.host_times(n, host) + L.H_NOW]
    n[L.rank_at(n, rank) + L.R_IN_WINDOW] = CLOSED


@compiled
def close_books(n: Counts, t: Times, host: int, rank: int) -> None:
    """At the end of a step: the window may begin or end, or a block of it end."""
    r = L.rank_at(n, rank)
    if n[r + L.R_DONE] == n[L.WARM_UP]:
        open_window(n, t, host, rank)
    if n[r + L.R_DONE] == n[r + L.R_BLOCK_AT]:
        at = rank * n[L.BLOCKS] + n[r + L.R_BLOCK]
        t[n[L.BLOCK_END] + at] = t[L.host_times(n, host) + L.H_NOW]
        t[n[L.BLOCK_BUSY] + at] = t[n[L.DEVICE_TIME] + rank * n[L.DEVICE_COLUMNS] + IS_BUSY]
        n[r + L.R_BLOCK] += 1
        set_block(n, rank)
    if n[r + L.R_DONE] == n[L.STEPS]:
        close_window(n, t, host, rank)
        n[L.host_at(n, host) + L.H_FINISHED] += 1


@compiled
def set_block(n: Counts, rank: int) -> None:
    """Note after which step the rank's current block ends."""
    r = L.rank_at(n, rank)
    window = n[L.STEPS] - n[L.WARM_UP]
    n[r + L.R_BLOCK_AT] = n[L.WARM_UP] + (n[r + L.R_BLOCK] + 1) * window // n[L.BLOCKS]
    if n[r + L.R_BLOCK] == n[L.BLOCKS]:
        n[r + L.R_BLOCK_AT] = -1
