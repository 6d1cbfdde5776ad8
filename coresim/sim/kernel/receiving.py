"""Receiving batches in the event kernel: which one comes next, and the state of its hand-over."""

from __future__ import annotations

from coresim.model.pipeline import Number
from coresim.sim.kernel.clocks import hasten, push
from coresim.sim.kernel.items import put_by_time
from coresim.sim.kernel.records import (
    BEGINS,
    CORES,
    MAKERS,
    RECEIVING,
    RESTS,
    SENDS,
    WAITING,
    WORKS,
    Actor,
    Item,
    Rank,
    StageRecord,
)
from coresim.sim.kernel.servers import begin_phase, first_time, mark_changed


def note_arrival(rank: Rank, item: Item) -> None:
    """A batch waits to be received; of those that arrive at one instant the lower number comes first."""
    put_by_time(rank.arrived, rank.job.item_room - 1, rank.arrival, rank.arrival + rank.arrivals, item)
    rank.arrivals += 1


def next_arrival(rank: Rank) -> Item | None:
    """The batch that waits longest to be received; it waits no more."""
    if rank.arrivals == 0:
        return None
    item = rank.arrived[rank.arrival]
    rank.arrival = (rank.arrival + 1) & (rank.job.item_room - 1)
    rank.arrivals -= 1
    return item


def holds_core(stage: StageRecord, phase: int) -> int:
    """1 if that phase of a server holds a core, as its start (-1) does; else 0."""
    return 1 if phase < 0 or stage.phases[phase].resource == CORES else 0


def serving(maker: Actor) -> bool:
    """Whether that server of stage 0 serves an item now."""
    return maker.busy and maker.pending > 0


def wanting(rank: Rank, maker: Actor) -> int:
    """Tasks that want a core when a batch of that maker is picked up: it, all trainers, other servers of stage 0."""
    job, host = rank.job, rank.host
    wanted = 1 + job.ranks_per_host
    for number in range(host.first_rank, host.first_rank + job.ranks_per_host):
        wanted += job.ranks[number].stages[0].on_cores
    if serving(maker):
        wanted -= holds_core(maker.stage, maker.phase)
    return wanted


def note_turns(rank: Rank, maker: Actor) -> None:
    """How long the launch of the step whose batch is picked up now waits for turns, over its work."""
    wanted, cpus = wanting(rank, maker), rank.job.cpus
    rank.turns = (2 * cpus - wanted) / cpus if cpus < wanted < 2 * cpus else 0 * cpus


def handover_state(rank: Rank, item: Item, maker: Actor) -> int:
    """The state of the hand-over of a batch that is picked up now, as `coresim.model.handover.state_of` numbers it."""
    job, wanted, now, doing = rank.job, wanting(rank, maker), rank.host.wait.now, RESTS
    if item.done == now:
        doing = BEGINS if job.stage_count > 1 or serving(maker) else SENDS
    elif job.stage_count == 1 and serving(maker):
        doing = WORKS
    crowd = 0 if wanted <= job.cpus else 1 if wanted < 2 * job.cpus else 2
    return MAKERS * crowd + doing


def begin_handover(rank: Rank, item: Item, number: int) -> None:
    """The trainer waits for a batch that is ready; ``number`` says which of the waiting times."""
    maker = rank.stages[0].servers[item.server]
    state = handover_state(rank, item, maker)
    rest = rank.job.handover[state - state % MAKERS]
    rank.maker = maker if rank.job.stage_count == 1 and serving(maker) else None
    rank.rest = rest.times[first_time(rest, number, rank)]
    begin_phase(rank.trainer, rank.job.handover[state], number)


def work_of(rank: Rank, number: int) -> Number:
    """The trainer's own work to receive a batch, and to free the one before, s."""
    phase = rank.job.consumer
    return phase.times[first_time(phase, number, rank)]


def receive_early(rank: Rank, item: Item) -> None:
    """The trainer, which waits for a batch, receives a later one that is there."""
    rank.trainer_state = RECEIVING
    rank.early = item
    item.received = True
    rank.phase = 0
    if rank.job.handover_count > 0:
        begin_handover(rank, item, item.number)
    else:
        end_receiving(rank)


def end_receiving(rank: Rank) -> None:
    """The trainer has waited for a batch before its turn, or has received it."""
    rank.phase += 1
    if rank.phase == 1:
        push(rank.host.cores, work_of(rank, rank.early.number) * (1 - rank.job.release), rank.trainer)
    else:
        rank.trainer_state = WAITING
        mark_changed(rank)


def hasten_handover(maker: Actor) -> None:
    """A server of stage 0 has finished an item: the hand-over of a batch of its own ends ``rank.rest`` from now."""
    rank = maker.rank
    if rank.maker is maker:
        rank.maker = None
        hasten(rank.host.wait, rank.trainer, rank.host.wait.now + rank.rest)
