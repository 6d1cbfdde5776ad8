"""Sample the speed of the machine: each CPU of a shared one changes its speed by half within seconds, by itself.

The system does not show it (it happens when another user's work shares a physical core), so it is sampled: a process of
its own prepares the same few samples again and again, with the same random numbers, on each CPU in turn, all the time,
and notes the CPU time that they took. It knows nothing of queues, order or waiting. Costs of calibration and trials are
corrected by the cost of this work at the same time on the CPUs of their workers.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coresim import stats
from coresim.errors import CoresimError
from coresim.measure.notes import Note, duty_of
from coresim.measure.pacing import UNUSUAL
from coresim.measure.processes import HangError, single_threaded
from coresim.measure.subject import PATIENCE, Subject

if TYPE_CHECKING:
    from coresim.measure.calibrate import CalibrationRun

#: Share of each CPU that sampling takes.
SHARE = 0.02
#: CPU seconds of one timed sample on a CPU, at least.
TIMED_S = 0.001
#: Samples timed once, to find a light one.
PROBED = 8
#: In the place of a sample's number: work of our own.
OWN_WORK = -1
#: Rounds over all CPUs that are kept.
ROWS = 1 << 13
STOP_S = 5.0
#: How often the sampler asks whether it is still wanted, and shows that it goes on, s.
POLL_S = 0.1
#: How often its user checks for a round, s.
ROUND_S = 0.01
#: Clocks and neighbours change a machine's speed by less than this factor. Larger changes were seen while a virtual
#: machine was paused; they say nothing about the samples that ran at other moments.
MOST_SLOWER = 2.0
#: Cores that other programs may use during a run, as a share of all, before it is made again.
MOST_OTHERS = 0.05


class SpeedSampler(AbstractContextManager["SpeedSampler"]):
    """Samples the machine's speed while it is open; only in a fresh process, which may fork.

    It prepares samples of the subject on a ``share`` of each CPU. It does work of its own instead if the samples come
    from a stream or need a worker around them.
    """

    def __init__(self, subject: Subject, share: float = SHARE) -> None:
        self._cpus = sorted(os.sched_getaffinity(0))
        self._share = share
        width = 1 + len(self._cpus)
        shared = np.frombuffer(mmap.mmap(-1, 8 * (5 + ROWS * width)), np.float64)
        # The head: rounds made, the sampler's own CPU seconds, the sample that it prepares and how many times over.
        # Each row: when a round ended, and the seconds of each CPU.
        self._head, self._rows = shared[:4], shared[5:].reshape(ROWS, width)
        # Counts on between samples: if it does not change for long, a sample hangs; a long pause changes it.
        self._signs = shared[4:5]
        self._subject = subject
        # It is told who its parent is: if it asked after that one's death, it would serve another process for ever.
        self._parent = os.getpid()
        self._process = multiprocessing.get_context("fork").Process(target=self._sample, daemon=True)
        self._process.start()

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(STOP_S)
        if self._head[3]:
            # Speeds of one subject are compared from run to run, so the same work tells all of them.
            self._subject.timed_sample = int(self._head[2]), int(self._head[3])

    @property
    def cpu_s(self) -> float:
        """CPU seconds that sampling has taken so far."""
        return float(self._head[1])

    def seen(self, notes: Sequence[Note]) -> float:
        """CPU seconds of the same work on the CPUs that the workers were on while they made those batches.

        Speeds are averaged, not costs: a worker gets more done while its CPU is fast.
        """
        rows = self._until(max(note.made for note in notes))
        moments, speeds = rows[:, 0], 1.0 / rows[:, 1:]
        found = []
        for note in notes:
            first, last = np.searchsorted(moments, (note.began, note.made))
            # The round under way when the batch was ready, and all that ended since it was begun.
            place = slice(min(first, len(speeds) - 1), last + 1)
            found.append(float(speeds[place, self._cpus.index(note.cpu_number)].mean()))
        return 1.0 / stats.mean(found)

    def _until(self, end: float) -> NDArray[np.float64]:
        """All rounds up to the one after ``end``; waits for it while the sampler shows that it goes on."""
        signs, waited = -1.0, 0.0
        while True:
            made = int(self._head[0])
            rows = np.roll(self._rows, -made, axis=0)[-made:] if made >= ROWS else self._rows[:made]
            if made and rows[-1, 0] >= end:
                return rows.copy()
            if not self._process.is_alive():
                raise CoresimError("the process that samples the machine's speed has died; measure again")
            if signs != (signs := float(self._signs[0])):
                waited = 0.0
            elif waited >= PATIENCE:
                raise HangError(
                    f"a sample did not end for {PATIENCE:g} s in the process that samples the machine's speed; does it"
                    " wait for a lock, or for a thread that the program started before?"
                )
            time.sleep(ROUND_S)
            waited += ROUND_S

    def _sample(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        single_threaded()
        try:
            self._rounds()
        except Exception:  # the workers meet the same error and report it
            os._exit(1)

    def _rounds(self) -> None:
        index, times = self._subject.timed_sample or self._light_sample()
        self._head[2:] = index, times
        indices = [index] * times
        while os.getppid() == self._parent:
            row = self._rows[int(self._head[0]) % ROWS]
            for place, cpu in enumerate(self._cpus):
                os.sched_setaffinity(0, {cpu})
                self._signs += 1
                row[1 + place] = _timed(self._subject, indices)
                # Each CPU is timed after an equal pause: right after another it finds warmer caches and reads fast.
                self._pause(float(row[1 + place]) / self._share / len(self._cpus))
            row[0] = time.perf_counter()
            self._head[:2] = self._head[0] + 1, time.process_time()

    def _pause(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while os.getppid() == self._parent and time.perf_counter() < until:
            self._signs += 1
            time.sleep(min(POLL_S, max(0.0, until - time.perf_counter())))

    def _light_sample(self) -> tuple[int, int]:
        """The lightest of a few samples, or `OWN_WORK`, and how many times over it takes `TIMED_S`."""
        timed = []
        try:
            for index in range(min(PROBED, self._subject.samples)):
                self._signs += 1
                timed.append((_timed(self._subject, [index]), index))
        except Exception:  # they need a worker around them, or they are broken, which the workers report
            timed = []
        lightest, index = min(timed or [(_timed(self._subject, [OWN_WORK]), OWN_WORK)])
        return index, max(1, math.ceil(TIMED_S / max(lightest, 1e-6)))


def _timed(subject: Subject, indices: Sequence[int]) -> float:
    """CPU seconds of the same work each time: the same samples, and the same random numbers."""
    subject.seed()
    began = time.thread_time()
    for index in indices:
        if index == OWN_WORK:
            _work()
        else:
            subject.sample(index)
    return max(time.thread_time() - began, 1e-9)


def _work() -> None:
    """About a millisecond of work in Python and in memory, for want of samples that can be asked for again."""
    sum(number * number for number in range(10_000))
    bytes(1 << 20).count(1)


def mean_sampler_s(runs: Sequence[CalibrationRun], cpus: int) -> dict[int, float]:
    """CPU seconds of the sampler's work by the number of workers: the mean over all runs with as many busy CPUs.

    A virtual machine's CPUs are at times two hardware threads of one core, and then work takes up to half as long again
    for seconds or minutes. A mean over few runs has the share of such times; a median has one of the two speeds.

    Runs that keep less than half a CPU busy stand for their own number of workers only: work after a rest is slower,
    and the fewer workers, the longer the rests.
    """
    counts = dict.fromkeys(run.workers for run in runs)
    notes = {count: [note for run in runs if run.workers == count for note in run.trial.notes] for count in counts}
    busy = {count: min(cpus, round(count * duty_of(notes[count]))) or -count for count in counts}
    found = {}
    for count in counts:
        alike = [run for run in runs if busy[run.workers] == busy[count]]
        times = [run.sampler_s for run in alike if run.others <= MOST_OTHERS * cpus] or [run.sampler_s for run in alike]
        middle = stats.median(times)
        found[count] = stats.mean([min(MOST_SLOWER * middle, max(middle / MOST_SLOWER, own)) for own in times])
    return found


def shared_cv(runs: Sequence[CalibrationRun]) -> float:
    """How much the samples of a batch vary together: a relative standard deviation, beyond independent samples.

    The machine's speed changes within a run, and a data set may put like samples into a batch. This is the component of
    variance between batches that were taken for the same kind of step, as the analysis of variance estimates it
    (Searle, Casella and McCulloch, *Variance Components*, 1992), less what independent draws of all samples already
    have of it. It is 0 unless it is more than two standard errors of what chance does.
    """
    alike: dict[tuple[int, str], list[Sequence[float]]] = {}
    for number, run in enumerate(runs):
        for note, kind in zip(run.trial.notes, run.kinds, strict=True):
            if kind not in UNUSUAL and len(note.cpu) > 1:
                alike.setdefault((number, kind), []).append(note.cpu)
    squares, freedom, within, sizes = 0.0, 0, list[float](), list[int]()
    for batches in alike.values():
        means = [stats.mean(batch) for batch in batches]
        centre = stats.mean(means)
        squares += sum((mean / centre - 1.0) ** 2 for mean in means)
        freedom += len(means) - 1
        within += [stats.variance(batch) / len(batch) / centre**2 for batch in batches]
        sizes += map(len, batches)
    if not freedom:
        return 0.0
    component, chance = squares / freedom - stats.mean(within), stats.mean(within) * math.sqrt(2.0 / freedom)
    return min(1.0, math.sqrt(component * (1.0 - 1.0 / stats.mean(sizes)))) if component > 2.0 * chance else 0.0
