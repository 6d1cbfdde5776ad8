"""Memory bandwidth by the number of cores at it: STREAM's triad, with numpy, one pinned process each.

The kernel and the counting are those of STREAM (McCalpin 1995, https://www.cs.virginia.edu/stream/): bytes
that the program reads plus bytes that it writes; the reads that a cache makes before a write are not counted.
Each array is as large as the last-level cache, so that the kernel moves over two caches or more. Per element of
8 bytes, ``a = b + s c``: numpy needs two passes (``a = s c``, then ``a = a + b``), three reads and two writes, 40
bytes are moved and counted, where STREAM's one fused loop moves 24.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from coresim import stats
from coresim.measure.protocol import Context
from coresim.measure.system_root import SystemRoot
from coresim.measure.topology import last_level_cache
from coresim.measure.worker_pool import levels, physical_cpus, rounds
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

#: Bytes per element of the triad.
MOVED = 40
MEMORY_SHARE = 0.25
USUAL_CACHE = 32 * 2**20


def measure_bandwidth(context: Context) -> list[Measurement]:
    """Measure ``bandwidth.triad.K`` (B/s, all K processes together); above 8 only some K.

    A value is the sum over the K processes of one round.

    Raises:
        CoresimError: a process died or hangs.
    """
    cpus, cache = physical_cpus(), cache_size()
    size = array_bytes(cache, len(cpus), available_memory())
    if size < cache:
        value = f"arrays of {size} B, cache {cache} B"
        remedy = "free memory and measure again"
        context.warnings.append(HostWarning("memory is short for the bandwidth test", value, remedy))
    turns = rounds(
        triad, size, cpus=cpus, counts=levels(len(cpus)), context=context,
        name="memory bandwidth", doing="measuring memory bandwidth",
    )  # fmt: skip
    sums: dict[int, list[float]] = {}
    for count, members in turns:
        moved = MOVED * (size // 8)
        rates = [moved / stats.median([timing.wall for timing in timings]) for timings in members.values()]
        sums.setdefault(count, []).append(sum(rates))
    how = f"numpy triad, {MOVED} B counted per element, arrays of {size} B; one value per round, summed"
    return [Measurement(f"bandwidth.triad.{count}", "B/s", (tuple(found),), how) for count, found in sums.items()]


def triad(size: int) -> Callable[..., None]:
    """A function that runs the kernel over new arrays of ``size`` bytes, or over a slice of their elements."""
    a, b, c = (np.full(size // 8, value) for value in (1.0, 2.0, 3.0))

    def run(part: slice = slice(None)) -> None:
        np.multiply(c[part], 1.5, out=a[part])
        np.add(a[part], b[part], out=a[part])

    return run


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
