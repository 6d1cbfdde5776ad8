"""Reading the dataset's own files from storage, and not from the page cache.

That needs no root: a file's own pages are dropped with ``posix_fadvise(POSIX_FADV_DONTNEED)`` after ``fsync``.
Whether that worked is looked up with ``mincore``; where it did not (a file system in memory, pages that
somebody else maps) nothing is reported. Only this system's page cache is emptied: a virtual machine's
host, a storage array or a file server may still hold the data in its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coresim import stats
from coresim.errors import InputError
from coresim.measure import protocol
from coresim.measure.processes import Child, Link
from coresim.measure.protocol import Clocks, Context, part_of
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

PROCESSES = 3
FILES = 256
READERS = 8
STILL_CACHED = 0.1
MOST_PASSES = 5
DROPPED = "pages dropped before, checked with mincore"


def measure_storage(files: Sequence[Path], context: Context) -> list[Measurement]:
    """Measure ``storage.cold.read`` and ``storage.cold.bandwidth`` (s/sample, B/s), in one process after another.

    At most `FILES` of the files are read, and at least one. If the page cache cannot be emptied, nothing is measured
    and a warning says so.

    Raises:
        InputError: a file cannot be read.
        CoresimError: a process died or hangs.
    """
    found: list[tuple[Sequence[float], Sequence[float], float]] = []
    for number in range(PROCESSES):
        told = part_of(context.progress, number, PROCESSES)
        told(0.0)
        budget_s = context.budget_s / PROCESSES
        with Child(_reads_job, list(files), number, budget_s, doing="reading the dataset's files") as child:
            while (message := child.receive())[0] != "done":
                told(min(1.0, message[1]))
            found.append(message[1])
    seconds, rates, shares = zip(*found, strict=True)
    if (cached := max(shares)) > STILL_CACHED:
        remedy = "put the data on the storage that training will read; until then it is not known"
        what = "the page cache cannot be emptied of these files"
        context.warnings.append(HostWarning(what, f"{cached:.0%} left", remedy))
        return []
    alone = f"open, read whole, close, one file after the other; {DROPPED}"
    together = f"{READERS} threads read whole files; one value per pass; {DROPPED}"
    return [
        Measurement("storage.cold.read", "s/sample", tuple(map(tuple, seconds)), alone),
        Measurement("storage.cold.bandwidth", "B/s", tuple(map(tuple, rates)), together),
    ]


def _reads_job(
    link: Link, files: Sequence[Path], seed: int, budget: float
) -> tuple[Sequence[float], Sequence[float], float]:
    """Seconds per file, bytes per second of each pass, within ``budget`` seconds, and the share that stayed cached.

    Slow reads of the storage itself stay in: they are its tail.
    """
    chosen = random.Random(seed).sample(files, min(FILES, len(files)))
    started, cached = time.perf_counter(), 0.0
    seconds, rates = list[float](), list[float]()
    try:
        for _ in range(MOST_PASSES):
            before = time.perf_counter()
            cached = max(cached, drop(chosen))
            seconds += [protocol.timed(path.read_bytes, Clocks()).wall for path in chosen]
            drop(chosen)
            rates.append(_read_at_once(chosen))
            used = time.perf_counter() - started
            link.send(("used", used / budget))
            if cached > STILL_CACHED or used + (time.perf_counter() - before) > budget:
                break
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}; check the dataset's files") from None
    return seconds, rates, cached


def _read_at_once(chosen: Sequence[Path]) -> float:
    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(lambda seconds: time.sleep(seconds), [0.001] * READERS))
        started = time.perf_counter()
        total = sum(readers.map(lambda path: len(path.read_bytes()), chosen))
        return total / (time.perf_counter() - started)


def drop(paths: Sequence[Path]) -> float:
    """Drop the files' pages from the page cache; the mean fraction that stayed, by `resident_fraction`."""
    for path in paths:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return stats.mean([resident_fraction(path) for path in paths])


def resident_fraction(path: Path) -> float:
    """The fraction of a file's pages that are in the page cache; 1 where the system does not tell."""
    size = path.stat().st_size
    if size == 0:
        return 0.0
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        arguments = (ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        failed = ctypes.CDLL(None, use_errno=True).mincore(*arguments)
        del first, arguments
    return 1.0 if failed else sum(page & 1 for page in pages) / len(pages)
