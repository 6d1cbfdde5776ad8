"""Training as the accelerator of a trial; a step's time is the time between two events of the device.

The device is any of `coresim.device.interface`: a CUDA device, the CPU, or an emulated one. The trainer runs one step
ahead of it, as a loop does that reads the loss of the step before, or as far as it is told to; where it prepares the
batches itself (option 1, no overlap) it waits for each step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from coresim.device.decoding import jpeg_decoder
from coresim.device.emulated import open_device
from coresim.device.interface import Device, map_tensors
from coresim.device.models import synthetic_batch, user_step
from coresim.measure.notes import Note
from coresim.measure.staged import StagedPipe
from coresim.measure.subject import Pipe
from coresim.measure.training_step import busy_levels, measure_launches, measure_training, warm_up
from coresim.measure.trial import TimedStep, Trial, after_warm_up
from coresim.model.measurement import Measurement
from coresim.model.profile_scenario import lead_of, slowdown_table
from coresim.workloads.base import blamed

STEPS = 20


@dataclass(frozen=True)
class StepCost:
    """What a training step costs on resident data, in seconds.

    Attributes:
        step: device times of back-to-back steps.
        launch: CPU times of the trainer to launch one.
        copy: to copy a batch to the device from pageable memory, which waits; empty where the CPU is the device.
        copy_pinned: the same from pinned memory, which does not wait.
        slowdown: relative step time with 0, 1, 2, ... cores busy.
        sync: whether waiting for the device holds a core (``spin``) or not (``block``).
        lead: share of a launch before which an idle device cannot begin the step.
    """

    step: tuple[float, ...]
    launch: tuple[float, ...]
    copy: tuple[float, ...]
    copy_pinned: tuple[float, ...]
    slowdown: tuple[float, ...]
    sync: str = "spin"
    lead: float = 0.0


def is_own(model: str) -> bool:
    """Whether it names the user's own step, as ``package.module:name``, and not a network."""
    return ":" in model


class Training:
    """A model in training on a device; every batch that a pipe gives is copied there and trained on.

    Args:
        model: one of `coresim.device.models.NETS`, which trains on the batch's images; or the user's own step, which
            gets the whole batch and has a precision of its own.
        precision, device: as `coresim.measure.accelerator.AcceleratorConfig` has them.
        batch: one of the data set, for the user's step as tensors; None: a synthetic one.
        encoded: whether it holds undecoded JPEG files, which the device decodes; that is then part of the step.

    Raises:
        InputError: an unknown model, precision or device; the user's step cannot be imported or, later, fails.
        MissingPartError: no CUDA device.
    """

    def __init__(
        self, model: str, precision: str, device: str, batch_size: int, batch: Any = None, encoded: bool = False
    ) -> None:
        blame = blamed(f"training step {model}", "run it once in Python by itself")
        own = blame(user_step)(model) if is_own(model) else None
        self.device: Device = open_device(str(getattr(own, "device", None) or device))
        images, labels = synthetic_batch(batch_size, 224)
        # On the device once and for all: a copy in each step would wait for the step before.
        self._labels = self.device.copy(labels)
        self._decode = self.device.decoder(jpeg_decoder) if encoded and own is None else None
        self._whole, self._count = own is not None, STEPS
        self._batch = images if batch is None else batch
        self._train = self.device.step(model, precision) if own is None else blame(own)

    def cost(self, seconds: float = 3.0) -> StepCost:
        """Measure the step on resident data, launch, copies, and the step beside busy cores."""
        resident = self._on_device(self._batch)
        # Beside up to all cores but one: what the step loses by sharing the trainer's own is simulated besides.
        others = len(os.sched_getaffinity(0)) - 1
        levels = busy_levels(others) if others else ()
        copied = self._batch if self._decode is None else None  # a decoder copies what it decodes
        _, self._count, found = measure_training(
            self._step, resident, copied, self.device, seconds=seconds, steps=STEPS, levels=levels
        )
        return self.relaunched(_step_cost(found, self.device.sync))

    def relaunched(self, cost: StepCost) -> StepCost:
        """The cost with more launches timed, where the device works while the host goes on.

        A shared machine changes its speed within less than a second, which is as long as some launches take: those of
        one moment were much cheaper than those of the trials. So they are timed at several moments.
        """
        if not self.device.asynchronous:
            return cost
        resident = self._on_device(self._batch)
        warm_up(self._step, resident, self.device, seconds=0.0)
        launch, _ = measure_launches(self._step, resident, self.device, self._count)
        return replace(cost, launch=(*cost.launch, *launch.flat))

    def train(self, batch: Any) -> tuple[Any, Any]:
        """Copy a batch to the device and train on it; the events around the step."""
        there = self._on_device(batch)
        begin = self.device.record()
        self._step(there)
        return begin, self.device.record()

    def transfer(self, batch: Any) -> Any:
        """The batch on the device, copied by a thread beside the steps; it waits for the copy, and not for any step."""
        if not self.device.asynchronous or self._decode is not None:
            return batch
        return self._each(batch, partial(self.device.copy, ahead=True))

    def _each(self, batch: Any, change: Callable[[Any], Any]) -> Any:
        """The user's step takes every tensor of a batch, a network the images alone."""
        if self._whole:
            return map_tensors(batch, change)
        return change(batch[0] if isinstance(batch, tuple | list) else batch)

    def _on_device(self, batch: Any) -> Any:
        """What the step takes, on the device; encoded images stay where they are, and the step begins with decoding."""
        there = batch if self._decode is not None else self._each(batch, self.device.copy)
        return there if self._whole else (there, self._labels)

    def _step(self, there: Any) -> None:
        if self._decode is not None:
            images, labels = there
            there = self._decode(images), labels
        self._train(there)


def run_training(
    pipe: Pipe,
    training: Training,
    warm_up_steps: int,
    steps: int,
    *,
    run_ahead: int,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> Trial:
    """Train on ``warm_up_steps`` and then ``steps`` batches of the pipe, which stays open; times in seconds.

    ``run_ahead``: steps that the trainer launches beyond the one whose end it waits for.
    """
    device = training.device
    marks: list[tuple[Any, Any]] = []
    asks: list[tuple[float, float, float, float, float]] = []
    notes: list[Note] = []
    ahead = 0 if pipe.inline else run_ahead
    if isinstance(pipe, StagedPipe):
        pipe.transfer = training.transfer
    device.synchronise()
    base = device.record()
    for _ in range(warm_up_steps + steps):
        asked, cpu = device.wall(), cpu_clock()
        batch, note = pipe.next()
        received = asked, min(note.there, device.wall()), device.wall(), cpu_clock() - cpu
        notes.append(note)
        begun = device.wall()
        marks.append(training.train(batch))
        asks.append((*received, device.wall() - begun))
        if len(marks) > ahead:
            device.synchronise(marks[-1 - ahead][1])
    device.synchronise()
    found = [
        TimedStep(asked, ready, got, device.elapsed(base, begin), device.elapsed(base, end), cpu, launch=launch)
        for (asked, ready, got, cpu, launch), (begin, end) in zip(asks, marks, strict=True)
    ]
    return after_warm_up(found, notes, warm_up_steps)


def _step_cost(found: Sequence[Measurement], sync: str) -> StepCost:
    values = {measurement.name: measurement for measurement in found}
    step, launch = values["accelerator.step"], values["accelerator.launch"]
    copies = {name: copy.flat for name, copy in values.items() if name.startswith("copy.")}
    return StepCost(
        step=step.flat,
        launch=launch.flat,
        copy=copies.get("copy.pageable", ()),
        copy_pinned=copies.get("copy.pinned", ()),
        slowdown=slowdown_table(step, found),
        sync=sync,
        lead=lead_of(step, launch, values.get("accelerator.step.alone")),
    )
