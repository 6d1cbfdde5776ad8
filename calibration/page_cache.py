"""Which reads miss the page cache when the data set is larger than the memory: ``python calibration/page_cache.py``.

A fresh process in a control group of little memory reads a set of files in a new random order each epoch, as a loader
does, and the kernel's own account says how many bytes came from storage. The result, with where it was measured, goes
to ``page_cache.json`` beside this file; `tests/model/test_storage.py` holds `coresim.model.page_cache` to it. Needs a
control group in which this process may make another (root, or a delegated group); where there is none it says so and
writes nothing. Three minutes; some 50 GB are read.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coresim
from coresim import stats
from coresim.files import write_json
from coresim.measure.host import read_host
from coresim.measure.storage import drop
from coresim.model.page_cache import miss_share

RESULT = Path(__file__).with_name("page_cache.json")
ROOT = Path("/sys/fs/cgroup")
FILES, FILE_BYTES = 3000, 128 * 1024
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)
#: The first epochs fill the cache and its lists; the others count.
EPOCHS, FILLING = 12, 4
SEEDS = (1, 2, 3)


def reader(folder: str, seed: int) -> None:
    """The process in the group: told to start when it is inside, it reads, and reports bytes from storage by epoch."""
    paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    generator, epochs = random.Random(seed), []
    buffer = bytearray(FILE_BYTES)
    sys.stdin.readline()
    for _ in range(EPOCHS):
        generator.shuffle(paths)
        before = from_storage()
        for path in paths:
            with open(path, "rb", buffering=0) as stream:
                stream.readinto(buffer)
        epochs.append(from_storage() - before)
    print(json.dumps(epochs), flush=True)
    sys.stdin.readline()


def from_storage() -> int:
    """Bytes that the kernel fetched from storage for this process (read_bytes of proc_pid_io(5))."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def own_group() -> tuple[Path, int] | None:
    """The folder of this process's memory control group and the hierarchy's version; None where there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return ROOT / "memory" / path.lstrip("/"), 1
        if number == "0" and (ROOT / "cgroup.controllers").exists():
            return ROOT / path.lstrip("/"), 2
    return None


@contextmanager
def limited_group() -> Iterator[tuple[Path, int]]:
    """A group inside this process's own, and the version of the hierarchy; removed at the end.

    Raises:
        OSError: there is none, it may not be made, or it cannot limit memory.
    """
    own = own_group()
    if own is None:
        raise OSError("this system has no control group for memory")
    folder, version = own[0] / f"coresim-{os.getpid()}", own[1]
    folder.mkdir()
    try:
        if not (folder / limit_name(version)).exists():
            raise OSError(f"{own[0]} does not hand the memory controller on to groups inside it")
        yield folder, version
    finally:
        folder.rmdir()


def limit_name(version: int) -> str:
    """The file that holds the group's limit."""
    return "memory.limit_in_bytes" if version == 1 else "memory.max"


def file_pages(group: Path) -> dict[str, int]:
    """Bytes of the group's file pages, and of its active and inactive list (cgroups(7), memory.stat)."""
    found = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = found.get("cache", found.get("file", "0"))
    return {"cached": int(cached), "active": int(found["active_file"]), "inactive": int(found["inactive_file"])}


def run(group: Path, version: int, folder: str, share: float, seed: int) -> dict[str, Any]:
    """One run with about ``share`` of the set in memory."""
    paths = sorted(Path(folder).iterdir())
    left = drop(paths)
    command = [sys.executable, __file__, "--read", folder, str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            (group / "cgroup.procs").write_text(str(process.pid))
            # Pages of the interpreter's own stay with the group that read them first; its private memory is small.
            (group / limit_name(version)).write_text(str(int(share * FILES * FILE_BYTES)))
            process.stdin.write("go\n")
            process.stdin.flush()
            epochs = json.loads(process.stdout.readline())
            pages = file_pages(group)
        finally:
            process.kill()
    total = FILES * FILE_BYTES
    missed = [found / total for found in epochs[FILLING:]]
    cached = pages["cached"] / total
    return {
        "cached_share": cached,
        "active_share_of_cache": pages["active"] / max(1, pages["active"] + pages["inactive"]),
        "left_in_cache_before": left,
        "seed": seed,
        "missed_by_epoch": [found / total for found in epochs],
        "missed_share": stats.mean(missed),
    }


def words(run: dict[str, Any]) -> str:
    """One line, with what the model says of the share that was in memory."""
    total = FILES * FILE_BYTES
    predicted = miss_share(total, run["cached_share"] * total).share
    return f"{run['cached_share']:.1%} cached: {run['missed_share']:.1%} missed, {predicted:.1%} predicted"


def provenance() -> dict[str, Any]:
    """Where and how it was measured."""
    host = read_host(load_window=0.0)
    generations = Path("/sys/kernel/mm/lru_gen/enabled")
    return {
        "tool_version": coresim.__version__,
        "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu_model": host.cpu_model,
        "host_fingerprint": host.fingerprint,
        "kernel": platform.release(),
        "multi_generational_lru": generations.read_text().strip() if generations.exists() else "not in this kernel",
        "files": FILES,
        "file_bytes": FILE_BYTES,
        "epochs": EPOCHS,
        "epochs_left_out": FILLING,
    }


def main() -> int:
    """Measure and write; 3 where no group can be made."""
    if sys.argv[1:2] == ["--read"]:
        reader(sys.argv[2], int(sys.argv[3]))
        return 0
    found = []
    try:
        with limited_group() as (group, version), tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            for number in range(FILES):
                Path(folder, f"{number:05}").write_bytes(random.Random(number).randbytes(FILE_BYTES))
            for share in SHARES:
                for seed in SEEDS:
                    found.append(run(group, version, folder, share, seed))
                    print(words(found[-1]), flush=True)
    except OSError as error:
        print(f"page_cache: no memory-limited control group here: {error}; nothing was measured", file=sys.stderr)
        return 3
    write_json(RESULT, {"format": "coresim-page-cache", "schema_version": 1, **provenance(), "runs": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
