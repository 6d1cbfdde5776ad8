"""Trials of several ranks, for real where torch is: they end each step together, and failing ones are told."""

from __future__ import annotations

import contextlib
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

from coresim.errors import CoresimError, InputError
from coresim.measure.rig import loader_of
from coresim.measure.subject import Layout
from coresim.measure.trial import sleep_until
from coresim.report.validation import label
from coresim.validate.grid import Setting, job_grid
from coresim.validate.trials import barrier_cost, run_ranks
from coresim.workloads.waiting import SlowReadsWorkload

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the barrier and loader are torch's")
SETTING = Setting("slow-reads", 4, 2, 2, 2, 2, 1.0, ranks=4)


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


def test_a_process_trains_one_model_whichever_job_asks(monkeypatch: pytest.MonkeyPatch):
    from coresim.validate import trials

    made: list[Any] = []

    class Trained:
        device = SimpleNamespace(name=lambda: "a device", loading=contextlib.nullcontext)

        def __init__(self, *given: Any) -> None:
            made.append(given)

        cost, relaunched = staticmethod(lambda: "new"), staticmethod(lambda told: f"{told} again")

    monkeypatch.setattr(trials, "Training", Trained)
    setting, rig, asked = job_grid("tiny", 4, 2).settings[0], SimpleNamespace(workload=None), trials.Trials()
    told = [
        asked(rig, trials.Train(replace(setting, model="tiny"), "cpu", again))  # type: ignore[arg-type]
        for again in (None, "new", None)
    ]
    assert len(made) == 1
    assert told == [("a device", cost) for cost in ("new", "new again", "new")]
