"""Device, measure and validate: what measures and trains on CUDA, whose ``torch.cuda`` is played."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from played_cuda import played

from coresim.device import models
from coresim.measure import accelerator
from coresim.measure.accelerator import AcceleratorConfig
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout
from coresim.validate import training
from coresim.validate.training import Training, run_training
from coresim.workloads.named import WorkloadSpec

torch = pytest.importorskip("torch")

STEP, LAUNCH, BUS = 0.02, 0.002, 1e8
SETTINGS = f"step=20ms,launch=2ms,bus={BUS:g},sync=spin"
#: Two pictures of 64 pixels, and two numbers.
BYTES = 2 * (3 * 64 * 64 * 4 + 8)


class Pictures:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 64, 64), float(index)), index


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    with played(SETTINGS) as device:
        for module in (accelerator, training):
            monkeypatch.setattr(module, "open_device", lambda name: device)
        for module in (models, training):
            monkeypatch.setattr(
                module, "user_step", lambda name: lambda batch: device._cuda.device.launch(STEP, LAUNCH)
            )
        yield device


def test_a_step_its_launch_its_copies_and_what_busy_cores_cost_it(cuda: Any) -> None:
    config = AcceleratorConfig(
        device="cuda:0", step="played:step", batch_size=2, image_size=64, seconds=0.2, steps=5, busy=(1,), repeats=3
    )
    found = accelerator.measure_here(config)
    names = ["accelerator.step", "accelerator.step.wall", "accelerator.launch", "accelerator.step.alone"]
    names += ["accelerator.step.busy.1", "copy.pinned", "copy.pageable"]
    assert [one.name for one in found.measurements] == names
    assert min(found["accelerator.step"].flat) >= 0.99 * STEP and min(found["accelerator.launch"].flat) >= LAUNCH
    assert min(found["copy.pinned"].flat) >= 0.99 * BYTES / BUS
    assert min(found["copy.pageable"].flat) >= 0.99 * BYTES / BUS
    assert not found.synchronises and found.provenance["device"] == "played"


@pytest.mark.parametrize(("pinned", "ahead"), [(True, 1), (False, 1), (True, 0)])
def test_a_job_trains_on_it_and_the_device_s_own_clock_tells_when(cuda: Any, pinned: bool, ahead: int) -> None:
    rig = Rig(WorkloadSpec(f"{__file__}:Pictures", "", 2))
    work = Training("played:step", "fp32", "cuda:0", 2, rig.batch())
    cost = work.cost(seconds=0.2)
    assert min(cost.step) >= 0.99 * STEP and cost.copy and cost.copy_pinned and cost.sync == "spin"
    assert len(work.relaunched(cost).launch) > len(cost.launch)
    with cuda._cuda.device.loading():
        layout = Layout(workers=1, pin_memory=pinned)
        with closing(rig.subject(threads=False).open(layout, seed=0)) as pipe:
            found = run_training(pipe, work, 2, 8, run_ahead=ahead)
    assert set(cuda._cuda.copied) == {"steps"}
    copy = BYTES / BUS
    assert len(found.steps) == 8 and all(one.end - one.start >= 0.99 * STEP for one in found.steps)
    assert found.seconds_per_step >= 0.99 * (STEP + copy)
    # Who copies from pageable memory waits for the copy, which is then a part of the launch.
    assert min(one.launch for one in found.steps) >= LAUNCH + (0.0 if pinned else 0.99 * copy)


def test_stages_copy_ahead_on_a_stream_of_their_own(cuda: Any) -> None:
    rig = Rig(WorkloadSpec(f"{__file__}:Pictures", "", 2))
    work = Training("played:step", "fp32", "cuda:0", 2, rig.batch())
    with closing(rig.subject(threads=True).open(Layout(workers=1), seed=0)) as pipe:
        found = run_training(pipe, work, 2, 8, run_ahead=1)
    # All but those that were made before the training began; a batch has two tensors.
    assert len(found.steps) == 8 and cuda._cuda.copied.count("copies") >= 2 * 6
