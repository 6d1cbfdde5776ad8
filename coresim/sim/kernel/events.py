"""The event kernel: the loop over events, on all hosts. Follows `coresim.model.pipeline` to the letter."""

from __future__ import annotations

from coresim.sim.kernel.accounts import account_rank, open_window
from coresim.sim.kernel.clocks import advance, due, pop, push_at
from coresim.sim.kernel.line import end_phase, hand_over, prepare_line, take_one
from coresim.sim.kernel.records import DEVICE, NOTHING, SERVER, TRAINER, Actor, Host, Job
from coresim.sim.kernel.trainer import begin_step, end_copy, end_step, end_trainer_task, end_work, pick_up


def run(job: Job) -> bool:
    """Run all hosts, which meet at the barrier of each step and nowhere else; False if nothing can happen any more."""
    for number in range(job.rank_count):
        rank = job.ranks[number]
        prepare_line(rank)
        if job.warm_up == 0:
            open_window(rank)
        begin_step(rank)
        account_rank(rank)
    while job.hosts[0].finished < job.ranks_per_host:
        for number in range(job.host_count):
            if not run_host(job.hosts[number]):
                return False
        if job.barrier and job.hosts[0].finished < job.ranks_per_host:
            open_barrier(job)
    return True


def run_host(host: Host) -> bool:
    """Run one host until all its ranks are finished or wait at the barrier; False if nothing can happen any more."""
    while not host.paused and host.finished < host.job.ranks_per_host:
        clock = due(host)
        if clock is None:
            if host.changed_count > 0:
                act(host)
                continue
            clock = advance(host)
            if clock is None:
                return False
        clock.now = clock.deadlines[0]  # exactly, whatever rounding made of it
        handle(host, pop(clock))
    return True


def act(host: Host) -> None:
    """Hand over and take once for one rank that something happened to; forget the rank when nothing is left."""
    if host.job.ranks_per_host > 1 and (host.job.handover_count > 0 or host.job.settling > 0):
        act_in_order(host)
        return
    rank = host.changed[host.changed_count - 1]
    hand_over(rank)
    if not take_one(rank) and not pick_up(rank):
        rank.is_changed = False
        host.changed_count -= 1


def act_in_order(host: Host) -> None:
    """The same if ranks affect each other: takes of all ranks first, then the pick-up of the lowest."""
    for number in range(host.changed_count):
        hand_over(host.changed[number])
        if take_one(host.changed[number]):
            return
    for number in range(host.first_rank, host.first_rank + host.job.ranks_per_host):
        if host.job.ranks[number].is_changed and pick_up(host.job.ranks[number]):
            return
    for number in range(host.changed_count):
        host.changed[number].is_changed = False
    host.changed_count = 0


def handle(host: Host, actor: Actor) -> None:
    """Process one completion."""
    host.events += 1
    if actor is None:
        release(host)
    elif actor.kind == SERVER:
        end_phase(actor)
    else:
        if actor.kind == TRAINER:
            end_trainer_task(actor.rank)
        elif actor.kind == DEVICE:
            end_work(actor.rank)
        else:
            end_copy(actor.rank)
        account_rank(actor.rank)


def release(host: Host) -> None:
    """The barrier opens: the step is finished on every rank."""
    host.arrived = 0
    for number in range(host.first_rank, host.first_rank + host.job.ranks_per_host):
        rank = host.job.ranks[number]
        end_step(rank)
        account_rank(rank)


def open_barrier(job: Job) -> None:
    """All ranks wait; they go on when the last one has arrived and the all-reduce has ended."""
    last = job.hosts[0].wait.now
    for number in range(job.host_count):
        last = max(last, job.hosts[number].wait.now)
    for number in range(job.host_count):
        host = job.hosts[number]
        host.paused = False
        push_at(host.wait, last + job.allreduce, NOTHING)
