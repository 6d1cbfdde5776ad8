"""The decisive counts: found in few searches, and with the fewest workers of settings that are as good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from advise_kit import job

from coresim.advise.candidates import FACTORS, JobSetting, spaced
from coresim.advise.recommend import recommend
from coresim.advise.refine import EVERY, _better, _fewest, fewest_workers
from coresim.advise.sweep import Point, Study, predict
from coresim.model.option import Option
from coresim.model.scenario import read_scenario
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


@pytest.mark.parametrize("least", [1, 5])
@pytest.mark.parametrize("seen", [None, 0, 1, 9, 40])
def test_the_fewest_cores_are_found_in_few_searches(least: int, seen: int | None) -> None:
    counts = spaced(64, EVERY)
    # The curve sees that they are enough from so many on.
    for enough in (*range(least, 65), 100):
        probes: list[int] = []

        def searched(cores: int, _: float, enough: int = enough, probes: list[int] = probes) -> bool:
            probes.append(cores)
            return cores >= enough

        def curve(cores: int, _: float, enough: int = enough) -> bool:
            return seen is not None and cores >= enough + seen

        found = _fewest(counts if least == 1 else {least, *counts}, 0.9, least, curve, searched)
        assert found == (enough if enough <= 64 else None)
        assert len(probes) <= 12


def test_a_search_for_a_surer_setting_does_not_give_up_one_that_likely_meets_the_target() -> None:
    scenario, study = job(8, "5 ms", 2, "10 ms"), Study(simulate, Plan(target=0.05))
    estimated = predict(JobSetting(scenario, 2, 4, 8, 8), study)
    inside, outside = (
        Point(Option.OVERLAPPED, 4, workers, 8, replace(estimated, gpu_idle=idle, gpu_idle_low=0.0, gpu_idle_high=0.1))
        for workers, idle in ((20, 0.048), (10, 0.052))
    )
    for share in (0.5, 0.9):
        # Both are within noise of each other, and neither is surely within the target.
        assert _better(inside, outside, 0.05, share) is inside
        assert _better(outside, inside, 0.05, share) is inside
    surely = replace(inside, estimate=replace(estimated, gpu_idle=0.001, gpu_idle_low=0.0, gpu_idle_high=0.002))
    assert _better(inside, surely, 0.05, 0.9) is _better(surely, inside, 0.05, 0.9) is surely


def test_of_settings_as_good_with_the_same_cores_the_fewest_workers_are_the_answer() -> None:
    tables = {
        "workload": {"batch_size": 64, "preprocess": {"mean": "6 ms", "cv": 0.4}},
        "accelerator": {"step": "300 ms", "sync": "block"},
    }
    scenario, study = read_scenario(tables), Study(simulate, Plan(target=0.05))
    # 384 ms of work for each step of 300 ms: two cores are enough, and two workers keep them busy.
    found = recommend(scenario, study, (2,)).point
    assert (found.cores, found.workers) == (2, 2)
    setting = JobSetting(scenario, 2, 2, 8, 2)
    many = Point.of(setting, predict(setting, study))
    assert fewest_workers(scenario, many, 0.5, study).workers == 2
    # Of a job that needs more workers than cores, no setting with fewer workers is as good.
    study = Study(simulate, Plan(target=0.05))
    best = recommend(job(16, "5 ms", 2, "20 ms"), study, (2,))
    assert best.point.workers > best.point.cores == 4
    for workers in range(1, best.point.workers):
        for factor in FACTORS:
            setting = JobSetting(best.scenario, 2, best.point.cores, workers, factor)
            other = predict(setting, study).gpu_idle
            assert other > min(0.05, best.point.estimate.gpu_idle)
