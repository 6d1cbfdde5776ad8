"""How far recommendations of one job on one machine are apart: ``python benchmarks/repeat.py``.

Runs ``coresim recommend --step-time 75ms --batch-size 256`` five times in a row, each with its own measurement, and
prints each one's cores with its interval, how far all are from the median, and how many intervals hold the others.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

COMMAND = ("recommend", "--step-time", "75ms", "--batch-size", "256", "--json")
TIMES = 5
#: Cores may differ from the median by this share, a whole core at least.
NEAR = 0.1


def main() -> int:
    """Run, print a line each and the verdict; 1 where an answer is too far off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=TIMES, help="recommendations in a row (default 5)")
    parser.add_argument("flags", nargs="*", help="more flags for recommend, after --, such as -- --quick")
    args = parser.parse_args()
    found = []
    for _ in range(args.times):
        found.append(answer(args.flags))
        print(line(found[-1]), flush=True)
    cores = [one["cores_per_gpu"] for one in found]
    median = sorted(cores)[len(cores) // 2]
    near = [abs(count - median) <= max(1, NEAR * median) for count in cores]
    held = [all(low <= count <= high for count in cores) for low, high in map(interval, found)]
    print(f"from the median: {', '.join(f'{count / median - 1:+.0%}' for count in cores)}")
    print(f"median {median} cores; {sum(near)} of {len(near)} within {NEAR:.0%} of it (a core at least);")
    print(f"the interval of {sum(held)} of {len(held)} holds all the others' answers")
    return 0 if all(near) and all(held) else 1


def answer(flags: list[str]) -> dict[str, Any]:
    """The recommendation of one run."""
    run = subprocess.run([sys.executable, "-m", "coresim", *COMMAND, *flags], stdout=subprocess.PIPE, check=False)
    if run.returncode not in (0, 4):
        raise SystemExit(f"coresim recommend ended with {run.returncode}")
    found: dict[str, Any] = json.loads(run.stdout)["recommendation"]
    return found


def interval(found: dict[str, Any]) -> tuple[float, float]:
    """The stated interval of the cores per GPU."""
    low, high = found["cores_low"], found["cores_high"]
    if low is None and high is None:  # it states none, so it holds nothing
        return float("inf"), float("-inf")
    return low or 0.0, float("inf") if high is None else high


def line(found: dict[str, Any]) -> str:
    """One recommendation in words."""
    low, high = interval(found)
    return f"{found['cores_per_gpu']} cores ({low:g} to {high:g}), GPU idle {found['gpu_idle']:.1%}"


if __name__ == "__main__":
    sys.exit(main())
