"""A small loader of our own as a subject, for a host without torch: worker processes, shared memory, the same protocol.

Like PyTorch's ``DataLoader``, it deals batches to workers by turns and gives them in order, with ``prefetch_factor``
batches out per worker. Arrays lie in shared memory, whose file descriptors the trainer gets from a thread of the
batch's maker; all else is pickled through one queue. It lacks torch's own cost per tensor; an answer that rests on it
says so.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import queue
import time
from collections.abc import Iterator
from multiprocessing import reduction
from typing import Any

import numpy as np

from coresim.errors import CoresimError, InputError, MissingPartError
from coresim.measure.notes import Note, Prepared, Reader, unpacked
from coresim.measure.subject import PATIENCE, SILENT, Layout, Pipe, Subject, batches_of
from coresim.measure.worker import leave_inherited
from coresim.workloads.base import DatasetWorkload, Workload, blamed, mapped

_STOP_S = 5.0
_POLL_S = 0.5


class StandInSubject(Subject):
    """The workload in our own loader.

    Raises:
        MissingPartError: the job has a function for workers to call when they start.
    """

    loader = "coresim's own small loader, as torch was not installed"

    def __init__(self, workload: Workload) -> None:
        if isinstance(workload, DatasetWorkload) and workload.worker_init is not None:
            why = "only torch's DataLoader calls one, and torch is not installed"
            raise MissingPartError(f"--worker-init: {why}; pip install torch")
        self.batch_size = workload.batch_size
        self._collate = workload.collate
        self._dataset = workload.dataset if isinstance(workload, DatasetWorkload) else Prepared(workload)
        self._iterable = isinstance(workload, DatasetWorkload) and not workload.is_map
        self.samples = 0 if self._iterable else min(len(self._dataset), 10**6)
        self.steps = self._dataset.names if isinstance(self._dataset, Prepared) else ()

    def open(self, layout: Layout, seed: int) -> Pipe:
        """Start the loader with so many workers."""
        indices = batches_of(self.samples or 1, self.batch_size, seed)
        reader = (self._dataset, self._iterable, True, self._collate)
        return _Pipe(reader, layout, indices) if layout.workers else _Inline(reader, indices)


class _Inline(Pipe):
    inline = True

    def __init__(self, reader: tuple[Any, ...], indices: Iterator[list[int]]) -> None:
        self._reader, self._indices = Reader(*reader), indices

    def next(self) -> tuple[Any, Note]:
        batch, note = _fetched(self._reader, next(self._indices))
        return batch, unpacked(note)


class _Pipe(Pipe):
    def __init__(self, reader: tuple[Any, ...], layout: Layout, indices: Iterator[list[int]]) -> None:
        fork = multiprocessing.get_context("fork")
        self._indices, self._over = indices, False
        self._dealt = self._picked = 0
        self._results = fork.Queue()
        self._queues = [fork.Queue() for _ in range(layout.workers)]
        self._held: dict[int, Any] = {}
        self._processes = [
            fork.Process(target=_work, args=(reader, indices, self._results, os.getpid()), daemon=True)
            for indices in self._queues
        ]
        for process in self._processes:
            process.start()
        for _ in range(layout.workers * layout.prefetch_factor):
            self._deal()

    def _deal(self) -> None:
        if not self._over:
            self._queues[self._dealt % len(self._queues)].put((self._dealt, next(self._indices)))
            self._dealt += 1

    def next(self) -> tuple[Any, Note]:
        while self._picked not in self._held:
            number, found = self._received()
            if isinstance(found, InputError):
                raise found
            self._held[number] = found
        batch, note = self._held.pop(self._picked)
        self._deal()
        self._picked += 1
        return batch, unpacked(note)

    def _received(self) -> Any:
        for _ in range(int(PATIENCE / _POLL_S)):
            try:
                return self._results.get(timeout=_POLL_S)
            except queue.Empty:
                if dead := [process.exitcode for process in self._processes if not process.is_alive()]:
                    raise CoresimError(f"a loader's worker ended with exit code {dead[0]}; is memory short?") from None
        raise InputError(SILENT.format(PATIENCE))

    def stop(self) -> int:
        self._over = True
        return self._dealt - self._picked

    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid or 0 for process in self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(_STOP_S)
        for each in (*self._queues, self._results):
            each.cancel_join_thread()
            each.close()


def _work(reader: tuple[Any, ...], indices: Any, results: Any, parent: int) -> None:
    """A worker's life: prepare what is dealt, while the trainer lives."""
    leave_inherited()
    prepares, sent = Reader(*reader), False
    while os.getppid() == parent:
        try:
            number, batch = indices.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        try:
            made, note = _fetched(prepares, batch)
            shared = mapped(made, _shared)
            note = note._replace(made=time.perf_counter())
            if not sent:
                note, sent = note.with_message(shared), True
            results.put((number, (shared, note)))
        except InputError as error:
            results.put((number, error))


def _fetched(reader: Reader, batch: list[int]) -> tuple[Any, Note]:
    with blamed("preparing a batch", "fix the data set or the collation"):
        return reader.fetch(batch)


class _SharedArray:
    """An array in memory that another process may map; what is pickled is a handle, as of a torch tensor."""

    def __init__(self, array: np.ndarray) -> None:
        self._shape, self._kind, self._size = array.shape, array.dtype.str, max(1, array.nbytes)
        self._file = os.memfd_create("coresim")
        os.ftruncate(self._file, self._size)
        room = np.frombuffer(mmap.mmap(self._file, self._size), array.dtype, array.size)
        room[:] = array.reshape(-1)

    def __reduce__(self) -> Any:
        return _mapped, (reduction.DupFd(self._file), self._shape, self._kind, self._size)

    def __del__(self) -> None:
        os.close(self._file)


def _mapped(handle: Any, shape: tuple[int, ...], kind: str, size: int) -> np.ndarray:
    file = handle.detach()
    try:
        whole = np.frombuffer(mmap.mmap(file, size), np.dtype(kind), int(np.prod(shape)))
    finally:
        os.close(file)
    return whole.reshape(shape)


def _shared(part: Any) -> Any:
    return _SharedArray(part) if isinstance(part, np.ndarray) and part.dtype.kind in "biufc" else part
