"""Watch a running job from outside: no root, no change to its code, a few milliseconds per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from coresim.errors import InputError
from coresim.model.activity import Process, Tick


def watch(pid: int, interval: float = 1.0) -> Iterator[Tick]:
    """One tick per ``interval`` seconds until the process ends; its children, and theirs, are the job too.

    Raises:
        InputError: no such process.
    """
    if not psutil.pid_exists(pid):
        raise InputError(f"--pid {pid}: no such process; name one that runs")
    read_gpus = open_gpus()
    began = before = time.monotonic()
    tree, host = _tree(pid), psutil.cpu_times()
    while True:
        time.sleep(max(0.0, interval - (time.monotonic() - before)))
        now, later, host_now = time.monotonic(), _tree(pid), psutil.cpu_times()
        if pid not in later or later[pid].state == "Z":
            return
        span = max(now - before, 1e-9)
        yield Tick(
            second=now - began,
            processes=tuple(_process(pid, other, tree.get(other), later[other], span) for other in later),
            host_cores=(_busy(host_now) - _busy(host)) / span,
            io_wait_cores=(getattr(host_now, "iowait", 0.0) - getattr(host, "iowait", 0.0)) / span,
            gpus=read_gpus(),
            allowed=len(set().union(*(process.cpus for process in later.values()))) or None,
        )
        before, tree, host = now, later, host_now


def open_gpus() -> Callable[[], tuple[float, ...]]:
    """A reader of each GPU's utilisation as NVML gives it; it gives nothing where there is no NVML or no GPU."""
    try:
        import pynvml  # noqa: PLC0415 (only where a driver may be)

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # whatever is wrong with a driver: the CPU side is watched all the same
        return tuple
    return lambda: tuple(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles)


class _Counters:
    """A process's counters since its start, and the CPUs that it may run on."""

    def __init__(self, seconds: float, state: str, faults: int, cpus: frozenset[int]) -> None:
        self.seconds, self.state, self.faults, self.cpus = seconds, state, faults, cpus


def _tree(pid: int) -> dict[int, _Counters]:
    """Counters of the process and all below it; one that ends meanwhile is left out."""
    found: dict[int, _Counters] = {}
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error, OSError, ValueError, IndexError):
                times = process.cpu_times()
                # Of ``/proc/PID/stat`` (proc(5)), fields 10 and 12 are minor and major faults, 3 the state.
                text = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
                state, *fields = text.rpartition(")")[2].split()
                faults, cpus = int(fields[6]) + int(fields[8]), frozenset(process.cpu_affinity())
                found[process.pid] = _Counters(times.user + times.system, state, faults, cpus)
    return found


def _process(main: int, pid: int, before: _Counters | None, now: _Counters, span: float) -> Process:
    """What a process did within the tick; a new process did all of its work in it."""
    seconds, faults = (before.seconds, before.faults) if before else (0.0, 0)
    return Process(pid, pid == main, (now.seconds - seconds) / span, now.state, (now.faults - faults) / span)


def _busy(times: Any) -> float:
    return float(times.user + times.system + times.nice + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0))
