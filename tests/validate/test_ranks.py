"""Trials of several ranks and of many workers: what is predicted for them, and the real thing where torch is."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from accuracy import is_calibrated

from coresim.cli.main import main
from coresim.errors import CoresimError, InputError
from coresim.measure.rig import loader_of
from coresim.measure.subject import Layout
from coresim.measure.trial import run_trial, sleep_until
from coresim.report.validation import label
from coresim.sim.draws import draw
from coresim.sim.fast import simulate
from coresim.sim.reference import simulate as reference
from coresim.sim.run import RunLength
from coresim.validate.grid import Setting, load_grid
from coresim.validate.ledger import load_ledger
from coresim.validate.predict import (
    Costs,
    predict,
    rate_period,
    straggling,
    trial_length,
    trial_pipeline,
    trial_scenario,
)
from coresim.validate.trials import barrier_cost, run_ranks
from coresim.workloads.registry import target_of
from coresim.workloads.waiting import SlowReadsWorkload

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the barrier and loader are torch's")
CALIBRATION = Path(__file__).parents[2] / "calibration"
#: Batches of 4 that wait 4 x 5 ms and work 4 x 0.1 ms.
COSTS = Costs(
    {
        "workload": {"batch_size": 4, "preprocess": "0.1 ms", "fetch": {"values": [0.004, 0.006], "unit": "s"}},
        "accelerator": {"step": "1 s"},
        "host": {"cores": 2},
    }
)
SETTING = Setting("slow-reads", 4, 2, 2, 2, 2, 1.0, ranks=4)


@pytest.mark.parametrize("name", ["rank", "worker"])
def test_the_declared_grids_are_of_known_jobs_and_large_enough(name: str) -> None:
    grid = load_grid(CALIBRATION / f"{name}_grid.toml")
    assert sum(setting.repeats for setting in grid.settings) >= 40 and len(set(grid.settings)) == len(grid.settings)
    assert all(target_of(setting.workload) for setting in grid.settings)
    ranks, workers = ({getattr(setting, key) for setting in grid.settings} for key in ("ranks", "workers"))
    assert (ranks == {2, 4, 8}) if name == "rank" else (workers == {8, 16, 32, 64} and ranks == {1})
    assert {setting.ordered for setting in grid.settings} == {True, False}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"option": 1}, "4 ranks"),
        ({"model": "resnet50"}, "4 ranks"),
        ({"limit": "quota"}, "4 ranks"),
        ({"ranks": 1, "straggler": 2.0}, "add ranks"),
        ({"straggler": 0.5}, "straggler = 0.5"),
        ({"ranks": 0}, "ranks = 0"),
    ],
)
def test_what_ranks_cannot_be_is_refused(change: dict[str, Any], names: str) -> None:
    with pytest.raises(InputError, match=names):
        replace(SETTING, **change)


def test_ranks_share_the_cores_and_the_slowest_sets_the_rate() -> None:
    assert rate_period(COSTS, SETTING) == pytest.approx(20.4e-3 / 2)
    assert rate_period(COSTS, replace(SETTING, straggler=2.0)) == pytest.approx(40.4e-3 / 2)
    work = Costs({**COSTS.tables, "workload": {"batch_size": 4, "preprocess": "5 ms"}})
    assert rate_period(work, SETTING) == pytest.approx(4 * 20e-3 / 2)
    assert not is_calibrated(SimpleNamespace(setting=replace(SETTING, workers=1)))  # type: ignore[arg-type]


def test_ranks_wait_for_the_slowest_of_them() -> None:
    def idle(setting: Setting) -> float:
        return predict(COSTS, setting, trial_length(COSTS, setting, 1.0), simulate).idle

    alone, together = idle(replace(SETTING, ranks=1)), idle(SETTING)
    assert alone < together
    fixed = replace(SETTING, step_s=10.2e-3)
    # A rank whose reads take three times as long sets everybody's pace: three batches' time for each step.
    assert idle(replace(fixed, straggler=3.0)) == pytest.approx(2 / 3, abs=0.02)


def test_the_barrier_takes_cpu_time_of_each_rank() -> None:
    costs = replace(COSTS, barriers=((4, 1e-3), (8, 9.0)), slower=1.5, sampled=0.25)
    assert trial_scenario(costs, SETTING).accelerator.launch.mean == pytest.approx(1e-3 * 1.5 / 0.75)
    for other in (replace(SETTING, ranks=2), replace(SETTING, ranks=1)):
        assert trial_scenario(costs, other).accelerator.launch.is_zero
    # Four ranks that work for 40 ms on two cores, with steps of 20 ms: the cores bind, and a barrier of 2 ms takes 4.
    work = Costs({**COSTS.tables, "workload": {"batch_size": 4, "preprocess": "2.5 ms"}}, barriers=((4, 2e-3),))
    setting = replace(SETTING, step_s=1e-3)
    period = predict(work, setting, RunLength(120, 20), simulate).seconds_per_step
    assert period == pytest.approx(20e-3 + 4 * 2e-3 / 2, rel=0.02)


def test_one_straggles_and_the_others_do_not() -> None:
    pipeline = trial_pipeline(trial_scenario(COSTS, SETTING), SETTING)
    draws = draw(pipeline, 50, seed=1)
    changed = straggling(pipeline, draws, 50, 3.0)
    for index in range(50):
        mine, was = changed.row("loader.fetch", index, 0, 4), draws.service_times["loader.fetch"][index]
        assert mine == pytest.approx(3.0 * was)
        others = [changed.row("loader.fetch", index, rank, 4) for rank in (1, 2, 3)]
        assert all(other in draws.service_times["loader.fetch"] for other in others)
    assert straggling(pipeline, draws, 50, 1.0) is draws
    assert changed.service_times["loader.preprocess"] is draws.service_times["loader.preprocess"]
    length = RunLength(30, 10)
    fast, slow = (engine(pipeline, changed, length) for engine in (simulate, reference))
    assert [rank.accelerator["busy"] for rank in fast.ranks] == pytest.approx(
        [rank.accelerator["busy"] for rank in slow.ranks], rel=1e-9
    )
    assert fast.makespan == pytest.approx(slow.makespan, rel=1e-9)


def test_a_common_end_is_what_the_barrier_says() -> None:
    """Whatever the timer does: the next step begins no earlier than the end of all."""
    pipe = SimpleNamespace(inline=False, next=lambda: (None, SimpleNamespace(there=0.0)))
    moments = iter(np.arange(0.0, 1000.0))
    trial = run_trial(
        pipe, [1.0] * 5, 1, wait=lambda _: None, join=lambda end: end + 7.0,  # type: ignore[arg-type]
        clock=lambda: float(next(moments)), cpu_clock=lambda: 0.0,
    )  # fmt: skip
    ends = [trial.before, *(step.end for step in trial.steps)]
    assert all(step.start >= end and step.end >= step.start + 8.0 for step, end in zip(trial.steps, ends, strict=False))


def test_a_label_names_ranks_and_straggler() -> None:
    point = SimpleNamespace(setting=replace(SETTING, straggler=1.5))
    assert "4 ranks, one waits 1.5 times" in label(point)  # type: ignore[arg-type]


def rig(folder: Path, workload: Any = None) -> Any:
    """What the process of a data set has of it."""
    made = SlowReadsWorkload(folder) if workload is None else workload
    made.make()
    made.batch_size = 2
    made.latencies = np.full(made.drawn, 2e-3)
    subject = loader_of(made)
    return SimpleNamespace(workload=made, subject=lambda threads: subject)


run = partial(run_ranks, layout=Layout(2), ranks=2, steps_s=[5e-3] * 8, warm_up=2, wait=sleep_until)


@needs_torch
def test_real_ranks_end_each_step_together_and_one_waits_longer(tmp_path: Path) -> None:
    first, second = run(rig(tmp_path), straggler=4.0)
    assert [step.end for step in first.steps] == [step.end for step in second.steps] and len(first.steps) == 6
    assert first.before == second.before
    # A sleep is never shorter than what it was told.
    assert min(min(note.wall) for note in first.notes) >= 4 * 2e-3
    assert min(min(note.wall) for note in second.notes) >= 2e-3
    assert not multiprocessing.active_children()


@needs_torch
def test_a_barrier_is_timed_among_ranks_that_do_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from coresim.validate import trials

    monkeypatch.setattr(trials, "MEETINGS", 10)
    # It sends and receives messages: some 1 ms of CPU time, and far less than the steps in which a rank sleeps.
    assert 5e-5 < barrier_cost(2) < trials.MEETING_S / 3
    assert not multiprocessing.active_children()


class Failing(SlowReadsWorkload):
    def fetch(self, index: int) -> Any:
        raise InputError("the store is gone")


@needs_torch
def test_a_rank_that_fails_says_why_and_leaves_nobody_behind(tmp_path: Path) -> None:
    with pytest.raises(CoresimError, match="the store is gone"):
        run(rig(tmp_path, Failing(tmp_path)))
    assert not multiprocessing.active_children()


@needs_torch
def test_a_rank_uses_one_thread_because_those_of_its_parent_are_not_forked(tmp_path: Path) -> None:
    """With more, an operation that torch splits would wait for threads that only the parent has."""
    import torch

    def tell(_: float) -> None:
        raise InputError(f"{torch.get_num_threads()} thread in this rank")

    before = torch.get_num_threads()
    made = rig(tmp_path)
    torch.set_num_threads(2)
    try:
        with pytest.raises(InputError, match="1 thread in this rank"):
            run(made, wait=tell)
    finally:
        torch.set_num_threads(before)
    assert not multiprocessing.active_children()


@needs_torch
def test_a_rank_that_dies_is_noticed(tmp_path: Path) -> None:
    dying = rig(tmp_path)
    dying.subject = lambda threads: SimpleNamespace(open=lambda *_, **__: os._exit(3))
    with pytest.raises(CoresimError, match="exit code 3"):
        run(dying)
    assert not multiprocessing.active_children()


@needs_torch
def test_only_what_waits_can_straggle(tmp_path: Path) -> None:
    other = SimpleNamespace(workload=SimpleNamespace(name="images"))
    with pytest.raises(InputError, match="images has no waits to stretch"):
        run(other, straggler=2.0)  # type: ignore[arg-type]


@needs_torch
def test_validate_tries_ranks_and_many_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from coresim.validate import session, trials

    monkeypatch.setattr(trials, "TRIAL_S", 0.2)
    monkeypatch.setattr(session, "BUDGET_S", 0.3)
    monkeypatch.setattr(session, "BANDWIDTH_S", 0.1)
    for bound in ("MOST_OTHERS", "MOST_SLOWER", "MOST_LATE"):
        monkeypatch.setattr(session, bound, 1e9)
    monkeypatch.setattr(session, "ATTEMPTS", 0)
    grid = tmp_path / "grid.toml"
    block = '[[block]]\nworkload = "slow-reads"\nbatch_size = 2\nratio = 1.0\n'
    grid.write_text(f"{block}ranks = 2\nworkers = 2\nstraggler = 1.5\n{block}workers = 8\n")
    output = tmp_path / "ledger.json"
    assert main(["validate", "--grid", str(grid), "-o", str(output), "--max-error", "1"]) == 0
    assert "b2 x2 late1.5" in capsys.readouterr().out
    found = load_ledger(output)
    settings = {(p.setting.ranks, p.setting.workers, p.setting.straggler) for p in found.points}
    assert settings == {(2, 2, 1.5), (1, 8, 1.0)}
    # The barrier of two ranks is timed with their job.
    assert {tuple(ranks for ranks, _ in job.costs.barriers) for job in found.jobs} <= {(2,), ()}
    assert [ranks for ranks, cost in found.jobs[0].costs.barriers if cost > 0] == [2]
    for point in found.points:
        (trial,) = point.trials
        assert 0 <= trial.idle < 1 and len(trial.step_starts_us) == point.steps
