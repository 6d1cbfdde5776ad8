"""Servers of the event kernel: which are free, what they are dealt, the phases they perform."""

from __future__ import annotations

from coresim.model.pipeline import Number
from coresim.sim.kernel.clocks import push, push_at
from coresim.sim.kernel.records import BY_NUMBER, SHARED, Actor, PhaseRecord, Rank


def mark_changed(rank: Rank) -> None:
    """Note that something of this rank may be handed over or taken."""
    host = rank.host
    if not rank.is_changed:
        rank.is_changed = True
        host.changed[host.changed_count] = rank
        host.changed_count += 1


def first_time(phase: PhaseRecord, item: int, rank: Rank) -> int:
    """Where the phase's times for an item begin; after the last time the first one is used again."""
    if phase.rows == 1:
        return 0
    row = item + rank.number * phase.stride
    return (row if row < phase.rows else row % phase.rows) * phase.split


def begin_phase(actor: Actor, phase: PhaseRecord, item: int) -> Number:
    """Start the parallel tasks of a phase; the longest of their times, s."""
    times, clock = phase.times, actor.rank.host.clocks[phase.resource]
    first = first_time(phase, item, actor.rank)
    longest = times[first]
    for task in range(first, first + phase.split):
        push(clock, times[task], actor)
        if times[task] > longest:
            longest = times[task]
    actor.pending = phase.split
    return longest


def push_server(actor: Actor) -> None:
    """Put a server among those of its stage that could take an item; the lowest number comes first."""
    push_at(actor.stage.free, actor.number, actor)


def free_server(actor: Actor) -> None:
    """A server has given its item away: it can take another, if it has one of its own to take."""
    actor.busy = False
    if actor.stage.index > 0 or actor.rank.job.dispatch == SHARED or actor.queued > 0:
        push_server(actor)


def limit(rank: Rank) -> int:
    """Batches of a rank that may have been dispatched so far."""
    credits = rank.job.credits
    if credits >= 0 and rank.picked + credits < rank.opened:
        return rank.picked + credits
    return rank.opened


def dispatch(rank: Rank, picked_from: int) -> None:
    """Deal round-robin batches to their servers as far as credits and epoch allow.

    ``picked_from``: number of the server whose batch was just picked up.
    """
    job = rank.job
    if job.dispatch == SHARED or job.stage_count == 0:
        return
    stage, last = rank.stages[0], limit(rank)
    while rank.dispatched < last:
        number = rank.dispatched
        rank.dispatched += 1
        turn = number if job.epoch_batches == 0 else number % job.epoch_batches
        if turn == 0 or rank.dealt == stage.server_count:
            rank.dealt = 0
        in_turn = stage.servers[rank.dealt]
        rank.dealt += 1
        assign(in_turn if job.dispatch == BY_NUMBER or turn < job.credits else stage.servers[picked_from], number)


def assign(actor: Actor, number: int) -> None:
    """Put a batch at the end of a server's own queue."""
    room = actor.stage.queue_room
    at = actor.queue_head + actor.queued
    actor.queue[at if at < room else at - room] = number
    actor.queued += 1
    if actor.queued == 1 and not actor.busy:
        push_server(actor)


def own_number(actor: Actor) -> int:
    """The next batch of a server in a round-robin stage; it is no longer in its queue."""
    number = actor.queue[actor.queue_head]
    head = actor.queue_head + 1
    actor.queue_head = head if head < actor.stage.queue_room else 0
    actor.queued -= 1
    return number
