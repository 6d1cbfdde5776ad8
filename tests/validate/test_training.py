"""Training as the accelerator of a trial, on the emulated device, whose host's time moves when it is told to."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from array import array
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from still import StillHost, still

from coresim.device.emulated import EmulatedDevice
from coresim.errors import InputError
from coresim.measure import training_step
from coresim.measure.notes import Note
from coresim.measure.staged import StagedSubject
from coresim.measure.subject import Layout, Pipe
from coresim.measure.trial import Trial
from coresim.model.measurement import Measurement
from coresim.validate import training as module
from coresim.validate.grid import Setting, in_training, job_grid
from coresim.validate.training import StepCost, Training, run_training

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the training is torch's")

STEP, COPY, SIZE = 1.0, 0.25, 1024


class Prepared(Pipe):
    """A batch takes so many seconds of the host; its worker had it ready a tenth of a second before."""

    def __init__(
        self, device: EmulatedDevice, host: StillHost, seconds: float, pinned: bool = True, inline: bool = False
    ) -> None:
        import torch

        batch = torch.zeros(SIZE, dtype=torch.uint8)
        self._batch = device.pin(batch) if pinned else batch
        self._host, self._seconds, self.inline = host, seconds, inline

    def next(self) -> tuple[Any, Note]:
        self._host.now += self._seconds
        ready = self._host.now - 0.1
        return [self._batch, None], Note(ready, ready, array("d", [0.001]), array("d", [0.001]), 0.0, 0, 0)


@pytest.fixture
def trained() -> Callable[..., tuple[Trial, list[tuple[str, float]]]]:
    """Trains on 2 and then 8 batches with the emulated device; what was launched and waited for, and when."""

    def run(run_ahead: int = 1, **batches: Any) -> tuple[Trial, list[tuple[str, float]]]:
        work = Training("tiny", "fp32", "cpu", 2)
        device, host = still(step=STEP, launch=0.0, bus=SIZE / COPY)
        log: list[tuple[str, float]] = []
        step, wait = device.step("tiny", "fp32"), device.synchronise

        def launch(batch: Any) -> None:
            step(batch)
            log.append(("launch", device._steps.last.end or 0.0))

        def synchronise(event: Any = None) -> None:
            if event is not None:
                log.append(("wait", event.end))
            wait(event)

        work.device, work._train = device, launch
        device.synchronise = synchronise  # type: ignore[method-assign]
        pipe = Prepared(device, host, **batches)
        found = run_training(pipe, work, 2, 8, run_ahead=run_ahead, cpu_clock=lambda: 0.5 * host.now)
        return found, log

    return run


@pytest.mark.parametrize("ahead", [0, 1, 4, 100])
def test_so_many_steps_are_launched_before_the_end_of_an_earlier_one_is_waited_for(trained: Any, ahead: int):
    _, log = trained(seconds=0.25, run_ahead=ahead)
    ends = [end for what, end in log if what == "launch"]
    expected = []
    for number, end in enumerate(ends):
        expected += [("launch", end)] + ([("wait", ends[number - ahead])] if number >= ahead else [])
    assert len(ends) == 10 and log == expected


@pytest.mark.parametrize(
    ("batches", "period"),
    [
        ({"seconds": 0.25}, STEP + COPY),  # prepared and launched while the device works: it idles for the copy alone
        ({"seconds": 0.25, "pinned": False}, STEP + COPY),
        ({"seconds": 3.0}, 3.0),
        ({"seconds": 3.0, "pinned": False}, 3.0 + COPY),  # the trainer itself waits for the copy
        ({"seconds": 0.5, "inline": True}, 0.5 + COPY + STEP),  # no overlap: each step is waited for
        ({"seconds": 0.5, "run_ahead": 0}, 0.5 + COPY + STEP),
        ({"seconds": 0.5, "run_ahead": 4}, STEP + COPY),
    ],
)
def test_what_no_step_covers_and_how_long_launches_take(trained: Any, batches: dict[str, Any], period: float):
    found, _ = trained(**batches)
    assert found.seconds_per_step == pytest.approx(period)
    assert found.uncovered == pytest.approx(1.0 - STEP / period)
    assert [step.end - step.start for step in found.steps] == pytest.approx([STEP] * 8)
    pageable = 0.0 if batches.get("pinned", True) else COPY
    assert all(step.launch >= pageable for step in found.steps)


def test_what_the_trainer_notes_of_receiving(trained: Any):
    found, _ = trained(seconds=0.25)
    for step in found.steps:
        assert step.got - step.asked == pytest.approx(0.25)
        assert step.got - step.ready == pytest.approx(0.1)
        assert step.cpu == pytest.approx(0.125)
    assert len(found.notes) == 8


class Work:
    """A workload of numbers."""

    name, batch_size, has_own_collate = "numbers", 2, True

    def __len__(self) -> int:
        return 8

    def steps(self) -> Any:
        return (SimpleNamespace(name="fetch", call=lambda index, rng: float(index)),)

    def collate(self, values: Any) -> Any:
        import torch

        return torch.tensor(values)


def test_in_three_stages_the_thread_that_copies_brings_batches_to_the_device():
    calls: list[str] = []

    class Placed:
        """Training that notes in which thread a batch is brought to the device and in which it is trained on."""

        device = still()[0]

        def transfer(self, batch: Any) -> Any:
            calls.append(threading.current_thread().name)
            return "on the device", batch

        def train(self, batch: Any) -> tuple[Any, Any]:
            calls.append(batch[0] if isinstance(batch, tuple) else "from the host")
            return self.device.record(), self.device.record()

    work = Work()
    pipe = StagedSubject(work, work.collate).open(Layout(1), seed=1)  # type: ignore[arg-type]
    try:
        run_training(pipe, Placed(), 8, 4, run_ahead=1)  # type: ignore[arg-type]
    finally:
        pipe.close()
    # Those that were copied before the trial began are brought there by the trainer, within its warm-up.
    trained = [call for call in calls if call in ("on the device", "from the host")]
    assert trained[6:] == ["on the device"] * 6
    assert threading.current_thread().name not in calls and len(calls) > len(trained)


def test_a_batch_that_a_thread_brought_to_the_device_is_not_copied_again():
    import torch

    work = Training("tiny", "fp32", "cpu", 2)
    batch: Any = [torch.zeros(SIZE, dtype=torch.uint8), None]
    assert work.transfer(batch) is batch  # the CPU is the device
    work.device, host = still(bus=SIZE / COPY)
    there = work.transfer(batch)
    assert host.now == COPY and there is not batch[0]
    work._train = lambda batch: None
    work.train(there)
    work.device.synchronise()
    assert host.now == COPY


def test_a_real_step_on_the_cpu():
    import torch

    work = Training("tiny", "fp32", "cpu", 2)
    begin, end = work.train([torch.randn(2, 3, 224, 224), torch.zeros(2)])
    assert work.device.elapsed(begin, end) > 0


def test_launches_are_timed_at_several_moments_where_the_device_works_beside_the_host():
    work = Training("tiny", "fp32", "cpu", 2)
    work.device, host = still(step=STEP, launch=0.25, bus=SIZE / COPY)
    work._train = work.device.step("tiny", "fp32")
    cost = work.cost(seconds=0.01)
    host.work = lambda seconds: StillHost.work(host, 2.0 * seconds)  # type: ignore[method-assign]
    later = work.relaunched(cost)
    # Each look times three.
    assert cost.launch == pytest.approx((0.25,) * 6) and later.launch == pytest.approx((0.25,) * 6 + (0.5,) * 3)
    assert replace(later, launch=()) == replace(cost, launch=())
    blocking = Training("tiny", "fp32", "cpu", 2)
    assert blocking.relaunched(cost) is cost


@pytest.fixture
def own_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with training steps of a user's."""
    (tmp_path / "steps_of_a_user.py").write_text(
        "taken = []\n"
        "def note(batch):\n    taken.append(batch)\n"
        "def factory():\n    return note\n"
        "def broken(batch):\n    raise ValueError('no such\\nlayer')\n"
        "def without_weights():\n    raise OSError('no weights')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "steps_of_a_user", raising=False)
    return "steps_of_a_user"


@pytest.mark.parametrize("name", ["note", "factory"])
def test_the_user_s_own_step_takes_the_whole_batch(own_steps: str, name: str):
    import torch

    batch = {"x": torch.ones(2, 3), "y": [torch.zeros(2), "text"]}
    work = Training(f"{own_steps}:{name}", "", "cpu", 2, batch=batch)
    cost = work.cost(seconds=0.01)
    assert len(cost.step) >= 3 and cost.copy == ()
    begin, end = work.train(batch)
    last = importlib.import_module(own_steps).taken[-1]
    assert last["y"][1] == "text" and torch.equal(last["x"], batch["x"])
    assert work.device.elapsed(begin, end) >= 0.0


def test_a_step_of_the_user_s_that_fails_is_named_in_one_line(own_steps: str):
    work = Training(f"{own_steps}:broken", "", "cpu", 2, batch=[1])
    with pytest.raises(InputError, match=rf"^training step {own_steps}:broken raised ValueError: no such; run"):
        work.train([1])
    with pytest.raises(InputError, match=":without_weights raised OSError: no weights; run it once"):
        Training(f"{own_steps}:without_weights", "", "cpu", 2)
    with pytest.raises(InputError, match="nothing_like_it"):
        Training(f"{own_steps}:nothing_like_it", "", "cpu", 2)


def test_a_grid_in_training_has_each_setting_once_and_pins_where_a_thread_does():
    grid = in_training(job_grid("images", 8, 2), "resnet18", "bf16", pin_memory=True)
    assert len(set(grid.settings)) == len(grid.settings)
    assert {(s.trains, s.repeats) for s in grid.settings} == {("resnet18 bf16", 2)}
    assert {(s.option, s.pin_memory) for s in grid.settings} == {(1, False), (2, True)}
    assert [s.workers for s in grid.settings if s.option == 2] == [1, 2, 3]


@pytest.mark.parametrize("option", [1, 3])
def test_what_does_not_pin_is_not_asked_to(option: int):
    with pytest.raises(InputError, match=f"grid: images: pin_memory with option {option}; only option 2"):
        Setting("images", 2, option, 1, 2, 2, 1.0, pin_memory=True)


@pytest.mark.parametrize(("cores", "levels"), [(1, ()), (2, (1,)), (16, (1, 3, 7, 15))])
def test_the_step_is_slowed_by_others_and_keeps_a_core_for_the_trainer(
    monkeypatch: pytest.MonkeyPatch, cores: int, levels: tuple[int, ...]
):
    occupied: list[int] = []

    def occupy(level: int) -> Any:
        occupied.append(level)
        return nullcontext()

    work = Training("tiny", "fp32", "cpu", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(training_step, "busy_processes", occupy)
    cost = work.cost(seconds=0.05)
    assert tuple(occupied) == levels
    assert len(cost.slowdown) == max(levels, default=0) + 1 and min(cost.slowdown) >= 1.0


def test_the_slowdown_between_measured_levels_is_linear_and_never_below_one():
    values = {"accelerator.step": 1.0, "accelerator.launch": 0.1, "copy.pageable": 0.3}
    busy_steps = {"accelerator.step.busy.1": 0.9, "accelerator.step.busy.3": 1.4}
    taken = [Measurement(name, "s", ((value,),), "made up") for name, value in (values | busy_steps).items()]
    found = module._step_cost(taken, "block")
    assert found.slowdown == pytest.approx((1.0, 1.0, 1.2, 1.4))
    assert found == StepCost((1.0,), (0.1,), (0.3,), (), found.slowdown, "block")
    alone = Measurement("accelerator.step.alone", "s", ((1.025,),), "made up")
    assert module._step_cost([*taken, alone], "block").lead == pytest.approx(0.25)


@pytest.mark.parametrize("key", [{"run_ahead": 4}, {"device": "emulated"}])
def test_a_device_and_how_far_it_is_run_ahead_are_of_a_model_that_trains(key: dict[str, Any]):
    with pytest.raises(InputError, match="grid: images: device and run_ahead go with a model that trains; add model"):
        Setting("images", 2, 2, 1, 2, 2, 1.0, **key)
    assert Setting("images", 2, 2, 1, 2, 2, 1.0, model="tiny", **key).trains
