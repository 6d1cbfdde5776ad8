"""Real training as the accelerator of a trial; the device is a stand-in whose clock moves when it is told to."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coresim.validate.loaders import Cost, Layout, Pipe, Timed, open_pipe
from coresim.validate.trial import Trial

from coresim.errors import InputError
from coresim.measure import busy
from coresim.validate import training as module
from coresim.validate.grid import Setting, in_training, job_grid
from coresim.validate.training import StepCost, Training, run_training

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the training is torch's")

STEP, COPY = 1.0, 0.2


class Mark:
    """An event on the device's line."""

    def __init__(self, device: Device, at: float) -> None:
        self.at, self._device = at, device

    def synchronize(self) -> None:
        self._device.log.append(("wait", self.at))
        self._device.now = max(self._device.now, self.at)


class Device:
    """A device with one queue, and the host's clock; both move only when something is done."""

    asynchronous = True

    def __init__(self) -> None:
        self.now, self.free, self.log = 0.0, 0.0, []

    def mark(self) -> Mark:
        return Mark(self, max(self.now, self.free))

    def seconds(self, start: Mark, end: Mark) -> float:
        return end.at - start.at

    def wait(self) -> None:
        self.now = max(self.now, self.free)

    def queue(self, seconds: float) -> None:
        self.free = max(self.now, self.free) + seconds

    def step(self, batch: Any) -> None:
        self.queue(STEP)
        self.log.append(("launch", self.free))

    def copy(self, seconds: float, non_blocking: bool) -> None:
        """As CUDA does: one that blocks waits for all that is queued, its own transfer included."""
        self.queue(seconds)
        if not non_blocking:
            self.mark().synchronize()


class Images:
    """A batch in the host's memory, pinned or not."""

    def __init__(self, device: Device, pinned: bool) -> None:
        self._device, self._pinned = device, pinned

    def is_pinned(self) -> bool:
        return self._pinned

    def to(self, place: Any, non_blocking: bool = False) -> Images:
        # A copy from pageable memory waits, whatever was asked for.
        self._device.copy(COPY, non_blocking and self._pinned)
        return self


class Prepared(Pipe):
    """A batch takes so many seconds of the host; its worker had it ready a tenth of a second before."""

    def __init__(self, device: Device, seconds: float, pinned: bool = True, inline: bool = False) -> None:
        self._device, self._seconds, self._pinned, self.inline = device, seconds, pinned, inline

    def next(self) -> tuple[Any, Cost]:
        self._device.now += self._seconds
        ready = self._device.now - 0.1
        return [Images(self._device, self._pinned), None], Cost(ready, ready, (0.001,), (0.001,), 0.0, 0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Trial, Device]]:
    """Trains on 2 and then 8 batches with the stand-in device; a tensor's blocking copy waits for it."""
    import torch

    def run(**batches: Any) -> tuple[Trial, Device]:
        device = Device()
        work = Training("tiny", "fp32", "cpu", 2)
        work.clock, work._train = device, device.step
        plain = torch.Tensor.to

        def to(tensor: Any, *args: Any, non_blocking: bool = False, **options: Any) -> Any:
            device.copy(0.0, non_blocking)
            return plain(tensor, *args, non_blocking=non_blocking, **options)

        monkeypatch.setattr(torch.Tensor, "to", to)
        pipe = Prepared(device, **batches)
        found = run_training(pipe, work, 2, 8, clock=lambda: device.now, cpu_clock=lambda: 0.5 * device.now)
        return found, device

    return run


def test_each_step_is_launched_before_the_end_of_the_last_is_waited_for(trained: Any):
    _, device = trained(seconds=0.25)
    ends = [end for what, end in device.log if what == "launch"]
    expected = [("launch", ends[0])]
    for before, now in pairwise(ends):
        expected += [("launch", now), ("wait", before)]
    assert len(ends) == 10 and device.log == expected


@pytest.mark.parametrize(
    ("batches", "period"),
    [
        ({"seconds": 0.25}, STEP + COPY),  # prepared and launched while the device works: it idles for the copy alone
        ({"seconds": 0.25, "pinned": False}, STEP + COPY),
        ({"seconds": 3.0}, 3.0),
        ({"seconds": 3.0, "pinned": False}, 3.0 + COPY),  # the trainer itself waits for the copy
        ({"seconds": 0.5, "inline": True}, 0.5 + COPY + STEP),  # no overlap: each step is waited for
    ],
)
def test_idle_is_the_time_that_no_step_covers(trained: Any, batches: dict[str, Any], period: float):
    found, _ = trained(**batches)
    assert found.seconds_per_step == pytest.approx(period)
    assert found.idle == pytest.approx(1.0 - STEP / period)
    assert [step.end - step.start for step in found.steps] == pytest.approx([STEP] * 8)


def test_what_the_trainer_notes_of_receiving(trained: Any):
    found, _ = trained(seconds=0.25)
    for step in found.steps:
        assert step.got - step.asked == pytest.approx(0.25)
        assert step.got - step.ready == pytest.approx(0.1)
        assert step.cpu == pytest.approx(0.125)
    assert len(found.costs) == 8


def test_only_a_pinned_batch_is_copied_without_waiting():
    asked: list[tuple[bool, bool]] = []

    class Seen(Images):
        def to(self, place: Any, non_blocking: bool = False) -> Images:
            asked.append((self.is_pinned(), non_blocking))
            return self

    work = Training("tiny", "fp32", "cpu", 2)
    work._train = lambda batch: None
    for pinned in (True, False):
        work.train(Seen(Device(), pinned))
    assert asked == [(True, True), (False, False)]


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

        clock = Device()

        def transfer(self, batch: Any) -> Any:
            calls.append(threading.current_thread().name)
            return "on the device", batch

        def train(self, batch: Any) -> tuple[Any, Any]:
            calls.append(batch[0] if isinstance(batch, tuple) else "from the host")
            return self.clock.mark(), self.clock.mark()

    pipe = open_pipe(Timed(Work()), Layout(3, 1, 2), seed=1)  # type: ignore[arg-type]
    try:
        run_training(pipe, Placed(), 8, 4)  # type: ignore[arg-type]
    finally:
        pipe.close()
    # Those that were copied before the trial began are brought there by the trainer, within its warm-up.
    trained = [call for call in calls if call in ("on the device", "from the host")]
    assert trained[6:] == ["on the device"] * 6
    assert threading.current_thread().name not in calls and len(calls) > len(trained)


def test_a_copy_beside_the_steps_has_a_queue_of_its_own(monkeypatch: pytest.MonkeyPatch):
    noted: list[Any] = []

    class Tensor:
        def to(self, place: Any) -> Tensor:
            noted.append(("copied", cuda.current))
            return self

        def record_stream(self, stream: Any) -> None:
            noted.append(("kept for", stream))

    class Cuda:
        current = "steps"

        def default_stream(self, device: Any) -> str:
            return "steps"

        def Stream(self, device: Any) -> str:
            return "copies"

        @contextmanager
        def stream(self, name: str) -> Iterator[None]:
            self.current = name
            yield
            self.current = "steps"

    cuda = Cuda()
    work = Training("tiny", "fp32", "cpu", 2)
    batch: Any = [Tensor(), None]
    assert work.transfer(batch) is batch  # the CPU is the device
    work.device = SimpleNamespace(type="cuda")
    monkeypatch.setattr(module, "load_torch", lambda: SimpleNamespace(cuda=cuda))
    assert work.transfer(batch) is batch[0]
    assert noted == [("copied", "copies"), ("kept for", "steps")]


def test_a_real_step_on_the_cpu():
    import torch

    work = Training("tiny", "fp32", "cpu", 2)
    begin, end = work.train([torch.randn(2, 3, 224, 224), torch.zeros(2)])
    assert work.clock.seconds(begin, end) > 0


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
    assert len(cost.step) >= 3 and cost.copy == 0.0
    begin, end = work.train(batch)
    last = importlib.import_module(own_steps).taken[-1]
    assert last["y"][1] == "text" and torch.equal(last["x"], batch["x"])
    assert work.clock.seconds(begin, end) >= 0.0


def test_a_step_of_the_user_s_that_fails_is_named_in_one_line(own_steps: str):
    work = Training(f"{own_steps}:broken", "", "cpu", 2, batch=[1])
    with pytest.raises(InputError, match=rf"^training step {own_steps}:broken failed: ValueError: no such layer; run"):
        work.train([1])
    with pytest.raises(
        InputError, match=rf"^training step {own_steps}:without_weights failed: OSError: no weights; run"
    ):
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
    monkeypatch.setattr(busy, "busy_processes", occupy)
    cost = work.cost(seconds=0.05)
    assert tuple(occupied) == levels
    assert len(cost.slowdown) == max(levels, default=0) + 1 and min(cost.slowdown) >= 1.0


def test_the_slowdown_between_measured_levels_is_linear_and_never_below_one():
    values = {"accelerator.step": (1.0,), "accelerator.launch": (0.1,), "copy.pageable.wall": (0.3,)}
    busy_steps = {"accelerator.step.busy.1": (0.9,), "accelerator.step.busy.3": (1.4,)}
    found = module._step_cost(values | busy_steps)
    assert found.slowdown == pytest.approx((1.0, 1.0, 1.2, 1.4))
    assert found == StepCost((1.0,), (0.1,), 0.3, None, found.slowdown)
