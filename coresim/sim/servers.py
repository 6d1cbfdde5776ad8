"""Servers of the event kernel: which are free, what they are dealt, the phases they perform."""

from __future__ import annotations

from typing import Any

from coresim.sim import layout as L
from coresim.sim.clocks import push
from coresim.sim.compiled import compiled
from coresim.sim.layout import Counts, Times


@compiled
def tape_row(n: Counts, phase: int, item: int, rank: int) -> int:
    """The row of a phase's tape for an item; a tape that is too short begins again."""
    rows = n[n[L.TAPE_ROWS] + phase]
    if rows == 1:
        return 0
    row = item + rank * n[n[L.TAPE_STRIDE] + phase]
    return row if row < rows else row % rows


@compiled
def begin_phase(n: Counts, t: Times, host: int, rank: int, actor: int, phase: int, item: int) -> Any:
    """Start the parallel tasks of a phase; the longest of their times, s."""
    split = n[n[L.SPLIT] + phase]
    at = n[n[L.TAPE_AT] + phase] + tape_row(n, phase, item, rank) * split
    longest = t[n[L.TAPE] + at]
    for task in range(at, at + split):
        push(n, t, host, n[n[L.RESOURCE] + phase], t[n[L.TAPE] + task], actor)
        if t[n[L.TAPE] + task] > longest:
            longest = t[n[L.TAPE] + task]
    n[L.actor_at(n, actor) + L.A_PENDING] = split
    return longest


@compiled
def push_server(n: Counts, t: Times, actor: int) -> None:
    """Put a server among those of its stage that could take an item; the lowest number comes first."""
    rank = n[L.actor_at(n, actor) + L.A_RANK]
    stage = n[L.actor_at(n, actor) + L.A_STAGE]
    j = L.stage_at(n, rank * n[L.STAGES] + stage)
    base = rank * n[L.ACTORS] + n[n[L.FIRST_ACTOR] + stage]
    at = n[j + L.J_FREE]
    n[j + L.J_FREE] += 1
    while at > 0:
        above = (at - 1) >> 1
        if n[n[L.FREE_SERVER] + base + above] < actor:
            break
        n[n[L.FREE_SERVER] + base + at] = n[n[L.FREE_SERVER] + base + above]
        at = above
    n[n[L.FREE_SERVER] + base + at] = actor


@compiled
def pop_server(n: Counts, t: Times, rank: int, stage: int) -> int:
    """The free server of the lowest number, which is then no longer free."""
    j = L.stage_at(n, rank * n[L.STAGES] + stage)
    base = rank * n[L.ACTORS] + n[n[L.FIRST_ACTOR] + stage]
    n[j + L.J_FREE] -= 1
    first, last = n[n[L.FREE_SERVER] + base], n[n[L.FREE_SERVER] + base + n[j + L.J_FREE]]
    at = 0
    while 2 * at + 1 < n[j + L.J_FREE]:
        below = 2 * at + 1
        if below + 1 < n[j + L.J_FREE] and n[n[L.FREE_SERVER] + base + below + 1] < n[n[L.FREE_SERVER] + base + below]:
            below += 1
        if last < n[n[L.FREE_SERVER] + base + below]:
            break
        n[n[L.FREE_SERVER] + base + at] = n[n[L.FREE_SERVER] + base + below]
        at = below
    n[n[L.FREE_SERVER] + base + at] = last
    return first


@compiled
def free_server(n: Counts, t: Times, actor: int) -> None:
    """A server has given its item away: it can take another, if it has one of its own to take."""
    a = L.actor_at(n, actor)
    n[a + L.A_SLOT] = -1
    if n[a + L.A_STAGE] > 0 or n[L.ROBIN] == 0:
        push_server(n, t, actor)
    elif n[L.ROBIN] == 1:
        if n[a + L.A_NEXT] < n[L.rank_at(n, n[a + L.A_RANK]) + L.R_DISPATCHED]:
            push_server(n, t, actor)
    elif n[a + L.A_QUEUED] > 0:
        push_server(n, t, actor)


@compiled
def limit(n: Counts, t: Times, rank: int) -> int:
    """Batches of a rank that may have been dispatched so far."""
    r = L.rank_at(n, rank)
    if n[L.CREDITS] >= 0 and n[r + L.R_PICKED] + n[L.CREDITS] < n[r + L.R_OPENED]:
        return n[r + L.R_PICKED] + n[L.CREDITS]
    return n[r + L.R_OPENED]


@compiled
def dispatch(n: Counts, t: Times, rank: int, picked_from: int) -> None:
    """Deal round-robin batches to their servers as far as credits and epoch allow."""
    if n[L.ROBIN] == 0 or n[L.STAGES] == 0:
        return
    r = L.rank_at(n, rank)
    last = limit(n, t, rank)
    while n[r + L.R_DISPATCHED] < last:
        number = n[r + L.R_DISPATCHED]
        n[r + L.R_DISPATCHED] += 1
        turn = number if n[L.EPOCH] == 0 else number % n[L.EPOCH]
        if turn == 0 or n[r + L.R_DEALT] == n[n[L.SERVERS]]:
            n[r + L.R_DEALT] = 0
        local = n[r + L.R_DEALT]
        n[r + L.R_DEALT] += 1
        if n[L.ROBIN] == 1:
            actor = rank * n[L.ACTORS] + local
            a = L.actor_at(n, actor)
            if n[a + L.A_SLOT] < 0 and n[a + L.A_NEXT] == number:
                push_server(n, t, actor)
        else:
            assign(n, t, rank, local if turn < n[L.CREDITS] else picked_from, number)


@compiled
def assign(n: Counts, t: Times, rank: int, local: int, number: int) -> None:
    """Put a batch at the end of a server's own queue."""
    actor = rank * n[L.ACTORS] + local
    a = L.actor_at(n, actor)
    at = n[a + L.A_QUEUE_HEAD] + n[a + L.A_QUEUED]
    if at >= n[L.CREDITS]:
        at -= n[L.CREDITS]
    n[n[L.ASSIGNED] + (rank * n[n[L.SERVERS]] + local) * n[L.CREDITS] + at] = number
    n[a + L.A_QUEUED] += 1
    if n[a + L.A_QUEUED] == 1 and n[a + L.A_SLOT] < 0:
        push_server(n, t, actor)


@compiled
def own_number(n: Counts, t: Times, rank: int, actor: int) -> int:
    """The next batch of a server in a round-robin stage; the server moves on to the one after it."""
    a = L.actor_at(n, actor)
    local = actor - rank * n[L.ACTORS]
    if n[L.ROBIN] == 2:
        number = n[n[L.ASSIGNED] + (rank * n[n[L.SERVERS]] + local) * n[L.CREDITS] + n[a + L.A_QUEUE_HEAD]]
        head = n[a + L.A_QUEUE_HEAD] + 1
        n[a + L.A_QUEUE_HEAD] = head if head < n[L.CREDITS] else 0
        n[a + L.A_QUEUED] -= 1
        return number
    number = n[a + L.A_NEXT]
    n[a + L.A_NEXT] = number + n[n[L.SERVERS]]
    if n[L.EPOCH] > 0 and n[a + L.A_NEXT] // n[L.EPOCH] != number // n[L.EPOCH]:
        n[a + L.A_NEXT] = (number // n[L.EPOCH] + 1) * n[L.EPOCH] + local
    return number
