"""Items of the event kernel: their slots, and where they stand between one stage and the next."""

from __future__ import annotations

from coresim.sim import layout as L
from coresim.sim.compiled import compiled
from coresim.sim.layout import Counts, Times

TAKEN, DONE, OUT = 0, 1, 2  # rows of table TRACE_ITEM


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
