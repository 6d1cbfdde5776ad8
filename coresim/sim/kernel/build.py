"""The event kernel's records at time 0, from a description and its draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coresim.model import pipeline as described
from coresim.sim.kernel.memory import Arena
from coresim.sim.kernel.records import (
    ACCELERATOR,
    BY_NUMBER,
    BY_PICK_UP,
    CLOCKS,
    COPIER,
    CORES,
    DEVICE,
    IN_PHASE,
    ON_PHASE,
    SHARED,
    STORAGE,
    TRAINER,
    WAIT,
    Host,
    Job,
    PhaseRecord,
    Rank,
    StageRecord,
)
from coresim.sim.rates import rates
from coresim.sim.run import RunLength

if TYPE_CHECKING:
    from coresim.sim.draws import Draws


def build(memory: Arena, pipeline: described.Pipeline, draws: Draws, length: RunLength) -> Job:
    """The job before its trainers have begun."""
    job = memory.job()
    describe(job, pipeline, length)
    core_rate, storage_rate, accelerator_rate, busy_cores = rates(pipeline, memory.number)
    job.core_rate = memory.values(core_rate)
    job.core_rates = core_rate.shape[1]
    job.storage_rate = memory.values(storage_rate)
    job.accelerator_rate = memory.values(accelerator_rate)
    job.busy_cores = memory.values(busy_cores)
    phases = lay_phases(memory, pipeline, draws)
    first = sum([len(stage.phases) for stage in pipeline.stages])
    job.inline = some_phases(memory, phases, first, job.inline_count)
    first += job.inline_count
    job.handover = some_phases(memory, phases, first, job.handover_count)
    first += job.handover_count
    job.consumer = phases[first]
    job.copy = phases[first + 1]
    job.launch = phases[first + 2]
    job.step = phases[first + 3]
    job.hosts = memory.hosts(job.host_count)
    job.ranks = memory.ranks(job.rank_count)
    for number in range(job.host_count):
        lay_host(memory, job, job.hosts[number], number * job.ranks_per_host, pipeline)
    for number in range(job.rank_count):
        rank = job.ranks[number]
        rank.job = job
        rank.number = number
        rank.host = job.hosts[number // job.ranks_per_host]
        lay_rank(memory, rank)
        lay_line(memory, rank, phases, pipeline)
    return job


def describe(job: Job, pipeline: described.Pipeline, length: RunLength) -> None:
    """The scalars of the description."""
    trainer = pipeline.trainer
    job.host_count = pipeline.hosts
    job.ranks_per_host = pipeline.ranks
    job.rank_count = pipeline.total_ranks
    job.stage_count = len(pipeline.stages)
    job.inline_count = len(trainer.inline)
    job.handover_count = len(trainer.handover)
    job.own_phases = job.inline_count + (1 if job.handover_count > 0 else 0)
    job.receives_early = pipeline.receives_early
    job.cpus = pipeline.width * pipeline.one
    if pipeline.has_quota:
        job.quota = pipeline.cores * pipeline.quota_period
        job.quota_period = pipeline.quota_period
    job.segment_count = sum([len(stage.phases) + 1 for stage in pipeline.stages]) + 1
    job.item_room = item_room(pipeline)
    job.batch_size = pipeline.batch_size
    job.credits = -1 if pipeline.credits is None else pipeline.credits
    job.epoch_batches = 0 if pipeline.epoch_batches is None else pipeline.epoch_batches
    job.dispatch = dispatch_of(pipeline)
    job.copy_mode = described.COPY_MODES.index(trainer.copy_mode)
    job.run_ahead = trainer.run_ahead
    job.settling = trainer.settling
    job.lead = trainer.lead
    job.release = trainer.release
    job.spin = 1 if trainer.spin else 0
    job.persistent = pipeline.persistent
    job.barrier = pipeline.barrier
    job.slows = set(pipeline.slowdown) != {1}
    job.trace = length.trace
    job.steps = length.steps
    job.warm_up = length.warm_up
    job.startup = pipeline.startup
    job.worker_startup = pipeline.worker_startup
    job.allreduce = pipeline.allreduce


def dispatch_of(pipeline: described.Pipeline) -> int:
    """Who serves a batch in stage 0."""
    if not pipeline.stages or pipeline.stages[0].dispatch == "shared":
        return SHARED
    return BY_NUMBER if pipeline.stages[0].ordered else BY_PICK_UP


def item_room(pipeline: described.Pipeline) -> int:
    """The most items of one rank in the line at once (plus those being split or gathered), or a little more.

    A power of two, because rings are indexed by a mask: a division costs as much as all the rest of an access.
    """
    total = 0
    for stage in pipeline.stages:
        grain = pipeline.items(stage.grain)
        behind = (pipeline.credits or 0) * grain if stage.buffer is None else stage.buffer
        total += stage.servers + behind + 2 * grain + 2
    return 1 << total.bit_length()


def lay_phases(memory: Arena, pipeline: described.Pipeline, draws: Draws) -> list[PhaseRecord]:
    """Every phase with its times, in the order of `Pipeline.phases`."""
    keyed = list(pipeline.phases())
    phases = memory.phases(len(keyed))
    for index in range(len(keyed)):
        key, about, _ = keyed[index]
        drawn_times = draws.service_times[key]
        phase = phases[index]
        phase.resource = {"wait": WAIT, "cores": CORES, "storage": STORAGE}[about.resource]
        phase.split = about.split
        phase.rows = len(drawn_times)
        phase.stride = len(drawn_times) // pipeline.total_ranks
        phase.times = memory.values(drawn_times)
    return phases


def some_phases(memory: Arena, phases: list[PhaseRecord], first: int, count: int) -> list[PhaseRecord]:
    """So many of the phases, from that one on."""
    found: list[PhaseRecord] = memory.no_phases(count)
    for number in range(count):
        found[number] = phases[first + number]
    return found


def lay_host(memory: Arena, job: Job, host: Host, first_rank: int, pipeline: described.Pipeline) -> None:
    """One host and its clocks."""
    most_tasks = pipeline.busiest() + 4 * pipeline.ranks + 1
    host.job = job
    host.first_rank = first_rank
    host.changed = memory.no_ranks(pipeline.ranks)
    host.clocks = memory.clocks(CLOCKS)
    for number in range(CLOCKS):
        host.clocks[number].deadlines = memory.numbers(most_tasks)
        host.clocks[number].actors = memory.no_actors(most_tasks)
    host.quota_left = job.quota
    host.period_end = job.quota_period
    host.wait = host.clocks[WAIT]
    host.cores = host.clocks[CORES]
    host.storage = host.clocks[STORAGE]
    host.accelerator = host.clocks[ACCELERATOR]


def lay_rank(memory: Arena, rank: Rank) -> None:
    """A rank without its line."""
    job = rank.job
    actors = memory.actors(3)
    rank.trainer, rank.device, rank.copier = actors[0], actors[1], actors[2]
    rank.trainer.kind, rank.device.kind, rank.copier.kind = TRAINER, DEVICE, COPIER
    for number in range(3):
        actors[number].rank = rank
    rank.items = memory.items(job.item_room)
    rank.free_items = memory.no_items(job.item_room)
    rank.arrived = memory.no_items(job.item_room)
    stamps = memory.tables(job.item_room, job.segment_count)
    for number in range(job.item_room):
        rank.items[number].stamps = stamps[number]
    rank.device_times = memory.numbers(ON_PHASE + job.own_phases + 1)
    rank.trainer_times = memory.numbers(IN_PHASE + job.own_phases + 2)
    rank.starved = memory.numbers(job.segment_count)
    if job.trace:
        rank.picks = memory.numbers(job.steps, -1)
        rank.begins = memory.numbers(job.steps, -1)
        rank.finishes = memory.numbers(job.steps, -1)
        rank.batches = memory.counts(job.steps, -1)


def lay_line(memory: Arena, rank: Rank, phases: list[PhaseRecord], pipeline: described.Pipeline) -> None:
    """The stages of a rank."""
    job = rank.job
    rank.stages = memory.stages(job.stage_count)
    first, segment = 0, 0
    for index in range(job.stage_count):
        about = pipeline.stages[index]
        stage = rank.stages[index]
        stage.rank = rank
        stage.index = index
        stage.phase_count = len(about.phases)
        stage.phases = some_phases(memory, phases, first, stage.phase_count)
        stage.segment = segment
        first += stage.phase_count
        segment += stage.phase_count + 1
        stage.buffer = -1 if about.buffer is None else about.buffer
        stage.ordered = about.ordered
        stage.by_sample = about.grain == "sample"
        if index > 0:
            stage.before = rank.stages[index - 1]
            stage.splits = stage.by_sample and not stage.before.by_sample
        last = index == job.stage_count - 1
        stage.gathers = stage.by_sample and (last or pipeline.stages[index + 1].grain == "batch")
        stage.ring = memory.no_items(job.item_room)
        stage.mask = job.item_room - 1
        lay_servers(memory, stage, about.servers)
        if job.trace:
            lay_trace(memory, stage)


def lay_servers(memory: Arena, stage: StageRecord, count: int) -> None:
    """The servers of a stage, none of them free yet."""
    job = stage.rank.job
    if stage.index == 0 and job.dispatch != SHARED:
        # Dealt by number, all servers have as many.
        stage.queue_room = job.credits if job.dispatch == BY_PICK_UP else job.credits // count + 1
    stage.servers = memory.actors(count)
    stage.server_count = count
    stage.free = memory.clocks(1)[0]
    stage.free.deadlines = memory.numbers(count)
    stage.free.actors = memory.no_actors(count)
    for number in range(count):
        server = stage.servers[number]
        server.rank = stage.rank
        server.stage = stage
        server.number = number
        server.queue = memory.counts(stage.queue_room)


def lay_trace(memory: Arena, stage: StageRecord) -> None:
    """Room for what happens to every item of a stage."""
    job = stage.rank.job
    stage.trace_room = job.steps * (job.batch_size if stage.by_sample else 1)
    stage.taken = memory.numbers(stage.trace_room, -1)
    stage.done = memory.numbers(stage.trace_room, -1)
    stage.out = memory.numbers(stage.trace_room, -1)
    stage.served_by = memory.counts(stage.trace_room, -1)
