"""Reading the dataset's own files: from the page cache (warm), and from storage (cold).

Cold needs no root: a file's own pages are dropped with ``posix_fadvise(POSIX_FADV_DONTNEED)`` after ``fsync``.
Whether that worked is looked up with ``mincore``; where it did not (a file system in memory, pages that
somebody else maps) nothing is reported as cold. Only this system's page cache is emptied: a virtual machine's
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
from dataclasses import dataclass, field
from pathlib import Path

from coresim import stats
from coresim.errors import InputError
from coresim.measure import protocol
from coresim.measure.processes import Child, Link
from coresim.measure.protocol import Clocks, Context, Timing
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

PROCESSES = 2
FILES = 256
SMALL = 4096
READERS = 8
STILL_CACHED = 0.1
MOST_PASSES = 5
HOW = {
    "latency": f"open file, one {SMALL} B read at its middle without read-ahead",
    "read": "open, read whole, close, one file after the other",
    "bandwidth": f"{READERS} threads read whole files; one value per pass",
}
UNITS = {"latency": "s/read", "read": "s/sample", "bandwidth": "B/s"}
STATES = {"cold": "pages dropped before, checked with mincore", "warm": "in the page cache"}


@dataclass
class Reads:
    """One process's values by name, such as ``cold.read``; ``cached`` is what dropping left in the cache."""

    values: dict[str, list[float]] = field(default_factory=dict)
    cached: float = 0.0


def measure_storage(files: Sequence[Path], context: Context) -> list[Measurement]:
    """Measure ``storage.{cold,warm}.{latency,read,bandwidth}`` (s/read, s/sample, B/s), in one process after another.

    Of the files, one at least, `FILES` are read. Where the page cache cannot be emptied, the cold values are left out
    and a caution says so.

    Raises:
        InputError: a file cannot be read.
        CoresimError: a process died or hangs.
    """
    found: list[Reads] = []
    for number in range(PROCESSES):
        part = context.part(number, PROCESSES)
        part.progress(0.0)
        with Child(_reads_job, list(files), number, part.budget_s, doing="reading the dataset's files") as child:
            while (message := child.receive())[0] != "done":
                part.progress(min(1.0, message[1]))
            found.append(message[1])
    cached = max(reads.cached for reads in found)
    if cached > STILL_CACHED:
        remedy = "put the data on the storage that training will read; until then only warm reads are known"
        what = "the page cache cannot be emptied of these files"
        context.cautions.append(HostWarning(what, f"{cached:.0%} left", remedy))
    return _measurements(found)


def _measurements(found: Sequence[Reads]) -> list[Measurement]:
    named = []
    for name in found[0].values:
        state, what = name.split(".")
        if all(name in reads.values for reads in found):
            values = tuple(tuple(reads.values[name]) for reads in found)
            named.append(Measurement(f"storage.{name}", UNITS[what], values, f"{HOW[what]}; {STATES[state]}"))
    return named


def _reads_job(link: Link, files: Sequence[Path], seed: int, budget: float) -> Reads:
    """Read cold and warm, pass after pass, within ``budget`` seconds."""
    chosen = random.Random(seed).sample(files, min(FILES, len(files)))
    started, reads = time.perf_counter(), Reads()
    warm: dict[str, list[list[Timing]]] = {"latency": [[] for _ in chosen], "read": [[] for _ in chosen]}
    try:
        for _ in range(MOST_PASSES):
            before = time.perf_counter()
            _cold_pass(chosen, reads)
            _warm_pass(chosen, reads, warm)
            used = time.perf_counter() - started
            link.send("used", used / budget)
            if used + (time.perf_counter() - before) > budget:
                break
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}; check the dataset's files") from None
    for what, columns in warm.items():
        reads.values[f"warm.{what}"] = [
            stats.median([repeat.wall for repeat in protocol.clean(repeats)]) for repeats in columns
        ]
    return reads


def _cold_pass(chosen: Sequence[Path], reads: Reads) -> None:
    """One pass over dropped files; storage's own slow reads are its tail and stay in."""
    for name, read in (("cold.latency", _read_small), ("cold.read", _read_whole)):
        reads.cached = max(reads.cached, drop(chosen))
        reads.values.setdefault(name, []).extend([read(path).wall for path in chosen])
    drop(chosen)
    reads.values.setdefault("cold.bandwidth", []).append(_read_at_once(chosen))
    if reads.cached > STILL_CACHED:
        for name in ("cold.latency", "cold.read", "cold.bandwidth"):
            del reads.values[name]


def _warm_pass(chosen: Sequence[Path], reads: Reads, warm: dict[str, list[list[Timing]]]) -> None:
    reads.values.setdefault("warm.bandwidth", []).append(_read_at_once(chosen))
    for what, read in (("latency", _read_small), ("read", _read_whole)):
        for repeats, path in zip(warm[what], chosen, strict=True):
            repeats.append(read(path))


def _read_small(path: Path) -> Timing:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        middle = os.fstat(handle).st_size // 2 // SMALL * SMALL
        return protocol.timed(lambda: os.pread(handle, SMALL, middle), Clocks())
    finally:
        os.close(handle)


def _read_whole(path: Path) -> Timing:
    return protocol.timed(path.read_bytes, Clocks())


def _read_at_once(chosen: Sequence[Path]) -> float:
    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(lambda seconds: time.sleep(seconds), [0.001] * READERS))
        started = time.perf_counter()
        total = sum(readers.map(lambda path: len(path.read_bytes()), chosen))
        return total / (time.perf_counter() - started)


def drop(paths: Sequence[Path]) -> float:
    """Drop the files' pages from the page cache; the mean fraction that stayed, by `resident_fraction`."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
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
