"""The event kernel: the loop over events, on all hosts. Follows `coresim.model.pipeline` to the letter."""

from __future__ import annotations

from coresim.sim import layout as L
from coresim.sim.books import CONSUMING, COPYING, LAUNCHING, PREPARING, open_window, set_block, settle
from coresim.sim.clocks import advance, due, pop, push_at, time_to
from coresim.sim.compiled import compiled, entry
from coresim.sim.layout import Counts, Times
from coresim.sim.line import end_phase, hand_over, prepare_line, take_one
from coresim.sim.trainer import (
    begin_step,
    copy_batch,
    end_copy,
    end_inline,
    end_launch,
    end_step,
    end_work,
    launch,
    open_epoch,
    pick_up,
    seek_batch,
)

STUCK = -1


@compiled
def trainer_event(n: Counts, t: Times, host: int, rank: int) -> None:
    """What the trainer was doing is over."""
    state = n[L.rank_at(n, rank) + L.R_STATE]
    if state == PREPARING:
        end_inline(n, t, host, rank)
    elif state == CONSUMING:
        copy_batch(n, t, host, rank)
    elif state == COPYING:
        n[L.host_at(n, host) + L.H_SPINNING] -= n[L.SPIN]
        launch(n, t, host, rank)
    elif state == LAUNCHING:
        end_launch(n, t, host, rank)
    else:
        open_epoch(n, t, host, rank)
        seek_batch(n, t, host, rank)


@compiled
def release(n: Counts, t: Times, host: int) -> None:
    """The barrier opens: the step is finished on every rank."""
    n[L.host_at(n, host) + L.H_ARRIVED] = 0
    for rank in range(host * n[L.RANKS], host * n[L.RANKS] + n[L.RANKS]):
        end_step(n, t, host, rank)
        settle(n, t, host, rank)


@compiled
def handle(n: Counts, t: Times, host: int, actor: int) -> None:
    """Process one completion."""
    n[L.host_at(n, host) + L.H_EVENTS] += 1
    if actor < 0:
        release(n, t, host)
        return
    rank, kind = n[L.actor_at(n, actor) + L.A_RANK], n[L.actor_at(n, actor) + L.A_STAGE]
    if kind >= 0:
        end_phase(n, t, host, rank, actor)
        return
    if kind == L.TRAINER:
        trainer_event(n, t, host, rank)
    elif kind == L.DEVICE:
        end_work(n, t, host, rank)
    else:
        end_copy(n, t, host, rank)
    settle(n, t, host, rank)


@compiled
def act(n: Counts, t: Times, host: int) -> None:
    """Hand over and take once for one rank that something happened to; forget the rank when nothing is left."""
    rank = n[n[L.DIRTY] + host * n[L.RANKS] + n[L.host_at(n, host) + L.H_DIRTY] - 1]
    hand_over(n, t, host, rank)
    if not take_one(n, t, host, rank) and not pick_up(n, t, host, rank):
        n[L.rank_at(n, rank) + L.R_IS_DIRTY] = 0
        n[L.host_at(n, host) + L.H_DIRTY] -= 1


@compiled
def run_host(n: Counts, t: Times, host: int) -> int:
    """Run one host until all its ranks are finished or wait at the barrier; 0, or STUCK if nothing can ever happen."""
    while n[L.host_at(n, host) + L.H_PAUSED] == 0 and n[L.host_at(n, host) + L.H_FINISHED] < n[L.RANKS]:
        clock = due(n, t, host)
        if clock < 0 and n[L.host_at(n, host) + L.H_DIRTY] > 0:
            act(n, t, host)
            continue
        soonest = time_to(n, t, host, max(clock, 0))
        if clock < 0:
            if soonest >= 0:
                clock = L.WAIT
            for other in range(1, 4):
                seconds = time_to(n, t, host, other)
                if seconds >= 0 and (clock < 0 or seconds < soonest):
                    clock, soonest = other, seconds
        if clock < 0:
            return STUCK
        advance(n, t, host, clock, soonest)
        handle(n, t, host, pop(n, t, host, clock))
    return 0


@entry
def run(n: Counts, t: Times) -> int:
    """Run all hosts; they meet at the barrier of each step and nowhere else."""
    for rank in range(n[L.RANKS] * n[L.HOSTS]):
        host = rank // n[L.RANKS]
        prepare_line(n, t, rank)
        set_block(n, rank)
        if n[L.WARM_UP] == 0:
            open_window(n, t, host, rank)
        begin_step(n, t, host, rank)
        settle(n, t, host, rank)
    while n[L.host_at(n, 0) + L.H_FINISHED] < n[L.RANKS]:
        for host in range(n[L.HOSTS]):
            if run_host(n, t, host) == STUCK:
                return STUCK
        if n[L.BARRIER] == 1 and n[L.host_at(n, 0) + L.H_FINISHED] < n[L.RANKS]:
            open_barrier(n, t)
    return 0


@compiled
def open_barrier(n: Counts, t: Times) -> None:
    """All ranks wait: they go on when the last came, plus the all-reduce."""
    last = t[L.host_times(n, 0) + L.H_NOW]
    for host in range(n[L.HOSTS]):
        last = max(last, t[L.host_times(n, host) + L.H_NOW])
    for host in range(n[L.HOSTS]):
        n[L.host_at(n, host) + L.H_PAUSED] = 0
        push_at(n, t, host, L.WAIT, last + t[L.ALLREDUCE], -1)
