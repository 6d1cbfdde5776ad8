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
from coresim.errors import CoresimError, InputError
from coresim.measure.notes import Note
from coresim.measure.staged import StagedPipe
from coresim.measure.subject import Pipe
from coresim.measure.trial import Step, Trial, after_warm_up
from coresim.measuring.busy import busy_levels, measure_busy
from coresim.measuring.models import as_step, build_model, default_step, load_torch, one_line, synthetic_batch
from coresim.measuring.step_time import ImportedStep
from coresim.measuring.training_step import measure_step, warm_up
from coresim.measuring.transfer import Clock, map_tensors, measure_copies, open_clock, open_device, to_device
from coresim.validate.gpu_decode import jpeg_decoder

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


def is_own(model: str) -> bool:
    """Whether it names the user's own step, as ``package.module:name``, and not a network."""
    return ":" in model


class Training:
    """A model in training on a device; every batch that a pipe gives is copied there and trained on.

    Args:
        model: a name that `coresim.measuring.models.build_model` knows, which trains on the batch's images; or the
            user's own step, which gets the whole batch.
        precision: ``fp32`` or ``bf16``; the user's step has its own.
        device: ``cuda``, ``cuda:N`` or ``cpu``; a step of the user's that has a ``device`` goes there.
        batch_size: samples per batch.
        encoded: a batch of undecoded JPEG files, where the device decodes; its decoding is then part of the step.
        batch: for the user's step, a batch of the user's data set, as tensors.

    Raises:
        InputError: an unknown model, precision or device; the user's step cannot be imported or, later, fails.
        MissingPartError: no CUDA device.
    """

    def __init__(
        self, model: str, precision: str, device: str, batch_size: int, encoded: Any = None, batch: Any = None
    ) -> None:
        own = _blamed(lambda _: as_step(ImportedStep(model)), model)(None) if is_own(model) else None
        self.device = open_device(str(getattr(own, "device", None) or device))
        self.clock: Clock = open_clock(self.device)
        images, labels = synthetic_batch(batch_size, 224)
        # On the device once and for all: a copy in each step would wait for the step before.
        self._labels = to_device(labels, self.device)
        self._decode = None if encoded is None else jpeg_decoder(self.device)
        self._whole = own is not None
        if own is None:
            self._batch = images if encoded is None else encoded
            self._train = default_step(build_model(model), self.device, precision)
        else:
            self._batch, self._train = batch, _blamed(own, model)
        self._copies: Any = None

    def cost(self, seconds: float = 3.0) -> StepCost:
        """Measure the step on resident data, launch, copies, and the step beside busy cores."""
        resident = self._on_device(self._batch)
        warm = warm_up(self._step, resident, self.clock, seconds)
        count = max(3, min(STEPS, int(seconds / max(warm.step, 1e-9))))
        found = {m.name: m for m in measure_step(self._step, resident, self.clock, warm=warm, count=count)}
        found |= {m.name: m for m in self._beside_busy_cores(resident, count)}
        if self._decode is None:  # else the decoder copies what it decodes
            found |= {m.name: m for m in measure_copies(self._batch, self.device, self.clock)}
        return _step_cost({name: measurement.values[0] for name, measurement in found.items()})

    def _beside_busy_cores(self, resident: Any, count: int) -> list[Any]:
        """The step beside up to all cores but one: what it loses by sharing the trainer's own is simulated besides."""
        others = len(os.sched_getaffinity(0)) - 1
        return measure_busy(self._step, resident, self.clock, busy_levels(others) if others else (), count)

    def train(self, batch: Any) -> tuple[Any, Any]:
        """Copy a batch to the device and train on it; the marks around the step."""
        there = self._on_device(batch)
        begin = self.clock.mark()
        self._step(there)
        return begin, self.clock.mark()

    def transfer(self, batch: Any) -> Any:
        """The batch on the device, copied by a thread beside the steps; it waits for the copy, and not for any step."""
        if self.device.type != "cuda" or self._decode is not None:
            return batch
        cuda = load_torch().cuda
        if self._copies is None:
            self._copies = cuda.Stream(self.device)
        with cuda.stream(self._copies):
            there = self._each(batch, lambda tensor: tensor.to(self.device))
        # Its memory must not be given to the next copy while the step still reads it.
        self._each(there, lambda tensor: tensor.record_stream(cuda.default_stream(self.device)))
        return there

    def _each(self, batch: Any, change: Callable[[Any], Any]) -> Any:
        """The user's step takes every tensor of a batch, a network the images alone."""
        return map_tensors(batch, change) if self._whole else change(_images(batch))

    def _on_device(self, batch: Any) -> Any:
        """What the step takes, on the device; encoded images stay where they are, and the step begins with decoding."""
        if self._whole:
            return self._each(batch, self._moved)
        return batch if self._decode is not None else self._each(batch, self._moved), self._labels

    def _moved(self, tensor: Any) -> Any:
        # From pageable memory it waits, as `StepCost.copy` and the simulation have it.
        return tensor.to(self.device, non_blocking=tensor.is_pinned())

    def _step(self, there: Any) -> None:
        if self._decode is not None:
            images, labels = there
            there = self._decode(images), labels
        self._train(there)


def _blamed(step: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """The step, or what makes it; what goes wrong in it is said in one line that names it."""

    def call(batch: Any) -> Any:
        try:
            return step(batch)
        except CoresimError:
            raise
        except Exception as error:
            words = f"training step {name} failed: {one_line(error)}; run it once in Python by itself"
            raise InputError(words) from error

    return call


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
    notes: list[Note] = []
    ahead = 0 if pipe.inline else RUN_AHEAD
    if isinstance(pipe, StagedPipe):
        pipe.transfer = training.transfer
    training.clock.wait()
    base = training.clock.mark()
    for _ in range(warm_up_steps + steps):
        asked, cpu = clock(), cpu_clock()
        batch, note = pipe.next()
        asks.append((asked, min(note.made, clock()), clock(), cpu_clock() - cpu))
        notes.append(note)
        marks.append(training.train(batch))
        if len(marks) > ahead:
            _wait_for(marks[-1 - ahead][1])
    training.clock.wait()
    return after_warm_up(_steps(training.clock, base, asks, marks), notes, warm_up_steps)


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
