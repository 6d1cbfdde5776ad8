"""The accounts and the trace of a finished run, read out of the event kernel's records."""

from __future__ import annotations

from typing import Any

from coresim.model import pipeline as described
from coresim.model.pipeline import Number
from coresim.sim import run as found
from coresim.sim.kernel.records import Job, Rank, StageRecord


def result(job: Job, pipeline: described.Pipeline, length: found.RunLength) -> found.Run:
    """The whole run."""
    makespan = max([job.hosts[number].wait.now for number in range(job.host_count)])
    events = sum([job.hosts[number].events for number in range(job.host_count)])
    busy = [job.hosts[number].busy for number in range(job.host_count)]
    names = found.account_names(pipeline)
    traced = job.rank_count if job.trace else 0
    return found.Run(
        ranks=tuple([account(job.ranks[number], names) for number in range(job.rank_count)]),
        makespan=makespan,
        busy_cores=tuple([seconds / makespan if makespan else seconds for seconds in busy]),
        events=events,
        traces=tuple([trace(job.ranks[number]) for number in range(traced)]),
    )


def account(rank: Rank, names: tuple[tuple[str, ...], ...]) -> found.RankAccount:
    """All the time of one rank in its window."""
    job = rank.job
    device, segments, trainer = names
    times = by_name(device, rank.device_times)
    at_work = times.pop("busy")
    work = rank.stepped if job.slows else at_work  # without a slowdown the same, but for rounding
    return found.RankAccount(
        begin=rank.begin,
        end=rank.end,
        accelerator={"busy": work, "slowed": at_work - work, **times},
        starved_by=by_name(segments, rank.starved),
        trainer=by_name(trainer, rank.trainer_times),
        stations=tuple([station(rank.stages[index]) for index in range(job.stage_count)]),
    )


def by_name(names: tuple[str, ...], times: list[Number]) -> dict[str, Number]:
    """Sums by name: two phases may have the same one."""
    sums: dict[str, Number] = {}
    for place in range(len(names)):
        sums[names[place]] = sums.get(names[place], 0) + times[place]
    return sums


def station(stage: StageRecord) -> found.StageAccount:
    """The account of a stage."""
    return found.StageAccount(stage.server_count, stage.busy_time, stage.work, stage.blocked_time)


def trace(rank: Rank) -> found.Trace:
    """When everything happened."""
    job = rank.job
    stages = range(job.stage_count)
    return found.Trace(
        pick_up=happened(rank.picks, job.steps),
        start=happened(rank.begins, job.steps),
        end=happened(rank.finishes, job.steps),
        batch=counted(rank.batches, job.steps),
        taken=tuple([happened(rank.stages[index].taken, rank.stages[index].trace_room) for index in stages]),
        done=tuple([happened(rank.stages[index].done, rank.stages[index].trace_room) for index in stages]),
        out=tuple([happened(rank.stages[index].out, rank.stages[index].trace_room) for index in stages]),
        server=tuple([counted(rank.stages[index].served_by, rank.stages[index].trace_room) for index in stages]),
    )


def happened(times: list[Number], count: int) -> tuple[Any, ...]:
    """The times, with None for what did not happen."""
    return tuple([None if times[item] == -1 else times[item] for item in range(count)])


def counted(numbers: list[int], count: int) -> tuple[Any, ...]:
    """The numbers; None for events that did not happen."""
    return tuple([None if numbers[item] == -1 else numbers[item] for item in range(count)])
