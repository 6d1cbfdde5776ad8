"""The model that takes a job to another machine."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fleet_kit import host, job

from coresim.advise.transforms import batch_twice
from coresim.errors import InputError
from coresim.fleet.transfer import OTHER_CPU, OTHER_FORM, condensed, transfer
from coresim.model.service import Service, empirical


def test_the_same_gpu_and_cpu_need_no_transfer() -> None:
    found = transfer(job(), host(), {})
    assert (found.notes, found.cpu_time, found.cpu_uncertainty, found.speed_uncertainty) == ((), 1.0, 0.0, 0.0)
    assert found.step == job().scenario.accelerator.step


def test_what_an_idle_device_waits_for_launches_is_known_of_the_measured_step_alone() -> None:
    base = job().scenario
    base = replace(base, accelerator=replace(base.accelerator, lead=0.25))
    same = transfer(job(), host(), {})
    assert same.scenario(base).accelerator.lead == 0.25
    other = replace(same, step=same.step.scaled(0.5))
    assert other.scenario(base).accelerator.lead == 0.0
    assert batch_twice(1.8)(base).accelerator.lead == 0.0


def test_another_cpu_is_said_and_widens() -> None:
    found = transfer(job(), host(cpu="Xeon Gold 6248R"), {})
    assert found.cpu_uncertainty == OTHER_CPU and found.speed_uncertainty > 0
    assert "EPYC 7742 to Xeon Gold 6248R" in found.notes[0] and "60 %" in found.notes[0]
    scenario = found.scenario(job().scenario)
    assert scenario.workload.preprocess.uncertainty == scenario.accelerator.launch.uncertainty == OTHER_CPU
    for unnamed in (transfer(job(cpu=None), host(), {}), transfer(job(), host(cpu=None), {})):
        assert unnamed.cpu_uncertainty == OTHER_CPU and "not named" in unnamed.notes[0]


def test_known_speeds_scale_the_cpu_times() -> None:
    found = transfer(job(), host(cpu="Xeon Gold 6248R"), {"Xeon Gold 6248R": 0.8, "EPYC 7742": 1.2})
    assert found.cpu_time == pytest.approx(1.5) and found.cpu_uncertainty < OTHER_CPU
    scenario = found.scenario(job().scenario)
    assert scenario.workload.preprocess.mean == pytest.approx(9e-3)
    assert scenario.accelerator.step.mean == 0.1


def test_step_times_on_another_gpu_are_known_or_refused() -> None:
    assert transfer(job(), host(gpu="NVIDIA A100 PCIe"), {}).step.uncertainty == OTHER_FORM
    given = transfer(job(steps={"H100": Service(0.05)}), host(gpu="NVIDIA H100 SXM"), {})
    assert given.step.mean == 0.05 and given.step.uncertainty == 0 and "as given" in given.notes[0]
    recorded = transfer(job(model="ResNet-50 v1.5"), host(gpu="NVIDIA V100"), {})
    assert recorded.step.uncertainty > 0.1 and "catalogue" in recorded.notes[0]
    with pytest.raises(InputError, match=r"no step time on NVIDIA L4 .*add it to steps"):
        transfer(job(), host(gpu="NVIDIA L4"), {})
    with pytest.raises(InputError, match="does not name"):
        transfer(job(gpu=None), host(), {})
    assert "taken for the workload's" in transfer(job(), host(gpu=None), {}).notes[0]


def test_condensed_times_keep_mean_and_spread() -> None:
    values = empirical((1.0, 2.0, 6.0))
    found = condensed(values, 64)
    assert (found.mean, found.cv, found.distribution) == (values.mean, values.cv, "gamma")
    assert found.uncertainty == pytest.approx(values.cv / math.sqrt(3))
    assert condensed(values, 8) is values and condensed(Service(1.0), 64) == Service(1.0)
