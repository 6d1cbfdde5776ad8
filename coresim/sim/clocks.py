"""Clocks of the event kernel: one heap of deadlines for each, in its own (virtual) time.

Processor sharing is exact and costs O(log n) per event: every task that shares a clock progresses at one rate, so the
clock itself runs at that rate and a task that needs ``S`` of it ends when the clock shows ``S`` more than at its start.
"""

from __future__ import annotations

from typing import Any

from coresim.sim import layout as L
from coresim.sim.compiled import compiled
from coresim.sim.layout import Counts, Times


@compiled
def clock_time(n: Counts, t: Times, host: int, clock: int) -> Any:
    """What the clock shows now."""
    if clock == L.WAIT:
        return t[L.host_times(n, host) + L.H_NOW]
    if clock == L.CORES:
        return t[L.host_times(n, host) + L.H_V_CORES]
    if clock == L.STORAGE:
        return t[L.host_times(n, host) + L.H_V_STORAGE]
    return t[L.host_times(n, host) + L.H_V_ACCELERATOR]


@compiled
def runnable(n: Counts, host: int) -> int:
    """Tasks that want a core now, spinning trainers included."""
    return n[n[L.HEAP_SIZE] + host * 4 + L.CORES] + n[L.host_at(n, host) + L.H_SPINNING]


@compiled
def push_at(n: Counts, t: Times, host: int, clock: int, deadline: Any, actor: int) -> None:
    """Start a task that ends when the clock shows ``deadline``."""
    heap = host * 4 + clock
    base = heap * n[L.HEAP_ROOM]
    at = n[n[L.HEAP_SIZE] + heap]
    n[n[L.HEAP_SIZE] + heap] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if t[n[L.HEAP_TIME] + base + above] <= deadline:
            break
        t[n[L.HEAP_TIME] + base + at] = t[n[L.HEAP_TIME] + base + above]
        n[n[L.HEAP_ACTOR] + base + at] = n[n[L.HEAP_ACTOR] + base + above]
        at = above
    t[n[L.HEAP_TIME] + base + at] = deadline
    n[n[L.HEAP_ACTOR] + base + at] = actor


@compiled
def push(n: Counts, t: Times, host: int, clock: int, work: Any, actor: int) -> None:
    """Start a task of ``work`` on a clock."""
    push_at(n, t, host, clock, clock_time(n, t, host, clock) + work, actor)


@compiled
def pop(n: Counts, t: Times, host: int, clock: int) -> int:
    """Remove the task with the first deadline; its actor."""
    heap = host * 4 + clock
    base = heap * n[L.HEAP_ROOM]
    actor = n[n[L.HEAP_ACTOR] + base]
    size = n[n[L.HEAP_SIZE] + heap] - 1
    n[n[L.HEAP_SIZE] + heap] = size
    deadline, last = t[n[L.HEAP_TIME] + base + size], n[n[L.HEAP_ACTOR] + base + size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and t[n[L.HEAP_TIME] + base + below + 1] < t[n[L.HEAP_TIME] + base + below]:
            below += 1
        if deadline <= t[n[L.HEAP_TIME] + base + below]:
            break
        t[n[L.HEAP_TIME] + base + at] = t[n[L.HEAP_TIME] + base + below]
        n[n[L.HEAP_ACTOR] + base + at] = n[n[L.HEAP_ACTOR] + base + below]
        at = below
    t[n[L.HEAP_TIME] + base + at] = deadline
    n[n[L.HEAP_ACTOR] + base + at] = last
    return actor


@compiled
def time_to(n: Counts, t: Times, host: int, clock: int) -> Any:
    """Seconds until the clock's first deadline at today's rate, or -1 if it has none."""
    heap = host * 4 + clock
    if n[n[L.HEAP_SIZE] + heap] == 0:
        return -1
    left = t[n[L.HEAP_TIME] + heap * n[L.HEAP_ROOM]] - clock_time(n, t, host, clock)
    if clock == L.CORES:
        left = left / t[n[L.CORE_RATE] + runnable(n, host)]
    elif clock == L.STORAGE:
        left = left / t[n[L.STORAGE_RATE] + n[n[L.HEAP_SIZE] + heap]]
    elif clock == L.ACCELERATOR:
        left = left / t[n[L.ACCELERATOR_RATE] + runnable(n, host)]
    return left if left > 0 else left * 0


@compiled
def due(n: Counts, t: Times, host: int) -> int:
    """The first clock of which a task ends at this instant, or -1: what `time_to` tells, without its divisions."""
    for clock in range(4):
        heap = host * 4 + clock
        if n[n[L.HEAP_SIZE] + heap] > 0 and t[n[L.HEAP_TIME] + heap * n[L.HEAP_ROOM]] <= clock_time(n, t, host, clock):
            return clock
    return -1


@compiled
def advance(n: Counts, t: Times, host: int, clock: int, seconds: Any) -> None:
    """Let ``seconds`` pass, after which ``clock`` shows its first deadline exactly."""
    ht = L.host_times(n, host)
    if seconds > 0:
        tasks = runnable(n, host)
        t[ht + L.H_BUSY] += t[n[L.BUSY_CORES] + tasks] * seconds
        if tasks > 0:
            t[ht + L.H_V_CORES] += t[n[L.CORE_RATE] + tasks] * seconds
        reads = n[n[L.HEAP_SIZE] + host * 4 + L.STORAGE]
        if reads > 0:
            t[ht + L.H_V_STORAGE] += t[n[L.STORAGE_RATE] + reads] * seconds
        t[ht + L.H_V_ACCELERATOR] += t[n[L.ACCELERATOR_RATE] + tasks] * seconds
        t[ht + L.H_NOW] += seconds
    deadline = t[n[L.HEAP_TIME] + (host * 4 + clock) * n[L.HEAP_ROOM]]
    if clock == L.WAIT:
        t[ht + L.H_NOW] = deadline
    elif clock == L.CORES:
        t[ht + L.H_V_CORES] = deadline
    elif clock == L.STORAGE:
        t[ht + L.H_V_STORAGE] = deadline
    else:
        t[ht + L.H_V_ACCELERATOR] = deadline
