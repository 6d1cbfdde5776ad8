"""The three organisations of the input pipeline, for real: each gives batches that say when they were ready.

Option 1 is the loader in the trainer's own process (``num_workers=0``), option 2 a PyTorch ``DataLoader`` with worker
processes, option 3 three stages in threads joined by bounded queues. All run the same `Timed` data set, which notes
what every sample and batch cost, so that calibration and trial see the very same code.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coresim.errors import InputError
from coresim.measuring.sending import collation
from coresim.workloads.base import Workload

#: The C library; Python has no name for sched_getcpu(3) before 3.13.
_C = ctypes.CDLL(None)
#: Option 3's fetches in flight.
FETCHERS = 8


class Cost(NamedTuple):
    """What a worker noted of one batch, in seconds; clocks as `time.perf_counter` and `time.thread_time`.

    Attributes:
        began, made: when its first sample was begun, and when the batch was ready.
        wall, cpu: per sample, if asked for; else the sums alone.
        collate: CPU seconds of the collation.
        worker: the process that made it.
        fetch: seconds that its samples' fetches took, in threads of their own (option 3); in ``cpu``, not in ``wall``.
        copy: CPU seconds of copying it in a thread of its own (option 3).
        cpu_number: the CPU that the worker was on when the batch was ready.
    """

    began: float
    made: float
    wall: Sequence[float]
    cpu: Sequence[float]
    collate: float
    worker: int
    fetch: float = 0.0
    copy: float = 0.0
    cpu_number: int = 0


class Sample(NamedTuple):
    """A prepared sample with the clocks around it."""

    value: Any
    began: float
    wall: float
    cpu: float


class Timed:
    """A map-style data set over a workload; ``index`` may exceed its length and then starts over."""

    def __init__(self, workload: Workload, detail: bool = False) -> None:
        self.workload, self.detail = workload, detail
        self._steps = workload.steps()
        self._size = min(len(workload), 10**6)
        self._rng: np.random.Generator | None = None

    def again(self, seed: int) -> None:
        """Draw the random numbers of that seed from here on."""
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: int) -> Sample:
        if self._rng is None:  # one for each worker: it is made after the fork
            self._rng = np.random.default_rng()
        began, cpu = time.perf_counter(), time.thread_time()
        value: Any = index % self._size
        for step in self._steps:
            value = step.call(value, self._rng)
        return Sample(value, began, time.perf_counter() - began, time.thread_time() - cpu)

    def collate(self, samples: list[Sample]) -> tuple[Any, Cost]:
        """The batch and what it cost; torch's default collation where the workload has none of its own."""
        began = time.thread_time()
        batch = collation(self.workload)([sample.value for sample in samples])
        collate, made = time.thread_time() - began, time.perf_counter()
        wall, cpu = [sample.wall for sample in samples], [sample.cpu for sample in samples]
        if not self.detail:
            wall, cpu = [sum(wall)], [sum(cpu)]
        cost = Cost(samples[0].began, made, _packed(wall), _packed(cpu), collate, os.getpid())
        return batch, cost._replace(cpu_number=_C.sched_getcpu())


def _packed(values: list[float]) -> Any:
    """As bytes: thousands of numbers make the hand-over itself slow, and the thread that pins memory walks them."""
    return array("d", values).tobytes()


def unpacked(cost: Cost) -> Cost:
    """The cost as it is after it was sent, with its numbers to be read."""
    wall: Any = cost.wall
    cpu: Any = cost.cpu
    return cost._replace(wall=array("d", wall), cpu=array("d", cpu))


@dataclass(frozen=True)
class Layout:
    """How to organise the real pipeline; the fields mean what they mean in a scenario."""

    option: int
    workers: int
    batch_size: int
    prefetch_factor: int = 2
    ordered: bool = True
    pin_memory: bool = False
    fetchers: int = FETCHERS
    buffer: int = 2


class Pipe:
    """Batches in the trainer's hands, one for each call of ``next``; close it when done."""

    #: Whether the trainer itself prepares: then nothing was ready before it asked.
    inline = False

    def next(self) -> tuple[Any, Cost]:
        """Wait for the next batch."""
        raise NotImplementedError

    def close(self) -> None:
        """End every worker."""


def open_pipe(data: Timed, layout: Layout, seed: int) -> Pipe:
    """The organisation that the layout names."""
    indices = batches_of(len(data.workload), layout.batch_size, seed)
    if layout.option == 3:
        from coresim.validate.staged import StagedPipe  # noqa: PLC0415 (it builds on this module)

        return StagedPipe(data, layout, indices)
    return LoaderPipe(data, layout, indices)


def batches_of(samples: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Endless batches of shuffled sample numbers."""
    rng = np.random.default_rng(seed)
    size = min(samples, 10**6)
    rounds = (rng.permutation(size) for _ in itertools.count())
    # Round after round, without a pass over all that is left of one for every batch: it is the trainer who deals.
    indices = map(int, itertools.chain.from_iterable(rounds))
    while True:
        yield list(itertools.islice(indices, batch_size))


class LoaderPipe(Pipe):
    """Options 1 and 2: torch's own DataLoader."""

    def __init__(self, data: Timed, layout: Layout, indices: Iterator[list[int]]) -> None:
        from torch.utils.data import DataLoader  # noqa: PLC0415 (torch is optional and heavy)

        workers = 0 if layout.option == 1 else layout.workers
        own: dict[str, Any] = {"pin_memory": layout.pin_memory}
        if workers:
            own["prefetch_factor"] = layout.prefetch_factor
        if not layout.ordered:  # loaders before torch 2.6 do not know it
            own["in_order"] = False
        batches: Any = _Endless(indices)
        source: Any = data
        self.inline = not workers
        self._loader = DataLoader(source, batch_sampler=batches, num_workers=workers, collate_fn=data.collate, **own)
        self._batches: Any = iter(self._loader)

    def next(self) -> tuple[Any, Cost]:
        """The loader's next batch; what went wrong in a worker is raised as what it was there."""
        try:
            batch, cost = next(self._batches)
        except InputError as error:  # torch makes a worker's traceback the message of the same error
            raise InputError(str(error).strip().splitlines()[-1].partition(": ")[2] or str(error)) from None
        return batch, unpacked(cost)

    def close(self) -> None:
        """Let torch shut its workers down."""
        if not self.inline:
            self._batches._shutdown_workers()


class _Endless:
    """A batch sampler."""

    def __init__(self, indices: Iterator[list[int]]) -> None:
        self._indices = indices

    def __iter__(self) -> Iterator[list[int]]:
        return self._indices

    def __len__(self) -> int:
        return 2**62
