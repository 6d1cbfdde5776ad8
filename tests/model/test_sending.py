"""What a loader's worker needs to hand a batch over beyond collating, in the model."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coresim import simulate
from coresim.model.build import build
from coresim.model.crowding import on_cores
from coresim.model.handover import CROWDS, RELEASE, Handover
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Accelerator, HostResources, Loader, Scenario, WorkloadCosts, read_scenario
from coresim.model.service import Service, empirical


def test_a_service_grows_and_keeps_its_spread_in_seconds():
    more = Service(1.0, uncertainty=0.5)
    assert Service(3.0, uncertainty=0.1).longer(more) == Service(4.0, uncertainty=pytest.approx(0.34**0.5 / 4))
    assert empirical((1.0, 3.0)).longer(Service(1.0)).values == (2.0, 4.0)
    shaped = Service(1.0, 1.0, "exponential").longer(Service(3.0))
    assert (shaped.mean, shaped.cv, shaped.distribution) == (4.0, 0.25, "gamma")
    assert Service(0.0).longer(Service(0.0)) == Service(0.0)


def test_a_trainer_that_prepares_sends_nothing_however_many_cores_are_free():
    workload = WorkloadCosts(batch_size=4, preprocess=Service(0.001), send=Service(0.002), send_overlap=0.5)
    scenario = Scenario(workload, Accelerator(Service(0.1)), HostResources(), Loader())
    assert on_cores(scenario, 0, 4.0) is scenario
    assert on_cores(scenario, 1, 4.0).workload.send.mean < 0.002
    assert build(scenario, 1, 4.0, 0).total_ranks == 1


def collate_of(option: int, in_process_collate: float = 1.0, **loader: object) -> float:
    costs = {"preprocess": Service(0.001), "collate": Service(0.002), "send": Service(0.003)}
    workload = WorkloadCosts(batch_size=4, in_process_collate=in_process_collate, **costs)
    scenario = Scenario(workload, Accelerator(Service(0.1)), loader=Loader(**loader))  # type: ignore[arg-type]
    phases = {phase.name: phase for _, phase, _ in build(scenario, option, 4, 2).phases()}
    return phases["collate"].service.mean


def test_worker_processes_send_and_nobody_else():
    assert collate_of(1) == pytest.approx(0.002)
    assert collate_of(2) == pytest.approx(0.005)
    assert collate_of(3) == pytest.approx(0.002)
    assert collate_of(2, in_process=True) == pytest.approx(0.002)


def test_only_worker_processes_collate_into_new_shared_memory():
    assert collate_of(2, 0.1) == pytest.approx(0.005)
    assert collate_of(1, 0.1) == collate_of(3, 0.1) == collate_of(2, 0.1, in_process=True) == pytest.approx(0.0002)


#: Seconds that a hand-over takes in the states in which its maker rests.
FREE, SHARED, CROWDED = 0.004, 0.006, 0.02


def line_of(
    prefetch_factor: int = 1,
    workers: int = 2,
    cores: float = 4.0,
    machine: float | None = None,
    sync: str = "block",
    count: int = 1,
    **loader: object,
) -> Pipeline:
    """Batches of 4 samples of 1 ms, which the trainer receives in 10 ms; calibrated on so many cores of a machine."""
    waits = {f"rest_{crowd}": Service(wait) for crowd, wait in zip(CROWDS, (FREE, SHARED, CROWDED), strict=True)}
    handover = Handover(**waits)
    workload = WorkloadCosts(batch_size=4, preprocess=Service(0.001), consumer=Service(0.01), handover=handover)
    device, host = Accelerator(Service(0.1), sync=sync, count=count), HostResources(cores=machine)
    scenario = Scenario(workload, device, host, Loader(**loader))  # type: ignore[arg-type]
    return build(scenario, 2, cores, workers, prefetch_factor)


def deal_of(**settings: Any) -> float:
    """Seconds for which a worker waits for its next batch, less the trainer's own part."""
    phases = {phase.name: phase for _, phase, _ in line_of(**settings).phases()}
    return phases["dispatch"].service.mean - (1 - RELEASE) * 0.01 if "dispatch" in phases else math.nan


def test_with_one_batch_out_a_worker_waits_until_the_trainer_has_received_it():
    assert deal_of() == pytest.approx(FREE)
    in_queue = {"credits": "queue", "dispatch": "shared"}
    for loader in ({"prefetch_factor": 2}, {"in_process": True}, in_queue, {"grain": "split"}):
        assert math.isnan(deal_of(**loader))


def test_that_wait_is_of_the_state_in_which_all_other_workers_are_at_work():
    assert deal_of(workers=3) == pytest.approx(FREE)  # with the maker and the trainer, four want the four cores
    assert deal_of(workers=4) == pytest.approx(SHARED)
    assert deal_of(workers=7) == pytest.approx(CROWDED)
    assert deal_of(workers=1, cores=1.0) == pytest.approx(CROWDED)
    assert deal_of(workers=2, count=2) == pytest.approx(SHARED)  # three other workers, two trainers, the maker


@pytest.mark.parametrize("sync", ["block", "spin"])
def test_worker_and_trainer_wait_for_the_same_hand_over(sync: str):
    line = line_of(workers=4, machine=4.0, sync=sync)
    [wait] = [phase.service.mean for phase in line.trainer.handover if phase.name == "handover.send_shared"]
    assert deal_of(workers=4, machine=4.0, sync=sync) == pytest.approx(wait)
    assert wait > SHARED


def test_before_the_deal_a_maker_shares_no_core_with_the_trainer():
    """Where more want a core than there are, the calibration took off a core's share of the trainer's 10 ms."""
    late, usual = (
        {phase.name: phase.service.mean for phase in line_of(factor, machine=2.0).trainer.handover} for factor in (1, 2)
    )
    for name, wait in usual.items():
        assert late[name] == pytest.approx(wait if name.endswith("free") else wait + (1 - RELEASE) * 0.01 / 2)
    assert late != usual


def test_what_a_trainer_frees_it_frees_at_the_batch_s_own_turn():
    """And so it maps the pages of a batch that it reads."""
    tables: dict[str, Any] = {
        "workload": {"batch_size": 4, "preprocess": "1 ms", "consumer": "10 ms", "release": 0.3, "pages": "5 ms"},
        "accelerator": {"step": "20 ms", "copies": False}, "loader": {"pin_memory": False},
    }  # fmt: skip
    trainer = build(read_scenario(tables), 2, 4.0, 2).trainer
    assert trainer.consumer.service.mean == pytest.approx(0.015)
    assert trainer.release == pytest.approx((0.3 * 10 + 5) / 15)
    tables["workload"].pop("pages")
    assert build(read_scenario(tables), 2, 4.0, 2).trainer.release == pytest.approx(0.3)
    assert {build(read_scenario(tables), option, 4.0, 2).trainer.release for option in (1, 3)} == {0.0}


def test_the_wait_for_a_dispatch_lengthens_the_time_of_a_batch_and_holds_no_core():
    workload = {"preprocess": "1 ms", "batch_size": 10}
    times = {}
    for consumer in ("0 ms", "10 ms"):
        tables = {"workload": workload | {"consumer": consumer}, "accelerator": {"step": "1 ms"}}
        found = simulate(tables, option=2, workers=1, cores=4, prefetch_factor=1, steps=200)
        times[consumer] = 10 / found.result.throughput_samples_per_s
    assert times["0 ms"] == pytest.approx(0.010, rel=0.02)
    assert times["10 ms"] == pytest.approx(0.0156, rel=0.02)
