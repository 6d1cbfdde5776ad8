"""What the start of an epoch costs."""

from __future__ import annotations

import pytest

from coresim import recommend
from coresim.advise.candidates import JobSetting
from coresim.advise.epochs import EpochStart, epoch_start
from coresim.advise.sweep import Point, Study, predict
from coresim.model.scenario import Scenario, read_scenario
from coresim.sim.fast import simulate

STUDY = Study(simulate)


def job(**workload: object) -> Scenario:
    work = {"batch_size": 10, "preprocess": "10 ms"} | workload
    return read_scenario({"workload": work, "accelerator": {"step": "100 ms"}, "host": {"cores": 8}})


def start(scenario: Scenario, workers: int = 2, option: int = 2):
    point = Point(option, 8, workers, 2, predict(JobSetting(scenario, option, 8, workers, 2), STUDY))
    return epoch_start(scenario, point, STUDY)


def saved(found: EpochStart) -> float:
    """What workers that live from epoch to epoch save, s."""
    return found.respawned_s - found.persistent_s


def test_an_epoch_starts_with_the_preparation_of_its_first_batch():
    # 10 samples of 10 ms: the GPU waits 100 ms at every start, and the last step of an epoch is not overlapped.
    assert start(job()).persistent_s == pytest.approx(0.1, abs=0.005)
    assert saved(start(job())) == pytest.approx(0.0, abs=1e-9)


def test_starting_workers_anew_costs_their_start():
    # 50 ms for each of two workers one after the other, then 300 ms of each at the same time; all in the first epoch
    # for those that live on, so a quarter of it over four epochs.
    scenario = job(startup="50 ms", worker_startup="300 ms")
    found = start(scenario)
    assert found.respawned_s == pytest.approx(0.1 + 0.1 + 0.3, abs=0.01)
    assert found.persistent_s == pytest.approx(0.1 + 0.4 / 4, abs=0.01)
    assert saved(start(scenario, workers=4)) > saved(found)


def test_new_workers_wait_at_the_same_time():
    # 400 ms of each of two workers, which need no core for it, before the first sample of 10 ms each.
    for workers in (2, 4):
        found = start(job(worker_wait="400 ms"), workers=workers)
        assert found.respawned_s == pytest.approx(0.1 + 0.4, abs=0.01)


def test_the_answer_says_so():
    answer = recommend(job(worker_startup="2 s"), options=(2,), max_cores=4)
    assert "without persistent workers" in str(answer)
    assert start(job(), workers=0, option=1) is None
