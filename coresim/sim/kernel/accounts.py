"""Accounting of the event kernel: where the accelerator's, the trainer's and the servers' time goes."""

from __future__ import annotations

from coresim.model.pipeline import Number
from coresim.sim.kernel.records import (
    ACCELERATOR,
    BARRED,
    BEHIND,
    COPYING,
    FETCHED,
    FETCHING,
    HANDING,
    IDLE,
    IN_COPY,
    IN_DEVICE,
    IN_PHASE,
    IN_STARTUP,
    IN_STARVED,
    LAUNCHING,
    LEADING,
    ON_BARRIER,
    ON_COPY,
    ON_LAUNCH,
    ON_PHASE,
    ON_STARTUP,
    ON_STARVED,
    ON_WORK,
    PREPARING,
    RECEIVING,
    SERVER,
    STARTING,
    SYNCING,
    TURNING,
    UNLAUNCHED,
    WAITING,
    WORKING,
    Item,
    Rank,
    StageRecord,
)
from coresim.sim.kernel.servers import first_time


def device_column(rank: Rank) -> int:
    """What the accelerator's time is spent on now."""
    state, trainer = rank.device_state, rank.trainer_state
    if state == WORKING:
        return ON_WORK
    if state == UNLAUNCHED:
        return ON_LAUNCH
    if state == BARRED:
        return ON_BARRIER
    if trainer in (TURNING, LEADING) and state in (IDLE, FETCHED) and rank.done == rank.begun:
        return ON_LAUNCH
    if state == FETCHING or trainer >= SYNCING or rank.done < rank.submitted:
        return ON_COPY
    if trainer == STARTING:
        return ON_STARTUP
    if trainer in (WAITING, RECEIVING):
        return ON_STARVED
    if trainer in (PREPARING, HANDING):
        return ON_PHASE + rank.phase
    return ON_PHASE + rank.job.own_phases


def trainer_column(rank: Rank) -> int:
    """What the trainer's time is spent on now."""
    state = rank.trainer_state
    if state in (WAITING, RECEIVING):
        return IN_STARVED
    if state == COPYING:
        return IN_COPY
    if state in (SYNCING, BEHIND):
        return IN_DEVICE
    if state == STARTING:
        return IN_STARTUP
    if state in (PREPARING, HANDING):
        return IN_PHASE + rank.phase
    return IN_PHASE + rank.job.own_phases + (1 if state in (TURNING, LEADING, LAUNCHING) else 0)


def account_rank(rank: Rank) -> None:
    """Account for the time since the accelerator's or the trainer's state last changed, then note the new states."""
    now = rank.host.wait.now
    passed = now - rank.accounted
    if passed > 0 and not rank.closed:
        rank.device_times[rank.device_column] += passed
        rank.trainer_times[rank.trainer_column] += passed
    rank.accounted = now
    column = device_column(rank)
    if column == ON_STARVED and rank.device_column != ON_STARVED:
        rank.starved_since = now
    rank.device_column = column
    rank.trainer_column = trainer_column(rank)


def account_servers(stage: StageRecord, busy: int, blocked: int) -> None:
    """Account for a stage's server time so far, then change how many of its servers are busy and blocked."""
    now = stage.rank.host.wait.now
    passed = now - stage.since
    if passed > 0 and not stage.rank.closed:
        stage.busy_time += stage.busy * passed
        stage.blocked_time += stage.blocked * passed
    stage.since = now
    stage.busy += busy
    stage.blocked += blocked


def account_work(stage: StageRecord, seconds: Number) -> None:
    """Account for the unshared time of a phase that begins."""
    if not stage.rank.closed:
        stage.work += seconds


def account_remaining(rank: Rank, sign: int) -> None:
    """Add (or take away) the work that the servers of a rank still have to do on the items they have begun.

    A phase's work is accounted for when it begins; at the edges of the window the part outside must go.
    """
    for index in range(rank.job.stage_count):
        stage = rank.stages[index]
        for number in range(stage.server_count):
            stage.servers[number].remaining = 0
    for resource in range(ACCELERATOR):
        clock = rank.host.clocks[resource]
        for at in range(clock.size):
            actor = clock.actors[at]
            if actor is not None and actor.rank is rank and actor.kind == SERVER:
                left = clock.deadlines[at] - clock.now
                if left > actor.remaining:
                    actor.remaining = left
    for index in range(rank.job.stage_count):
        stage = rank.stages[index]
        for number in range(stage.server_count):
            stage.work += sign * stage.servers[number].remaining


def account_pick(rank: Rank, batch: int) -> None:
    """The trainer has a batch."""
    job = rank.job
    if job.trace and rank.step < job.steps:
        rank.picks[rank.step] = rank.host.wait.now
        rank.batches[rank.step] = batch
    rank.picked += 1


def account_starved(rank: Rank, item: Item) -> None:
    """Divide the time for which the accelerator was starved of this batch by what the batch was doing."""
    if rank.device_column != ON_STARVED or rank.closed:
        return
    since, last = rank.starved_since, rank.job.segment_count - 1
    for segment in range(last):
        until = item.stamps[segment]
        if until > since:
            rank.starved[segment] += until - since
            since = until
    rank.starved[last] += rank.host.wait.now - since


def open_window(rank: Rank) -> None:
    """Begin a rank's window: forget what was accounted for so far."""
    job = rank.job
    for column in range(ON_PHASE + job.own_phases + 1):
        rank.device_times[column] = 0
    for column in range(IN_PHASE + job.own_phases + 2):
        rank.trainer_times[column] = 0
    for segment in range(job.segment_count):
        rank.starved[segment] = 0
    for index in range(job.stage_count):
        stage = rank.stages[index]
        account_servers(stage, 0, 0)
        stage.busy_time = 0
        stage.blocked_time = 0
        stage.work = 0
    account_remaining(rank, 1)
    rank.stepped = 0
    rank.begin = rank.host.wait.now


def close_window(rank: Rank) -> None:
    """End a rank's window; what happens later is no longer accounted for."""
    for index in range(rank.job.stage_count):
        stage = rank.stages[index]
        account_servers(stage, 0, 0)
    account_remaining(rank, -1)
    rank.end = rank.host.wait.now
    rank.closed = True


def account_step(rank: Rank) -> None:
    """At the end of a step: the window may begin or end."""
    job = rank.job
    if not rank.closed:
        rank.stepped += job.step.times[first_time(job.step, rank.done - 1, rank)]
    if rank.done == job.warm_up:
        open_window(rank)
    if rank.done == job.steps:
        close_window(rank)
        rank.host.finished += 1
