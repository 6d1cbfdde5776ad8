"""What the tests of measuring share: data sets, the subjects that run them, and a clock that only work moves."""

from __future__ import annotations

import gc
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coresim.measure.notes import Note
from coresim.measure.staged import StagedSubject
from coresim.measure.stand_in import StandInSubject
from coresim.measure.subject import Layout, Pipe, Subject
from coresim.model.measurement import Measurement
from coresim.workloads.base import DatasetWorkload, PreparationStep

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the real loader is torch's")
#: The loaders with worker processes, and the one with threads.
PROCESSES = (pytest.param("torch", marks=needs_torch), "stand-in")
ALL = (*PROCESSES, "staged")


class Frozen:
    """A data set whose samples say how many objects the process's garbage collector leaves alone."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return gc.get_freeze_count()


class OneStep(DatasetWorkload):
    """A data set whose samples are fetched, and that is all: stages in threads want steps."""

    def steps(self) -> tuple[PreparationStep, ...]:
        return (PreparationStep("sample", lambda index, _: self.dataset[index]),)


def subject_of(
    kind: str, dataset: Any, batch_size: int = 4, collate: Callable[[list[Any]], Any] | None = None
) -> Subject:
    """A data set in one of the loaders."""
    workload = (OneStep if kind == "staged" else DatasetWorkload)(dataset, "mine", collate)
    workload.batch_size = batch_size
    if kind == "torch":
        from coresim.measure.torch_loader import of_workload

        return of_workload(workload)
    return StandInSubject(workload) if kind == "stand-in" else StagedSubject(workload, workload.collate)


@contextmanager
def running(subject: Subject, workers: int = 2, seed: int = 1, **layout: Any) -> Iterator[Pipe]:
    """The loader while it runs."""
    pipe = subject.open(Layout(workers, **layout), seed)
    try:
        yield pipe
    finally:
        pipe.close()


def numbers(pipe: Pipe, batches: int) -> list[list[int]]:
    """So many batches of numbers."""
    return [[int(value) for value in pipe.next()[0]] for _ in range(batches)]


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for it; how long it takes is no matter of the test."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


class Works:
    """A clock that only work moves: some of the time on the core, some waiting. It stands in for module ``time``."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0

    def work(self, cpu: float, wait: float = 0.0) -> None:
        self.now, self.spent = self.now + cpu + wait, self.spent + cpu

    @property
    def time(self) -> Any:
        spent, now = (lambda: self.spent), (lambda: self.now)
        return SimpleNamespace(perf_counter=now, thread_time=spent, process_time=spent)


class ThreadsWork(Works):
    """The same for several threads: one wall clock, and a CPU clock for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self._own, self._turn = threading.local(), threading.Lock()

    def work(self, cpu: float, wait: float = 0.0) -> None:
        with self._turn:
            self.now += cpu + wait
        self._own.spent = self._of_this_thread() + cpu

    def _of_this_thread(self) -> float:
        return getattr(self._own, "spent", 0.0)

    @property
    def time(self) -> Any:
        return SimpleNamespace(perf_counter=lambda: self.now, thread_time=self._of_this_thread)


class Lines:
    """Lines that several processes add to one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def add(self, text: object) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{text}\n".encode())
        os.close(file)

    def all(self) -> list[str]:
        return self._path.read_text().splitlines()


def made_note(began: float, made: float, worker: int = 7, **other: Any) -> Note:
    """A note with nothing in it but moments, and what else is given."""
    known: dict[str, Any] = {"wall": (made - began,), "cpu": (made - began,), "collate": 0.0, "cpu_number": 0}
    return Note(began=began, made=made, worker=worker, **(known | other))


def by_name(measurements: list[Measurement]) -> dict[str, Measurement]:
    """Whole measurements, by their names, each of which comes once."""
    named = {m.name: m for m in measurements}
    assert len(named) == len(measurements)
    for m in measurements:
        assert m.how and m.unit and m.values and all(m.values)
    return named
