"""Clocks of the event kernel: one heap of deadlines for each, in its own (virtual) time.

Processor sharing is exact and costs O(log n) per event: every task that shares a clock progresses at one rate, so the
clock itself runs at that rate and a task that needs ``S`` of it ends when the clock shows ``S`` more than at its start.
"""

from __future__ import annotations

from coresim.model.pipeline import Number
from coresim.sim.kernel.records import CLOCKS, Actor, Clock, Host


def running(host: Host) -> int:
    """Tasks that share the cores now, spinning trainers included; none where the quota stops them."""
    return 0 if host.stopped else host.cores.size + host.spinning


def rise(clock: Clock, at: int, deadline: Number, actor: Actor) -> None:
    """Put a task into the heap, at that place or as far above it as its deadline is sooner."""
    deadlines, actors = clock.deadlines, clock.actors
    while at > 0:
        above = (at - 1) >> 1
        if deadlines[above] <= deadline:
            break
        deadlines[at] = deadlines[above]
        actors[at] = actors[above]
        at = above
    deadlines[at] = deadline
    actors[at] = actor


def push_at(clock: Clock, deadline: Number, actor: Actor) -> None:
    """Start a task that ends when the clock shows ``deadline``."""
    clock.size += 1
    rise(clock, clock.size - 1, deadline, actor)


def push(clock: Clock, work: Number, actor: Actor) -> None:
    """Start a task of ``work`` on a clock."""
    push_at(clock, clock.now + work, actor)


def hasten(clock: Clock, actor: Actor, deadline: Number) -> None:
    """End an actor's only task on a clock at ``deadline``, if it would end later."""
    at = 0
    while at < clock.size and clock.actors[at] is not actor:
        at += 1
    if at < clock.size and clock.deadlines[at] > deadline:
        rise(clock, at, deadline, actor)


def pop(clock: Clock) -> Actor:
    """Remove the task with the first deadline; its actor."""
    deadlines, actors = clock.deadlines, clock.actors
    first = actors[0]
    size = clock.size - 1
    clock.size = size
    deadline, last = deadlines[size], actors[size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and deadlines[below + 1] < deadlines[below]:
            below += 1
        if deadline <= deadlines[below]:
            break
        deadlines[at] = deadlines[below]
        actors[at] = actors[below]
        at = below
    deadlines[at] = deadline
    actors[at] = last
    return first


def due(host: Host) -> Clock | None:
    """The first clock with a task that ends at this instant."""
    for number in range(CLOCKS):
        clock = host.clocks[number]
        if clock.size > 0 and clock.deadlines[0] <= clock.now:
            return clock
    return None


def seconds_to(host: Host, clock: Clock, tasks: int) -> Number:
    """Seconds until the clock's first deadline at today's rate, with so many tasks running."""
    left = clock.deadlines[0] - clock.now
    if clock is host.cores:
        return left / host.job.core_rate[host.spinning * host.job.core_rates + tasks]
    if clock is host.storage:
        return left / host.job.storage_rate[clock.size]
    if clock is host.accelerator:
        return left / host.job.accelerator_rate[tasks]
    return left


def soonest(host: Host) -> Clock | None:
    """The clock of which a task ends first at today's rates; ``host.ahead`` says in how many seconds."""
    first: Clock | None = None
    least: Number = 0
    tasks = running(host)
    for number in range(CLOCKS):
        clock = host.clocks[number]
        if clock.size > 0 and not (host.stopped and clock is host.cores):
            seconds = seconds_to(host, clock, tasks)
            if first is None or seconds < least:
                first, least = clock, seconds
    host.ahead = least
    return first


def advance(host: Host) -> Clock | None:
    """Let the time pass until a task ends; the clock of that task, or None if nothing can happen any more."""
    first = soonest(host)
    while host.job.quota > 0 and turns_before(host, first):
        pass_turn(host)
        first = soonest(host)
    if host.ahead > 0:
        let_pass(host, host.ahead)
    return first


def is_used_up(host: Host) -> bool:
    """Whether the running tasks use up the quota before its next period begins."""
    ahead, tasks = host.period_end - host.wait.now, running(host)
    return bool(tasks > 0 and host.quota_left < ahead * host.job.busy_cores[tasks])


def seconds_to_turn(host: Host) -> Number:
    """Seconds until the quota is used up, or until its next period begins."""
    if is_used_up(host):
        return host.quota_left / host.job.busy_cores[running(host)]
    return host.period_end - host.wait.now


def turns_before(host: Host, first: Clock | None) -> bool:
    """Whether the quota stops or starts the tasks before one of that clock ends; with None, whether it ever does."""
    if first is None:
        return host.cores.size > 0
    return bool(seconds_to_turn(host) < host.ahead)


def pass_turn(host: Host) -> None:
    """Let the time pass until the quota is used up, or until its next period begins."""
    stops = is_used_up(host)
    let_pass(host, seconds_to_turn(host))
    host.stopped = stops
    if not stops:
        host.wait.now = host.period_end  # exactly, whatever rounding made of it
        host.period_end += host.job.quota_period
        host.quota_left = host.job.quota


def let_pass(host: Host, seconds: Number) -> None:
    """Move every clock on at its rate."""
    job, tasks = host.job, running(host)
    if tasks > 0:
        host.cores.now += job.core_rate[host.spinning * job.core_rates + tasks] * seconds
    if host.storage.size > 0:
        host.storage.now += job.storage_rate[host.storage.size] * seconds
    host.accelerator.now += job.accelerator_rate[tasks] * seconds
    host.wait.now += seconds
    used = job.busy_cores[tasks] * seconds
    host.busy += used
    if job.quota > 0:
        host.quota_left -= used
        host.stopped = host.quota_left <= 0
