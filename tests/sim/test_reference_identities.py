"""Identities that hold on every run of the reference engine: nothing is lost, counted twice, or out of order."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from generated import Job, jobs
from hypothesis import given, settings

from coresim.model.pipeline import Pipeline, Stage
from coresim.sim.draws import Draws
from coresim.sim.reference import simulate
from coresim.sim.run import RankAccount, Run, RunLength

QUICK = settings(max_examples=20, deadline=None)


@pytest.mark.slow
@QUICK
@given(jobs())
def test_identities_of_an_exact_run(job: Job) -> None:
    """One run for all of them, as exact runs take their time."""
    result = simulate(*job)
    _every_second_is_accounted_for_once(job, result)
    _steps_items_and_credits_keep_their_order(job, result)
    _twice_the_times_take_twice_the_time(job, result)
    if job[0].stages:
        _accounts_agree_with_the_trace_of_a_longer_run(job, result)


def _every_second_is_accounted_for_once(job: Job, result: Run) -> None:
    pipeline, *_ = job
    for rank in result.ranks:
        window = rank.end - rank.begin
        assert sum(rank.accelerator.values()) == sum(rank.trainer.values()) == window
        assert sum(rank.starved_by.values()) == rank.accelerator["starved"]
        for station in rank.stations:
            assert min(station.busy, station.blocked, station.work) >= 0
            assert station.busy + station.blocked <= station.servers * window
            assert station.work <= station.busy * max(pipeline.speed)
    assert all(0 <= busy <= pipeline.width for busy in result.busy_cores)
    if pipeline.has_quota:
        quota, periods = pipeline.cores * pipeline.quota_period, math.ceil(result.makespan / pipeline.quota_period)
        assert all(busy * result.makespan <= quota * periods for busy in result.busy_cores)


def _steps_items_and_credits_keep_their_order(job: Job, result: Run) -> None:
    pipeline, _, length = job
    for rank, trace in zip(result.ranks, result.traces, strict=True):
        for pick_up, start, end in zip(trace.pick_up, trace.start, trace.end, strict=True):
            assert pick_up <= start <= end <= result.makespan
        assert list(trace.start[1:]) >= list(trace.end[:-1])
        assert trace.end[-1] == rank.end
        assert len(set(trace.batch)) == length.steps
        _check_items(pipeline, trace)
        _check_credits(pipeline, trace)


def _check_items(pipeline: Pipeline, trace: Any) -> None:
    for stage, taken, done, out, server in zip(
        pipeline.stages, trace.taken, trace.done, trace.out, trace.server, strict=True
    ):
        for times in zip(taken, done, out, strict=True):
            known = [time for time in times if time is not None]
            assert known == sorted(known) and times[: len(known)] == tuple(known)
        assert [time is None for time in taken] == [number is None for number in server]
        if stage.ordered and stage.buffer is not None:
            known = [time for time in out if time is not None]
            assert known == sorted(known)
        _check_servers(stage, taken, out, server)


def _check_servers(stage: Stage, taken: Any, out: Any, server: Any) -> None:
    for number in range(stage.servers):
        own = sorted((a, b) for a, b, s in zip(taken, out, server, strict=True) if s == number and b is not None)
        assert all(left <= begin for (_, left), (begin, _) in pairwise(own))


def _check_credits(pipeline: Pipeline, trace: Any) -> None:
    if not pipeline.stages or pipeline.credits is None:
        return
    grain = pipeline.batch_size if pipeline.stages[0].grain == "sample" else 1
    taken = [time for time in trace.taken[0] if time is not None]
    for now in taken:
        out = sum(time <= now for time in taken) - grain * sum(time <= now for time in trace.pick_up)
        assert out <= grain * pipeline.credits


def _accounts_agree_with_the_trace_of_a_longer_run(job: Job, short: Run) -> None:
    pipeline, draws, length = job
    longer = simulate(pipeline, draws, RunLength(length.steps + 8, trace=True))
    for rank, trace, brief in zip(short.ranks, longer.traces, short.traces, strict=True):
        assert trace.pick_up[: length.steps] == brief.pick_up
        assert trace.end[: length.steps] == brief.end
        if all(taken[-1] is None or taken[-1] > rank.end for taken in trace.taken):
            _check_stations(rank, trace)


def _check_stations(rank: RankAccount, trace: Any) -> None:
    """Utilisation is throughput times service time: the busy time is that of the items, clipped to the window."""
    for station, taken, done, out in zip(rank.stations, trace.taken, trace.done, trace.out, strict=True):
        assert station.busy == sum(map(_clip(rank), taken, done))
        assert station.blocked == sum(map(_clip(rank), done, out))


def _clip(rank: RankAccount) -> Any:
    def inside(since: Any, until: Any) -> Any:
        if since is None:
            return 0
        last = rank.end if until is None else min(until, rank.end)
        return max(last - max(since, rank.begin), 0)

    return inside


def _twice_the_times_take_twice_the_time(job: Job, once: Run) -> None:
    pipeline, draws, length = job
    durations = ("allreduce", "startup", "worker_startup", "quota_period")
    double: dict[str, Any] = {name: 2 * getattr(pipeline, name) for name in durations}
    double["trainer"] = replace(pipeline.trainer, settling=2 * pipeline.trainer.settling)
    service_times = {key: values * 2 for key, values in draws.service_times.items()}
    twice = simulate(replace(pipeline, **double), Draws(service_times), length)
    assert twice.makespan == 2 * once.makespan
    assert twice.busy_cores == once.busy_cores
    assert [trace.end for trace in twice.traces] == [tuple(2 * end for end in trace.end) for trace in once.traces]


@QUICK
@given(jobs(exact=False))
def test_floats_are_accounted_for_to_rounding(job: Job) -> None:
    for rank in simulate(*job).ranks:
        window = rank.end - rank.begin
        assert sum(rank.accelerator.values()) == pytest.approx(window)
        assert sum(rank.trainer.values()) == pytest.approx(window)
        assert sum(rank.starved_by.values()) == pytest.approx(rank.accelerator["starved"], abs=1e-9)
