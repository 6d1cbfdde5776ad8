"""The scenario that follows from the raw values of a profile."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import made_up
import numpy as np
import pytest
from by_hand import TIMED, profile, taken, with_steps

from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.handover import Handover
from coresim.model.host import CoreTerm
from coresim.model.load import scenario_of
from coresim.model.measurement import Measurement
from coresim.model.option import Option
from coresim.model.page_cache import miss_share
from coresim.model.profile import (
    AcceleratorSource,
    Profile,
)
from coresim.model.profile_scenario import HANDOVER, MODEL, MOST_VALUES, scatter, service_of, slowdown_table


def test_collating_in_the_trainer_is_told_as_a_share_of_that_in_a_worker() -> None:
    assert profile().scenario().workload.in_process_collate == 1.0
    found = profile(inline__collate=((0.001,), (0.002,))).scenario()
    assert found.workload.in_process_collate == pytest.approx(0.25)


def test_batches_that_vary_as_a_whole_do_so_in_the_scenario() -> None:
    assert profile().scenario().workload.shared_cv == 0.0
    found = profile(prepare__shared_cv=((0.12,),)).scenario()
    stage = build(found, Option.OVERLAPPED, 4, 2, 2).stages[0]
    assert found.workload.shared_cv == 0.12 == stage.phases[0].shared_cv


@pytest.mark.parametrize(
    ("used", "host", "share"),
    [
        ((0.98, 0.96), {}, 0.03),
        ((0.98, 1.04), {}, 0.0),  # less than nothing cannot be lost
        ((0.1, 0.1), {}, 0.25),
        ((0.98, 0.96), {"terms": (CoreTerm("affinity", 2.0, ""), CoreTerm("quota", 1.5, ""))}, 0.0),  # by the quota
        ((0.98, 0.96), {"terms": (CoreTerm("affinity", 1.0, ""),)}, 0.0),  # two threads of one core
    ],
)
def test_time_lost_is_known_where_each_cpu_that_ran_is_a_core(used: Any, host: Any, share: float) -> None:
    made = profile(cores__used=tuple((value,) for value in used))
    terms = (CoreTerm("affinity", 2.0, ""),)
    found = replace(made, host=replace(made.host, **{"terms": terms, "affinity_cpus": 2} | host)).scenario()
    assert found.host.sharing_loss == pytest.approx(share)
    line = build(found, Option.OVERLAPPED, 2.0, 2)
    assert line.core_rate(2) == pytest.approx((1.0 - share) * line.speed[1])


def test_the_scenario_of_a_given_step() -> None:
    scenario = profile().scenario()
    work, device, host = scenario.workload, scenario.accelerator, scenario.host
    assert work.preprocess.values == (0.015, 0.025, 0.017, 0.027)
    assert work.fetch.is_zero and work.copy.is_zero and work.pin.is_zero
    assert work.collate.values == (0.005, 0.007) and work.send.values == (0.003, 0.003)
    assert work.consumer.values == (0.002, 0.004, 0.002, 0.004)
    assert work.handover.rest_free is not None and work.handover.rest_free.values == (0.001, 0.003)
    assert [item.name for item in fields(work.handover) if getattr(work.handover, item.name)] == ["rest_free"]
    assert (work.batch_size, work.batch_bytes, work.worker_bytes) == (8, 4096, 6e6)
    assert (work.startup, work.worker_startup, work.worker_wait) == (pytest.approx(0.03), pytest.approx(0.3), 0.0)
    assert work.decode_share == pytest.approx(0.016 / 0.021)
    assert (device.step.mean, device.step.uncertainty, device.run_ahead) == (0.05, 0.0, 1)
    assert device.launch.is_zero and device.slowdown == (1.0,) and device.name is None
    assert (host.cores, host.threads_per_core, host.memory_bytes, host.shm_bytes) == (3.5, 2, 6e6, 64e3)
    assert (host.speed, host.speed_uncertainty, host.storage_streams) == ((1.0, 0.9, 0.8), (0.05,), None)


def test_a_cost_is_as_uncertain_as_one_more_round_would_show() -> None:
    work = profile().scenario().workload
    # Two rounds, 20 and 22 ms, are 1 ms from their median of 21 each: the deviation of one more is sqrt(2) of 21.
    assert work.preprocess.uncertainty == pytest.approx(math.hypot(2**0.5 / 21, MODEL))
    assert work.collate.uncertainty == pytest.approx(math.hypot(2**0.5 / 6, MODEL))
    assert work.send.uncertainty == pytest.approx(MODEL)  # rounds that agree leave what the model misses
    # Whether the maker rests is seen, how long it then takes less so.
    assert work.handover.rest_free is not None
    assert work.handover.rest_free.uncertainty == pytest.approx(math.hypot(2**0.5 / 2, HANDOVER, MODEL))


def test_what_the_machine_did_meanwhile_makes_work_less_certain() -> None:
    def send(**machine: tuple[tuple[float, ...], ...]) -> float:
        return profile(**machine).scenario().workload.send.uncertainty

    changing, beside = ((0.9,), (1.1,), (1.0,)), ((0.1, 0.3),)
    assert send(machine__speed=changing) == pytest.approx(math.hypot(2.3 * (0.02 / 3) ** 0.5, MODEL))
    assert send(machine__others=beside) == pytest.approx(math.hypot(0.2, MODEL))
    assert send(machine__speed=changing, machine__others=beside) == pytest.approx(
        math.hypot(2.3 * (0.02 / 3) ** 0.5, 0.2, MODEL)
    )
    assert send(machine__others=((5.0,),)) == pytest.approx(math.hypot(1.0, MODEL))  # no more than all of it


def test_the_scatter_of_rounds_is_that_of_one_around_the_median() -> None:
    assert scatter([[1.0], [1.0, 3.0], [3.0]]) == pytest.approx((0.25 / 1) ** 0.5)  # means 1, 2 and 3 around 2
    assert scatter([[1.0], [1.0], [100.0]]) == 1.0  # no more than all of it
    assert scatter([[5.0, 9.0]]) == scatter([[0.0], [0.0]]) == 0.0
    assert scatter([[1.0], [], [1.0]]) == 0.0


def test_the_scenario_of_a_measured_step() -> None:
    busy = {"accelerator.step.busy.1": ((0.121,),), "accelerator.step.busy.3": ((0.132, 0.132),)}
    found = with_steps(**busy)
    device = found.scenario().accelerator
    assert device.step.values == (0.10, 0.12) and device.step.uncertainty == 0.02
    assert device.launch.values == (0.01,) and device.run_ahead == 1 and device.name == "some GPU"
    # Alone 0.11 (median): 1.1 with one busy core, 1.2 with three, half way between with two.
    assert device.slowdown == pytest.approx((1.0, 1.1, 1.15, 1.2))
    assert found.scenario().workload.copy.values == (0.003,)


def test_a_step_that_waits_has_no_launch_of_its_own() -> None:
    device = with_steps(replace(TIMED, synchronises=True)).scenario().accelerator
    assert device.run_ahead == 0 and device.launch.is_zero


def test_a_catalogue_step_keeps_its_uncertainty() -> None:
    source = AcceleratorSource(kind="catalogue", provenance="", uncertainty=0.15, step_time_s=0.1234567890123)
    step = profile(source).scenario().accelerator.step
    assert (step.mean, step.uncertainty) == (0.1234567890123, 0.15)


def test_slowdown_below_one_is_noise() -> None:
    step = taken("accelerator.step", ((0.1,),))
    assert slowdown_table(step, [taken("accelerator.step.busy.2", ((0.09,),))]) == (1.0, 1.0, 1.0)


def test_what_waits_holds_no_core() -> None:
    """The wait is measured apart from the work; it is in the profile only where it is notable."""
    work = profile(prepare__wait=((0.005, 0.010), (0.006, 0.009))).scenario().workload
    assert work.fetch.values == (0.005, 0.010, 0.006, 0.009)
    assert work.fetch.uncertainty == pytest.approx(MODEL)  # no CPU time: the machine's speed is not in it
    assert work.preprocess.values == (0.015, 0.025, 0.017, 0.027)


def cold_reads(samples: int) -> Profile:
    found = profile(storage__cold__read=((0.008,), (0.012,)))
    bandwidth = taken("storage.cold.bandwidth", ((400e3,),), "B/s")
    return replace(found, samples=samples, measurements=(*found.measurements, bandwidth))


def test_a_data_set_larger_than_the_memory_is_read_cold() -> None:
    # 6000 samples of 1000 B are the 6 MB of memory; of twice as many it holds a half.
    warm, cold = (cold_reads(samples).scenario() for samples in (6000, 12000))
    assert warm.workload.fetch.is_zero and warm.workload.preprocess.mean == pytest.approx(0.021)
    assert warm.host.storage_streams is None
    misses = miss_share(12e6, 6e6)
    assert 0.5 < misses.share < 1.0
    assert cold.workload.fetch.mean == pytest.approx(0.01 * misses.share)
    assert set(np.round(cold.workload.fetch.values, 3)) == {0.0, 0.008, 0.012}
    # Copying out of the page cache is made for a read that missed it, too.
    assert cold.workload.preprocess.mean == warm.workload.preprocess.mean
    # One reader gets 1000 B in 10 ms, eight 400 kB/s together: four times as much.
    assert cold.host.storage_streams == pytest.approx(4.0)
    asked = cold_reads(10).scenario(cold=True).workload
    assert asked.fetch.values == (0.008, 0.012)
    assert asked.preprocess.mean == pytest.approx(0.0195)  # without the 1.5 ms of the step that fetches
    with pytest.raises(InputError, match=r"storage\.cold\.read was not measured"):
        profile().scenario(cold=True)


def test_a_dataset_with_one_step() -> None:
    found = replace(profile(), measurements=(taken("prepare.sample", ((0.01, 0.03),)),))
    work = found.scenario().workload
    assert work.preprocess.values == (0.01, 0.03) and work.decode_share == 0.0
    assert work.collate.is_zero and work.consumer.is_zero and work.handover == Handover()
    assert work.preprocess.uncertainty == pytest.approx(MODEL)  # one round says nothing of the next


def test_long_lists_are_thinned_evenly_and_keep_their_mean() -> None:
    many = tuple(float(value) for value in range(3 * MOST_VALUES))
    chosen = service_of((many,)).values
    assert sum(chosen) / len(chosen) == pytest.approx(sum(many) / len(many))
    assert [value / chosen[1] for value in chosen] == pytest.approx([float(i) for i in range(MOST_VALUES)])
    assert service_of(((0.0,) * (MOST_VALUES + 1),)).values == (0.0,) * MOST_VALUES
    assert service_of((many[:MOST_VALUES],)).values == many[:MOST_VALUES]


def test_settings_change_the_scenario_of_a_profile() -> None:
    settings = ["accelerator.step=7 ms", "workload.preprocess.mean=2 ms", "cores=9"]
    scenario = scenario_of(profile(), "job.json", settings)
    assert scenario.accelerator.step.mean == 0.007 and scenario.host.cores == 9
    assert scenario.workload.preprocess.mean == pytest.approx(0.002) and len(scenario.workload.preprocess.values) == 4


def test_what_a_profile_lacks_is_said_with_its_file() -> None:
    bare = replace(profile(), measurements=())
    with pytest.raises(InputError, match=r"^job\.json: prepare\.sample was not measured"):
        scenario_of(bare, "job.json")


def test_for_how_long_threads_hold_the_lock_is_the_loader_s_where_it_was_seen() -> None:
    seen, unseen = (one.scenario().loader for one in (profile(lock__share=((0.2,),)), profile()))
    assert seen.gil == 0.2 and unseen.gil == 0.0


def test_what_passing_the_lock_adds_is_the_loader_s_where_it_was_measured() -> None:
    made = profile(lock__passing=((0.1,), (0.2,)))
    assert made.scenario().loader.lock_passing == pytest.approx(0.15)
    assert profile(lock__passing=((0.0,),)).scenario().loader.lock_passing == 0.0


def test_a_profile_that_was_measured_with_pinning_says_so() -> None:
    measured = made_up.profile()
    pinned = [Measurement(name, "s/batch", ((0.01,), (0.012,)), "test") for name in ("prepare.pin", "receive.pin")]
    scenario = replace(measured, measurements=(*measured.measurements, *pinned)).scenario()
    assert scenario.loader.pin_memory and not measured.scenario().loader.pin_memory
    assert scenario.workload.pin.mean == scenario.workload.pin_wait.mean == pytest.approx(0.011)
