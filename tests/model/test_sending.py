"""What a loader's worker needs to hand a batch over beyond collating, in the model."""

from __future__ import annotations

import pytest

from coresim.model.build import build
from coresim.model.scenario import Accelerator, Loader, Scenario, WorkloadCosts
from coresim.model.service import Service, empirical


def test_a_service_grows_and_keeps_its_spread_in_seconds():
    more = Service(1.0, uncertainty=0.5)
    assert Service(3.0, uncertainty=0.1).longer(more) == Service(4.0, uncertainty=pytest.approx(0.34**0.5 / 4))
    assert empirical((1.0, 3.0)).longer(Service(1.0)).values == (2.0, 4.0)
    shaped = Service(1.0, 1.0, "exponential").longer(Service(3.0))
    assert (shaped.mean, shaped.cv, shaped.distribution) == (4.0, 0.25, "gamma")
    assert Service(0.0).longer(Service(0.0)) == Service(0.0)


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
