"""A program that trains on a device: its own time for a step, by events, the launch and the copy.

By hand on a host whose time stands still, and of a real program, for which the emulated device stands in for CUDA.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from attach_kit import BATCH, ENVIRON, Seen, least_period, left_behind, run, script
from still import COPY, LAUNCH, SIZE, STEP, still

from coresim import stats
from coresim.attaching.device import COPIES, DeviceEvents, device_of_program
from coresim.device.interface import CudaDevice
from coresim.report.measured import measured_sections
from coresim.report.plain import answer_lines

OWN_WORK = 0.125
#: The emulated device of ``programs/emulated.py``, s.
STEP_S, LAUNCH_S, COPY_S = 0.025, 0.002, 0.005
SAMPLE_S = 0.0025


def test_a_loop_that_waits_for_its_steps_has_them_and_its_own_work_between_two_events() -> None:
    device, host = still()
    events = DeviceEvents(device)
    for _ in range(5):
        events.got()
        device.launch(STEP, LAUNCH)
        device.synchronise()
        host.now += OWN_WORK
        events.asked(counts=True)
    assert events.seconds(3) == [STEP + OWN_WORK] * 3
    assert events.synchronises


def test_a_loop_that_runs_ahead_has_the_devices_own_time() -> None:
    device, host = still()
    events, before = DeviceEvents(device), None
    for _ in range(5):
        events.got()
        device.launch(STEP, LAUNCH)
        done = device.record()
        if before is not None:
            device.synchronise(before)
        before = done
        host.now += OWN_WORK
        events.asked(counts=True)
    assert events.seconds(9) == [STEP] * 5
    assert not events.synchronises


def test_a_step_with_an_evaluation_in_it_does_not_count() -> None:
    device, host = still()
    events = DeviceEvents(device)
    events.asked(counts=True)  # nothing was handed over before
    for number in range(3):
        events.got()
        host.now += 1.0 + number
        events.asked(counts=number != 1)
    assert events.seconds(9) == [1.0, 3.0]


def test_without_a_device_nothing_is_recorded() -> None:
    events = DeviceEvents(None)
    events.got()
    events.asked(counts=True)
    assert events.seconds(9) == events.copies([]) == []
    assert events.synchronises


def test_a_batch_is_copied_by_the_device() -> None:
    torch = pytest.importorskip("torch")
    device, _ = still()
    halves = {"images": torch.zeros(SIZE // 8), "more": [torch.zeros(SIZE // 8)]}
    assert DeviceEvents(device).copies(halves) == [COPY] * COPIES


def test_cuda_is_behind_the_same_interface_once_a_program_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    assert device_of_program() is None  # it is imported, and not used
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    found = device_of_program()
    assert type(found) is CudaDevice and found.place == torch.device("cuda:3")
    monkeypatch.delitem(sys.modules, "torch")
    assert device_of_program() is None


@pytest.fixture(scope="module", params=["waits", "ahead"])
def trained(request: pytest.FixtureRequest) -> Any:
    """A program that trains on the emulated device."""
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRON, "SAMPLE_S": str(SAMPLE_S)}.items():
            patch.setenv(name, value)
        yield request.param, run(script("emulated.py", request.param))


@pytest.mark.torch
def test_the_step_of_a_program_is_its_devices_with_the_launch_and_the_copy_beside_it(trained: tuple[str, Seen]) -> None:
    how, found = trained
    costs = {measured.name: measured for measured in found.profile.measurements}
    step, launch, copy = costs["accelerator.step"], costs["accelerator.launch"], costs["loop.copy"]
    assert step.how.startswith("the device's own time of a step, by events")
    assert min(step.flat) >= STEP_S and stats.median(step.flat) >= 0.999 * (STEP_S + COPY_S)
    if how == "ahead":  # what is queued behind another step is not kept waiting by the host, unless that is late by it
        assert stats.quantile(step.flat, 0.25) == pytest.approx(STEP_S + COPY_S, abs=0.0005)
    assert min(launch.flat) >= LAUNCH_S
    assert 0.999 * COPY_S <= min(copy.flat) < 2 * COPY_S
    assert len(costs["loop.step"].flat) == len(step.flat)
    told = [line.split()[0] for line in answer_lines("", *measured_sections(found.profile)).splitlines() if line]
    assert {"loop.step", "loop.copy", "accelerator.launch"} <= set(told)
    assert not left_behind("emulated.py")


@pytest.mark.torch
def test_the_job_of_a_program_with_a_device(trained: tuple[str, Seen]) -> None:
    how, found = trained
    today, profile = found.profile.today, found.profile
    assert today is not None
    assert (today.device, today.sync) == ("cuda", "block")
    assert profile.accelerator.synchronises == (how == "waits")
    device = profile.scenario().accelerator
    assert (device.run_ahead, not device.launch.is_zero) == ((0, False) if how == "waits" else (1, True))
    assert not any("without CUDA" in warning.what for warning in profile.warnings)
    # One worker needs 80 ms for a batch at the least, of which the device works for what it takes.
    assert today.wait + today.step >= least_period(BATCH * SAMPLE_S, 1, today.batches)
    assert today.gpu_idle == pytest.approx(
        1.0 - stats.mean(found.ranks[0]["step"]["device"]) / (today.wait + today.step)
    )
