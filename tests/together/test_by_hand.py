"""Model, sim and advise: deterministic jobs whose answer a pencil gives, through the same door as a user's."""

from __future__ import annotations

import pytest

import coresim

WIDE = 64


def job(batch=10, preprocess="2 ms", step="30 ms", workload=(), accelerator=(), **sections):
    tables = {
        "workload": {"batch_size": batch, "preprocess": preprocess, **dict(workload)},
        "accelerator": {"step": step, **dict(accelerator)},
    }
    return {**tables, **sections}


def idle(tables, option, workers=1, cores=WIDE):
    return coresim.simulate(tables, option=option, workers=workers, cores=cores).gpu_idle


def test_what_a_busy_core_adds_to_a_step_is_idle_time():
    slowed = {"slowdown": [1.0, 2.0], "sync": "block"}
    # Beside 10 ms of its worker's work a step does 5 ms of its own, and the other 25 at full speed.
    assert idle(job(preprocess="1 ms", accelerator=slowed), 2) == pytest.approx(1 - 30 / 35)
    # The core on which its own trainer spins is no other busy core: the table was measured beside other processes.
    assert idle(job(preprocess="1 ms", accelerator={**slowed, "sync": "spin"}), 2) == pytest.approx(1 - 30 / 35)
    assert idle(job(preprocess="1 us", accelerator={**slowed, "sync": "spin"}), 1) == pytest.approx(0.0, abs=0.001)


def test_option_1_takes_the_sum_of_all_parts():
    parts = {"fetch": "1 ms", "collate": "5 ms", "copy": "3 ms", "consumer": "50 ms"}
    found = coresim.simulate(job(workload=parts), option=1, cores=1).result
    elapsed = 10 * (0.001 + 0.002) + 0.005 + 0.003 + 0.030  # nothing is received from a worker
    assert found.gpu_idle == pytest.approx(1 - 0.030 / elapsed)
    assert found.throughput_samples_per_s == pytest.approx(10 / elapsed)


def test_option_1_gains_from_cores_only_where_the_batch_is_split():
    tables = job(loader={"split": 5})
    assert idle(tables, 1, cores=5) == pytest.approx(1 - 30 / (30 + 4))
    assert idle(tables, 1, cores=1) == pytest.approx(1 - 30 / (30 + 20))


def test_a_launch_longer_than_the_step_binds():
    tables = job(accelerator={"launch": "40 ms"})
    assert idle(tables, 2, workers=4) == pytest.approx(1 - 30 / 40)


@pytest.mark.parametrize(("workers", "expected"), [(1, 0.5), (2, 0.0), (3, 0.0)])
def test_option_2_with_ample_cores_is_bound_by_the_slower_side(workers, expected):
    assert idle(job(preprocess="6 ms"), 2, workers=workers) == pytest.approx(expected, abs=1e-9)


def test_the_serial_consumer_and_a_synchronous_copy_add_to_each_step():
    tables = job(workload={"consumer": "6 ms", "copy": "4 ms"})
    assert idle(tables, 2, workers=4) == pytest.approx(10 / 40)
    ahead = job(workload={"consumer": "6 ms"}, accelerator={"run_ahead": 1})
    assert idle(ahead, 2, workers=4) == pytest.approx(0.0, abs=1e-9)


def test_two_workers_on_one_core_do_the_work_of_one():
    tables = job(preprocess="6 ms", accelerator={"sync": "block"})
    assert idle(tables, 2, workers=2, cores=1) == pytest.approx(0.5, abs=1e-9)


def test_a_spinning_trainer_takes_its_share_of_the_core():
    spin, block = (job(preprocess="6 ms", accelerator={"sync": sync}) for sync in ("spin", "block"))
    # One core, one worker: while the step runs, the worker has half a core. 30 ms of step give it 15 ms of its 60.
    assert idle(block, 2, workers=1, cores=1) == pytest.approx(0.5, abs=1e-9)
    assert idle(spin, 2, workers=1, cores=1) == pytest.approx(1 - 30 / 75, abs=1e-9)


def test_busy_cores_slow_one_another_by_s_of_k():
    tables = job(preprocess="6 ms", host={"speed": [1.0, 0.75]}, accelerator={"sync": "block"})
    # Two busy workers prepare two batches in 60 / 0.75 ms: 40 ms a batch against a step of 30.
    assert idle(tables, 2, workers=2) == pytest.approx(0.25, abs=1e-9)


def test_fetching_holds_no_core():
    tables = job(preprocess="1 ms", workload={"fetch": "11 ms"}, accelerator={"sync": "block"})
    # In step with one another, four workers wait 110 ms and then share the core for 40: four batches in 150 ms.
    assert idle(tables, 2, workers=4, cores=1) == pytest.approx(1 - 30 / 37.5, abs=1e-9)


def test_storage_serves_no_more_than_its_streams_in_every_option():
    tables = job(batch=8, preprocess="0 s", workload={"fetch": "10 ms"}, host={"storage_streams": 1})
    for option in (1, 2, 3):
        found = coresim.simulate(tables, option=option, workers=8, cores=WIDE).result
        assert found.throughput_samples_per_s <= 100 * (1 + 1e-9)


def test_option_3_fetches_with_concurrency_and_overlaps_the_copy():
    tables = job(batch=16, preprocess="1 ms", step="20 ms", workload={"fetch": "10 ms", "copy": "15 ms"})
    # 16 fetches in flight: 10 ms a batch; preprocessing 16 ms in each of two workers; copy 15 ms: the step binds.
    assert idle(tables, 3, workers=2) == pytest.approx(0.0, abs=1e-9)
    few = {**tables, "loader": {"fetchers": 4}}
    assert idle(few, 3, workers=2) == pytest.approx(0.5, abs=1e-9)


def test_a_pipeline_of_ones_own_is_bound_by_its_slowest_stage():
    stages = [
        {"name": "read", "service": "5 ms", "servers": 2, "grain": "sample", "holds_core": False},
        {"name": "work", "service": "40 ms", "servers": 1, "grain": "batch"},
    ]
    tables = {"workload": {"batch_size": 4}, "accelerator": {"step": "20 ms"}, "stage": stages}
    assert coresim.simulate(tables, cores=4).gpu_idle == pytest.approx(0.5, abs=1e-9)


def test_several_accelerators_share_the_cores_of_one_host():
    tables = job(preprocess="6 ms", accelerator={"sync": "block", "count": 2})
    # Two loaders of 60 ms a batch each on one core: 120 ms a step.
    assert idle(tables, 2, workers=1, cores=1) == pytest.approx(1 - 30 / 120, abs=1e-9)
    assert idle(tables, 2, workers=1, cores=2) == pytest.approx(0.5, abs=1e-9)


def test_makespan_of_a_short_run():
    found = coresim.simulate(job(preprocess="6 ms"), option=2, workers=1, cores=WIDE, steps=10).result
    assert found.makespan_s == pytest.approx(10 * 0.060 + 0.030)


def test_recommend_picks_the_count_that_arithmetic_gives():
    tables = job(preprocess="9 ms", accelerator={"sync": "block"})
    answer = coresim.recommend(tables, options=(2,))
    assert (answer.cores_per_gpu, answer.workers) == (3, 3)
    assert answer.result.lower_bound.whole == 3


@pytest.mark.parametrize(
    ("tables", "verdict"),
    [
        (job(preprocess="1 ms"), "GPU-bound"),
        (job(preprocess="1 ms", workload={"consumer": "60 ms"}), "serial consumer"),
        (job(preprocess="1 ms", accelerator={"launch": "90 ms"}), "launch-bound"),
        (job(preprocess="1 ms", workload={"copy": "40 ms"}), "copy"),
        (job(preprocess="1 ms", accelerator={"slowdown": [1.0, 1.3], "sync": "block"}), "busy host"),
        (job(preprocess="1 ms", workload={"fetch": "30 ms"}, host={"storage_streams": 1}), "storage"),
    ],
)
def test_the_verdict_names_what_binds(tables, verdict):
    answer = coresim.recommend(tables, options=(2,))
    assert answer.result.verdict.name == verdict
    assert answer.result.meets_target == (verdict == "GPU-bound")
    if verdict != "GPU-bound":
        assert "More cores will not help" in str(answer)


def test_too_few_cores_is_said_of_a_limited_search_and_of_the_own_host():
    tables = job(preprocess="9 ms", host={"cores": 1})
    limited = coresim.recommend(tables, options=(2,), max_cores=2)
    assert limited.result.verdict.name == "too few cores"
    assert "Limited to 2 cores" in str(limited)
    assert coresim.recommend(tables).result.own_host.verdict.name == "too few cores"


def test_the_lower_bound_is_never_above_the_answer():
    for preprocess in ("1 ms", "5 ms", "13 ms"):
        for sync in ("spin", "block"):
            answer = coresim.recommend(job(preprocess=preprocess, accelerator={"sync": sync}))
            assert answer.result.lower_bound.whole <= answer.cores_per_gpu


def test_where_all_of_several_cores_are_wanted_some_of_their_time_is_lost():
    """A batch of 10 x 2 ms: one worker on two cores loses nothing, two and four lose a tenth, and a core alone none."""
    tables = job(step="1 us", host={"sharing_loss": 0.1})
    for workers, cores, together in ((1, 2, 1.0), (2, 2, 1.8), (4, 2, 1.8), (2, 3, 2.0), (2, 1, 1.0)):
        period = 20e-3 / together
        assert idle(tables, 2, workers, cores=cores) == pytest.approx(1 - 1e-6 / period, rel=1e-6)


def test_a_second_hardware_thread_adds_its_share_of_each_core_and_a_third_adds_nothing():
    """Two cores whose siblings add a quarter: of a batch of 10 x 2 ms, 2, 3, 4 and 8 workers do 2 to 2.5 at once."""
    tables = job(step="1 us", host={"siblings": 0.25})
    for workers, together in ((1, 1.0), (2, 2.0), (3, 2.25), (4, 2.5), (8, 2.5)):
        period = 20e-3 / together
        assert idle(tables, 2, workers, cores=2) == pytest.approx(1 - 1e-6 / period, rel=1e-6)
