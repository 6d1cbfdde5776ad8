"""What a loader's worker needs to hand a batch over beyond collating."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
from coresim.measuring.sending import collation, measure_sending, send_costs

from coresim.measuring import sending
from coresim.model.build import build
from coresim.model.scenario import Accelerator, Loader, Scenario, Workload
from coresim.model.service import Service, empirical
from coresim.workloads.base import DatasetWorkload, WorkloadSpec
from coresim.workloads.base import Workload as Real
from coresim.workloads.registry import target_of

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the real loader is torch's")


def test_a_service_grows_and_keeps_its_spread_in_seconds():
    more = Service(1.0, uncertainty=0.5)
    assert Service(3.0, uncertainty=0.1).longer(more) == Service(4.0, uncertainty=pytest.approx(0.34**0.5 / 4))
    assert empirical((1.0, 3.0)).longer(Service(1.0)).values == (2.0, 4.0)
    shaped = Service(1.0, 1.0, "exponential").longer(Service(3.0))
    assert (shaped.mean, shaped.cv, shaped.distribution) == (4.0, 0.25, "gamma")
    assert Service(0.0).longer(Service(0.0)) == Service(0.0)


def collate_of(option: int, **loader: object) -> float:
    workload = Workload(batch_size=4, preprocess=Service(0.001), collate=Service(0.002), send=Service(0.003))
    scenario = Scenario(workload, Accelerator(Service(0.1)), loader=Loader(**loader))  # type: ignore[arg-type]
    phases = {phase.name: phase for _, phase, _ in build(scenario, option, 4, 2).phases()}
    return phases["collate"].service.mean


def test_worker_processes_send_and_nobody_else():
    assert collate_of(1) == pytest.approx(0.002)
    assert collate_of(2) == pytest.approx(0.005)
    assert collate_of(3) == pytest.approx(0.002)
    assert collate_of(2, in_process=True) == pytest.approx(0.002)


def test_the_difference_of_worker_and_bare_process_is_the_cost(monkeypatch: pytest.MonkeyPatch):
    bare, worker = iter([0.010, 0.010, 0.012, 0.020]), iter([0.015, 0.016, 0.018])
    monkeypatch.setattr(sending, "_bare", lambda batch, collate, count: next(bare))
    monkeypatch.setattr(sending, "_in_worker", lambda batch, collate, count: next(worker))
    assert send_costs([1], list, budget=0.0) == pytest.approx([0.005, 0.004, 0.0])


def busier_in_a_worker(samples: list[np.ndarray]) -> int:
    """A collation that needs 20 ms more CPU time in a loader's worker than in any other process."""
    from torch.utils.data import get_worker_info

    until = time.process_time() + (0.02 if get_worker_info() is not None else 0.0)
    while time.process_time() < until:
        pass
    return len(samples)


@needs_torch
def test_what_only_a_real_worker_spends_is_found():
    found = send_costs([np.ones(4)] * 2, busier_in_a_worker, budget=0.3)
    assert len(found) >= 3 and 0.018 < sorted(found)[len(found) // 2] < 0.1


@needs_torch
def test_it_is_measured_with_the_workload_s_own_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec = WorkloadSpec(target_of("tensors"), str(tmp_path), batch_size=8)
    spec.make()
    found = measure_sending(spec, processes=1, budget_s=0.3)
    assert [m.name for m in found] == ["transport.send"] and found[0].unit == "s/batch"
    assert found[0].mean > 0 and "scaled" not in found[0].how


class Own(Real):
    """Batches joined in a way of their own."""

    def collate(self, samples: list[np.ndarray]) -> tuple[np.ndarray, list[str]]:
        return np.concatenate(samples), ["kept"]


@needs_torch
def test_batches_are_sent_as_a_loader_of_the_job_would_send_them(tmp_path: Path):
    import torch

    samples = [(torch.zeros(2), 3), (torch.ones(2), 4)]
    plain = collation(DatasetWorkload(samples, "plain"))(samples)
    assert all(torch.is_tensor(part) for part in plain) and plain[1].tolist() == [3, 4]
    given = collation(DatasetWorkload(samples, "given", collate=list))(samples)
    assert given is not samples and given == samples  # a user's function gives what it gives
    joined, words = collation(Own(tmp_path))([np.zeros(2), np.ones(3)])
    assert torch.is_tensor(joined) and joined.shape == (5,) and words == ["kept"]
    assert collation(DatasetWorkload([b"ab"], "bytes"))([b"ab", b"c"]) == [b"ab", b"c"]
