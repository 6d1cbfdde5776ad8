"""Time one training step on a device, alone and beside busy cores, and copies to it; the same for every device.

All is timed by the device's own clock and by the host's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import cycle, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from coresim import stats
from coresim.device.interface import Device, batch_bytes, map_tensors
from coresim.device.models import Step
from coresim.measure.bandwidth import available_memory
from coresim.measure.processes import Child, Link
from coresim.measure.worker_pool import worker_pool
from coresim.model.measurement import Measurement

FEWEST_STEPS = 3
STABLE = 0.05
WINDOW = 3
SYNC_TRIALS = 5
SHORTEST_HOLD = 2e-3
#: A device is held for so many times what launching a step takes on a quiet host.
LONG_HOLD = 4.0
BUSY_BYTES = 32_000_000
COPIES, COPY_WARM_UP = 20, 3
#: Batches that are copied in turn fill so much memory, more than most last-level caches, or `COPIES` batches if that is
#: less; and at the most this share of the memory that is free, twice: once as they are, and once pinned.
TURNS_BYTES, TURNS_SHARE = 512 * 2**20, 0.1


class WarmUp(NamedTuple):
    """Steps run before timing; ``step`` is the last window's median in seconds."""

    steps: int
    settled: bool
    step: float

    def __str__(self) -> str:
        """The stability test and its outcome, in words."""
        outcome = "within" if self.settled else "still not within"
        return f"{self.steps} warm-up steps, medians of the last 3 windows of {WINDOW} {outcome} {STABLE:.0%}"


def time_steps(step: Step, batch: Any, device: Device, count: int) -> tuple[float, ...]:
    """Device seconds of each of ``count`` steps launched back to back, with no wait between them.

    One more step runs first and does not count, because only that one finds the device idle.
    """
    device.synchronise()
    marks = []
    for _ in range(count + 1):
        step(batch)
        marks.append(device.record())
    device.synchronise()
    return tuple(device.elapsed(start, end) for start, end in pairwise(marks))


def warm_up(step: Step, batch: Any, device: Device, seconds: float = 5.0) -> WarmUp:
    """Run windows of steps until the medians of the last three lie within ``STABLE`` of their least, or time is up."""
    medians: list[float] = []
    deadline = device.wall() + seconds
    while True:
        medians.append(stats.median(time_steps(step, batch, device, WINDOW)))
        last = medians[-3:]
        settled = len(last) == 3 and max(last) <= (1 + STABLE) * min(last)
        if settled or device.wall() >= deadline:
            return WarmUp((WINDOW + 1) * len(medians), settled, medians[-1])


def measure_training(
    step: Step, resident: Any, batch: Any, device: Device, *, seconds: float, steps: int, levels: Sequence[int]
) -> tuple[WarmUp, int, list[Measurement]]:
    """All of a step: its warm-up, how many steps were timed for each quantity, and the measurements.

    Args:
        resident: the batch on the device, which is trained on.
        batch: the same on the host, for the copies; None: copies are not timed.
        seconds: time allowed for each quantity; fewer than ``steps`` are timed where they are long, never fewer than
            `FEWEST_STEPS`.
        levels: numbers of busy processes.
    """
    warm = warm_up(step, resident, device, seconds)
    count = max(FEWEST_STEPS, min(steps, int(seconds / max(warm.step, 1e-9))))
    found = measure_step(step, resident, device, warm=warm, count=count)
    found += measure_busy(step, resident, device, levels, count)
    return warm, count, found + measure_copies(batch, device)


def measure_step(step: Step, batch: Any, device: Device, *, warm: WarmUp, count: int = 30) -> list[Measurement]:
    """``count`` training steps on a batch that lies on the device already, in s/step.

    ``accelerator.step`` is between device marks; ``accelerator.step.wall`` is by the host's clock over all steps: more
    than the former means work that the marks missed. ``accelerator.launch`` is CPU time of the process from an idle
    device until the call returns; of all threads, since autograd launches the backward pass from a thread of its own.
    A step that waits for the device (``waits_for_device``) spins meanwhile, and that is in its launch cost: it does
    hold a core. ``accelerator.step.alone`` is the device's time for such a step, launched while it is idle: more than
    ``accelerator.step`` where it has to wait for launches, which are ahead of it in back-to-back steps.
    """
    device.synchronise()
    begin = device.wall()
    steps = time_steps(step, batch, device, count)
    wall = (device.wall() - begin) / (count + 1)
    return [
        _per_step("step", steps, f"device time of back-to-back steps on resident data, after {warm}"),
        _per_step("step.wall", (wall,), "host wall clock of the same steps, over their number"),
        *measure_launches(step, batch, device, count),
    ]


def measure_launches(step: Step, batch: Any, device: Device, count: int) -> list[Measurement]:
    """``accelerator.launch`` and ``accelerator.step.alone`` of ``count`` steps, in s/step; see `measure_step`."""
    _, launches, alone = zip(*(_launched(step, batch, device) for _ in range(count)), strict=True)
    return [
        _per_step("launch", launches, "CPU time of the process, all threads, until the step returns; waiting counts"),
        _per_step("step.alone", alone, "device time of the same steps, each launched on an idle device"),
    ]


def waits_for_device(step: Step, batch: Any, device: Device) -> bool:
    """Whether the step function waits for the device before it returns.

    The device is held up by a known time before the step. A function that then returns later by more than half
    of it has waited. (To compare only the return with the device's end would take a step bound by its launches for one
    that waits.) The hold is a quarter of the return time, so that the launch queue does not fill up behind it.
    """
    if not device.asynchronous:
        return True
    free = stats.median([_launched(step, batch, device).wall for _ in range(SYNC_TRIALS)])
    hold = max(free / 4, SHORTEST_HOLD)
    held = stats.median([_launched(step, batch, device, hold).wall for _ in range(SYNC_TRIALS)])
    return held - free > hold / 2


def _per_step(name: str, values: tuple[float, ...], how: str) -> Measurement:
    """A measurement of this process in s/step, its name below ``accelerator``."""
    return Measurement(f"accelerator.{name}", "s/step", (values,), how)


class _Launched(NamedTuple):
    """One step: wall and CPU seconds until the call that launches it returns, and the device's seconds for it."""

    wall: float
    cpu: float
    device: float


def _launched(step: Step, batch: Any, device: Device, hold: float = 0.0) -> _Launched:
    """A step that is launched on an idle device, or on one that is held for so many seconds from then on."""
    device.synchronise()
    if hold:
        device.hold(hold)
    begin, wall, cpu = device.record(), device.wall(), device.cpu()
    step(batch)
    cpu, wall, end = device.cpu() - cpu, device.wall() - wall, device.record()
    device.synchronise()
    return _Launched(wall, cpu, device.elapsed(begin, end))


def measure_busy(step: Step, batch: Any, device: Device, levels: Sequence[int], count: int) -> list[Measurement]:
    """``accelerator.step.busy.K`` in s/step for each K in ``levels``: the step with K processes busy beside it.

    An asynchronous device is held until the step is launched: slow launches are a cost of their own, and do not make
    the device slower (``calibration/probe_idle.py``).
    """
    found = []
    hold = LONG_HOLD * max(_launched(step, batch, device).wall, SHORTEST_HOLD)
    for level in levels:
        with busy_processes(level):
            if device.asynchronous:
                values = tuple(_launched(step, batch, device, hold).device for _ in range(count))
            else:
                values = time_steps(step, batch, device, count)
        how = f"device time of a step beside {level} pinned busy processes, each adding over {BUSY_BYTES} B of memory"
        found.append(_per_step(f"step.busy.{level}", values, how))
    return found


def busy_levels(cores: int) -> tuple[int, ...]:
    """1, a quarter, half and all of the cores, each once."""
    return tuple(sorted({1, max(1, cores // 4), max(1, cores // 2), cores}))


def busy_processes(count: int) -> AbstractContextManager[list[Child]]:
    """``count`` processes that compute and touch memory, pinned to this process's cores in turn.

    They run on entry and are gone on exit, whatever ends the block; where this process is killed, they end too.

    Raises:
        CoresimError: one did not start.
    """
    cpus = list(islice(cycle(sorted(os.sched_getaffinity(0))), count))
    return worker_pool(_compute, cpus=cpus, doing="keeping cores busy")


def _compute(link: Link) -> None:
    """Body of a busy process: never returns."""
    numbers = np.ones(BUSY_BYTES // 8)
    link.send(("ready", None))
    while True:
        np.add(numbers, 1.0, out=numbers)


def measure_copies(batch: Any, device: Device) -> list[Measurement]:
    """``copy.pinned`` and ``copy.pageable``: copies of a batch from pinned and from pageable memory, in s/batch.

    The first is between device events around it; the second is by the host's clock until the device is done, as a
    trainer waits for it. Up to `COPIES` batches are copied in turn, so that large ones come from memory and not from a
    cache: those of a training are new each time. The list is empty if the CPU is the device, which reads host memory as
    it is, and for a batch without tensors.
    """
    size = batch_bytes(batch) if device.asynchronous else 0
    if not size:
        return []
    room = min(TURNS_BYTES, TURNS_SHARE * available_memory())
    turns = max(1, min(COPIES, math.ceil(room / size)))
    batches = [map_tensors(batch, lambda tensor: tensor.clone()) for _ in range(turns)]
    there, _ = _copied([map_tensors(each, device.pin) for each in batches], device)
    _, waited = _copied(batches, device)
    what = f"copy of a batch of {size} B to the device, each of {turns} in turn, alone on the machine"
    return [
        Measurement("copy.pinned", "s/batch", (there,), f"{what}: between device events around it"),
        Measurement("copy.pageable", "s/batch", (waited,), f"{what}: host wall clock until the device is done"),
    ]


def _copied(batches: Sequence[Any], device: Device) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of `COPIES` copies, by the device's clock and by the host's."""
    found = []
    for batch in islice(cycle(batches), COPY_WARM_UP + COPIES):
        device.synchronise()
        wall, start = device.wall(), device.record()
        map_tensors(batch, device.copy)
        end = device.record()
        device.synchronise()
        found.append((device.elapsed(start, end), device.wall() - wall))
    there, waited = zip(*found[COPY_WARM_UP:], strict=True)
    return there, waited
