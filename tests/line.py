"""A loader whose costs are made up, on a clock that moves by them alone: what a calibration finds of it is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from kit import Works

from coresim.measure import calibrate, pacing, protocol, trial
from coresim.measure.notes import Note
from coresim.measure.subject import Layout, Pipe, Subject
from coresim.measure.trial import run_trial


@dataclass
class Made:
    """Seconds on an unshared core; ``of`` a call of a worker, counted from 0.

    Attributes:
        sample, collate, send: CPU time of a worker, per sample and per batch.
        wait: of each sample, without a core.
        inline: CPU time of the trainer to collate.
        first: CPU time of a new worker before its first batch.
        start: of the trainer to start one worker.
        receive, handover: the trainer's CPU time per batch, and its waiting.
        pickling: of a batch, by a thread of its worker, which first waits until the batch before is read; 0: of none.
        slower: by how many workers are at work.
        sampler_s: of the sampler's work, by the number of the run.
        others: cores that other programs keep busy, by the number of the run.
    """

    sample: Callable[[int], float] = lambda call: 0.01
    collate: Callable[[int], float] = lambda call: 0.02
    inline: float = 0.004
    send: float = 0.005
    wait: float = 0.0
    first: float = 0.3
    start: float = 0.01
    receive: float = 0.001
    handover: float = 0.002
    pickling: float = 0.0
    slower: Callable[[int], float] = lambda workers: 1.0
    sampler_s: Callable[[int], float] = lambda run: 0.004
    others: Callable[[int], float] = lambda run: 0.0
    batch_size: int = 4


@dataclass
class Bench:
    """The made-up machine: its clock, and what was asked of it."""

    made: Made
    works: Works = field(default_factory=Works)
    busy: float = 0.0
    opened: list[tuple[int, int]] = field(default_factory=list)
    closed: int = 0
    taken: list[int] = field(default_factory=list)

    def wait(self, moment: float) -> None:
        self.spend(0.0, max(0.0, moment - self.works.now))

    def spend(self, cpu: float, wait: float = 0.0) -> None:
        """The trainer's time; what others do meanwhile keeps CPUs busy."""
        self.works.work(cpu, wait)
        self.busy += (cpu + wait) * self.made.others(max(0, len(self.opened) - 1))


class Line(Subject):
    """Workers that make what they are dealt, in order and by turns."""

    name, loader, samples = "made up", "a made-up loader", 100

    def __init__(self, bench: Bench) -> None:
        self.bench, self.batch_size = bench, bench.made.batch_size

    def open(self, layout: Layout, seed: int) -> Pipe:
        self.bench.opened.append((layout.workers, seed))
        self.bench.taken.append(0)
        return LinePipe(self.bench, layout) if layout.workers else InlinePipe(self.bench)


class InlinePipe(Pipe):
    """The trainer makes its batches, as many as it is asked for."""

    inline = True

    def __init__(self, bench: Bench) -> None:
        self._bench, self._calls = bench, 0

    def next(self) -> tuple[Any, Note]:
        made, began = self._bench.made, self._bench.works.now
        cpu = made.sample(self._calls)
        self._bench.spend(made.batch_size * cpu + made.inline, made.batch_size * made.wait)
        self._calls += 1
        self._bench.taken[-1] += 1
        ended, many = self._bench.works.now, made.batch_size
        return np.zeros(10), Note(began, ended, (cpu + made.wait,) * many, (cpu,) * many, made.inline, 100, 0, 0.0)

    def close(self) -> None:
        self._bench.closed += 1


class LinePipe(Pipe):
    def __init__(self, bench: Bench, layout: Layout) -> None:
        self._bench, self._workers, self._over = bench, layout.workers, False
        bench.spend(layout.workers * bench.made.start)
        self._free = [bench.works.now] * layout.workers
        self._calls = [0] * layout.workers
        self._notes: list[Note] = []
        self._read = [0.0] * layout.workers
        self._picked = 0
        for _ in range(layout.workers * layout.prefetch_factor):
            self._deal()

    def _deal(self) -> None:
        made, worker = self._bench.made, len(self._notes) % self._workers
        call, slower = self._calls[worker], made.slower(self._workers)
        began = max(self._bench.works.now, self._free[worker]) + (made.first if call == 0 else 0.0)
        cpu = made.sample(call) * slower
        collate = made.collate(call) * slower
        ready = began + made.batch_size * (cpu + made.wait) + collate
        self._calls[worker], self._free[worker] = call + 1, ready + made.send * slower
        many = made.batch_size
        note = Note(began, ready, (cpu + made.wait,) * many, (cpu,) * many, collate, 100 + worker, 0, made.first)
        if made.pickling and call == 0:
            note = note._replace(message=10**6, pickling=made.pickling)
        self._notes.append(note)

    def next(self) -> tuple[Any, Note]:
        bench, note = self._bench, self._notes[self._picked]
        worker = self._picked % self._workers
        bench.wait(max(note.made, self._read[worker] if bench.made.pickling else 0.0) + bench.made.pickling)
        bench.spend(bench.made.receive, bench.made.handover)
        self._read[worker] = bench.works.now
        bench.taken[-1] += 1
        self._picked += 1
        if not self._over:
            self._deal()
        return np.zeros(10), note

    def stop(self) -> int:
        self._over = True
        return len(self._notes) - self._picked

    def close(self) -> None:
        self._bench.closed += 1


class _Sampler:
    """Knows how long the sampler's work takes in each run, and takes a fiftieth of each CPU."""

    def __init__(self, subject: Line) -> None:
        self._bench = subject.bench

    def __enter__(self) -> _Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def cpu_s(self) -> float:
        return 0.02 * self._bench.works.now * len(os.sched_getaffinity(0))

    def seen(self, notes: Sequence[Note]) -> float:
        return self._bench.made.sampler_s(len(self._bench.opened) - 1)


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Line]:
    """Makes a line with made-up costs on a machine with so many CPUs, and puts its clock in the place of all others."""

    def make(cpus: int = 2, **costs: Any) -> Line:
        bench = Bench(Made(**costs))
        clock = {"wait": bench.wait, "clock": lambda: bench.works.now, "cpu_clock": lambda: bench.works.spent}
        for module in (calibrate, pacing, protocol, trial):
            monkeypatch.setattr(module, "time", bench.works.time)
        monkeypatch.setattr(calibrate, "run_trial", partial(run_trial, **clock))
        monkeypatch.setattr(calibrate, "SpeedSampler", _Sampler)
        monkeypatch.setattr(protocol, "busy_seconds", lambda: bench.busy)
        monkeypatch.setattr(os, "times", lambda: (0.0,) * 5)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)))
        return Line(bench)

    return make
