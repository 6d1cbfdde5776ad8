"""Memory bandwidth by the number of cores at it: STREAM's copy and triad, with numpy, one pinned process each.

The kernels and the counting are those of STREAM (McCalpin 1995, https://www.cs.virginia.edu/stream/): bytes
that the program reads plus bytes that it writes; the reads that a cache makes before a write are not counted.
Each array is as large as the last-level cache, so that a kernel moves over two caches or more. Per element of 8 bytes:

* copy, ``b = a``: one read, one write, 16 bytes;
* triad, ``a = b + s c``: numpy needs two passes (``a = s c``, then ``a = a + b``), three reads and two writes,
  40 bytes are moved and counted, where STREAM's one fused loop moves 24.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from coresim import stats
from coresim.measure.processes import Link
from coresim.measure.protocol import Context
from coresim.measure.system_root import SystemRoot
from coresim.measure.topology import last_level_cache
from coresim.measure.worker_pool import levels, physical_cpus, rounds, serve
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

MOVED = {"copy": 16, "triad": 40}
MEMORY_SHARE = 0.25
USUAL_CACHE = 32 * 2**20


def measure_bandwidth(context: Context) -> list[Measurement]:
    """Measure ``bandwidth.copy.K`` and ``bandwidth.triad.K`` (B/s, all K processes together), of K over 8 only some.

    Raises:
        CoresimError: a process died or hangs.
    """
    cpus, cache = physical_cpus(), cache_size()
    size = array_bytes(cache, len(cpus), available_memory())
    if size < cache:
        value = f"arrays of {size} B, cache {cache} B"
        remedy = "free memory and measure again"
        context.cautions.append(HostWarning("memory is short for the bandwidth test", value, remedy))
    found = []
    for number, kernel in enumerate(MOVED):
        found += _measure(kernel, size, cpus, context.part(number, len(MOVED)))
    return found


def _measure(kernel: str, size: int, cpus: Sequence[int], context: Context) -> list[Measurement]:
    """``bandwidth.<kernel>.K``; a value is the sum over the K processes of one round."""
    turns = rounds(
        _bandwidth_job, kernel, size, cpus=cpus, counts=levels(len(cpus)), context=context,
        name=f"memory bandwidth ({kernel})", doing="measuring memory bandwidth",
    )  # fmt: skip
    sums: dict[int, list[float]] = {}
    for count, members in turns:
        moved = MOVED[kernel] * (size // 8)
        rates = [moved / stats.median([timing.wall for timing in timings]) for timings in members.values()]
        sums.setdefault(count, []).append(sum(rates))
    how = f"numpy {kernel}, {MOVED[kernel]} B counted per element, arrays of {size} B; one value per round, summed"
    return [Measurement(f"bandwidth.{kernel}.{count}", "B/s", (tuple(found),), how) for count, found in sums.items()]


def _bandwidth_job(link: Link, kernel: str, size: int) -> None:
    a, b, c = (np.full(size // 8, value) for value in (1.0, 2.0, 3.0))

    def triad() -> None:
        np.multiply(c, 1.5, out=a)
        np.add(a, b, out=a)

    serve(link, triad if kernel == "triad" else partial(np.copyto, b, a))


def array_bytes(cache: int, processes: int, memory: int) -> int:
    """Bytes per array: the last-level cache's, unless three per process took over a quarter of the memory."""
    return min(cache, int(MEMORY_SHARE * memory / (3 * processes))) // 8 * 8


def cache_size(root: Path = Path("/")) -> int:
    """Bytes of the first CPU's last-level cache; 32 MiB where the system does not tell."""
    return last_level_cache(SystemRoot(root), [0])[0] or USUAL_CACHE


def available_memory(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that may still be used: the machine's, or the control group's where that is less."""
    free = int(psutil.virtual_memory().available)
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdecimal():
        return min(free, max(0, int(text) - int(used.read_text())))
    return free
