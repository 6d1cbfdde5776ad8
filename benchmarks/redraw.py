"""How long letting go of a slider takes here: the whole redraw, and the same beside a plain figure of matplotlib's.

Run it with ``python benchmarks/redraw.py [workers ...]``. The plain figure has two empty panels, drawn to PNG: what a
picture of matplotlib's costs before anything is in it. Ratios are of medians measured in turn, in one run.
"""

# ruff: noqa: T201

from __future__ import annotations

import io
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from matplotlib.figure import Figure

from coresim.model.scenario import read_scenario
from coresim.report.live import what_if_svg
from coresim.report.what_if import Knobs, curves
from coresim.sim.fast import simulate

SCENARIO = read_scenario(
    {
        "workload": {
            "batch_size": 256,
            "preprocess": {"mean": "7 ms", "cv": 0.5},
            "collate": "4 ms",
            "consumer": "1 ms",
        },
        "accelerator": {"step": "75 ms", "launch": "4 ms"},
        "host": {"speed": [1.0, 0.97, 0.95, 0.93]},
    }
)
TIMES = 15


def plain() -> None:
    """Two empty panels."""
    figure = Figure(figsize=(7, 5.5), dpi=80)
    figure.subplots(2, 1)
    figure.savefig(io.BytesIO(), format="png")


def seconds(work: Callable[[], object]) -> float:
    """Wall time of doing it once."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Print a line for each number of workers."""
    for workers in map(int, sys.argv[1:] or ("2", "8", "32", "64")):
        knobs = replace(Knobs.of(SCENARIO), cores=workers, workers=workers)
        # No two redraws turn to the same numbers.
        turned = iter([replace(knobs, step=knobs.step * (1 + number / 100)) for number in range(2 * TIMES + 2)])
        jobs = {
            "redraw": lambda turned=turned: what_if_svg(SCENARIO, next(turned), simulate),
            "simulating": lambda turned=turned: curves(SCENARIO, next(turned), simulate),
            "plain figure": plain,
        }
        found: dict[str, list[float]] = {name: [] for name in jobs}
        for work in jobs.values():
            work()
        for _ in range(TIMES):
            for name, work in jobs.items():
                found[name].append(seconds(work))
        middle = {name: statistics.median(times) for name, times in found.items()}
        print(
            f"{workers:3d} workers: redraw {1e3 * middle['redraw']:.0f} ms"
            f" (of it {1e3 * middle['simulating']:.0f} ms simulating, slowest {1e3 * max(found['redraw']):.0f} ms),"
            f" {middle['redraw'] / middle['plain figure']:.2f} times an empty figure"
            f" ({1e3 * middle['plain figure']:.0f} ms)"
        )


if __name__ == "__main__":
    main()
