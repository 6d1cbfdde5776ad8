"""Curves over core counts: what is left out of a sweep is what cannot matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from advise_kit import job as drawn_job

from coresim.advise.candidates import JobSetting, candidates, ladder
from coresim.advise.curves import PART, curve
from coresim.advise.starved import BOUNDED, short_of_cores, short_of_reads
from coresim.advise.sweep import (
    Study,
    best_point,
    bound_of,
    least_idle,
    lowest_idle,
    pipeline_of,
    predict,
    short_idles,
    sure_enough,
)
from coresim.model.build import build
from coresim.model.option import Option
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.service import Service
from coresim.sim.draws import draw
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate
from coresim.sim.noise import NOISE
from coresim.sim.rates import rates
from coresim.sim.run import Run, RunLength

#: Long enough for an interval of a step in all that were simulated to be little beside the noise.
SHORT = Plan(steps=600, least=3, most=3, inputs=2)


class Counting:
    """An engine that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, *job: Any) -> Run:
        self.runs += 1
        return simulate(*job)


def scenario(copy: str = "0 ms", step: str = "20 ms", batch_size: int = 8, **preprocess: Any) -> Scenario:
    workload = {"batch_size": batch_size, "preprocess": preprocess or {"mean": "10 ms", "cv": 0.3}, "copy": copy}
    tables = {"workload": workload, "accelerator": {"step": step}, "host": {"cores": 4}}
    return read_scenario(tables)


@pytest.mark.parametrize("option", [2, 3])
@pytest.mark.parametrize("copy", ["0 ms", "3 ms"])
def test_beyond_saturation_nothing_is_simulated_and_nothing_is_lost(option: int, copy: str) -> None:
    job, short, long = scenario(copy), Counting(), Counting()
    few = curve(job, option, range(1, 3 * PART + 1), Study(short, SHORT))
    many = curve(job, option, range(1, 8 * PART + 1), Study(long, SHORT))
    assert many[: len(few)] == few
    assert [point.cores for point in many] == list(range(1, 8 * PART + 1))
    assert long.runs == short.runs
    assert len({point.workers for point in many[len(few) :]}) == 1
    for cores in (4 * PART, 8 * PART):
        best = best_point(job, option, cores, Study(simulate, SHORT))
        assert many[cores - 1].estimate.gpu_idle_high <= best.estimate.gpu_idle_high + NOISE
        assert many[cores - 1].workers <= best.workers


def test_an_interval_that_is_wide_keeps_the_sweep_going() -> None:
    # 80 ms of work per step of 8: ten cores, and more than sixteen where the work is a deviation longer.
    job = scenario(step="8 ms", mean="10 ms", uncertainty=0.5)
    points = curve(job, 2, range(1, 3 * PART + 1), Study(simulate, SHORT))
    last = points[2 * PART - 1]
    assert last.estimate.gpu_idle < NOISE < last.estimate.gpu_idle_high
    assert points[-1].workers > last.workers


def test_the_scan_may_stop_where_none_can_be_better() -> None:
    job = scenario()
    for cores in (2, 5, 12):
        study = Study(simulate, SHORT)
        idles = {one: predict(one, Study(simulate, study.rough.plan)).gpu_idle for one in ladder(job, 2, cores)}
        first = min(one for one, idle in idles.items() if idle <= min(idles.values()) + NOISE)
        found = short_idles(ladder(job, 2, cores), study)
        assert min(one for one, idle in found.items() if idle <= min(found.values()) + NOISE) == first
    stopped = Counting()
    best_point(job, 2, 12, Study(stopped, Plan(steps=120, least=3, most=3, inputs=0)))
    assert stopped.runs == 1 + 3


def test_rates_of_all_populations_at_once_are_those_of_each() -> None:
    tables = {
        "workload": {"batch_size": 4, "preprocess": "10 ms"},
        "accelerator": {"step": "20 ms"},
        "host": {"cores": 4, "speed": [1.0, 0.9, 0.83], "storage_streams": 2.5},
    }
    for cores in (1.0, 2.5, 3.0, 7.25, 40.0):
        line = build(read_scenario(tables), 2, cores, 9)
        core, storage, accelerator, busy = (table.tolist() for table in rates(line, float))
        tasks = range(1, line.busiest() + 1)
        for spinning in (0, 1):  # the trainer spins
            assert core[spinning][1:] == [line.core_rate(task, spinning) for task in tasks]
        assert storage[1:] == [line.storage_rate(task) for task in tasks]
        assert accelerator == [line.accelerator_rate(task) for task in (0, *tasks)]
        assert busy == [min(task, cores) for task in (0, *tasks)]


def test_a_layout_that_is_used_again_gives_the_same_run() -> None:
    line = build(scenario(), 2, 3, 4)
    length = SHORT.steps
    first, other, again = (simulate(line, draw(line, length, seed), RunLength(length, 20)) for seed in (1, 2, 1))
    assert first == again != other


def test_far_too_few_cores_are_not_swept_in_full_and_the_answer_stays() -> None:
    # 160 ms of work per step of 20 ms: eight cores, of which the first six are far from the target.
    job, engine = scenario(batch_size=16, mean="10 ms", cv=0.3, uncertainty=0.1), Counting()
    # Twenty workers: shorter runs have noise of two points.
    study = Study(engine, Plan(steps=400, least=4, most=4, inputs=12))
    points = curve(job, 2, range(1, 13), study)
    assert [point.cores for point in points] == list(range(1, 13))
    for point in points[:6]:
        full = best_point(job, 2, point.cores, Study(simulate, study.plan)).estimate
        assert point.estimate.gpu_idle == pytest.approx(full.gpu_idle, abs=0.02)
        width = point.estimate.gpu_idle_high - point.estimate.gpu_idle_low
        assert width == pytest.approx(full.gpu_idle_high - full.gpu_idle_low, rel=0.6)
    for point in points[8:]:
        assert point == best_point(job, 2, point.cores, Study(simulate, study.plan))
    assert engine.runs < 0.7 * sum(len(ladder(job, 2, cores)) + 16 for cores in range(1, 13))


def test_a_curve_ends_where_the_most_cores_gain_nothing_though_no_bound_says_so() -> None:
    # The consumer binds and is uncertain: the interval stays wide however many cores there are.
    workload = {"batch_size": 8, "preprocess": "2 ms", "consumer": {"mean": "18 ms", "uncertainty": 0.3}}
    job = read_scenario({"workload": workload, "accelerator": {"step": "20 ms"}, "host": {"cores": 4}})
    engine = Counting()
    points = curve(job, 2, range(1, 8 * PART + 1), Study(engine, SHORT))
    assert points[PART].estimate.gpu_idle_high > 0.05
    assert all(replace(point, cores=PART) == points[PART - 1] for point in points[PART:])
    assert engine.runs < 12 * (PART + 1)
    best = best_point(job, 2, 8 * PART, Study(simulate, SHORT)).estimate
    assert points[-1].estimate.gpu_idle_high == pytest.approx(best.gpu_idle_high, abs=NOISE)


def test_a_curve_ends_at_the_first_count_from_which_nothing_is_gained() -> None:
    # Three cores are enough; a part of the curve is eight.
    points = curve(scenario(step="40 ms"), 2, range(1, 2 * PART + 1), Study(simulate, SHORT))
    enough = next(point for point in points if point.estimate.gpu_idle_high <= NOISE / 2)
    assert enough.cores < PART
    assert all(replace(point, cores=enough.cores) == enough for point in points[enough.cores :])


@pytest.mark.parametrize("streams", [None, 8])
def test_slow_reads_are_not_swept_in_full_and_the_answer_stays(streams: int | None) -> None:
    # Reading keeps the fetchers, or eight streams of the storage, busy for two steps, whatever the cores and workers.
    fetch = {"mean": "20 ms" if streams else "40 ms", "cv": 1, "uncertainty": 0.1}
    tables: dict[str, Any] = {
        "workload": {"batch_size": 16, "preprocess": {"mean": "1 ms", "cv": 0.3}, "fetch": fetch},
        "accelerator": {"step": "20 ms"},
        "host": {"cores": 4, **({"storage_streams": streams} if streams else {})},
    }
    job, option, engine = read_scenario(tables), 2 if streams else 3, Counting()
    plan = Plan(steps=400, least=8, most=8, inputs=12)
    point, provenance = short_of_cores(job, option, 6, Study(engine, plan))
    assert provenance == BOUNDED and engine.runs <= plan.most and short_of_reads(job, option, 6)
    full = best_point(job, option, 6, Study(simulate, plan)).estimate
    assert point.estimate.gpu_idle == pytest.approx(full.gpu_idle, abs=0.03)
    width = point.estimate.gpu_idle_high - point.estimate.gpu_idle_low
    assert width == pytest.approx(full.gpu_idle_high - full.gpu_idle_low, rel=0.6)
    # Cores that are too few for anything are short of cores.
    assert not short_of_reads(scenario(), option, 1) and not short_of_reads(scenario(), option, 8)


@pytest.mark.parametrize(("cores", "fewer"), [(4, True), (8, False)])
def test_what_is_decided_by_few_runs_takes_no_more(cores: int, fewer: bool) -> None:
    # Of 80 ms of work per step of 20 ms four cores are not surely enough, and eight are.
    setting = JobSetting(scenario(mean="10 ms", cv=1, uncertainty=0.1), Option.OVERLAPPED, cores, 12, 2)
    study = Study(simulate, Plan(least=8, most=32, inputs=4, half_width=0.0005, target=0.05))
    found = sure_enough(setting, 0.9, study)
    closer = predict(setting, study)
    assert (found.probability(0.05) >= 0.9) == (closer.probability(0.05) >= 0.9) == (not fewer)
    assert found.replications < closer.replications if fewer else found == closer


def test_the_bound_of_a_setting_in_a_moment_is_never_above_that_of_its_pipeline() -> None:
    jobs = [scenario(), scenario(copy="3 ms", step="8 ms"), scenario(mean="10 ms", cv=2)]
    jobs.append(replace(jobs[0], workload=replace(jobs[0].workload, consumer_growth=0.05)))
    quicker = replace(jobs[0].workload, consumer=Service(0.015), consumer_by_workers=(1.0, 1.3, 0.4))
    jobs.append(replace(jobs[0], workload=quicker))
    jobs.append(replace(jobs[0], loader=replace(jobs[0].loader, library_threads=4)))
    jobs.append(replace(jobs[0], accelerator=replace(jobs[0].accelerator, sync="block")))
    for job in jobs:
        for option in (1, 2, 3):
            for cores in (1, 4, 6):
                for one in candidates(job, option, cores)[::7]:
                    bound, least = bound_of(pipeline_of(one)), least_idle(one)
                    assert least <= bound + 1e-12
                    # Where more workers do not make the work longer and no trainer spins, they are the same.
                    if job is jobs[-1]:
                        assert least == pytest.approx(bound, abs=1e-12)


def test_the_bound_of_all_settings_is_below_each(seed: int = 5) -> None:
    generator = np.random.default_rng(seed)
    for _ in range(20):
        threads = int(generator.choice([1, 4]))
        scenario = drawn_job(
            int(generator.integers(1, 9)), f"{generator.uniform(1, 20):.3f} ms", float(generator.choice([0, 1])),
            f"{generator.uniform(5, 40):.3f} ms", loader={"library_threads": threads},
            accelerator={"sync": str(generator.choice(["spin", "block"]))},
            workload={"device_preprocess": f"{generator.choice([0, 4])} ms"},
        )  # fmt: skip
        cores = int(generator.integers(1, 6))
        study = Study(simulate, Plan(steps=1500, least=1, most=1, inputs=0))
        for one in candidates(scenario, 2, cores)[::5]:
            assert lowest_idle(scenario, 2, cores) <= predict(one, study).gpu_idle + 0.05
