"""The reference engine against runs computed by hand, and identities that hold on every run of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from generated import Job, jobs
from hypothesis import given, settings

from coresim.errors import InputError
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim.draws import Draws
from coresim.sim.reference import simulate
from coresim.sim.run import RankAccount, Run, RunLength

F = Fraction


def drawn_times(*values: Any) -> np.ndarray[Any, Any]:
    """One row per value; a tuple is a row of parallel tasks."""
    return np.array([[F(task) for task in (row if isinstance(row, tuple) else (row,))] for row in values], dtype=object)


def run(stages: tuple[Stage, ...], trainer: Trainer, times: dict[str, Any], length: RunLength, **shared: Any) -> Run:
    """Run with exact numbers; phases that are not named take no time."""
    exact = {"cores": F(4), "speed": (F(1),), "slowdown": (F(1),), "allreduce": F(0)} | shared
    exact = {"startup": F(0), "worker_startup": F(0)} | exact
    pipeline = Pipeline(stages, trainer, Phase("step"), **exact)
    service_times = {key: drawn_times(*times.get(key, (0,))) for key, _, _ in pipeline.phases()}
    return simulate(pipeline, Draws(service_times), length)


def inline(trainer: dict[str, Any], steps: int = 3, warm_up: int = 0, **options: Any) -> Run:
    """A job without a loader; times of the trainer's phases and of the step by name, the rest are fields."""
    times = {f"trainer.{name}": values for name, values in trainer.items()}
    times["accelerator.step"] = times.pop("trainer.step")
    fields = {name: options.pop(name) for name in ("copy_mode", "run_ahead", "spin") if name in options}
    phases = (Phase("fetch", "wait"), Phase("preprocess"))
    return run((), Trainer(phases, **fields), times, RunLength(steps, warm_up, trace=True), **options)


def nonzero(totals: Any) -> dict[str, Any]:
    return {name: total for name, total in totals.items() if total}


# By hand: no overlap


def test_without_overlap_the_times_of_a_step_add_up() -> None:
    result = inline({"fetch": (2,), "preprocess": (3,), "copy": (1,), "step": (4,)}, steps=3, warm_up=1)
    assert result.makespan == 30
    (trace,), (rank,) = result.traces, result.ranks
    assert (trace.pick_up, trace.start, trace.end) == ((5, 15, 25), (6, 16, 26), (10, 20, 30))
    assert nonzero(rank.accelerator) == {"fetch": 4, "preprocess": 6, "copy": 2, "busy": 8}
    assert nonzero(rank.trainer) == {"fetch": 4, "preprocess": 6, "copy": 2, "device": 8}
    assert (rank.begin, rank.end, rank.stations, rank.starved_by) == (10, 30, (), {})
    assert result.busy_cores == (F(3 + 1 + 4, 10),)


def test_a_trainer_that_does_not_spin_holds_no_core_while_it_waits() -> None:
    result = inline({"fetch": (2,), "preprocess": (3,), "copy": (1,), "step": (4,)}, spin=False)
    assert (result.makespan, result.busy_cores) == (30, (F(3, 10),))


@pytest.mark.parametrize(("run_ahead", "ends"), [(0, (5, 10, 15)), (1, (5, 8, 11)), (2, (5, 8, 11))])
def test_run_ahead_hides_the_trainer(run_ahead: int, ends: tuple[int, ...]) -> None:
    result = inline({"consumer": (2,), "step": (3,)}, run_ahead=run_ahead, copy_mode="none")
    assert result.traces[0].end == ends


@pytest.mark.parametrize(
    ("mode", "ends", "copy"),
    [("sync", (5, 10, 15), 6), ("stream", (5, 10, 15), 6), ("overlap", (5, 8, 11), 2), ("none", (3, 6, 9), 0)],
)
def test_copy_modes(mode: str, ends: tuple[int, ...], copy: int) -> None:
    result = inline({"copy": (2,), "step": (3,)}, run_ahead=1, copy_mode=mode)
    assert result.traces[0].end == ends
    assert nonzero(result.ranks[0].accelerator) == nonzero({"busy": 9, "copy": copy})
    assert result.ranks[0].trainer["copy"] == (6 if mode == "sync" else 0)


def test_a_launch_longer_than_the_step_paces_it() -> None:
    result = inline({"launch": (4,), "step": (1,)}, copy_mode="none")
    assert result.traces[0].start == (0, 4, 8)
    assert nonzero(result.ranks[0].accelerator) == {"busy": 3, "launch": 9}


def test_a_step_slows_down_with_the_busy_cores() -> None:
    result = inline({"consumer": (2,), "step": (4,)}, spin=True, copy_mode="none", slowdown=(F(1), F(2)))
    assert result.traces[0].end == (10, 20, 30)
    # A step alone would take 4 s of each 8: what busy cores add to it is idle time, like all else.
    assert nonzero(result.ranks[0].accelerator) == {"busy": 12, "slowed": 12, "consumer": 6}
    blocking = inline({"consumer": (2,), "step": (4,)}, spin=False, copy_mode="none", slowdown=(F(1), F(2)))
    assert blocking.traces[0].end == (6, 12, 18)


def test_a_step_changes_speed_while_it_runs() -> None:
    # Step 0 starts at 3; the next batch's work until 6 slows it to half: 3/2 done; the last 5/2 at full speed.
    options: dict[str, Any] = {"spin": False, "copy_mode": "none", "run_ahead": 1}
    result = inline({"preprocess": (3,), "step": (4,)}, steps=1, slowdown=(F(1), F(2)), **options)
    assert result.makespan == F(17, 2)


def test_split_phases_end_with_the_last_task() -> None:
    trainer = Trainer((Phase("preprocess", split=3),), copy_mode="none", spin=False)
    times = {"trainer.preprocess": ((1, 2, 6),)}
    shared = run((), trainer, times, RunLength(1), cores=F(1))
    alone = run((), trainer, times, RunLength(1), cores=F(3))
    assert (shared.makespan, alone.makespan) == (9, 6)
    assert alone.busy_cores == (F(9, 6),)


# By hand: a loader with workers of its own

LOADER = Stage("load", 2, (Phase("fetch", "wait"), Phase("pre")), dispatch="round_robin")


def test_in_order_delivery_stalls_behind_a_slow_batch() -> None:
    times = {"load.pre": (5, 1, 1, 6, 1), "accelerator.step": (2,)}
    result = run((LOADER,), Trainer(spin=False), times, RunLength(5, trace=True), credits=2)
    (trace,), (rank,) = result.traces, result.ranks
    assert trace.pick_up == (5, 7, 9, 13, 15)
    assert trace.end == (7, 9, 11, 15, 17)
    assert trace.taken == ((0, 0, 5, 7, 9),)
    assert trace.done == trace.out == ((5, 1, 6, 13, 10),)
    assert trace.server == ((0, 1, 0, 1, 0),)
    assert nonzero(rank.accelerator) == {"starved": 7, "busy": 10}
    assert nonzero(rank.starved_by) == {"load.pre": 7}
    # Batches 5 and 6 are under way too: 5 s and 1 s, taken at 13 and 15.
    assert rank.stations[0].busy == 14 + 4 + 1


def test_out_of_order_delivery_deals_to_the_server_of_the_batch_picked_up() -> None:
    times = {"load.pre": (5, 1, 1, 6, 1), "accelerator.step": (2,)}
    loader = replace(LOADER, ordered=False)
    (trace,) = run((loader,), Trainer(spin=False), times, RunLength(5, trace=True), credits=2).traces
    assert trace.batch == (1, 2, 0, 4, 3)
    assert trace.pick_up == (1, 3, 5, 7, 9)
    assert trace.taken == ((0, 0, 1, 3, 5),)
    assert trace.server == ((0, 1, 1, 1, 0),)


def test_a_bounded_ordered_loader_blocks_the_worker_that_is_ahead() -> None:
    times = {"load.pre": (5, 1, 1, 6, 1), "accelerator.step": (2,)}
    loader = replace(LOADER, buffer=1)
    result = run((loader,), Trainer(spin=False), times, RunLength(2, trace=True), credits=4)
    (trace,), (rank,) = result.traces, result.ranks
    # Batch 0 is out at 5 and picked up in that instant, which makes room for batch 1, and so on.
    assert trace.out == ((5, 5),)
    assert trace.pick_up == (5, 7)
    # Batch 1 is blocked from 1 to 5, batch 2 from 6 to 7, and batch 4 behind batch 3 from 8 to the end at 9.
    assert rank.stations[0].blocked == 4 + 1 + 1


@pytest.mark.parametrize(("spin", "done"), [(True, (4, 4, 8, 13)), (False, (4, 4, 6, 11))])
def test_one_core_is_shared_by_workers_and_a_spinning_trainer(spin: bool, done: tuple[int, ...]) -> None:
    times = {"load.pre": (2,), "accelerator.step": (5,)}
    result = run((LOADER,), Trainer(spin=spin), times, RunLength(4, trace=True), credits=2, cores=F(1))
    assert result.traces[0].pick_up == (4, 9, 14, 19)
    assert result.traces[0].done == (done,)
    # Batches 4 and 5, taken at 14 and 19, are done too before the end at 24.
    assert result.ranks[0].stations[0].work == 6 * 2
    assert result.ranks[0].stations[0].busy == (24 if spin else 16)


def test_cores_that_slow_each_other_down() -> None:
    times = {"load.pre": (3,), "accelerator.step": (1,)}
    result = run((LOADER,), Trainer(spin=False), times, RunLength(1, trace=True), credits=2, speed=(F(1), F(3, 4)))
    assert result.traces[0].done == ((4,),)


def test_storage_streams_are_shared_evenly() -> None:
    loader = replace(LOADER, servers=3, phases=(Phase("read", "storage"),))
    times = {"load.read": (2, 2, 4), "accelerator.step": (9,)}
    result = run((loader,), Trainer(), times, RunLength(3, trace=True), credits=3, storage_streams=F(2))
    # Two thirds of the speed until 3, then batches 2 and 3 (taken when 0 is picked up) at full speed.
    assert result.traces[0].done == ((3, 3, 5),)


# By hand: stages


def test_a_bounded_buffer_blocks_the_stage_before_the_bottleneck() -> None:
    stages = (Stage("a", 1, (Phase("p"),), buffer=1), Stage("b", 1, (Phase("p"),), buffer=1))
    times = {"a.p": (1,), "b.p": (3,), "accelerator.step": (1,)}
    result = run(stages, Trainer(copy_mode="none"), times, RunLength(4, 1, trace=True))
    (trace,), (rank,) = result.traces, result.ranks
    assert trace.taken == ((0, 1, 2, 4), (1, 4, 7, 10))
    assert trace.out == ((1, 2, 4, 7), (4, 7, 10, 13))
    assert trace.pick_up == (4, 7, 10, 13)
    assert (rank.begin, rank.end) == (5, 14)
    assert nonzero(rank.starved_by) == {"b.p": 6}
    assert rank.stations[0].fractions(rank.end - rank.begin)["blocked"] == F(2, 3)
    assert rank.stations[1].fractions(rank.end - rank.begin)["utilisation"] == 1


def test_samples_of_one_batch_are_served_in_parallel_and_gathered_again() -> None:
    stages = (Stage("a", 1, (Phase("p"),)), Stage("b", 2, (Phase("p"),), grain="sample"))
    times = {"a.p": (1,), "b.p": (1, 3, 1, 1), "accelerator.step": (1,)}
    result = run(stages, Trainer(), times, RunLength(2, trace=True), credits=2, batch_size=2)
    (trace,), (rank,) = result.traces, result.ranks
    assert trace.taken[1] == (1, 1, 2, 3)
    assert trace.done[1] == (2, 4, 3, 4)
    assert trace.pick_up == (4, 5)
    assert nonzero(rank.starved_by) == {"a.p": 1, "b.p": 3}


def test_unordered_samples_are_gathered_as_they_come() -> None:
    stages = (Stage("a", 1, (Phase("p"),)), Stage("b", 2, (Phase("p"),), grain="sample", ordered=False))
    times = {"a.p": (1,), "b.p": (1, 3, 1, 1), "accelerator.step": (1,)}
    result = run(stages, Trainer(), times, RunLength(2, trace=True), credits=2, batch_size=2)
    assert result.traces[0].pick_up == (3, 4)
    # Sample 2 completes the batch: of batch 1, which is taken at 1 and done at 2.
    assert nonzero(result.ranks[0].starved_by) == {"a.queue": 1, "a.p": 1, "b.p": 1}


def test_a_line_of_samples_waits_for_the_rest_of_the_batch() -> None:
    stages = (Stage("a", 1, (Phase("p"),), grain="sample", buffer=1), Stage("b", 1, (Phase("q"),), buffer=1))
    times = {"a.p": (2,), "b.q": (1,), "accelerator.step": (1,)}
    result = run(stages, Trainer(), times, RunLength(2, trace=True), batch_size=2)
    assert result.traces[0].pick_up == (5, 9)
    assert nonzero(result.ranks[0].starved_by) == {"a.queue": 2, "a.p": 4, "b.q": 2}


def test_a_bounded_ordered_stage_fed_out_of_order_is_refused_because_it_could_stop_for_good() -> None:
    stages = (Stage("a", 2, (Phase("p"),), ordered=False), Stage("b", 1, (Phase("p"),), buffer=1))
    with pytest.raises(InputError, match="not ordered"):
        run(stages, Trainer(), {"a.p": (5, 1), "accelerator.step": (1,)}, RunLength(2), credits=2)


# By hand: epochs and ranks


@pytest.mark.parametrize(("persistent", "ends"), [(True, (7, 8, 10, 11)), (False, (7, 8, 15, 16))])
def test_epochs_start_afresh_unless_the_workers_stay(persistent: bool, ends: tuple[int, ...]) -> None:
    times = {"load.pre": (1,), "accelerator.step": (1,)}
    loader = replace(LOADER, servers=1)
    epochs = {"epoch_batches": 2, "persistent": persistent, "startup": F(3), "worker_startup": F(2)}
    result = run((loader,), Trainer(), times, RunLength(4, trace=True), credits=2, **epochs)
    assert result.traces[0].end == ends
    starts = 1 if persistent else 2
    assert result.ranks[0].accelerator["startup"] == 3 * starts
    assert nonzero(result.ranks[0].starved_by) == {"load.queue": 2 * starts, "load.pre": 2}
    assert result.ranks[0].stations[0].busy == 2 * starts + 4


@pytest.mark.parametrize(("ranks", "hosts"), [(2, 1), (1, 2)])
def test_a_barrier_waits_for_the_last_rank_and_the_all_reduce(ranks: int, hosts: int) -> None:
    barrier = {"ranks": ranks, "hosts": hosts, "barrier": True, "allreduce": F(1, 2)}
    result = inline({"preprocess": (1, 2, 5, 1), "step": (1,)}, steps=2, spin=False, **barrier)
    assert [trace.end for trace in result.traces] == [(F(13, 2), 10), (F(13, 2), 10)]
    assert [trace.start for trace in result.traces] == [(1, F(17, 2)), (5, F(15, 2))]
    waits = [rank.accelerator["barrier"] for rank in result.ranks]
    assert waits == [F(9, 2) + F(1, 2), F(1, 2) + F(3, 2)]


def test_ranks_of_one_host_share_its_cores_and_those_of_two_do_not() -> None:
    times: dict[str, Any] = {"preprocess": (2,), "step": (1,)}
    one = inline(times, steps=1, spin=False, cores=F(1), barrier=True, ranks=2)
    two = inline(times, steps=1, spin=False, cores=F(1), barrier=True, hosts=2)
    assert (one.makespan, two.makespan) == (5, 3)
    assert two.busy_cores == (F(2, 3), F(2, 3))


@pytest.mark.parametrize("stages", [(), (LOADER,), (replace(LOADER, grain="sample", dispatch="shared", buffer=1),)])
def test_a_job_that_takes_no_time_ends(stages: tuple[Stage, ...]) -> None:
    trainer = Trainer() if stages else Trainer((Phase("pre"),))
    result = run(stages, trainer, {}, RunLength(3), credits=2, batch_size=2)
    assert (result.makespan, result.busy_cores) == (0, (0,))


# Identities: nothing is lost, counted twice, or out of order

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
