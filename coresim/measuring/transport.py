"""How long the trainer needs to be handed a batch that is ready.

With torch it is the real thing: a ``DataLoader`` with one worker process, which puts tensors into shared memory
and sends their handles. The trainer asks the maker's threads for what they stand for, so the time is more than its
own CPU time: both are noted. Batches are ready ahead, and each is asked for when their maker rests, so that no waiting
for one to be made is timed; the batch before is let go, as a training loop does. The time is separated by least squares
over batches of several sizes and tensor counts::

    seconds per batch = fixed + per_tensor x tensors + per_byte x bytes

Receiving maps the memory and does not read it; copying it (to pinned memory, to the device) is another cost.
Without torch a pipe with pickled numpy arrays stands in, which copies every byte, and ``how`` says so.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from coresim.measuring import protocol
from coresim.measuring.processes import HOW_THREADS, TIMEOUT, Child, Link, limit_threads
from coresim.measuring.protocol import Cautions, Clock, Progress
from coresim.model.caution import Caution
from coresim.model.measurement import Measurement

#: Batches that the worker has ready.
READY = 2
SMALL = 16 * 1024
LARGE = 16 * 2**20
MANY = 16
LEAST_ROUNDS = 4
#: A hand-over that takes so many times the median is a disturbance: somebody else had the core.
DISTURBED = 4.0
SHARED_MEMORY = "/dev/shm"
HOW_TORCH = f"torch DataLoader, 1 worker, shared memory, batches ready ahead; {HOW_THREADS}"
HOW_PIPE = "stand-in without torch: pickled numpy arrays through a pipe"


class Shape(NamedTuple):
    """A batch of ``tensors`` equal parts, ``size`` bytes in all."""

    size: int
    tensors: int


class Handover(NamedTuple):
    """Seconds of the trainer's process per batch of one shape: CPU, and wall clock for a ready batch."""

    cpu: list[float]
    wall: list[float]


def measure_transport(
    batch_bytes: int,
    tensors: int = 1,
    *,
    processes: int = 2,
    budget_s: float = 8.0,
    use_torch: bool | None = None,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``transport.batch.wall``, ``.batch`` and ``.fixed`` (s/batch), ``.per_tensor`` (s), ``.per_byte`` (s/B).

    ``.batch.wall`` is the whole time, ``.batch`` the trainer's own CPU time of it; the others make up the whole.

    Args:
        batch_bytes: bytes of the workload's batch.
        tensors: its number of tensors.
        processes: fresh processes, one after the other; after the first, only while the budget lasts.
        budget_s: wall seconds of measuring, all processes together; importing torch may exceed it.
        use_torch: the real loader or the stand-in; by default the real one where torch is installed.
        progress: told what is going on, and the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        CoresimError: a process died or hangs.
    """
    real = importlib.util.find_spec("torch") is not None if use_torch is None else use_torch
    batch = Shape(max(batch_bytes, 1), max(tensors, 1))
    if real and batch.size * READY > shared_memory_room():
        remedy = f"give {SHARED_MEMORY} more room (docker run --shm-size); a smaller batch was measured and scaled"
        protocol.add(cautions, [Caution("shared memory is small", f"{shared_memory_room()} B free", remedy)])
    shapes = _shapes(batch, shared_memory_room() // READY if real else batch.size)
    found: list[list[Handover]] = []
    started = time.perf_counter()
    for number in range(processes):
        if found and time.perf_counter() - started > budget_s:
            break
        protocol.tell(progress, "handing batches over", number / processes)
        job = _torch_job if real else _pipe_job
        with Child(job, shapes, budget_s / processes, doing="handing batches over") as child:
            while (message := child.receive(2 * TIMEOUT))[0] != "done":
                protocol.tell(progress, "handing batches over", (number + message[1]) / processes)
            found.append(message[1])
    return _measurements(batch, shapes, found, HOW_TORCH if real else HOW_PIPE)


def shared_memory_room() -> int:
    """Bytes free in shared memory; half of them are for us."""
    try:
        facts = os.statvfs(SHARED_MEMORY)
    except OSError:
        return LARGE * READY
    return facts.f_bavail * facts.f_frsize // 2


def _shapes(batch: Shape, room: int) -> list[Shape]:
    """The workload's batch first (smaller where there is no room), then others to tell the costs apart."""
    first = Shape(min(batch.size, room), batch.tensors)
    others = [Shape(SMALL, 1), Shape(SMALL, MANY)]
    if first.size < LARGE // READY:
        others.append(Shape(min(LARGE, room), 1))
    return [first, *(shape for shape in others if shape != first)]


def fit_costs(shapes: Sequence[Shape], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Fixed, per-tensor and per-byte seconds by least squares of relative errors; none is negative."""
    rows = np.array([[1.0, shape.tensors, shape.size] for shape in shapes])
    columns = [0, 1, 2]
    while columns:
        weighted = rows[:, columns] / np.array(seconds)[:, None]
        found = np.linalg.lstsq(weighted, np.ones(len(shapes)), rcond=None)[0]
        if min(found) >= 0:
            break
        del columns[int(np.argmin(found * np.mean(weighted, axis=0)))]
    costs = [0.0, 0.0, 0.0]
    for column, cost in zip(columns, found, strict=True):
        costs[column] = float(cost)
    return costs[0], costs[1], costs[2]


def _measurements(
    batch: Shape, shapes: Sequence[Shape], found: Sequence[Sequence[Handover]], how: str
) -> list[Measurement]:
    cpu, wall = ([[handover[part] for handover in process] for process in found] for part in range(2))
    fixed, tensor, byte = (
        tuple((cost,) for cost in costs) for costs in zip(*(_fitted(shapes, process) for process in wall), strict=True)
    )
    if shapes[0] != batch:
        how += "; scaled up from a smaller batch"
    return [
        Measurement("transport.batch", "s/batch", _of(batch, shapes, cpu), f"{how}; trainer's CPU"),
        Measurement("transport.batch.wall", "s/batch", _of(batch, shapes, wall), f"{how}; wall clock"),
        Measurement("transport.fixed", "s/batch", fixed, f"{how}; wall clock, fitted"),
        Measurement("transport.per_tensor", "s", tensor, f"{how}; wall clock, fitted"),
        Measurement("transport.per_byte", "s/B", byte, f"{how}; wall clock, fitted"),
    ]


def _fitted(shapes: Sequence[Shape], process: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    return fit_costs(shapes, [float(np.median(seconds)) for seconds in process])


def _of(
    batch: Shape, shapes: Sequence[Shape], processes: Sequence[Sequence[Sequence[float]]]
) -> tuple[tuple[float, ...], ...]:
    """Seconds of the batch itself, process by process; where it was too large, of the fit."""
    if shapes[0] == batch:
        return tuple(tuple(process[0]) for process in processes)
    costs = [_fitted(shapes, process) for process in processes]
    return tuple((fixed + tensor * batch.tensors + byte * batch.size,) for fixed, tensor, byte in costs)


def time_handover(receive: Callable[[], object], ready: Callable[[], object], clock: Clock, budget: float) -> Handover:
    """Time ``receive`` until ``budget`` seconds of ``clock`` are used, each time for a batch that is ready.

    Args:
        receive: takes one batch and lets it go.
        ready: waits until batches are ready and nothing more is made.
        clock: the wall clock, and the CPU clock of the receiving process.
        budget: seconds; `LEAST_ROUNDS` batches are received at least, after one that does not count.

    Returns:
        What was not disturbed.
    """
    found = Handover([], [])
    started = clock.wall()
    for number in itertools.count():
        ready()
        timing = protocol.timed(receive, clock)
        if number > 0:
            found.cpu.append(timing.cpu)
            found.wall.append(timing.wall)
        if number >= LEAST_ROUNDS and clock.wall() - started > budget:
            return _undisturbed(found)
    raise AssertionError("itertools.count ended")


def _undisturbed(found: Handover) -> Handover:
    most = DISTURBED * float(np.median(found.wall))
    kept = [(cpu, wall) for cpu, wall in zip(found.cpu, found.wall, strict=True) if wall <= most]
    return Handover([cpu for cpu, _ in kept], [wall for _, wall in kept])


def _torch_job(link: Link, shapes: Sequence[Shape], budget: float) -> list[Handover]:
    from torch.utils.data import DataLoader  # noqa: PLC0415 (torch is optional and heavy)

    limit_threads()
    found = []
    for number, shape in enumerate(shapes):
        link.send("used", number / len(shapes))
        dataset: Any = _Batches(shape)
        batches = iter(DataLoader(dataset, batch_size=None, num_workers=1, prefetch_factor=READY))
        ready = partial(time.sleep, _seconds_to_produce(batches))
        found.append(time_handover(partial(next, batches), ready, Clock(), budget / len(shapes)))
        del batches, ready
    return found


def _seconds_to_produce(batches: Iterator[Any]) -> float:
    """Long enough for the worker to make one more batch: the time that it takes when pressed, and more."""
    next(batches)
    started = time.perf_counter()
    for _ in range(READY):
        next(batches)
    return 0.01 + 1.5 * (time.perf_counter() - started) / READY


class _Batches:
    """A map-style dataset whose items are whole batches of tensors, cheap to make."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> list[Any]:
        import torch  # noqa: PLC0415 (runs in the loader's worker, where torch is loaded)

        size = max(1, self._shape.size // self._shape.tensors)
        return [torch.full((size,), index % 128, dtype=torch.uint8) for _ in range(self._shape.tensors)]


def _pipe_job(link: Link, shapes: Sequence[Shape], budget: float) -> list[Handover]:
    found = []
    for number, shape in enumerate(shapes):
        link.send("used", number / len(shapes))
        with Child(_pipe_sender, shape, doing="handing batches over") as sender:
            found.append(time_handover(sender.receive, lambda: None, Clock(), budget / len(shapes)))
    return found


def _pipe_sender(link: Link, shape: Shape) -> None:
    size = max(1, shape.size // shape.tensors)
    parts = [np.full(size, number % 128, dtype=np.uint8) for number in range(shape.tensors)]
    while True:
        link.send("batch", parts)
