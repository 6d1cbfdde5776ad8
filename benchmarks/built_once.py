"""What a data set that is large and slow to build costs an answer: ``python benchmarks/built_once.py``.

Asks ``coresim recommend`` twice for the same samples: of a data set that is built at once and holds nothing, and of
one that takes ``--seconds`` to build and holds ``--gigabytes``. Prints for each how long the answer took, how often the
data set was built, and the most memory that all its processes had together, shared pages counted once (PSS).
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

#: A data set as a user writes it. How it is built comes from the environment; each building adds a line to a file.
MODULE = """
import os, time
import numpy

class Samples:
    def __init__(self):
        with open(os.environ["BUILDS"], "a") as builds:
            print(os.getpid(), file=builds)
        until = time.monotonic() + float(os.environ["SECONDS"])
        self.held = numpy.ones(int(float(os.environ["GIGABYTES"]) * 1e9 / 8))  # takes seconds where memory is new
        time.sleep(max(0.0, until - time.monotonic()))

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return numpy.sort(numpy.random.default_rng(index).random(60_000))[:1000]
"""
COMMAND = ("recommend", "--dataset", "samples.py:Samples", "--batch-size", "64", "--step-time", "75ms", "--json")
#: How often the memory of all processes is looked at, s.
LOOK_S = 0.5
#: An answer may take so much longer than building and the usual time, a share of the usual time, and so much more
#: memory than the data set, a share of it: times and numpy's own copies vary.
LONGER, LARGER = 0.2, 0.25


@dataclass(frozen=True)
class Answer:
    """Wall seconds of one answer, how often its data set was built, and the most bytes of all its processes."""

    seconds: float
    builds: int
    memory: float


def main() -> int:
    """Ask twice, print both and the verdict; 1 where the data set was built twice, or costs more than itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="to build the data set (default 60)")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="that it holds (default 2)")
    parser.add_argument("flags", nargs="*", help="more flags for recommend, after --, such as -- --quick")
    args = parser.parse_args()
    usual = asked(0.0, 0.0, args.flags)
    print(f"built at once: {line(usual)}", flush=True)
    slow = asked(args.seconds, args.gigabytes, args.flags)
    print(f"built in {args.seconds:g} s, {args.gigabytes:g} GB: {line(slow)}")
    more_s, more = slow.seconds - args.seconds - usual.seconds, slow.memory - usual.memory
    print(f"beyond building and the usual time: {more_s:+.1f} s; more memory: {more / 1e9:.2f} GB")
    kept = more_s <= LONGER * usual.seconds and more <= (1.0 + LARGER) * 1e9 * args.gigabytes
    return 0 if usual.builds == slow.builds == 1 and kept else 1


def line(found: Answer) -> str:
    """One answer in words."""
    return f"answered in {found.seconds:.1f} s, built {found.builds} times, {found.memory / 1e9:.2f} GB at the most"


def asked(seconds: float, gigabytes: float, flags: list[str]) -> Answer:
    """One answer, with its processes watched from outside."""
    with tempfile.TemporaryDirectory(prefix="coresim-") as folder:
        Path(folder, "samples.py").write_text(MODULE)
        builds = Path(folder, "builds")
        given = {"BUILDS": str(builds), "SECONDS": f"{seconds}", "GIGABYTES": f"{gigabytes}"}
        began, most = time.monotonic(), 0.0
        command = [sys.executable, "-m", "coresim", *COMMAND, *flags]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, **given}) as run:
            while run.poll() is None:
                most = max(most, memory_of(run.pid))
                time.sleep(LOOK_S)
        if run.returncode not in (0, 4):
            raise SystemExit(f"coresim recommend ended with {run.returncode}")
        return Answer(time.monotonic() - began, len(builds.read_text().splitlines()), most)


def memory_of(pid: int) -> float:
    """Bytes of a process and all below it; a page that several share counts once in all."""
    found = 0.0
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                found += process.memory_full_info().pss
    return found


if __name__ == "__main__":
    sys.exit(main())
