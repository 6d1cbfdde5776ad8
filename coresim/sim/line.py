"""How items move through the line of stages in the event kernel: service, hand-over, take."""

from __future__ import annotations

from typing import Any

from coresim.sim import layout as L
from coresim.sim.books import CLOSED, count_item, count_outstanding, count_servers
from coresim.sim.clocks import push
from coresim.sim.compiled import compiled
from coresim.sim.items import (
    DONE,
    OUT,
    TAKEN,
    accept,
    drop_slot,
    front,
    gathers,
    insert,
    new_slot,
    next_finished,
    offered,
    put_out,
    remove_front,
    stamp,
    trace_item,
)
from coresim.sim.layout import Counts, Times
from coresim.sim.servers import begin_phase, free_server, limit, own_number, pop_server


@compiled
def mark(n: Counts, t: Times, host: int, rank: int) -> None:
    """Note that something of this rank may be handed over or taken."""
    if n[L.rank_at(n, rank) + L.R_IS_DIRTY] == 0:
        n[L.rank_at(n, rank) + L.R_IS_DIRTY] = 1
        n[n[L.DIRTY] + host * n[L.RANKS] + n[L.host_at(n, host) + L.H_DIRTY]] = rank
        n[L.host_at(n, host) + L.H_DIRTY] += 1


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
