"""How items move through the line of stages in the event kernel: dispatch, service, hand-over, take."""

from __future__ import annotations

from typing import Any

from coresim.sim import layout as L
from coresim.sim.books import CLOSED, count_item, count_outstanding, count_servers
from coresim.sim.clocks import push
from coresim.sim.compiled import compiled
from coresim.sim.layout import Counts, Times

TAKEN, DONE, OUT = 0, 1, 2  # rows of table TRACE_ITEM


@compiled
def mark(n: Counts, t: Times, host: int, rank: int) -> None:
    """Note that something of this rank may be handed over or taken."""
    if n[L.rank_at(n, rank) + L.R_IS_DIRTY] == 0:
        n[L.rank_at(n, rank) + L.R_IS_DIRTY] = 1
        n[n[L.DIRTY] + host * n[L.RANKS] + n[L.host_at(n, host) + L.H_DIRTY]] = rank
        n[L.host_at(n, host) + L.H_DIRTY] += 1


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


@compiled
def new_slot(n: Counts, t: Times, rank: int, number: int) -> int:
    """A slot for an item of this number."""
    r = L.rank_at(n, rank)
    n[r + L.R_FREE_SLOTS] -= 1
    slot = n[n[L.FREE_SLOT] + rank * n[L.SLOTS] + n[r + L.R_FREE_SLOTS]]
    n[L.slot_at(n, slot) + L.S_NUMBER] = number
    return slot


@compiled
def drop_slot(n: Counts, t: Times, rank: int, slot: int) -> None:
    """The item is gone."""
    r = L.rank_at(n, rank)
    n[n[L.FREE_SLOT] + rank * n[L.SLOTS] + n[r + L.R_FREE_SLOTS]] = slot
    n[r + L.R_FREE_SLOTS] += 1


@compiled
def stamp(n: Counts, t: Times, host: int, slot: int, stage: int, phase: int) -> None:
    """Note when an item was taken by a stage (phase -1) or ended one of its phases."""
    t[n[L.STAMP] + slot * n[L.SEGMENTS] + n[n[L.FIRST_PHASE] + stage] + stage + 1 + phase] = t[
        L.host_times(n, host) + L.H_NOW
    ]


@compiled
def trace_item(n: Counts, t: Times, host: int, index: int, row: int, slot: int) -> None:
    """Keep the time of an event of an item, if a trace is asked for."""
    if n[L.TRACE] == 0:
        return
    stage = n[L.stage_at(n, index) + L.J_STAGE]
    number = n[L.slot_at(n, slot) + L.S_NUMBER]
    if number < n[L.STEPS] * (n[L.BATCH] if n[n[L.SAMPLE] + stage] else 1):
        t[n[L.TRACE_ITEM] + (index * 3 + row) * n[L.ITEMS] + number] = t[L.host_times(n, host) + L.H_NOW]
        actor = n[L.slot_at(n, slot) + L.S_ACTOR]
        first = n[L.actor_at(n, actor) + L.A_RANK] * n[L.ACTORS] + n[n[L.FIRST_ACTOR] + stage]
        n[n[L.TRACE_SERVER] + index * n[L.ITEMS] + number] = actor - first


@compiled
def book_work(n: Counts, t: Times, rank: int, stage: int, seconds: Any) -> None:
    """Book the unshared time of a phase that begins."""
    if n[L.rank_at(n, rank) + L.R_IN_WINDOW] < CLOSED:
        t[L.stage_times(n, rank * n[L.STAGES] + stage) + L.J_WORK] += seconds


@compiled
def start_service(n: Counts, t: Times, host: int, rank: int, actor: int, slot: int) -> None:
    """A server begins an item."""
    stage = n[L.actor_at(n, actor) + L.A_STAGE]
    a = L.actor_at(n, actor)
    n[a + L.A_SLOT] = slot
    n[L.slot_at(n, slot) + L.S_ACTOR] = actor
    if stage == 0:
        n[L.slot_at(n, slot) + L.S_SERVER] = actor - rank * n[L.ACTORS]
    count_servers(n, t, host, rank * n[L.STAGES] + stage, 1, 0)
    stamp(n, t, host, slot, stage, -1)
    trace_item(n, t, host, rank * n[L.STAGES] + stage, TAKEN, slot)
    if n[a + L.A_FRESH] == 1:
        n[a + L.A_FRESH] = 0
        n[a + L.A_PHASE] = -1
        n[a + L.A_PENDING] = 1
        push(n, t, host, L.CORES, t[L.WORKER_STARTUP], actor)
        book_work(n, t, rank, stage, t[L.WORKER_STARTUP])
    else:
        n[a + L.A_PHASE] = 0
        longest = begin_phase(n, t, host, rank, actor, n[n[L.FIRST_PHASE] + stage], n[L.slot_at(n, slot) + L.S_NUMBER])
        book_work(n, t, rank, stage, longest)


@compiled
def end_phase(n: Counts, t: Times, host: int, rank: int, actor: int) -> None:
    """One parallel task of a server's phase is over; perhaps the phase; perhaps the item's service."""
    a = L.actor_at(n, actor)
    n[a + L.A_PENDING] -= 1
    if n[a + L.A_PENDING] > 0:
        return
    stage = n[L.actor_at(n, actor) + L.A_STAGE]
    stamp(n, t, host, n[a + L.A_SLOT], stage, n[a + L.A_PHASE])
    n[a + L.A_PHASE] += 1
    if n[a + L.A_PHASE] < n[n[L.PHASES] + stage]:
        number = n[L.slot_at(n, n[a + L.A_SLOT]) + L.S_NUMBER]
        longest = begin_phase(n, t, host, rank, actor, n[n[L.FIRST_PHASE] + stage] + n[a + L.A_PHASE], number)
        book_work(n, t, rank, stage, longest)
    else:
        end_service(n, t, host, rank, actor, stage)
        mark(n, t, host, rank)


@compiled
def end_service(n: Counts, t: Times, host: int, rank: int, actor: int, stage: int) -> None:
    """An item is finished; with an unbounded buffer it is handed over at once."""
    slot = n[L.actor_at(n, actor) + L.A_SLOT]
    index = rank * n[L.STAGES] + stage
    t[L.slot_times(n, slot) + L.S_DONE] = t[L.host_times(n, host) + L.H_NOW]
    count_item(n, t, host, index)
    trace_item(n, t, host, index, DONE, slot)
    insert(n, t, index, slot)
    unbounded = n[n[L.BUFFER] + stage] < 0
    count_servers(n, t, host, index, -1, 0 if unbounded else 1)
    if unbounded:
        trace_item(n, t, host, index, OUT, slot)
        free_server(n, t, actor)


@compiled
def insert(n: Counts, t: Times, index: int, slot: int) -> None:
    """Put a finished item where its stage's followers look for it: by number if ordered, else by time and number."""
    j = L.stage_at(n, index)
    base = index * n[L.SLOTS]
    number = n[L.slot_at(n, slot) + L.S_NUMBER]
    if n[n[L.ORDERED] + n[L.stage_at(n, index) + L.J_STAGE]]:
        n[n[L.RING] + base + (number & n[L.MASK])] = slot
        return
    at = n[j + L.J_READY]
    n[j + L.J_READY] += 1
    while at > n[j + L.J_HANDED]:
        before = n[n[L.RING] + base + ((n[j + L.J_HEAD] + at - 1) & n[L.MASK])]
        if (
            t[L.slot_times(n, before) + L.S_DONE] < t[L.slot_times(n, slot) + L.S_DONE]
            or n[L.slot_at(n, before) + L.S_NUMBER] < number
        ):
            break
        n[n[L.RING] + base + ((n[j + L.J_HEAD] + at) & n[L.MASK])] = before
        at -= 1
    n[n[L.RING] + base + ((n[j + L.J_HEAD] + at) & n[L.MASK])] = slot


@compiled
def next_finished(n: Counts, t: Times, index: int) -> int:
    """The finished item that a bounded stage hands over next, or -1 if there is none or no room."""
    j = L.stage_at(n, index)
    base = index * n[L.SLOTS]
    if n[n[L.ORDERED] + n[L.stage_at(n, index) + L.J_STAGE]]:
        if n[j + L.J_NEXT_HAND] - n[j + L.J_NEXT_TAKE] >= n[n[L.BUFFER] + n[L.stage_at(n, index) + L.J_STAGE]]:
            return -1
        return n[n[L.RING] + base + (n[j + L.J_NEXT_HAND] & n[L.MASK])]
    if (
        n[j + L.J_HANDED] >= n[n[L.BUFFER] + n[L.stage_at(n, index) + L.J_STAGE]]
        or n[j + L.J_HANDED] >= n[j + L.J_READY]
    ):
        return -1
    return n[n[L.RING] + base + ((n[j + L.J_HEAD] + n[j + L.J_HANDED]) & n[L.MASK])]


@compiled
def put_out(n: Counts, t: Times, host: int, index: int, slot: int) -> None:
    """The next finished item stands ready; of those handed over at one instant the lower number comes first."""
    j = L.stage_at(n, index)
    t[L.slot_times(n, slot) + L.S_OUT] = t[L.host_times(n, host) + L.H_NOW]
    n[j + L.J_NEXT_HAND] += 1
    if n[n[L.ORDERED] + n[j + L.J_STAGE]]:
        return
    base = n[L.RING] + index * n[L.SLOTS]
    at = n[j + L.J_HANDED]
    n[j + L.J_HANDED] += 1
    while at > 0:
        before = n[base + ((n[j + L.J_HEAD] + at - 1) & n[L.MASK])]
        earlier = t[L.slot_times(n, before) + L.S_OUT] < t[L.slot_times(n, slot) + L.S_OUT]
        if earlier or n[L.slot_at(n, before) + L.S_NUMBER] < n[L.slot_at(n, slot) + L.S_NUMBER]:
            break
        n[base + ((n[j + L.J_HEAD] + at) & n[L.MASK])] = before
        at -= 1
    n[base + ((n[j + L.J_HEAD] + at) & n[L.MASK])] = slot


@compiled
def hand_over(n: Counts, t: Times, host: int, rank: int) -> None:
    """Hand finished items over wherever there is room."""
    for stage in range(n[L.STAGES]):
        if n[n[L.BUFFER] + stage] < 0:
            continue
        index = rank * n[L.STAGES] + stage
        slot = next_finished(n, t, index)
        while slot >= 0:
            put_out(n, t, host, index, slot)
            count_servers(n, t, host, index, 0, -1)
            trace_item(n, t, host, index, OUT, slot)
            free_server(n, t, n[L.slot_at(n, slot) + L.S_ACTOR])
            slot = next_finished(n, t, index)


@compiled
def front(n: Counts, t: Times, index: int) -> int:
    """The item that stands ready first behind a stage, or -1."""
    j = L.stage_at(n, index)
    stage = n[L.stage_at(n, index) + L.J_STAGE]
    if n[n[L.ORDERED] + stage]:
        if n[n[L.BUFFER] + stage] >= 0 and n[j + L.J_NEXT_TAKE] >= n[j + L.J_NEXT_HAND]:
            return -1
        return n[n[L.RING] + index * n[L.SLOTS] + (n[j + L.J_NEXT_TAKE] & n[L.MASK])]
    if n[j + L.J_READY] == 0 or (n[n[L.BUFFER] + stage] >= 0 and n[j + L.J_HANDED] == 0):
        return -1
    return n[n[L.RING] + index * n[L.SLOTS] + n[j + L.J_HEAD]]


@compiled
def remove_front(n: Counts, t: Times, index: int) -> None:
    """The item that stands ready first behind a stage is taken away."""
    j = L.stage_at(n, index)
    if n[n[L.ORDERED] + n[L.stage_at(n, index) + L.J_STAGE]]:
        n[n[L.RING] + index * n[L.SLOTS] + (n[j + L.J_NEXT_TAKE] & n[L.MASK])] = -1
        n[j + L.J_NEXT_TAKE] += 1
        return
    n[j + L.J_HEAD] = (n[j + L.J_HEAD] + 1) & n[L.MASK]
    n[j + L.J_READY] -= 1
    if n[n[L.BUFFER] + n[L.stage_at(n, index) + L.J_STAGE]] >= 0:
        n[j + L.J_HANDED] -= 1


@compiled
def gathers(n: Counts, stage: int) -> bool:
    """Whether a gatherer stands behind the stage."""
    return n[n[L.SAMPLE] + stage] == 1 and (stage == n[L.STAGES] - 1 or n[n[L.SAMPLE] + stage + 1] == 0)


@compiled
def offered(n: Counts, t: Times, rank: int, stage: int) -> int:
    """The item that the follower of a stage could take now, or -1."""
    index = rank * n[L.STAGES] + stage
    if gathers(n, stage):
        return n[L.stage_at(n, index) + L.J_GATHER_SLOT] - 1
    return front(n, t, index)


@compiled
def accept(n: Counts, t: Times, rank: int, stage: int) -> None:
    """The follower of a stage takes the item offered."""
    index = rank * n[L.STAGES] + stage
    if gathers(n, stage):
        n[L.stage_at(n, index) + L.J_GATHER_SLOT] = 0
        n[L.stage_at(n, index) + L.J_GATHERED] = 0
    else:
        remove_front(n, t, index)


@compiled
def gather(n: Counts, t: Times, rank: int, stage: int) -> bool:
    """The gatherer takes one sample, if it may; whether it did."""
    index = rank * n[L.STAGES] + stage
    j = L.stage_at(n, index)
    if n[j + L.J_GATHERED] == n[L.BATCH]:
        return False
    slot = front(n, t, index)
    if slot < 0:
        return False
    remove_front(n, t, index)
    n[j + L.J_GATHERED] += 1
    if n[j + L.J_GATHERED] < n[L.BATCH]:
        drop_slot(n, t, rank, slot)
    else:
        n[L.slot_at(n, slot) + L.S_NUMBER] = n[j + L.J_TURN]
        n[j + L.J_TURN] += 1
        n[j + L.J_GATHER_SLOT] = slot + 1
    return True


@compiled
def split_batch(n: Counts, t: Times, rank: int, stage: int) -> bool:
    """The splitter before a stage takes a batch, if it may; whether it did."""
    j = L.stage_at(n, rank * n[L.STAGES] + stage)
    if n[j + L.J_SPLIT_LEFT] > 0:
        return False
    slot = offered(n, t, rank, stage - 1)
    if slot < 0:
        return False
    accept(n, t, rank, stage - 1)
    n[j + L.J_SPLIT_SLOT] = slot
    n[j + L.J_SPLIT_LEFT] = n[L.BATCH]
    return True


@compiled
def next_sample(n: Counts, t: Times, rank: int, stage: int) -> int:
    """The next sample of the batch being split, in a slot of its own; -1 if there is none."""
    j = L.stage_at(n, rank * n[L.STAGES] + stage)
    if n[j + L.J_SPLIT_LEFT] == 0:
        return -1
    whole = L.slot_at(n, n[j + L.J_SPLIT_SLOT])
    slot = new_slot(n, t, rank, n[whole + L.S_NUMBER] * n[L.BATCH] + n[L.BATCH] - n[j + L.J_SPLIT_LEFT])
    n[L.slot_at(n, slot) + L.S_SERVER] = n[whole + L.S_SERVER]
    for segment in range(n[L.SEGMENTS]):
        t[n[L.STAMP] + slot * n[L.SEGMENTS] + segment] = t[
            n[L.STAMP] + (n[j + L.J_SPLIT_SLOT]) * n[L.SEGMENTS] + segment
        ]
    n[j + L.J_SPLIT_LEFT] -= 1
    if n[j + L.J_SPLIT_LEFT] == 0:
        drop_slot(n, t, rank, n[j + L.J_SPLIT_SLOT])
    return slot


@compiled
def first_item(n: Counts, t: Times, host: int, rank: int, actor: int) -> int:
    """The item that a free server of stage 0 begins, in a slot of its own."""
    r = L.rank_at(n, rank)
    number = n[r + L.R_NEXT]
    if n[L.ROBIN] > 0:
        number = own_number(n, t, rank, actor)
    n[r + L.R_NEXT] += 1
    count_outstanding(n, t, host, rank, 1)
    return new_slot(n, t, rank, number)


@compiled
def serve(n: Counts, t: Times, host: int, rank: int, stage: int) -> bool:
    """The free server of the lowest number takes an item, if there are both; whether it did."""
    if n[L.stage_at(n, rank * n[L.STAGES] + stage) + L.J_FREE] == 0:
        return False
    if stage == 0:
        if n[L.ROBIN] == 0 and n[L.rank_at(n, rank) + L.R_NEXT] >= limit(n, t, rank) * (
            n[L.BATCH] if n[n[L.SAMPLE]] else 1
        ):
            return False
        actor = pop_server(n, t, rank, 0)
        start_service(n, t, host, rank, actor, first_item(n, t, host, rank, actor))
        return True
    if n[n[L.SAMPLE] + stage] == 1 and n[n[L.SAMPLE] + stage - 1] == 0:
        slot = next_sample(n, t, rank, stage)
    else:
        slot = offered(n, t, rank, stage - 1)
        if slot >= 0:
            accept(n, t, rank, stage - 1)
    if slot < 0:
        return False
    start_service(n, t, host, rank, pop_server(n, t, rank, stage), slot)
    return True


@compiled
def take_one(n: Counts, t: Times, host: int, rank: int) -> bool:
    """One take by the lowest stage that can (see the ties rule of `coresim.model.pipeline`); whether there was one."""
    for stage in range(n[L.STAGES]):
        if (
            stage > 0
            and n[n[L.SAMPLE] + stage] == 1
            and n[n[L.SAMPLE] + stage - 1] == 0
            and split_batch(n, t, rank, stage)
        ):
            return True
        if serve(n, t, host, rank, stage):
            return True
        if gathers(n, stage) and gather(n, t, rank, stage):
            return True
    return False


@compiled
def prepare_line(n: Counts, t: Times, rank: int) -> None:
    """All slots and servers are free."""
    r = L.rank_at(n, rank)
    for slot in range(n[L.SLOTS]):
        n[n[L.FREE_SLOT] + rank * n[L.SLOTS] + slot] = rank * n[L.SLOTS] + slot
    n[r + L.R_FREE_SLOTS] = n[L.SLOTS]
    for stage in range(n[L.STAGES]):
        j = L.stage_at(n, rank * n[L.STAGES] + stage)
        n[j + L.J_RANK] = rank
        n[j + L.J_STAGE] = stage
    for local in range(n[L.ACTORS]):
        actor = rank * n[L.ACTORS] + local
        a = L.actor_at(n, actor)
        n[a + L.A_RANK] = rank
        n[a + L.A_STAGE] = n[n[L.STAGE_OF] + local]
        n[a + L.A_NEXT] = L.UNBOUNDED if n[L.EPOCH] > 0 and local >= n[L.EPOCH] else local
        if n[a + L.A_STAGE] >= 0:
            free_server(n, t, actor)
