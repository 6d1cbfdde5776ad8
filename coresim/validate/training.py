"""Real training as the accelerator of a trial: what a step takes is between marks on the device's own line.

GPU idle = wall time not covered by a step. Marks are CUDA events where there is a device; on a CPU the host's clock,
which lets everything but the device be tested without one. The trainer runs one step ahead of the device, as a loop
does that reads the loss of the step before; where it prepares the batches itself (option 1, no overlap) it waits for
each step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coresim import stats
from coresim.measuring.busy import busy_levels, measure_busy
from coresim.measuring.models import build_model, default_step, load_torch, synthetic_batch
from coresim.measuring.training_step import measure_step, warm_up
from coresim.measuring.transfer import Clock, measure_copies, open_clock, open_device, to_device
from coresim.validate.gpu_decode import jpeg_decoder
from coresim.validate.loaders import Cost, Pipe
from coresim.validate.staged import StagedPipe
from coresim.validate.trial import Step, Trial, after_warm_up

STEPS = 20
RUN_AHEAD = 1


@dataclass(frozen=True)
class StepCost:
    """What a training step costs on resident data, in seconds.

    Attributes:
        step: device times of back-to-back steps.
        launch: CPU times of the trainer to launch one.
        copy: to copy a batch to the device from pageable memory, which waits; 0 where the CPU is the device.
        copy_pinned: the same from pinned memory, which does not wait; None where there is no device.
        slowdown: relative step time with 0, 1, 2, ... cores busy.
    """

    step: tuple[float, ...]
    launch: tuple[float, ...]
    copy: float
    copy_pinned: float | None
    slowdown: tuple[float, ...]

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> StepCost:
        """The cost that `dataclasses.asdict` wrote, after JSON made lists of its tuples."""
        lists = {name: tuple(document[name]) for name in ("step", "launch", "slowdown")}
        return cls(**{**document, **lists})


class Training:
    """A model in training on a device; every batch that a pipe gives is copied there and trained on.

    Args:
        model: a name that `coresim.measuring.models.build_model` knows.
        precision: ``fp32`` or ``bf16``.
        device: ``cuda``, ``cuda:N`` or ``cpu``.
        batch_size: samples per batch.
        encoded: a batch of undecoded JPEG files, where the device decodes; its decoding is then part of the step.
    """

    def __init__(self, model: str, precision: str, device: str, batch_size: int, encoded: Any = None) -> None:
        self.device = open_device(device)
        self.clock: Clock = open_clock(self.device)
        self._train = default_step(build_model(model), self.device, precision)
        images, labels = synthetic_batch(batch_size, 224)
        # On the device once and for all: a copy in each step would wait for the step before.
        self._labels = to_device(labels, self.device)
        self._images = images if encoded is None else encoded
        self._decode = None if encoded is None else jpeg_decoder(self.device)
        self._copies: Any = None

    def cost(self, seconds: float = 3.0) -> StepCost:
        """Measure the step on resident data, launch, copies, and the step beside busy cores."""
        resident = (self._on_device(self._images), self._labels)
        warm = warm_up(self._step, resident, self.clock, seconds)
        count = max(3, min(STEPS, int(seconds / max(warm.step, 1e-9))))
        found = {m.name: m for m in measure_step(self._step, resident, self.clock, warm=warm, count=count)}
        found |= {m.name: m for m in self._beside_busy_cores(resident, count)}
        if self._decode is None:  # else the decoder copies what it decodes
            found |= {m.name: m for m in measure_copies(self._images, self.device, self.clock)}
        return _step_cost({name: measurement.values[0] for name, measurement in found.items()})

    def _beside_busy_cores(self, resident: Any, count: int) -> list[Any]:
        """The step beside up to all cores but one: what it loses by sharing the trainer's own is simulated besides."""
        others = len(os.sched_getaffinity(0)) - 1
        return measure_busy(self._step, resident, self.clock, busy_levels(others) if others else (), count)

    def train(self, batch: Any) -> tuple[Any, Any]:
        """Copy a batch of images to the device and train on it; the marks around the step."""
        images = self._on_device(batch)
        begin = self.clock.mark()
        self._step((images, self._labels))
        return begin, self.clock.mark()

    def transfer(self, batch: Any) -> Any:
        """Images on the device, copied by a thread beside the steps; it waits for the copy, and not for any step."""
        if self.device.type != "cuda" or self._decode is not None:
            return batch
        cuda = load_torch().cuda
        if self._copies is None:
            self._copies = cuda.Stream(self.device)
        with cuda.stream(self._copies):
            images = _images(batch).to(self.device)
        # Its memory must not be given to the next copy while the step still reads it.
        images.record_stream(cuda.default_stream(self.device))
        return images

    def _on_device(self, batch: Any) -> Any:
        """Images on the device; encoded ones stay where they are, and the step begins with decoding them."""
        if self._decode is not None:
            return batch
        images = _images(batch)
        # From pageable memory it waits, as `StepCost.copy` and the simulation have it.
        return images.to(self.device, non_blocking=images.is_pinned())

    def _step(self, batch: tuple[Any, Any]) -> None:
        images, labels = batch
        self._train((images if self._decode is None else self._decode(images), labels))


def run_training(
    pipe: Pipe,
    training: Training,
    warm_up_steps: int,
    steps: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> Trial:
    """Train on ``warm_up_steps`` and then ``steps`` batches of the pipe, which stays open; times in seconds."""
    marks: list[tuple[Any, Any]] = []
    asks: list[tuple[float, float, float, float]] = []
    costs: list[Cost] = []
    ahead = 0 if pipe.inline else RUN_AHEAD
    if isinstance(pipe, StagedPipe):
        pipe.transfer = training.transfer
    training.clock.wait()
    base = training.clock.mark()
    for _ in range(warm_up_steps + steps):
        asked, cpu = clock(), cpu_clock()
        batch, cost = pipe.next()
        asks.append((asked, min(cost.made, clock()), clock(), cpu_clock() - cpu))
        costs.append(cost)
        marks.append(training.train(batch))
        if len(marks) > ahead:
            _wait_for(marks[-1 - ahead][1])
    training.clock.wait()
    return after_warm_up(_steps(training.clock, base, asks, marks), costs, warm_up_steps)


def _images(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple | list) else batch


def _wait_for(mark: Any) -> None:
    """Until the device has reached a mark; a host clock's mark is reached when it is made."""
    if hasattr(mark, "synchronize"):
        mark.synchronize()


def _steps(clock: Clock, base: Any, asks: Sequence[tuple[float, float, float, float]], marks: Any) -> list[Step]:
    return [
        Step(asked, ready, got, clock.seconds(base, begin), clock.seconds(base, end), cpu)
        for (asked, ready, got, cpu), (begin, end) in zip(asks, marks, strict=True)
    ]


def _step_cost(values: dict[str, tuple[float, ...]]) -> StepCost:
    step = values["accelerator.step"]
    alone = stats.median(step)
    busy = {
        int(name.rsplit(".", 1)[1]): stats.median(found) / alone
        for name, found in values.items()
        if name.startswith("accelerator.step.busy.")
    }
    copies = {name: stats.median(found) for name, found in values.items() if name.startswith("copy.")}
    return StepCost(
        step=step,
        launch=values["accelerator.launch"],
        copy=copies.get("copy.pageable.wall", 0.0),
        copy_pinned=copies.get("copy.pinned"),
        slowdown=tuple(_between(busy, level) for level in range(max(busy, default=0) + 1)),
    )


def _between(busy: dict[int, float], level: int) -> float:
    """Relative step time at a number of busy cores, linear between those measured; never faster than alone."""
    known = {0: 1.0, **{k: max(1.0, value) for k, value in busy.items()}}
    below = max(k for k in known if k <= level)
    above = min(k for k in known if k >= level)
    share = (level - below) / (above - below) if above > below else 0.0
    return known[below] + share * (known[above] - known[below])
