"""The bottleneck of a job by its counters, in the words of `coresim.advise.verdict`, and what counters cannot show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from coresim import stats
from coresim.model.activity import Process, Tick

#: Shares above which something counts as busy throughout, and below which a GPU counts as idle in a tick.
FULL, ZERO = 0.9, 0.05
#: A process that is there in a smaller share of the ticks is no worker.
PRESENT = 0.1
#: A notable share of the time.
NOTABLE = 0.2
UNKNOWN = "not told by counters"
BLIND = (
    "GPU utilisation is the share of time in which any kernel ran: at 100 % it may still wait between kernels",
    "a trainer that spins while it waits for the GPU looks as busy as one that works",
    "CPU use does not tell waiting for memory from computing",
    "a worker that waits for a network's answer sleeps, like one that has nothing to do",
)
BLIND_WITHOUT_GPU = "no GPU was read, so whether it idles is unknown: this is the CPU side alone"


@dataclass(frozen=True)
class Activity:
    """A watched job in numbers; cores are CPU seconds per second.

    Attributes:
        verdict: what holds it back, or `UNKNOWN`.
        seconds: how long it was watched: the start-up before its first worker worked, the work, and the end after its
            last did. All that follows covers the work only, except the stretches.
        start_s, end_s: the start-up's and the end's seconds; 0 where there were no workers.
        gpu: mean utilisation of the GPUs, a share; None if no GPU was read.
        zero_runs: lengths in ticks of the stretches in which all GPUs were idle.
        trainers: processes that trained at once, at the most: one for each rank.
        main_cores: cores of a trainer; with several, their mean.
        worker_cores: of each worker while it was there. Processes that follow each other, as a loader starts them for
            each epoch, are one worker.
        worker_states: of each of these, shares of the ticks by what the kernel said of it: R runs, S sleeps, D waits.
        generations: the most processes that one worker was in turn.
        busy_runs, wait_runs: lengths in ticks of the stretches in which the job kept all cores busy that it may use,
            and in which the host's CPUs or a process of the job waited for a device.
        io_wait: share of the ticks in which a worker waited for a device, or the host's CPUs for a disk.
        faults: page faults per second of the job.
    """

    verdict: str
    why: str
    advice: str
    seconds: float
    start_s: float
    end_s: float
    gpu: float | None
    zero_runs: tuple[int, ...]
    trainers: int
    main_cores: float
    worker_cores: tuple[float, ...]
    worker_states: tuple[dict[str, float], ...]
    generations: int
    job_cores: float
    host_cores: float
    usable_cores: float
    busy_runs: tuple[int, ...]
    wait_runs: tuple[int, ...]
    io_wait: float
    faults: float
    blind: tuple[str, ...]


def diagnose(ticks: Sequence[Tick], usable_cores: float) -> Activity:
    """The verdict on at least one tick of a job that may use ``usable_cores``, or fewer where it is bound to fewer."""
    usable_cores = min([usable_cores, *(tick.allowed for tick in ticks if tick.allowed)])
    workers = _workers(ticks)
    first, last = _at_work(ticks, workers)
    everything, ticks = ticks, ticks[first : last + 1]
    gpus = [stats.mean(tick.gpus) for tick in ticks if tick.gpus]
    facts = Activity(
        verdict="",
        why="",
        advice="",
        seconds=everything[-1].second,
        start_s=everything[first - 1].second if first else 0.0,
        end_s=everything[-1].second - ticks[-1].second,
        gpu=stats.mean(gpus) if gpus else None,
        zero_runs=_runs(bool(tick.gpus) and max(tick.gpus) <= ZERO for tick in everything),
        trainers=max(len(tick.trainers) for tick in ticks),
        main_cores=stats.mean([tick.main_cores for tick in ticks]),
        worker_cores=tuple(stats.mean([process.cores for process in found]) for found in workers),
        worker_states=tuple(map(_states, workers)),
        generations=max((len({process.pid for process in found}) for found in workers), default=0),
        job_cores=stats.mean([_job_cores(tick) for tick in ticks]),
        host_cores=stats.mean([tick.host_cores for tick in ticks]),
        usable_cores=usable_cores,
        busy_runs=_runs(_job_cores(tick) >= FULL * usable_cores for tick in everything),
        wait_runs=_runs(map(_waits, everything)),
        io_wait=stats.mean([float(_waits(tick)) for tick in ticks]),
        faults=stats.mean([sum(process.faults for process in tick.processes) for tick in ticks]),
        blind=(*BLIND, *(() if gpus else (BLIND_WITHOUT_GPU,))),
    )
    name, why, advice = next(found for holds, *found in _RULES if holds(facts))
    return replace(facts, verdict=name, why=why, advice=advice)


def _at_work(ticks: Sequence[Tick], workers: Sequence[Sequence[Process]]) -> tuple[int, int]:
    """The first and the last tick in which a worker did anything; all ticks where there is no worker."""
    pids = {process.pid for found in workers for process in found}
    busy = [at for at, tick in enumerate(ticks) if any(p.cores > ZERO and p.pid in pids for p in tick.workers)]
    return (busy[0], busy[-1]) if busy else (0, len(ticks) - 1)


def _runs(holds: Iterable[bool]) -> tuple[int, ...]:
    return tuple(sum(1 for _ in run) for does, run in groupby(holds) if does)


def _job_cores(tick: Tick) -> float:
    return sum(process.cores for process in tick.processes)


def _workers(ticks: Sequence[Tick]) -> list[list[Process]]:
    """Those that used a notable part of a core while they were there, and were there for a notable part of the time.

    Others are helpers: they sleep, or are started for a moment. A process takes the place of one that is gone.
    """
    seen: dict[int, list[tuple[int, Process]]] = {}
    for at, tick in enumerate(ticks):
        for process in tick.workers:
            seen.setdefault(process.pid, []).append((at, process))
    found: list[list[tuple[int, Process]]] = []
    for mine in sorted(seen.values(), key=lambda there: (there[0][0], there[0][1].pid)):
        if stats.mean([process.cores for _, process in mine]) <= ZERO:
            continue
        first = mine[0][0]
        gone = [worker for worker in found if worker[-1][0] < first]
        if gone:
            # Of several, it takes the place of the one that ended first.
            min(gone, key=lambda worker: worker[-1][0]).extend(mine)
        else:
            found.append(mine)
    return [[process for _, process in worker] for worker in found if len(worker) >= PRESENT * len(ticks)]


def _states(found: Sequence[Process]) -> dict[str, float]:
    counts = Counter(process.state for process in found)
    return {state: count / len(found) for state, count in counts.most_common()}


def _waits(tick: Tick) -> bool:
    return any(process.state == "D" for process in tick.processes) or tick.io_wait_cores > NOTABLE


def _crowded_out(found: Activity) -> bool:
    ready = [states.get("R", 0.0) >= FULL for states in found.worker_states]
    full = found.host_cores >= FULL * found.usable_cores
    return bool(ready) and all(ready) and min(found.worker_cores) < FULL and full


#: The first that holds is the verdict: condition, name, evidence, advice.
_RULES: tuple[tuple[Callable[[Activity], bool], str, str, str], ...] = (
    (
        lambda a: a.gpu is not None and a.gpu >= FULL,
        "GPU-bound",
        "kernels ran nearly all the time",
        "more cores will not help: a faster step would; coresim measure tells what a step takes",
    ),
    (
        lambda a: a.io_wait >= NOTABLE,
        "storage",
        "processes waited for a device in many ticks",
        "fetch with more concurrency, cache, or use a faster or more compact format",
    ),
    (
        lambda a: a.job_cores >= FULL * a.usable_cores,
        "too few cores",
        "the job kept nearly all cores busy that it may use",
        "give the job more cores, or make preprocessing cheaper: coresim recommend says how many",
    ),
    (
        _crowded_out,
        "too few cores",
        "every worker was ready to run all the time, and other jobs kept the host's cores busy",
        "give the job cores of its own, or run it when the host is free",
    ),
    (
        lambda a: bool(a.worker_cores) and min(a.worker_cores) >= FULL,
        "too few workers",
        "every worker was busy all the time while cores were free",
        "raise num_workers",
    ),
    (
        lambda a: not a.worker_cores and a.main_cores >= FULL,
        "no overlap",
        "the trainer alone was busy, and no worker prepared batches beside it",
        "prepare batches in workers while the GPU works (option 2)",
    ),
    (
        lambda a: a.main_cores >= FULL,
        "serial consumer",
        "the trainer's own process was busy all the time while its workers were not",
        "send fewer, larger tensors; pin in a thread; or it spins for the GPU, which is no harm",
    ),
    (
        lambda a: True,
        UNKNOWN,
        "nothing was busy throughout",
        "coresim recommend measures the job instead of watching it",
    ),
)
