"""What a worker takes besides the time of its samples: threads, when nothing limits them, and memory of its own.

All other measurements limit libraries to one thread. Here a fresh process leaves them as they come, as a DataLoader's
worker does: torch alone is told to use one thread (`torch/utils/data/_utils/worker.py`); OpenCV, OpenMP and BLAS are
not. It prepares samples and batches, and reads from the kernel what each of its threads did meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coresim.measuring.processes import START_TIMEOUT, Child, Link
from coresim.measuring.protocol import Cautions, Clock, Progress, add, tell
from coresim.model.caution import Caution
from coresim.model.crowding import CURE, SPREAD
from coresim.model.measurement import Measurement
from coresim.workloads.base import Workload, WorkloadSpec, seed_everything

#: A thread counts that worked for this share of the time of the busiest: others started, waited or watched.
WORKED = 0.1
MOST_SAMPLES = 4096
HOW_THREADS = (
    "fresh process with torch limited to 1 thread, as in a DataLoader's worker, and other libraries as they come"
)
HOW_PRIVATE = "memory of a spawned worker alone, after preparing; a forked one shares part of it with the trainer"
HOW_SPREAD = f"{HOW_THREADS}; CPU time of all its threads over that of the busiest"
HOW_WORKED = f"{HOW_THREADS}; threads with at least {WORKED:.0%} of the CPU time of the busiest"


def measure_worker(
    spec: WorkloadSpec,
    *,
    budget_s: float = 1.0,
    timeout: float = 60.0,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``threads.worked``, ``threads.spread`` (threads) and ``worker.private`` (B/worker).

    Nothing where the system does not tell. Neither of the first two depends on how busy the machine is. Threads that
    take turns, as those of Python do, count like others.

    Args:
        spec: the workload.
        budget_s: wall seconds of preparing.
        timeout: the longest that it may take besides.
        progress: told what is going on.
        cautions: that libraries run threads is appended here, with what limits them.

    Raises:
        CoresimError: the dataset failed, or the process died or hangs.
    """
    tell(progress, "looking at a worker", 0.0)
    if not task_folder().is_dir():
        return []
    with Child(_job, spec, budget_s, limited=False, doing=f"looking at a worker of {spec.target}") as child:
        _, (count, spread, private) = child.receive(START_TIMEOUT + timeout)
    if count > 1 and spread >= SPREAD:
        add(
            cautions,
            [
                Caution(
                    "libraries run threads inside workers",
                    f"{count} threads, {spread:.1f} times the work of the busiest",
                    CURE,
                )
            ],
        )
    return [
        Measurement("threads.worked", "threads", ((float(count),),), HOW_WORKED),
        Measurement("threads.spread", "threads", ((spread,),), HOW_SPREAD),
        Measurement("worker.private", "B/worker", ((float(private),),), HOW_PRIVATE),
    ]


def _job(_: Link, spec: WorkloadSpec, budget: float) -> tuple[int, float, int]:
    workload = spec.build()
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    return *count_threads(workload, budget, Clock()), private_bytes()


def private_bytes() -> int:
    """Memory that this process shares with no other (Private_Clean and Private_Dirty of proc_pid_smaps(5))."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def count_threads(workload: Workload, budget: float, clock: Clock) -> tuple[int, float]:
    """What `measure_threads` measures, while samples are prepared for ``budget`` seconds."""
    # The first sample starts what libraries need; their pools are there afterwards.
    _prepare(workload, 0.0, clock)
    before = task_times()
    _prepare(workload, budget, clock)
    return worked(before, task_times())


def _prepare(workload: Workload, budget: float, clock: Clock) -> None:
    started, rng = clock.wall(), seed_everything(0)
    samples: list[Any] = []
    for place in range(MOST_SAMPLES):
        value: Any = place % min(len(workload), MOST_SAMPLES)
        for step in workload.steps():
            value = step.call(value, rng)
        samples = [*samples[-workload.batch_size + 1 :], value] if workload.batch_size > 1 else [value]
        if clock.wall() - started >= budget:
            break
    workload.collate([samples[place % len(samples)] for place in range(workload.batch_size)])


def worked(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[int, float]:
    """Threads that worked between two readings of `task_times`, as `WORKED` says, and all work over the busiest's."""
    spent = [seconds - before.get(name, 0.0) for name, seconds in after.items()]
    most = max(spent, default=0.0)
    return (sum(seconds >= WORKED * most for seconds in spent), sum(spent) / most) if most > 0 else (1, 1.0)


def task_folder() -> Path:
    """Where the kernel lists the threads of this process."""
    return Path("/proc/self/task")


def task_times() -> dict[str, float]:
    """CPU seconds of each thread of this process by its number (utime and stime of proc_pid_stat(5))."""
    tick = os.sysconf("SC_CLK_TCK")
    times: dict[str, float] = {}
    for task in task_folder().iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            # A thread that ended between listing and reading.
            continue
        times[task.name] = (int(fields[11]) + int(fields[12])) / tick
    return times
