"""A subject is any loader that can be run with k workers; a pipe is such a loader while it runs.

`coresim.measure.torch_loader` runs a job's own ``DataLoader``; `coresim.measure.stand_in` is a small loader of our own,
for a host without torch; `coresim.measure.staged` runs stages in threads. A calibration and a trial take any of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coresim.measure.notes import Note, Prepared
from coresim.workloads.base import seed_everything

#: The longest that a batch may take, s; a loader that gives nothing for so long is taken for one that hangs.
PATIENCE = 300.0
SILENT = "no batch came for {:g} s; make the data set answer (a lock, a network, a disk?)"


@dataclass(frozen=True)
class Layout:
    """How to run a subject; the fields mean what they mean in ``[loader]`` of a scenario.

    ``workers`` = 0 is the loader in the trainer's own process. Our own small loader keeps the order in any case.
    """

    workers: int
    prefetch_factor: int = 2
    ordered: bool = True
    pin_memory: bool = False
    fetchers: int = 8
    buffer: int = 2


class Pipe:
    """Batches in the trainer's hands, one for each call of ``next``; close it when done."""

    #: Whether the trainer itself prepares: then nothing was ready before it asked.
    inline = False

    def next(self) -> tuple[Any, Note]:
        """Wait for the next batch.

        Raises:
            InputError: the data set or the collate function failed, or nothing came for `PATIENCE` seconds.
        """
        raise NotImplementedError

    def stop(self) -> int:
        """Deal no more batches; return how many are still to come."""
        return 0

    def pids(self) -> tuple[int, ...]:
        """The worker processes, where there are any."""
        return ()

    def close(self) -> None:
        """End every worker."""


class Subject:
    """A loader that can be run.

    Attributes:
        loader: which loader it is, in words.
        batch_size: samples per batch.
        threads: whether its workers are threads of the trainer's process.
        steps: the names of the steps of one sample, where the data set shows them.
        context: the job's own way to start workers, a ``multiprocessing`` context; None: the usual one.
        samples: how many can be asked for by number; 0 for a stream.
        timed_sample: the sample that tells the machine's speed, and how many times over it is prepared; None before
            `coresim.measure.machine_speed` has chosen it.
    """

    loader = "loader"
    batch_size = 1
    threads = False
    steps: tuple[str, ...] = ()
    context: Any = None
    samples = 0
    timed_sample: tuple[int, int] | None = None
    _dataset: Any

    def open(self, layout: Layout, seed: int) -> Pipe:
        """Start the loader with so many workers; ``seed`` chooses the order of the samples."""
        raise NotImplementedError

    def sample(self, index: int) -> Any:
        """Prepare one sample in this process, as a worker does; only where ``samples`` is not 0."""
        return self._dataset[index]

    def seed(self) -> None:
        """Draw the same random numbers again from here on."""
        seed_everything(0)
        if isinstance(self._dataset, Prepared):
            self._dataset.seed(0)


def batches_of(samples: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Endless full batches of shuffled sample numbers."""
    rng = np.random.default_rng(seed)
    rounds = (rng.permutation(samples) for _ in itertools.count())
    indices = map(int, itertools.chain.from_iterable(rounds))
    while True:
        yield list(itertools.islice(indices, batch_size))
