"""How long a thread that begins to work takes beside busy ones: ``python calibration/probe_turns.py`` (quiet, 2 min).

Busy processes keep all CPUs of this process at work. One more sleeps, or spins, for 30 ms, and then works for so much
CPU time. ``stretch`` is the wall time of that work over its CPU time, by the number of busy processes, mean over the
bursts. With an equal share of all CPUs it would be tasks over CPUs; sharing one CPU with one other, it is 2.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import time
import zlib
from typing import Any

from probing import save

BURSTS_MS = (15, 60, 120)
REST_S, REPEATS, SETTLE_S = 0.03, 25, 0.3
_PIECE = bytes(1 << 15)


def release() -> str:
    """The kernel's version, without what was built in."""
    return ".".join(platform.release().split(".")[:2])


def keep_busy() -> None:
    """Never return."""
    while True:
        zlib.crc32(_PIECE)


def rest(spins: bool) -> None:
    """Pass the time before a burst."""
    until = time.perf_counter() + REST_S
    while spins and time.perf_counter() < until:
        zlib.crc32(_PIECE)
    time.sleep(max(0.0, until - time.perf_counter()))


def burst(cpu_s: float) -> float:
    """Wall seconds over CPU seconds of so much work."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() < cpu + cpu_s:
        zlib.crc32(_PIECE)
    return (time.perf_counter() - wall) / (time.thread_time() - cpu)


def stretch(busy: int, cpu_s: float, spins: bool) -> float:
    """Mean over the bursts beside so many busy processes."""
    others = [multiprocessing.Process(target=keep_busy, daemon=True) for _ in range(busy)]
    for process in others:
        process.start()
    try:
        time.sleep(SETTLE_S)
        found = []
        for _ in range(REPEATS):
            rest(spins)
            found.append(burst(cpu_s))
        return round(statistics.mean(found), 3)
    finally:
        for process in others:
            process.kill()
            process.join()


def main() -> None:
    """Run all and write the record."""
    cpus = len(os.sched_getaffinity(0))
    runs: list[dict[str, Any]] = [{"what": f"{cpus} CPUs, kernel {release()}"}]
    for burst_ms in BURSTS_MS:
        for before, spins in (("asleep", False), ("spinning", True)):
            found = {busy: stretch(busy, burst_ms / 1e3, spins) for busy in range(cpus - 1, 2 * cpus + 1)}
            runs.append({"what": f"{burst_ms} ms of work, {before} before", "stretch": found})
    save("turns", f"Linux {release()}", runs)


if __name__ == "__main__":
    main()
