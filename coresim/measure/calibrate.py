"""The calibration: what each part of a job costs inside its own running loader.

Service times taken in a bare process differ from those inside a loader's worker (collation into shared memory, first
touch of new pages, the thread that pickles), so the workers and the trainer note them while the real loader runs. A
*run* starts the loader with k workers and takes batches from it in three ways: without a pause (what samples and
batches cost), with steps in between (hand-overs in every state), and after pauses in which the workers come to rest.
The first batches are kept apart: first calls import, and new memory costs more (`coresim.measure.pacing`). A *round* is
one run for each k = 1, 2, 4, ... up to the cores that are there, and one with a crowd: enough workers to need one more
core than there are. Rounds have new workers, so they are independent repeats, and a drift touches all k alike. CPU
times are taken at the machine speed that was sampled during the run (`coresim.measure.machine_speed`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from coresim import stats
from coresim.errors import InputError
from coresim.measure import worker
from coresim.measure.forked import run_forked
from coresim.measure.lock_passing import measure_passing
from coresim.measure.machine_speed import MOST_OTHERS, MOST_SLOWER, SpeedSampler, mean_sampler_s
from coresim.measure.notes import Note, duty_of
from coresim.measure.pacing import DRAINED, FIRST, RATIOS, SLOW, UNUSUAL, Pacing
from coresim.measure.protocol import Progress, others_meter, part_of
from coresim.measure.subject import Layout, Subject
from coresim.measure.trial import TimedStep, Trial, run_trial
from coresim.model.lock import PASSING
from coresim.workloads.base import batch_facts, touch

#: Wall seconds of a calibration, in `recommend` and in `validate`. Slow batches take longer: a few of each are needed.
BUDGET_S = 19.6
ROUNDS, MOST_ROUNDS = 3, 5
#: The time of a run in which the trainer prepares, as a share of another run's.
INLINE = 0.2
#: Handing batches over is notable from this share of the time between two batches on.
NOTABLE_HANDOVER = 0.01
#: The most workers of a crowd whose samples wait, unless there are as many cores.
MOST_WAITING = 32


@dataclass(frozen=True)
class CalibrationRun:
    """One run of the loader: what happened, around it, and what its workers were.

    Attributes:
        workers: how many; 0: the trainer prepares.
        trial: all steps but the very first.
        kinds: what each step's batch was taken for.
        start_s: wall seconds of the trainer to start all workers.
        started: when all workers had started, by `time.perf_counter`.
        sampler_s: CPU seconds of the sampler's work meanwhile.
        others: cores that other programs kept busy meanwhile.
        memory: what a worker held at the end, by worker; empty where the system does not tell.
        threads: how many threads worked in one worker, and their total work over the busiest one's; None: not measured.
        pages: the trainer's CPU seconds to map each batch while it reads it; empty where it reads none.
    """

    workers: int
    round: int
    trial: Trial
    kinds: tuple[str, ...]
    start_s: float
    sampler_s: float
    others: float
    memory: tuple[worker.WorkerMemory, ...] = ()
    threads: tuple[int, float] | None = None
    pages: tuple[float, ...] = ()
    started: float = math.inf

    @property
    def later(self) -> list[Note]:
        """The notes of the batches with usual costs."""
        return [note for note, kind in zip(self.trial.notes, self.kinds, strict=True) if kind not in UNUSUAL]

    @property
    def after_first(self) -> list[Note]:
        """The notes of all batches but each worker's first: how long samples wait does not depend on new memory."""
        return [note for note, kind in zip(self.trial.notes, self.kinds, strict=True) if kind != FIRST]

    @property
    def received(self) -> list[TimedStep]:
        """The steps with usual costs of receiving: without each worker's first batch and without the last ones.

        The last batches are all ready when the loader stops. The trainer receives them without a pause, which is faster
        than in a training. If a run has no other batches, all count but the first: the trainer has no earlier batch to
        free then.
        """
        pairs = zip(self.trial.steps, self.kinds, strict=True)
        found = [step for step, kind in pairs if kind not in (*UNUSUAL, DRAINED)]
        return found or list(self.trial.steps[1:] or self.trial.steps)


@dataclass(frozen=True)
class Calibration:
    """All runs of one subject on this machine.

    Attributes:
        usual_sampler_s: CPU seconds of the sampler's work, by the number of workers: busy CPUs slow it down, too.
        sampled: share of each CPU that sampling takes.
        batch_facts: bytes and arrays of one batch.
        inline: short runs in which the trainer prepared, behind all others; empty: none was made.
        passing: `coresim.measure.lock_passing.measure_passing` where stages ran in threads.
    """

    subject: Subject
    runs: tuple[CalibrationRun, ...]
    cpus: int
    usual_sampler_s: Mapping[int, float]
    sampled: float
    batch_facts: tuple[int, int] = (0, 0)
    inline: tuple[CalibrationRun, ...] = ()
    passing: float = PASSING

    def of(self, workers: int) -> list[CalibrationRun]:
        """The runs with so many workers; disturbed ones count only if there are too few others."""
        found = [run for run in self.runs if run.workers == workers]
        clean = [run for run in found if not self.disturbed(run)]
        return clean if len(clean) >= ROUNDS or not found else found

    def disturbed(self, run: CalibrationRun) -> bool:
        """Whether other programs used a notable part of the machine during that run."""
        return run.others > MOST_OTHERS * self.cpus

    def slower(self, run: CalibrationRun) -> float:
        """How many times as much CPU time work took during that run as on average with as many busy CPUs.

        It is within `MOST_SLOWER` and its inverse.
        """
        return min(MOST_SLOWER, max(1.0 / MOST_SLOWER, run.sampler_s / self.usual_sampler_s[run.workers]))

    @property
    def busy(self) -> bool:
        """Whether most of the runs were disturbed."""
        return 2 * sum(map(self.disturbed, self.runs)) > len(self.runs)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of workers that ran."""
        return tuple(dict.fromkeys(run.workers for run in self.runs))


def worker_counts(cpus: int, subject: Subject) -> tuple[int, ...]:
    """The numbers of workers to run: 1, 2, 4, ... up to the cores; for processes also one more than the cores."""
    counts = [*(1 << power for power in range(cpus.bit_length())), cpus]
    # Two threads show how they take turns, even on one core.
    return tuple(dict.fromkeys([*counts, 2 if subject.threads else cpus + 1]))


def calibrate(
    subject: Subject,
    *,
    budget_s: float = BUDGET_S,
    counts: Sequence[int] | None = None,
    pin_memory: bool = False,
    reads: bool = False,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = lambda done: None,
) -> Calibration:
    """Run the loader; only in a process that may fork.

    Args:
        budget_s: wall seconds for all runs; each run has a few batches of every worker, whatever that takes.
        counts: numbers of workers; by default `worker_counts`.
        reads: whether the trainer reads every batch, as it does if its loader does not pin.
        rounds: independent repeats; counts whose runs were disturbed run again, up to `MOST_ROUNDS`, if time is left.
        seed: which samples are drawn in the first round; the next round has the next seed. All runs of a round draw the
            same, so that they can be compared; a program's own sampler draws as it likes.
        progress: called with the fraction done after every batch.

    Raises:
        InputError: the data set or the collate function failed, or a batch did not come.
    """
    cpus = len(os.sched_getaffinity(0))
    # A stream may fail with many workers. Numbers that the caller gives are kept.
    waiting = MOST_WAITING if counts is None and subject.samples else 0
    alone = 0.0 if subject.threads or counts is not None else INLINE
    counts = worker_counts(cpus, subject) if counts is None else counts
    # More workers than that are a crowd, which shows hand-overs only, unless the loader runs with no fewer.
    most = max(cpus, min(counts))
    share = budget_s / rounds / (len(counts) + alone)
    with SpeedSampler(subject) as sampler:
        made, began = _RunMaker(subject, sampler, share, pin_memory, reads, waiting, seed), time.perf_counter()
        number, longest = 0, budget_s * MOST_ROUNDS / rounds
        # Slow batches take all of that time for the rounds that are always made.
        while number < rounds or (number < MOST_ROUNDS and time.perf_counter() - began < longest):
            wanted = counts if number < rounds else made.too_few(rounds, cpus, most)
            if not wanted:
                break
            for place, count in enumerate(wanted):
                if workers := count if subject.threads or count <= most else made.crowd(count):
                    made.run(workers, number, part_of(progress, number * len(counts) + place, rounds * len(counts)))
            number += 1
        inline = made.inline(rounds, alone * share, progress) if alone and not made.slow else ()
        sampled = sampler.cpu_s / (time.perf_counter() - began) / cpus
    usual, passing = mean_sampler_s(made.runs, cpus), measure_passing() if subject.threads else PASSING
    return Calibration(subject, tuple(made.runs), cpus, usual, sampled, made.batch_facts, inline, passing)


@dataclass
class _RunMaker:
    subject: Subject
    sampler: SpeedSampler
    seconds: float
    pin_memory: bool
    reads: bool
    waiting: int
    seed: int
    runs: list[CalibrationRun] = field(default_factory=list)
    batch_facts: tuple[int, int] = (0, 0)
    crowded: int | None = None

    def too_few(self, rounds: int, cpus: int, most: int) -> list[int]:
        """Numbers of workers, up to ``most``, with too few undisturbed runs; none if all runs are disturbed."""
        counts = dict.fromkeys(run.workers for run in self.runs if run.workers <= most)
        clean = [run.workers for run in self.runs if run.others <= MOST_OTHERS * cpus]
        return [count for count in counts if clean.count(count) < rounds] if clean else []

    @property
    def slow(self) -> bool:
        """Whether only a few batches of one worker fit into a run."""
        batch_s = self._batch_s()
        return batch_s is not None and SLOW * batch_s >= self.seconds

    def inline(self, rounds: int, seconds: float, progress: Progress) -> tuple[CalibrationRun, ...]:
        """Runs in which the trainer prepares the batches, in a fork; none if the data set works only in workers.

        One more run comes first: it takes the memory that the later runs use again.
        """
        progress(1.0)
        try:
            [runs] = run_forked([lambda: [self._ran(0, n, seconds) for n in range(rounds + 1)]], "the loader")
        except InputError:
            return ()
        return tuple(map(self._told, runs[1:]))

    def run(self, workers: int, number: int, progress: Progress) -> None:
        """One run with so many workers; ``number`` is that of its round."""
        self.runs.append(self._told(self._ran(workers, number, self.seconds, progress)))

    def _told(self, run: CalibrationRun) -> CalibrationRun:
        """The run with the time of the sampler's work meanwhile, which only this process can ask for."""
        return replace(run, sampler_s=self.sampler.seen(run.trial.notes))

    def _ran(self, workers: int, number: int, seconds: float, progress: Progress = lambda done: None) -> CalibrationRun:
        # A trainer that prepares does so in a fork, where no device can be used.
        layout = Layout(workers, pin_memory=self.pin_memory and workers > 0)
        others, began = others_meter(lambda: self.sampler.cpu_s), time.perf_counter()
        with closing(self.subject.open(layout, self.seed + number)) as pipe:
            start_s = time.perf_counter() - began
            ratios = RATIOS[number % len(RATIOS)]
            pacing = Pacing(max(1, workers), seconds, self._batch_s(), ratios, progress, pipe)
            pages: list[float] = []
            trial = run_trial(pipe, pacing, warm_up=1, take=partial(self.take, pages))
            memory = tuple(filter(None, map(worker.memory_of, pipe.pids())))
        threads = worker.worked(pacing.before, pacing.after) if pacing.after else None
        kinds, pages_s = tuple(pacing.kinds[1:]), tuple(pages)
        of_workers = memory, threads, pages_s, began + start_s
        return CalibrationRun(workers, number, trial, kinds, start_s, math.nan, others(), *of_workers)

    def take(self, pages: list[float], batch: Any) -> None:
        """Note the bytes and the arrays of the very first batch, and what it costs to map each that is read."""
        if self.batch_facts == (0, 0):
            self.batch_facts = batch_facts(batch)
        if self.reads:
            began = time.thread_time()
            touch(batch)
            pages.append(time.thread_time() - began)

    def _batch_s(self) -> float | None:
        """About how long one worker needs for a batch, from the runs so far."""
        lone = [run for run in self.runs if run.workers == 1]
        return stats.median([note.made - note.began for note in lone[-1].trial.notes]) if lone else None

    def crowd(self, least: int) -> int:
        """How many workers together want one core more than there are, at least ``least``; 0: no crowd is worth a run.

        A crowd shows hand-overs, so it runs where they are a notable part of the time between two batches. If samples
        wait, many workers also show more of the waits. With slow batches a crowd takes longer than all other runs.
        """
        run = self.runs[-1]
        if self.crowded is None and self.slow:
            self.crowded = 0
        elif self.crowded is None:
            wanted = int(least / max(0.01, duty_of(run.trial.notes)))
            room = worker.room_for(run.memory, Layout.prefetch_factor * self.batch_facts[0])
            taken = stats.mean([step.got - max(step.asked, step.ready) for step in run.trial.steps])
            period = stats.mean([note.made - note.began for note in run.trial.notes]) / run.workers
            crowd = max(least, min(self.waiting, wanted, room))
            self.crowded = crowd if crowd > least or taken > NOTABLE_HANDOVER * period else 0
        return self.crowded
