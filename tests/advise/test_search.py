"""The fewest cores, with whatever workers and credits fit: the search against all settings, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coresim.advise.candidates import FACTORS, JobSetting, candidates, fits, most_workers, spaced
from coresim.advise.recommend import Recommendation, recommend
from coresim.advise.refine import EVERY, _better, _fewest, fewest_workers
from coresim.advise.starved import predicted, short_of_cores
from coresim.advise.sweep import Point, Study, lowest_idle, pipeline_of, predict
from coresim.model.option import Option
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.service import Service
from coresim.sim import draws
from coresim.sim.estimate import Plan, estimate
from coresim.sim.fast import simulate
from coresim.sim.run import Run

ROUGH_DIFFERENCE = 0.015


def job(batch: int, mean: str, cv: float, step: str, **sections: Any) -> Scenario:
    preprocess = {"mean": mean, "cv": cv, "distribution": "lognormal"} if cv else mean
    workload = {"batch_size": batch, "preprocess": preprocess, **sections.pop("workload", {})}
    device = {"step": step, "sync": "block", **sections.pop("accelerator", {})}
    return read_scenario({"workload": workload, "accelerator": device, **sections})


def answer(scenario: Scenario, **more: Any) -> Recommendation:
    return recommend(scenario, Study(simulate, Plan()), options=(2,), **more)


def truth(found: Recommendation, steps: int = 20_000) -> float:
    """GPU idle at the recommended setting, over long runs of their own."""
    line = pipeline_of(found.point.at(found.scenario))
    return estimate(line, Plan(steps, least=4, most=4, inputs=0, seed=77), simulate).gpu_idle


def test_heavy_tails_take_credits_and_not_cores() -> None:
    found = answer(job(4, "10 ms", 4, "10 ms"))
    assert (found.meets_target, found.point.cores) == (True, 5)
    assert found.point.workers * found.point.prefetch_factor >= 40
    assert truth(found) <= 0.05


def test_workers_are_cheap_and_cores_are_not() -> None:
    found = answer(job(16, "5 ms", 2, "20 ms"))
    assert found.point.cores == found.lower_bound.whole == 4
    assert truth(found) <= 0.05


@pytest.mark.parametrize("batch", [2, 8])
@pytest.mark.parametrize("cv", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("step", ["9 ms", "23 ms"])
def test_no_other_setting_does_with_fewer_cores(batch: int, cv: float, step: str) -> None:
    scenario = job(batch, f"{24 / batch} ms", cv, step, accelerator={"sync": "spin"})
    found = answer(scenario)
    study, cores = Study(simulate, Plan(inputs=0)), found.point.cores - 1
    if cores == 0:
        return
    idles = [
        predict(JobSetting(scenario, 2, cores, workers, factor), study).gpu_idle
        for workers in range(1, 4 * cores + 1)
        for factor in FACTORS
    ]
    assert min(idles) > 0.05 - ROUGH_DIFFERENCE * cv


def test_of_settings_that_idle_the_same_the_one_with_the_least_memory() -> None:
    scenario = job(8, "5 ms", 0.5, "25 ms", workload={"batch_bytes": 1e6, "worker_bytes": 3e6})
    found = answer(scenario)
    study = Study(simulate, Plan(inputs=0))
    cheaper = [one for one in candidates(scenario, 2, found.point.cores) if one.cost < _cost(scenario, found)]
    for one in cheaper:
        assert predict(one, study).gpu_idle > found.point.estimate.gpu_idle + 0.001


def _cost(scenario: Scenario, found: Recommendation) -> float:
    return next(
        one.cost
        for one in candidates(scenario, 2, found.point.cores)
        if (one.workers, one.prefetch_factor) == (found.point.workers, found.point.prefetch_factor)
    )


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "most_runs", "most_drawn"),
    [
        (job(4, "10 ms", 4, "10 ms"), 2200, 900_000),
        (job(16, "2 ms", 0.5, "10 ms", workload={"fetch": {"mean": "8 ms", "cv": 3}}), 2400, 4_200_000),
    ],
    ids=["heavy tails", "waiting"],
)
def test_a_search_does_not_cost_more_than_it_did(
    scenario: Scenario, most_runs: int, most_drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, drawn, sums = list[int](), list[int](), draws.draw_sums

    def counting(*what: Any) -> Run:
        found = simulate(*what)
        runs.append(found.events)
        return found

    def drawing(service: Service, count: int, repeats: int, generator: np.random.Generator) -> Any:
        drawn.append(count * repeats)
        return sums(service, count, repeats, generator)

    monkeypatch.setattr(draws, "draw_sums", drawing)
    recommend(scenario, Study(counting), max_cores=64)
    # Counts and not seconds: they are the same on every machine.
    assert len(runs) < most_runs and sum(drawn) < most_drawn


def test_where_samples_wait_many_workers_are_tried() -> None:
    waiting = job(8, "0.5 ms", 0, "10 ms", workload={"fetch": "50 ms"})
    assert most_workers(waiting, 2, 1) >= 64
    assert most_workers(job(8, "0.5 ms", 0, "10 ms"), 2, 3) == 12
    found = answer(waiting)
    assert found.meets_target and found.point.cores == 1 and found.point.workers >= 41


def test_all_that_is_tried_fits_and_one_setting_is_left_where_none_does() -> None:
    tight = job(8, "5 ms", 0, "10 ms", workload={"batch_bytes": 1e6}, host={"shm_bytes": 20e6})
    tried = candidates(tight, 2, 8)
    assert tried == sorted(tried) and all(map(fits, tried))
    assert {one.prefetch_factor for one in tried} == set(FACTORS)
    none = job(8, "5 ms", 0, "10 ms", workload={"batch_bytes": 1e9}, host={"shm_bytes": 1e6})
    assert [(one.workers, one.prefetch_factor) for one in candidates(none, 2, 8)] == [(1, 1)]


def test_the_bound_of_all_settings_is_below_each(seed: int = 5) -> None:
    generator = np.random.default_rng(seed)
    for _ in range(20):
        threads = int(generator.choice([1, 4]))
        scenario = job(
            int(generator.integers(1, 9)), f"{generator.uniform(1, 20):.3f} ms", float(generator.choice([0, 1])),
            f"{generator.uniform(5, 40):.3f} ms", loader={"library_threads": threads},
            accelerator={"sync": str(generator.choice(["spin", "block"]))},
            workload={"device_preprocess": f"{generator.choice([0, 4])} ms"},
        )  # fmt: skip
        cores = int(generator.integers(1, 6))
        study = Study(simulate, Plan(steps=1500, least=1, most=1, inputs=0))
        for one in candidates(scenario, 2, cores)[::5]:
            assert lowest_idle(scenario, 2, cores) <= predict(one, study).gpu_idle + 0.05


def test_one_study_of_two_jobs_keeps_them_apart() -> None:
    # The times of the second vary, so its runs are longer.
    shared = Study(simulate, Plan(target=0.05))
    for scenario in (job(8, "5 ms", 0, "10 ms"), job(8, "5 ms", 4, "10 ms"), job(8, "9 ms", 4, "10 ms")):
        own = Study(simulate, Plan(target=0.05))
        setting = JobSetting(scenario, 2, 4, 6, 2)
        assert predicted(setting, shared) == predicted(setting, own)
        for cores in (1, 4):
            assert short_of_cores(scenario, 2, cores, shared) == short_of_cores(scenario, 2, cores, own)


def test_one_study_with_two_targets_keeps_their_runs_apart() -> None:
    scenario, shared = job(8, "9 ms", 2, "10 ms"), Study(simulate, Plan(target=0.05))
    closer = replace(shared, plan=Plan(target=None))
    near, far = (short_of_cores(scenario, 2, 4, study)[0].estimate for study in (closer, shared))
    assert near.replications > far.replications


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
