"""The training step beside busy cores: what else runs on the host slows the device's trainer down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from coresim.errors import CoresimError
from coresim.measure.device import Device
from coresim.measure.models import Step
from coresim.measure.processes import Child, Link
from coresim.measure.training_step import per_step, time_steps
from coresim.model.measurement import Measurement

BUSY_BYTES = 32_000_000
_PATIENCE = 60.0


def measure_busy(
    step: Step,
    batch: Any,
    device: Device,
    levels: Sequence[int],
    count: int,
    occupy: Callable[[int], AbstractContextManager[object]] | None = None,
) -> list[Measurement]:
    """``accelerator.step.busy.K`` in s/step for each K in ``levels``: the step with K processes busy beside it."""
    found = []
    for level in levels:
        with (occupy or busy_processes)(level):
            values = time_steps(step, batch, device, count)
        how = f"device time of a step beside {level} pinned busy processes, each adding over {BUSY_BYTES} B of memory"
        found.append(per_step(f"step.busy.{level}", values, how))
    return found


def busy_levels(cores: int) -> tuple[int, ...]:
    """1, a quarter, half and all of the cores, each once."""
    return tuple(sorted({1, max(1, cores // 4), max(1, cores // 2), cores}))


@contextmanager
def busy_processes(count: int) -> Iterator[tuple[int, ...]]:
    """``count`` processes that compute and touch memory, pinned to this process's cores in turn; gives their ids.

    They run on entry and are gone on exit, whatever ends the block; where this process is killed, they end too.

    Raises:
        CoresimError: one did not start.
    """
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as running:
        children = [
            running.enter_context(Child(_compute, cpu=cores[index % len(cores)], limited=False, own_files=False))
            for index in range(count)
        ]
        _await_ready(children)
        yield tuple(child.pid for child in children)


def _compute(link: Link) -> None:
    """Body of a busy process: never returns."""
    numbers = np.ones(BUSY_BYTES // 8)
    link.send("ready")
    while True:
        np.add(numbers, 1.0, out=numbers)


def _await_ready(children: Sequence[Child]) -> None:
    deadline = time.monotonic() + _PATIENCE
    for child in children:
        try:
            child.receive(max(0.0, deadline - time.monotonic()))
        except CoresimError as error:
            raise CoresimError(
                f"busy process {child.pid} did not start within {_PATIENCE:g} s: ask for fewer"
            ) from error
