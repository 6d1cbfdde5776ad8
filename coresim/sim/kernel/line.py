"""How items move through the line of stages in the event kernel: service, hand-over, take."""

from __future__ import annotations

from coresim.sim.kernel.accounts import account_servers, account_work
from coresim.sim.kernel.clocks import pop, push
from coresim.sim.kernel.items import (
    accept,
    gather,
    insert,
    new_item,
    next_finished,
    next_sample,
    offered,
    put_out,
    split_batch,
    trace_item,
)
from coresim.sim.kernel.receiving import hasten_handover, holds_core, note_arrival
from coresim.sim.kernel.records import SHARED, Actor, Item, Rank, StageRecord
from coresim.sim.kernel.servers import begin_phase, free_server, limit, mark_changed, own_number


def start_service(actor: Actor, item: Item) -> None:
    """A server begins an item."""
    stage, job = actor.stage, actor.rank.job
    actor.busy = True
    actor.item = item
    item.actor = actor
    if stage.index == 0:
        item.server = actor.number
    account_servers(stage, 1, 0)
    item.stamps[stage.segment] = actor.rank.host.wait.now
    trace_item(stage, stage.taken, item)
    if actor.fresh:
        actor.fresh = False
        actor.phase = -1
        actor.pending = 1
        push(actor.rank.host.cores, job.worker_startup, actor)
        account_work(stage, job.worker_startup)
    else:
        actor.phase = 0
        account_work(stage, begin_phase(actor, stage.phases[0], item.number))
    stage.on_cores += holds_core(stage, actor.phase)


def end_phase(actor: Actor) -> None:
    """One parallel task of a server's phase is over; perhaps the phase; perhaps the item's service."""
    actor.pending -= 1
    if actor.pending > 0:
        return
    stage, item = actor.stage, actor.item
    item.stamps[stage.segment + 1 + actor.phase] = actor.rank.host.wait.now
    stage.on_cores -= holds_core(stage, actor.phase)
    actor.phase += 1
    if actor.phase < stage.phase_count:
        stage.on_cores += holds_core(stage, actor.phase)
        account_work(stage, begin_phase(actor, stage.phases[actor.phase], item.number))
    else:
        end_service(actor, item)
        mark_changed(actor.rank)


def end_service(actor: Actor, item: Item) -> None:
    """An item is finished; with an unbounded buffer it is handed over at once."""
    stage = actor.stage
    item.done = item.since = actor.rank.host.wait.now
    if stage.index == 0:
        hasten_handover(actor)
    trace_item(stage, stage.done, item)
    insert(stage, item)
    if stage.buffer >= 0:
        account_servers(stage, -1, 1)
        return
    account_servers(stage, -1, 0)
    trace_item(stage, stage.out, item)
    if stage.rank.job.receives_early and stage.index == stage.rank.job.stage_count - 1:
        note_arrival(stage.rank, item)
    free_server(actor)


def hand_over(rank: Rank) -> None:
    """Hand finished items over wherever there is room."""
    for index in range(rank.job.stage_count):
        stage = rank.stages[index]
        if stage.buffer < 0:
            continue
        item = next_finished(stage)
        while item is not None:
            put_out(stage, item)
            account_servers(stage, 0, -1)
            trace_item(stage, stage.out, item)
            free_server(item.actor)
            item = next_finished(stage)


def serve_first(stage: StageRecord) -> bool:
    """The free server of the lowest number takes an item that is dispatched; whether it did."""
    rank, job = stage.rank, stage.rank.job
    if stage.free.size == 0:
        return False
    if job.dispatch == SHARED and rank.next >= limit(rank) * (job.batch_size if stage.by_sample else 1):
        return False
    actor = pop(stage.free)
    number = rank.next if job.dispatch == SHARED else own_number(actor)
    rank.next += 1
    start_service(actor, new_item(rank, number))
    return True


def serve(stage: StageRecord) -> bool:
    """The free server of the lowest number takes an item from the stage before; whether it did."""
    if stage.free.size == 0:
        return False
    if stage.splits:
        item = next_sample(stage)
    else:
        item = offered(stage.before)
        if item is not None:
            accept(stage.before)
    if item is None:
        return False
    start_service(pop(stage.free), item)
    return True


def take_one(rank: Rank) -> bool:
    """One take by the lowest stage that can (see the ties rule of `coresim.model.pipeline`); whether there was one."""
    for index in range(rank.job.stage_count):
        stage = rank.stages[index]
        if stage.splits and split_batch(stage):
            return True
        if serve_first(stage) if index == 0 else serve(stage):
            return True
        if stage.gathers and gather(stage):
            return True
    return False


def prepare_line(rank: Rank) -> None:
    """All items and servers are free."""
    job = rank.job
    for number in range(job.item_room):
        rank.free_items[number] = rank.items[number]
    rank.free_count = job.item_room
    for index in range(job.stage_count):
        stage = rank.stages[index]
        for number in range(stage.server_count):
            free_server(stage.servers[number])
