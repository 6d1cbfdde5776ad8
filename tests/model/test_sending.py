"""What a loader's worker needs to hand a batch over beyond collating, in the model."""

from __future__ import annotations

import pytest

from coresim import simulate
from coresim.model.build import build
from coresim.model.dispatch import BEFORE_DISPATCH
from coresim.model.handover import STATES, Handover
from coresim.model.scenario import Accelerator, HostResources, Loader, Scenario, WorkloadCosts
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


def dispatch_of(prefetch_factor: int = 1, **loader: object) -> float:
    """Seconds for which a worker waits for its next batch."""
    handover = Handover(rest_free=Service(0.004))
    workload = WorkloadCosts(batch_size=4, preprocess=Service(0.001), consumer=Service(0.01), handover=handover)
    scenario = Scenario(workload, Accelerator(Service(0.1)), loader=Loader(**loader))  # type: ignore[arg-type]
    phases = {phase.name: phase for _, phase, _ in build(scenario, 2, 4, 2, prefetch_factor).phases()}
    return phases["dispatch"].service.mean if "dispatch" in phases else 0.0


def test_with_one_batch_out_a_worker_waits_until_the_trainer_has_received_it():
    assert dispatch_of() == pytest.approx(0.004 + 0.56 * 0.01)
    assert dispatch_of(prefetch_factor=2) == 0.0
    assert dispatch_of(in_process=True) == 0.0
    assert dispatch_of(credits="queue", dispatch="shared") == 0.0


def waits_of(prefetch_factor: int, cores: float | None = 2.0, **loader: object) -> dict[str, float]:
    """Seconds that a trainer waits for a hand-over, by state; all states were told as 4 ms."""
    handover = Handover(**{state: Service(0.004) for state in STATES})
    workload = WorkloadCosts(batch_size=4, preprocess=Service(0.001), consumer=Service(0.01), handover=handover)
    device, host = Accelerator(Service(0.1), sync="block"), HostResources(cores=cores)
    scenario = Scenario(workload, device, host, Loader(**loader))  # type: ignore[arg-type]
    return {phase.name: phase.service.mean for phase in build(scenario, 2, 4, 2, prefetch_factor).trainer.handover}


def test_a_maker_that_is_dealt_no_batch_shares_no_core_with_the_trainer():
    """Where more want a core than there are, the trainer's 10 ms were told to take 5 ms longer for each task more.

    Of that, the part before the deal is left, at which the maker does not yet share the cores.
    """
    late, usual = waits_of(prefetch_factor=1), waits_of(prefetch_factor=2)
    assert set(usual.values()) == {0.004}
    for name, wait in late.items():
        assert wait == pytest.approx(0.004 if name.endswith("free") else 0.004 + BEFORE_DISPATCH * 0.005)
    assert waits_of(1, cores=None) == waits_of(1, credits="queue", dispatch="shared") == usual


def test_the_wait_for_a_dispatch_lengthens_the_time_of_a_batch_and_holds_no_core():
    workload = {"preprocess": "1 ms", "batch_size": 10}
    times = {}
    for consumer in ("0 ms", "10 ms"):
        tables = {"workload": workload | {"consumer": consumer}, "accelerator": {"step": "1 ms"}}
        found = simulate(tables, option=2, workers=1, cores=4, prefetch_factor=1, steps=200)
        times[consumer] = 10 / found.result.throughput_samples_per_s
    assert times["0 ms"] == pytest.approx(0.010, rel=0.02)
    assert times["10 ms"] == pytest.approx(0.0156, rel=0.02)
