"""The records of the event kernel: objects with named fields in Python, structs in C.

The annotations are the C types too: ``int`` is a long, ``bool`` an int, ``Number`` a double, a record is a pointer to
it, and a list a pointer to its first element. So every record begins with zeros and `NOTHING`, as C's memory does, and
a list keeps its length. ``-1`` stands for no bound, and for a time that has not come. All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coresim.model.pipeline import Number

#: A record that is not there yet, or no longer.
NOTHING: Any = None

# Clocks of a host; the resource of a phase is one of the first three.
WAIT, CORES, STORAGE, ACCELERATOR, CLOCKS = range(5)
# What an actor is.
SERVER, TRAINER, DEVICE, COPIER = range(4)
# Who serves a batch in stage 0: any server, one by the batch's number, or the one whose batch was picked up.
SHARED, BY_NUMBER, BY_PICK_UP = range(3)
# Copy modes, in the order of coresim.model.pipeline.COPY_MODES.
SYNC, STREAM, OVERLAP, NO_COPY = range(4)
# States of a trainer.
(
    STARTING, PREPARING, WAITING, RECEIVING, HANDING, CONSUMING, SYNCING, COPYING, TURNING, LEADING, LAUNCHING, BEHIND,
) = range(12)  # fmt: skip
# What the maker of a batch does when the batch is picked up; a state of a hand-over is this and how crowded the cores
# are, of each `MAKERS` (coresim.model.handover).
RESTS, BEGINS, WORKS, SENDS, MAKERS = range(5)
# States of an accelerator.
IDLE, FETCHING, FETCHED, WORKING, UNLAUNCHED, BARRED = range(6)
# What an accelerator's time is spent on; the trainer's phases that it idles for come after ON_PHASE.
ON_WORK, ON_LAUNCH, ON_BARRIER, ON_COPY, ON_STARTUP, ON_STARVED, ON_PHASE = range(7)
# What a trainer's time is spent on; its own phases come after IN_PHASE.
IN_STARVED, IN_DEVICE, IN_COPY, IN_STARTUP, IN_PHASE = range(5)

UNBOUNDED = 1_099_511_627_776  # batches


@dataclass(slots=True, eq=False)
class PhaseRecord:
    """A part of the work on an item, and how long it takes."""

    resource: int = 0
    split: int = 0  # parallel tasks
    times: list[Number] = NOTHING  # rows of ``split`` service times
    rows: int = 0
    stride: int = 0  # rows from where one rank begins to read to where the next does


@dataclass(slots=True, eq=False)
class Job:
    """The description, which does not change during a run."""

    hosts: list[Host] = NOTHING
    host_count: int = 0
    ranks: list[Rank] = NOTHING  # of all hosts
    rank_count: int = 0
    ranks_per_host: int = 0
    stage_count: int = 0
    segment_count: int = 0  # what an awaited batch can be doing
    item_room: int = 0  # items of a rank that can be in the line at once, at most; a power of two
    batch_size: int = 0
    credits: int = 0
    epoch_batches: int = 0  # 0: one endless epoch
    dispatch: int = 0
    copy_mode: int = 0
    run_ahead: int = 0
    spin: int = 0  # cores that the trainer holds while it waits for the accelerator
    persistent: bool = False
    barrier: bool = False
    slows: bool = False  # busy cores make a step longer
    trace: bool = False
    steps: int = 0
    warm_up: int = 0
    startup: Number = 0
    worker_startup: Number = 0
    allreduce: Number = 0
    inline: list[PhaseRecord] = NOTHING
    inline_count: int = 0
    handover: list[PhaseRecord] = NOTHING  # by state; none: no wait
    handover_count: int = 0
    own_phases: int = 0  # of the trainer before consumer: the inline ones, or the hand-over
    receives_early: bool = False
    settling: Number = 0  # work of a launch after which it has its share of the cores, s
    lead: Number = 0  # share of a launch's work before which the step cannot start
    release: Number = 0  # share of receiving a batch that is left for its own turn
    cpus: Number = 0  # cores on which tasks run at once
    quota: Number = 0  # core-seconds of a period; 0: no limit
    quota_period: Number = 0
    consumer: PhaseRecord = NOTHING
    copy: PhaseRecord = NOTHING
    launch: PhaseRecord = NOTHING
    step: PhaseRecord = NOTHING
    core_rate: list[Number] = NOTHING  # rows by the number of spinning tasks, in each by that of runnable ones
    core_rates: int = 0  # of a row
    storage_rate: list[Number] = NOTHING  # by the number of storage phases under way
    accelerator_rate: list[Number] = NOTHING  # by the number of runnable tasks
    busy_cores: list[Number] = NOTHING  # by the number of runnable tasks


@dataclass(slots=True, eq=False)
class Clock:
    """A clock in its own (virtual) time, and its tasks: a heap by the time at which each ends."""

    now: Number = 0
    size: int = 0
    deadlines: list[Number] = NOTHING
    actors: list[Actor] = NOTHING  # none: the barrier opens


@dataclass(slots=True, eq=False)
class Host:
    """What the ranks of one host share."""

    job: Job = NOTHING
    first_rank: int = 0
    clocks: list[Clock] = NOTHING
    wait: Clock = NOTHING  # shows the time
    cores: Clock = NOTHING
    storage: Clock = NOTHING
    accelerator: Clock = NOTHING
    spinning: int = 0  # trainers that hold a core while they wait
    busy: Number = 0  # core-seconds
    quota_left: Number = 0  # of this period, core-seconds
    stopped: bool = False  # it is used up
    ahead: Number = 0  # seconds until the first task ends
    period_end: Number = 0
    events: int = 0
    arrived: int = 0  # ranks at the barrier
    paused: bool = False  # all of them are
    finished: int = 0  # ranks that have done all their steps
    changed: list[Rank] = NOTHING  # whose line may have something to hand over or to take
    changed_count: int = 0


@dataclass(slots=True, eq=False)
class Item:
    """A batch or a sample in the line."""

    number: int = 0
    server: int = 0  # of stage 0, that it went through
    actor: Actor = NOTHING  # that served it last
    done: Number = 0
    since: Number = 0  # when it was put where it stands
    received: bool = False  # by the trainer, before its turn
    stamps: list[Number] = NOTHING  # by segment: until when it did that


@dataclass(slots=True, eq=False)
class Actor:
    """Who has tasks: a server of a stage, or a rank's trainer, accelerator or copy engine."""

    rank: Rank = NOTHING
    stage: StageRecord = NOTHING  # of a server
    kind: int = 0
    number: int = 0  # among the servers of its stage
    phase: int = 0  # under way; -1: the start of a worker
    pending: int = 0  # parallel tasks of it that are not over
    busy: bool = False  # has an item, in service or finished
    item: Item = NOTHING
    fresh: bool = False  # has to start before its first item of the epoch
    queue: list[int] = NOTHING  # ring of the batches that were dealt to it
    queue_head: int = 0
    queued: int = 0
    remaining: Number = 0


@dataclass(slots=True, eq=False)
class StageRecord:
    """A stage of one rank: its servers, and the items that they have finished."""

    rank: Rank = NOTHING
    index: int = 0
    before: StageRecord = NOTHING
    servers: list[Actor] = NOTHING
    server_count: int = 0
    queue_room: int = 0  # batches that a server can have been dealt and not begun, at most
    phases: list[PhaseRecord] = NOTHING
    phase_count: int = 0
    segment: int = 0  # that ends when an item is taken; its phases follow
    buffer: int = 0
    ordered: bool = False
    by_sample: bool = False
    splits: bool = False  # a splitter stands before it
    gathers: bool = False  # a gatherer stands behind it
    free: Clock = NOTHING  # only its heap is used: servers that could take an item, by number
    ring: list[Item] = NOTHING  # finished items; by number if ordered, else ``ready`` of them from ``head`` on
    mask: int = 0  # of a place in the ring
    head: int = 0
    ready: int = 0
    handed: int = 0  # of the ready ones, those that are handed over
    next_take: int = 0  # number of the next item, if ordered
    next_hand_over: int = 0
    split_item: Item = NOTHING  # the batch in the splitter
    split_left: int = 0
    gathered: int = 0  # samples in the gatherer
    gathered_item: Item | None = None
    gathered_batches: int = 0
    busy: int = 0  # servers
    on_cores: int = 0  # servers in a phase that holds a core, or starting up
    blocked: int = 0
    since: Number = 0  # until then, server time is accounted for
    busy_time: Number = 0
    blocked_time: Number = 0
    work: Number = 0
    trace_room: int = 0  # items that are traced
    taken: list[Number] = NOTHING
    done: list[Number] = NOTHING
    out: list[Number] = NOTHING
    served_by: list[int] = NOTHING


@dataclass(slots=True, eq=False)
class Rank:
    """One accelerator with its trainer and its line."""

    job: Job = NOTHING
    host: Host = NOTHING
    number: int = 0
    stages: list[StageRecord] = NOTHING
    trainer: Actor = NOTHING
    device: Actor = NOTHING
    copier: Actor = NOTHING
    items: list[Item] = NOTHING
    free_items: list[Item] = NOTHING
    free_count: int = 0
    is_changed: bool = False
    trainer_state: int = 0
    step: int = 0  # of the trainer; launches ended
    phase: int = 0  # inline
    submitted: int = 0  # launches begun
    begun: int = 0  # of which the lead is done
    copied: int = 0
    device_state: int = 0
    done: int = 0  # steps finished
    opened: int = 0  # batches of the epochs that are open
    dispatched: int = 0
    dealt: int = 0  # servers that were dealt a batch in the present round
    next: int = 0  # item that stage 0 takes
    picked: int = 0
    arrived: list[Item] = NOTHING  # ring of the batches to receive, if early: ``arrivals`` of them from ``arrival`` on
    arrival: int = 0
    arrivals: int = 0
    early: Item = NOTHING  # that the trainer receives now
    maker: Actor | None = None  # of the batch that is handed over, while it serves what it served at the pick-up
    rest: Number = 0  # what the hand-over takes when its maker rests
    turns: Number = 0  # what a launch waits for turns, over its work
    closed: bool = False  # its window is over
    begin: Number = 0
    end: Number = 0
    accounted: Number = 0  # until then, the accelerator's and the trainer's time is accounted for
    stepped: Number = 0  # what the steps of the window take beside idle cores
    device_column: int = 0
    trainer_column: int = 0
    device_times: list[Number] = NOTHING
    trainer_times: list[Number] = NOTHING
    starved: list[Number] = NOTHING  # by segment
    starved_since: Number = 0
    picks: list[Number] = NOTHING  # trace, by step
    begins: list[Number] = NOTHING
    finishes: list[Number] = NOTHING
    batches: list[int] = NOTHING
