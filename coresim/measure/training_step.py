"""One training step on a device, by the device's own clock and by the host's; the same for every device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coresim import stats
from coresim.measure.device import Device
from coresim.measure.models import Step
from coresim.model.measurement import Measurement

STABLE = 0.05
WINDOW = 3
SYNC_TRIALS = 5
SHORTEST_HOLD = 2e-3


@dataclass(frozen=True)
class WarmUp:
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

    One step more is run first, and not counted: it alone finds the device idle.
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


def measure_step(step: Step, batch: Any, device: Device, *, warm: WarmUp, count: int = 30) -> list[Measurement]:
    """One training step on resident data.

    Args:
        step: ``train_step(batch)``.
        batch: a batch that lies on the device already.
        device: the device.
        warm: the warm-up that was done.
        count: steps timed.

    Returns:
        ``accelerator.step`` (between device marks), ``accelerator.step.wall`` (host clock over all steps: more
        than the former means work that the marks missed) and ``accelerator.launch`` (CPU time of the process
        from an idle device until the call returns; all threads, since autograd launches the backward pass
        from a thread of its own), all in s/step. A step that waits for the device (``waits_for_device``) spins
        meanwhile, and that is in its launch cost: it does hold a core.
    """
    device.synchronise()
    begin = device.wall()
    steps = time_steps(step, batch, device, count)
    wall = (device.wall() - begin) / (count + 1)
    launches = tuple(_launch_cost(step, batch, device) for _ in range(count))
    return [
        per_step("step", steps, f"device time of back-to-back steps on resident data, after {warm}"),
        per_step("step.wall", (wall,), "host wall clock of the same steps, over their number"),
        per_step("launch", launches, "CPU time of the process, all threads, until the step returns; waiting counts"),
    ]


def waits_for_device(step: Step, batch: Any, device: Device) -> bool:
    """Whether the step function waits for the device before it returns.

    The device is held up by a known time before the step. A function that then returns later by more than half
    of it has waited. (Return time beside device end alone takes a step that is bound by its launches for one that
    waits.) The hold is a quarter of the return time, so that the launch queue does not fill up behind it.
    """
    if not device.asynchronous:
        return True
    free = stats.median([_return_time(step, batch, device, 0.0) for _ in range(SYNC_TRIALS)])
    hold = max(free / 4, SHORTEST_HOLD)
    held = stats.median([_return_time(step, batch, device, hold) for _ in range(SYNC_TRIALS)])
    return held - free > hold / 2


def per_step(name: str, values: tuple[float, ...], how: str) -> Measurement:
    """A measurement of this process in s/step, its name below ``accelerator``."""
    return Measurement(f"accelerator.{name}", "s/step", (values,), how)


def _launch_cost(step: Step, batch: Any, device: Device) -> float:
    device.synchronise()
    before = device.cpu()
    step(batch)
    return device.cpu() - before


def _return_time(step: Step, batch: Any, device: Device, hold: float) -> float:
    device.synchronise()
    if hold:
        device.hold(hold)
    before = device.wall()
    step(batch)
    return device.wall() - before
