"""Bounds by hand, against runs of the reference engine and around a line that is solved exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from birth_death import closed_line, example

from coresim.errors import InputError
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.service import Service
from coresim.sim import reference
from coresim.sim.draws import draw
from coresim.sim.run import RunLength
from coresim.theory.bounds import binding, bounds, demands, lower_bound_cores

MS = 1e-3


def work(name, seconds, resource="cores", repeats=1, **kinds):
    return Phase(name, resource, Service(seconds), repeats, **kinds)


def loader(workers=32, cores=16.0, **trainer):
    phases = (work("fetch", 0.4 * MS, "wait", 256), work("preprocess", 5.2 * MS, repeats=256), work("collate", 3 * MS))
    stage = Stage("worker", workers, phases, dispatch="round_robin")
    consumer, copy, launch = work("consumer", 2 * MS), work("copy", 1.5 * MS, "wait"), work("launch", 5 * MS)
    own = Trainer(consumer=consumer, copy=copy, launch=launch, **trainer)
    return Pipeline((stage,), own, work("step", 98 * MS), cores=cores, credits=2 * workers, batch_size=256)


def limits(pipeline):
    return {bound.name: bound.limit_batches_per_s for bound in bounds(pipeline)}


def inline(split, cores=8.0):
    trainer = Trainer((work("read", 0.5, "wait"), work("decode", 1.0, repeats=6, split=split)), spin=False)
    return Pipeline((), trainer, work("step", 2.0), cores=cores)


def test_demands_are_seconds_per_batch_by_resource():
    found = {demand.name: (demand.resource, demand.seconds) for demand in demands(loader())}
    assert found == {
        "worker.fetch": ("wait", pytest.approx(0.1024)),
        "worker.preprocess": ("cores", pytest.approx(1.3312)),
        "worker.collate": ("cores", 0.003),
        "trainer.consumer": ("cores", 0.002),
        "trainer.launch": ("cores", 0.005),
        "trainer.copy": ("wait", 0.0015),
        "trainer.spin": ("spin", pytest.approx(0.0995)),
        "accelerator.step": ("accelerator", 0.098),
    }


def test_demands_of_samples_count_the_batch():
    stage = Stage("map", 4, (work("decode", 0.01),), grain="sample")
    pipeline = Pipeline((stage,), Trainer(copy_mode="none"), work("step", 1.0), batch_size=8, credits=2)
    assert demands(pipeline)[0].seconds == pytest.approx(0.08)
    assert limits(pipeline)["servers of map"] == pytest.approx(4 / 0.08)
    assert limits(pipeline)["credits"] == pytest.approx(2 / (8 * 0.01 / 4))
    unordered = replace(pipeline, stages=(replace(stage, ordered=False),))
    assert limits(unordered)["credits"] == pytest.approx(2 / 0.01)


def test_bounds_of_the_loader_by_hand():
    assert limits(loader()) == pytest.approx(
        {
            "accelerator": 1 / 0.098,
            "synchronous copy": 1 / 0.0995,
            "serial trainer": 1 / (0.002 + 0.0015 + 0.098),
            "cores": 16 / 1.3412,
            "cores with spinning": 16 / (1.3362 + 0.0995 * 16 / 33),
            "servers of worker": 32 / 1.4366,
            "credits": 64 / 1.4366,
        }
    )
    assert binding(bounds(loader())).name == "serial trainer"


def test_a_bound_shows_its_formula_and_its_numbers():
    cores = next(bound for bound in bounds(loader(cores=12.0)) if bound.name == "cores")
    assert cores.formula == "X <= cores x s(cores) / (ranks x CPU per batch)"
    assert cores.numbers == "X <= 12 / 1.341 s = 8.947 batches/s"


@pytest.mark.parametrize(
    ("mode", "run_ahead", "name", "seconds"),
    [
        ("sync", 0, "serial trainer", 0.1015),
        ("stream", 0, "serial trainer", 0.1015),
        ("none", 0, "serial trainer", 0.1),
        ("sync", 1, "synchronous copy", 0.0995),
        ("stream", 1, "accelerator", 0.0995),
        ("overlap", 1, "accelerator", 0.098),
    ],
)
def test_copy_mode_and_run_ahead_set_the_serial_path(mode, run_ahead, name, seconds):
    tightest = binding(bounds(loader(cores=64.0, copy_mode=mode, run_ahead=run_ahead, spin=False)))
    assert (tightest.name, tightest.limit_batches_per_s) == (name, pytest.approx(1 / seconds))


def test_a_long_launch_hides_the_step():
    slow = loader(cores=64.0, spin=False)
    slow = replace(slow, trainer=replace(slow.trainer, launch=work("launch", 0.2)))
    assert limits(slow)["serial trainer"] == pytest.approx(1 / 0.2035)


def test_a_split_phase_takes_its_longest_part_or_all_cores():
    assert limits(inline(split=4))["serial trainer"] == pytest.approx(1 / (0.5 + 2.0 + 2.0))
    assert limits(inline(split=4, cores=2.0))["serial trainer"] == pytest.approx(1 / (0.5 + 3.0 + 2.0))


def test_storage_and_ranks_share():
    pipeline = replace(loader(), storage_streams=3.0, ranks=2)
    fetch = replace(pipeline.stages[0].phases[0], resource="storage")
    stage = replace(pipeline.stages[0], phases=(fetch, *pipeline.stages[0].phases[1:]))
    assert limits(replace(pipeline, stages=(stage,)))["storage"] == pytest.approx(3 / (2 * 0.1024))
    assert limits(pipeline)["cores"] == pytest.approx(16 / (2 * 1.3412))


def test_the_barrier_adds_its_allreduce():
    assert limits(replace(loader(), barrier=True, allreduce=0.01))["accelerator"] == pytest.approx(1 / 0.108)


def test_capacity_may_peak_before_the_last_core():
    speed = (1.0, 0.9, 0.5)
    assert limits(replace(loader(), speed=speed, cores=3.0))["cores"] > 1.8 / 1.3412  # x s(x) peaks between 2 and 3
    assert limits(replace(loader(), speed=speed, cores=2.0))["cores"] == pytest.approx(1.8 / 1.3412)


def test_a_quota_bounds_what_all_cores_do_and_not_a_phase():
    falling = replace(loader(workers=4, cores=2.5), cpus=16.0, speed=(1.0, 0.9, 0.8))
    found = limits(falling)
    assert found["cores"] == pytest.approx(2.5 / 1.3412)  # by the quickest core
    assert found["servers of worker"] == pytest.approx(4 / 1.4366) and "cores with spinning" not in found
    alone = limits(replace(falling, cores=16.0))  # as many as there are
    assert alone["cores"] == pytest.approx(min(16, 5) * 0.8 / 1.3412)
    few = lower_bound_cores(replace(falling, trainer=replace(falling.trainer, spin=False)), 0.75)
    assert few.cores == pytest.approx(0.25 * 1.3412 / 0.098) and few.binding == "cores"


def test_spinning_does_not_slow_the_others_by_their_memory():
    falling = replace(loader(), speed=(1.0, 0.9))
    found = limits(falling)
    assert found["cores"] == pytest.approx(16 * 0.9 / 1.3412)
    assert found["cores with spinning"] == pytest.approx(16 / (1.3362 + 0.0995 * 16 / 33))
    steep = lower_bound_cores(replace(loader(workers=14), speed=(1.0,) * 13 + (0.99,) * 2), 0.05)
    each, cores = 1.3362 + 0.0995 * steep.cores / 15, steep.cores
    assert steep.binding == "cores with spinning" and f"{each:.4g} s" in steep.numbers
    assert cores == pytest.approx(0.95 / 0.098 * each, rel=1e-4)


def test_lower_bound_without_spinning_is_the_work_alone():
    found = lower_bound_cores(loader(spin=False), 0.05)
    assert found.cores == pytest.approx(0.95 * 1.3412 / 0.098)
    assert (found.whole, found.binding) == (14, "cores")
    assert found.formula == "cores >= (1 - idle) x CPU per batch / step"
    assert found.numbers == "cores >= (1 - 0.05) x 1.341 s / 98 ms = 13.001"


def test_what_busy_cores_add_to_a_step_needs_no_more_cores_and_no_fewer():
    """The device has to do as many steps a second; whether it can beside busy cores, no number of cores changes."""
    slowed = replace(loader(spin=False), slowdown=(1.0, 1.5))
    assert lower_bound_cores(slowed, 0.05).cores == pytest.approx(lower_bound_cores(loader(spin=False), 0.05).cores)


def test_lower_bound_of_the_loader_work_alone():
    bare = loader(spin=False)
    bare = replace(bare, trainer=replace(bare.trainer, consumer=Phase("consumer"), launch=Phase("launch")))
    found = lower_bound_cores(bare, 0.05)
    assert found.numbers == "cores >= (1 - 0.05) x 1.334 s / 98 ms = 12.934"
    assert found.whole == 13


def test_a_spinning_trainer_shares_a_core_with_crowding_tasks():
    found = lower_bound_cores(loader(workers=32), 0.05)
    need = 0.95 / 0.098
    assert found.cores == pytest.approx(need * 1.3362 / (1 - need * 0.0995 / 33))
    few = lower_bound_cores(loader(workers=14), 0.05)
    assert found.cores < few.cores < 0.95 * 1.3362 / 0.098 + 1
    assert found.binding == few.binding == "cores with spinning"


def test_lower_bound_scales_with_ranks_and_falling_speed():
    pair = replace(loader(spin=False), ranks=2, speed=tuple(1 - 0.005 * k for k in range(60)))
    found = lower_bound_cores(pair, 0.05)
    assert found.cores * (1.005 - 0.005 * found.cores) == pytest.approx(2 * 0.95 * 1.3412 / 0.098)
    assert found.numbers == "cores x s(cores) >= 2 x (1 - 0.05) x 1.341 s / 98 ms = 26.003, so cores >= 30.502"


@pytest.mark.parametrize(
    ("pipeline", "name"),
    [(loader(), "serial trainer"), (loader(workers=8), "servers of worker"), (inline(split=4), "serial trainer")],
)
def test_no_number_of_cores_reaches_some_targets(pipeline, name):
    found = lower_bound_cores(pipeline, 0.02)
    assert (found.cores, found.whole, found.binding) == (math.inf, None, name)
    assert "needed: (1 - 0.02)" in found.numbers


def test_lower_bound_of_inline_work_is_its_own_speed():
    found = lower_bound_cores(inline(split=6), 0.5)  # 0.5 s + 6 / C + 2 s <= 4 s
    assert (found.cores, found.binding) == (pytest.approx(4.0), "serial trainer")


def test_lower_bound_refuses_what_means_nothing():
    with pytest.raises(InputError, match="idle_target"):
        lower_bound_cores(loader(), 1.0)
    with pytest.raises(InputError, match="accelerator"):
        lower_bound_cores(replace(loader(), step=Phase("step")), 0.1)
    with pytest.raises(InputError, match="bounds"):
        binding(())


@pytest.mark.parametrize("trainer", [{}, {"spin": False}, {"run_ahead": 2}, {"copy_mode": "stream", "run_ahead": 1}])
@pytest.mark.parametrize(("workers", "cores"), [(16, 6.5), (24, 14.0), (8, 32.0)])
def test_no_run_passes_a_bound(trainer, workers, cores):
    pipeline = loader(workers, cores, **trainer)
    account = reference.simulate(pipeline, draw(pipeline, 300, seed=11), RunLength(300, 50)).ranks[0]
    elapsed = account.end - account.begin
    tightest = binding(bounds(pipeline))
    # Batches prepared before the window may add to a run of finite length; without queues the bound is nearly met.
    slack = 1 + pipeline.credits / 250
    assert 0.9 * tightest.limit_batches_per_s < 250 / elapsed < slack * tightest.limit_batches_per_s
    in_the_long_run = account.accelerator["busy"] / elapsed / slack
    assert lower_bound_cores(pipeline, 1 - in_the_long_run).cores <= cores


def test_line_stays_within_the_bounds():
    for workers, cores, credits in [(1, 1.0, 1), (4, 2.0, 6), (8, 8.0, 3)]:
        line = closed_line(workers, cores, credits, 1.0, 0.2)
        assert line.throughput < binding(bounds(example(workers, cores, credits, 1.0, 0.2))).limit_batches_per_s
