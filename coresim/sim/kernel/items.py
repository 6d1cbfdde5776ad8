"""Items of the event kernel, and where they stand between one stage and the next."""

from __future__ import annotations

from coresim.model.pipeline import Number
from coresim.sim.kernel.records import NOTHING, Item, Rank, StageRecord


def new_item(rank: Rank, number: int) -> Item:
    """An item of this number."""
    rank.free_count -= 1
    item = rank.free_items[rank.free_count]
    item.number = number
    item.received = False
    return item


def drop_item(rank: Rank, item: Item) -> None:
    """The item is gone."""
    rank.free_items[rank.free_count] = item
    rank.free_count += 1


def trace_item(stage: StageRecord, times: list[Number], item: Item) -> None:
    """Keep the time of what happens to an item now, if a trace is asked for."""
    if item.number < stage.trace_room:
        times[item.number] = stage.rank.host.wait.now
        stage.served_by[item.number] = item.actor.number


def put_by_time(ring: list[Item], mask: int, first: int, end: int, item: Item) -> None:
    """Put an item behind those from ``first`` to ``end``; of those put at one instant the lower number comes first."""
    at = end
    while at > first:
        before = ring[(at - 1) & mask]
        if before.since < item.since or before.number < item.number:
            break
        ring[at & mask] = before
        at -= 1
    ring[at & mask] = item


def insert(stage: StageRecord, item: Item) -> None:
    """Put a finished item where its stage's followers look for it: by number if ordered, else by time and number."""
    ring, mask = stage.ring, stage.mask
    if stage.ordered:
        ring[item.number & mask] = item
        return
    put_by_time(ring, mask, stage.head + stage.handed, stage.head + stage.ready, item)
    stage.ready += 1


def next_finished(stage: StageRecord) -> Item | None:
    """The finished item that a bounded stage hands over next, if there is one and room for it."""
    if stage.ordered:
        if stage.next_hand_over - stage.next_take >= stage.buffer:
            return None
        return stage.ring[stage.next_hand_over & stage.mask]
    if stage.handed >= stage.buffer or stage.handed >= stage.ready:
        return None
    return stage.ring[(stage.head + stage.handed) & stage.mask]


def put_out(stage: StageRecord, item: Item) -> None:
    """The next finished item stands ready; of those handed over at one instant the lower number comes first."""
    stage.next_hand_over += 1
    if not stage.ordered:
        item.since = stage.rank.host.wait.now
        put_by_time(stage.ring, stage.mask, stage.head, stage.head + stage.handed, item)
        stage.handed += 1


def front(stage: StageRecord) -> Item | None:
    """The item that stands ready first behind a stage."""
    if stage.ordered:
        if stage.buffer >= 0 and stage.next_take >= stage.next_hand_over:
            return None
        return stage.ring[stage.next_take & stage.mask]
    if stage.ready == 0 or (stage.buffer >= 0 and stage.handed == 0):
        return None
    return stage.ring[stage.head]


def remove_front(stage: StageRecord) -> None:
    """The item that stands ready first behind a stage is taken away."""
    if stage.ordered:
        stage.ring[stage.next_take & stage.mask] = NOTHING
        stage.next_take += 1
        return
    stage.head = (stage.head + 1) & stage.mask
    stage.ready -= 1
    if stage.buffer >= 0:
        stage.handed -= 1


def offered(stage: StageRecord) -> Item | None:
    """The item that the follower of a stage could take now."""
    return stage.gathered_item if stage.gathers else front(stage)


def accept(stage: StageRecord) -> None:
    """The follower of a stage takes the item offered."""
    if stage.gathers:
        stage.gathered_item = None
        stage.gathered = 0
    else:
        remove_front(stage)


def gather(stage: StageRecord) -> bool:
    """The gatherer behind a stage takes one sample, if it may; whether it did."""
    batch_size = stage.rank.job.batch_size
    if stage.gathered == batch_size:
        return False
    item = front(stage)
    if item is None:
        return False
    remove_front(stage)
    stage.gathered += 1
    if stage.gathered < batch_size:
        drop_item(stage.rank, item)
    else:
        item.number = stage.gathered_batches
        stage.gathered_batches += 1
        stage.gathered_item = item
    return True


def split_batch(stage: StageRecord) -> bool:
    """The splitter before a stage takes a batch, if it may; whether it did."""
    if stage.split_left > 0:
        return False
    item = offered(stage.before)
    if item is None:
        return False
    accept(stage.before)
    stage.split_item = item
    stage.split_left = stage.rank.job.batch_size
    return True


def next_sample(stage: StageRecord) -> Item | None:
    """The next sample of the batch being split, as an item of its own."""
    if stage.split_left == 0:
        return None
    rank, batch = stage.rank, stage.split_item
    size = rank.job.batch_size
    item = new_item(rank, batch.number * size + size - stage.split_left)
    item.server = batch.server
    for segment in range(rank.job.segment_count):
        item.stamps[segment] = batch.stamps[segment]
    stage.split_left -= 1
    if stage.split_left == 0:
        drop_item(rank, batch)
    return item
