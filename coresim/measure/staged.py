"""Option 3 for real: fetch, preprocess and copy as threads, joined by bounded buffers that keep the order."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from coresim.errors import CoresimError
from coresim.measure.notes import Note, Prepared, Sample, noted, through, timed, unpacked
from coresim.measure.subject import Layout, Pipe, Subject, batches_of
from coresim.model.option import STAGED_LOADER
from coresim.workloads.base import Workload, blamed, mapped


class Closed(Exception):
    """The pipeline is being shut down."""


class Buffer:
    """A bounded buffer between two stages, filled in the order of the batches' numbers.

    A worker whose batch is not next, or that finds no room, waits with it: blocking after service.
    """

    def __init__(self, room: int) -> None:
        self._room, self._turn = room, 0
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, number: int, item: Any) -> None:
        """Hand batch ``number`` over once it is its turn and there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._turn == number and len(self._items) < self._room))
            self._check()
            self._items.append((number, item))
            self._turn += 1
            self._changed.notify_all()

    def take(self) -> tuple[int, Any]:
        """The oldest batch and its number."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._items))
            self._check()
            found: tuple[int, Any] = self._items.popleft()
            self._changed.notify_all()
            return found

    def close(self) -> None:
        """Wake everyone who waits; they end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check(self) -> None:
        if self._closed:
            raise Closed


class StagedSubject(Subject):
    """Stages in threads, joined by bounded buffers: option 3; a workload's first step is the fetch."""

    loader = STAGED_LOADER
    threads = True

    def __init__(self, workload: Workload, collate: Callable[[list[Any]], Any]) -> None:
        self._workload, self._collate = workload, collate
        self.batch_size = workload.batch_size
        self._dataset = Prepared(workload)
        self.samples = len(self._dataset)

    def open(self, layout: Layout, seed: int) -> Pipe:
        """Start the threads."""
        return StagedPipe(self._workload, self._collate, layout, batches_of(self.samples, self.batch_size, seed))


class StagedPipe(Pipe):
    """Option 3: threads fetch, threads preprocess whole batches, a thread copies; bounded buffers between them.

    ``transfer``: how the thread that copies brings its copy of a batch to the device, where there is one.
    """

    transfer: Callable[[Any], Any] | None = None

    def __init__(
        self, workload: Workload, collate: Callable[[list[Any]], Any], layout: Layout, indices: Iterator[list[int]]
    ) -> None:
        self._steps, self._collate, self._name = workload.steps(), collate, workload.name
        self._indices = itertools.chain.from_iterable(indices)
        self._batch_size = workload.batch_size
        self._dealing, self._gathering = threading.Lock(), threading.Lock()
        self._gathered: list[Sample] = []
        self._number = 0
        self._fetched, self._prepared, self._copied = (Buffer(layout.buffer) for _ in range(3))
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (*[self._fetch] * layout.fetchers, *[self._prepare] * layout.workers, self._copy)
        ]
        for thread in self._threads:
            thread.start()

    def next(self) -> tuple[Any, Note]:
        """The next batch in order; what went wrong in a thread is raised here."""
        try:
            batch, note = self._copied.take()[1]
        except Closed:
            raise self._error or CoresimError("the staged pipeline ended") from None
        return batch, unpacked(note)

    def close(self) -> None:
        """Stop the threads; each ends at the latest after its current batch."""
        self._end()
        for thread in self._threads:
            thread.join()

    def _end(self) -> None:
        for buffer in (self._fetched, self._prepared, self._copied):
            buffer.close()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Closed:
            return
        except BaseException as error:
            self._error = error
            self._end()

    def _fetch(self) -> None:
        """Samples join a batch in the order in which they are fetched, so that a slow one holds up no other.

        A thread that completes a batch waits with it for room; so do all threads that have fetched one more sample.
        """
        first = self._steps[:1]
        rng = np.random.default_rng()
        while True:
            with self._dealing:
                index = next(self._indices)
            sample = timed(partial(through, first, index, rng))
            with self._gathering:
                self._gathered.append(sample)
                if len(self._gathered) >= self._batch_size:  # more only where the pipeline is closed, which ends all
                    self._fetched.put(self._number, self._gathered)
                    self._gathered, self._number = [], self._number + 1

    def _prepare(self) -> None:
        steps = self._steps[1:]
        rng = np.random.default_rng()
        while True:
            number, raws = self._fetched.take()
            began = time.perf_counter()
            samples = [timed(partial(through, steps, raw.value, rng)) for raw in raws]
            samples = [sample._replace(cpu=sample.cpu + raw.cpu) for sample, raw in zip(samples, raws, strict=True)]
            with blamed(f"{self._name}: collating {len(raws)} samples", "give a collate function that joins them"):
                batch, note = noted(samples, self._collate)
            fetch = sum(raw.wall for raw in raws)
            self._prepared.put(number, (batch, note._replace(began=began, fetch=fetch)))

    def _copy(self) -> None:
        while True:
            number, (batch, note) = self._prepared.take()
            cpu = time.thread_time()
            batch, cpu = mapped(batch, copied), time.thread_time() - cpu
            if self.transfer is not None:
                batch = self.transfer(batch)
            note = note._replace(made=time.perf_counter(), copy=cpu)
            self._copied.put(number, (batch, note))


def copied(part: Any) -> Any:
    """A copy of an array or a tensor in new memory, as a transfer makes one; anything else as it is."""
    for name in ("clone", "copy"):
        if hasattr(part, name):
            return getattr(part, name)()
    return part
