"""What counters show of a running job, second by second: no more than `nvidia-smi dmon` and `glances` can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Process(NamedTuple):
    """One process of the job during one tick.

    Attributes:
        pid: its number.
        is_main: whether it is the job's first process, the trainer.
        cores: CPU seconds per second that it used.
        state: what the kernel says of it at the end of the tick: R runs, S sleeps, D waits for a device, Z ended.
        faults: page faults per second.
    """

    pid: int
    is_main: bool
    cores: float
    state: str
    faults: float


@dataclass(frozen=True)
class Tick:
    """One sample of a running job.

    Attributes:
        second: seconds since the watch began.
        processes: the job's process tree.
        host_cores: cores busy on the whole host.
        io_wait_cores: cores' worth of time that the host's CPUs idled while something waited for a disk.
        gpus: utilisation of each GPU, a share; empty where there is none to read.
        allowed: how many CPUs some process of the job may run on; None where that was not read.
    """

    second: float
    processes: tuple[Process, ...]
    host_cores: float
    io_wait_cores: float
    gpus: tuple[float, ...] = ()
    allowed: int | None = None

    @property
    def main_cores(self) -> float:
        """Cores that the trainer used."""
        return sum(process.cores for process in self.processes if process.is_main)

    @property
    def workers(self) -> tuple[Process, ...]:
        """Every other process of the job that used the CPU at all or may."""
        return tuple(process for process in self.processes if not process.is_main)
