"""What counters show of a running job, second by second: no more than `nvidia-smi dmon` and `glances` show."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import NamedTuple


class Process(NamedTuple):
    """One process of the job during one tick."""

    pid: int
    is_main: bool  # whether it is a trainer: the job's first process, unless it is known which ones train
    cores: float  # CPU seconds per second that it used
    state: str  # of the kernel, at the end of the tick: R runs, S sleeps, D waits for a device, Z ended
    faults: float  # page faults per second


@dataclass(frozen=True)
class Tick:
    """One sample of a running job."""

    second: float  # since the watch began
    processes: tuple[Process, ...]  # the job's process tree
    host_cores: float  # busy on the whole host
    io_wait_cores: float  # cores' worth of time that the host's CPUs idled while something waited for a disk
    gpus: tuple[float, ...] = ()  # utilisation of each GPU, a share; empty where there is none to read
    allowed: int | None = None  # how many CPUs some process of the job may run on; None where that was not read
    launcher: int | None = None  # the job's first process, where it is known that it only starts those that train

    @property
    def trainers(self) -> tuple[Process, ...]:
        """The processes that train, one for each rank."""
        return tuple(process for process in self.processes if process.is_main)

    @property
    def main_cores(self) -> float:
        """Cores that a trainer used; with several trainers, their mean."""
        return sum(process.cores for process in self.trainers) / max(1, len(self.trainers))

    @property
    def workers(self) -> tuple[Process, ...]:
        """All processes of the job except trainers and the launcher."""
        return tuple(process for process in self.processes if not process.is_main and process.pid != self.launcher)

    def with_trainers(self, pids: Set[int]) -> Tick:
        """The tick with these processes as the trainers; unchanged if none is given."""
        if not pids:
            return self
        launcher = next((process.pid for process in self.trainers if process.pid not in pids), None)
        processes = tuple(process._replace(is_main=process.pid in pids) for process in self.processes)
        return replace(self, processes=processes, launcher=launcher)
