"""The memory of a loader's worker and the threads of its libraries, read from the kernel.

torch limits itself to one thread in a DataLoader's worker (``torch/utils/data/_utils/worker.py``); OpenCV, OpenMP and
BLAS are not limited.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from coresim.measure.bandwidth import available_memory
from coresim.measure.host import shared_memory

#: A thread counts if it worked for this share of the busiest one's time; others only started, waited or watched.
WORKED = 0.1
#: Share of the free memory that workers beyond the number of cores may take with their batches.
MOST_MEMORY = 0.25


class WorkerMemory(NamedTuple):
    """Bytes that a worker holds alone, and bytes that it shares with the trainer or other workers; without batches."""

    private: int
    shared: int


def leave_inherited() -> None:
    """Let a fork's garbage collector leave alone what the fork inherited; called in the fork.

    Its first full collection visits every inherited object and copies the pages, once in a fork's life: 107 to 136 ms
    with the 174,000 objects of ``import torch``, while nothing is handed over. A run of a few seconds would report it
    as a cost of every batch.
    """
    gc.freeze()


def memory_of(pid: int) -> WorkerMemory | None:
    """Memory of a process (proc_pid_smaps(5)); None where the system does not tell, or the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    sizes = {name: 1024 * int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines[1:])}
    # Batches lie in shared memory that the trainer has not mapped yet; they are counted as batches.
    private = max(0, sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0) - sizes.get("Pss_Shmem", 0))
    return WorkerMemory(private, max(0, sizes.get("Rss", 0) - private - sizes.get("Pss_Shmem", 0)))


def room_for(workers: Sequence[WorkerMemory], batches: int) -> int:
    """How many such workers, each with so many bytes of batches, fit into a share of the free memory."""
    private = max((memory.private for memory in workers), default=0)
    free, shared = available_memory(), shared_memory()[1]
    return int(
        MOST_MEMORY * min(free / max(1, private + batches), (free if shared is None else shared) / max(1, batches))
    )


def worked(before: Mapping[int, float], after: Mapping[int, float]) -> tuple[int, float]:
    """How many threads worked between two readings of `task_times`, and the work of all over the busiest one's."""
    spent = [seconds - before.get(name, 0.0) for name, seconds in after.items()]
    most = max(spent, default=0.0)
    return (sum(seconds >= WORKED * most for seconds in spent), sum(spent) / most) if most > 0 else (1, 1.0)


def task_times(pid: int) -> dict[int, float]:
    """CPU seconds of each thread of a process, by number; empty if it has ended."""
    try:
        return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process(pid).threads()}
    except psutil.Error:
        return {}
