"""What the default recommendation costs: ``python benchmarks/recommend.py profile.json [KEY=VALUE ...]``.

The profile comes from ``coresim measure -o profile.json --step-time 98ms``; the settings are those of ``--set``.
Options 1 to 3 over 1..64 cores: as a process, and the simulation alone, in one thread and in as many as there are
cores. Beside each stands its ratio to a plain loop of Python that is timed right before and after it,
because seconds change with the machine and its other load, and ratios less. Then the simulation of other jobs, made
from the same profile by changes: some need few cores, some more than there are, some draw heavy tails. Medians of
repeats; it is no test.
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coresim.advise.recommend import recommend  # noqa: E402
from coresim.advise.sweep import Study  # noqa: E402
from coresim.cli.common import read_input  # noqa: E402
from coresim.model.scenario import Scenario  # noqa: E402
from coresim.sim.fast import simulate  # noqa: E402
from coresim.sim.run import Run  # noqa: E402

MOST_CORES, REPEATS, ADDITIONS = 64, 7, 3_000_000
WANTED = "1 on two cores"
#: Changes to the job, as for ``--set``.
JOBS: tuple[tuple[str, ...], ...] = (
    ("accelerator.step=20ms",),
    ("accelerator.step=50ms",),
    ("accelerator.step=300ms",),
    ("workload.batch_size=32",),
    ("workload.preprocess=0.05ms",),
    ('workload.preprocess={mean="6 ms", cv=4, distribution="lognormal"}',),
    ('workload.fetch={mean="8 ms", cv=3}',),
    ('workload.fetch={mean="20 ms", cv=0.1}', "accelerator.step=50ms"),
)


class Counted:
    """The fast engine, counting its runs and their events."""

    def __init__(self) -> None:
        self.runs = self.events = 0

    def __call__(self, *job: Any) -> Run:
        """Run and count."""
        run = simulate(*job)
        self.runs, self.events = self.runs + 1, self.events + run.events
        return run


def seconds_of(work: Callable[[], object]) -> float:
    """What one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def plain_loop() -> int:
    """The unit of all ratios: that many additions in Python."""
    total = 0
    for number in range(ADDITIONS):
        total += number
    return total


def report(name: str, work: Callable[[], object], bound: str) -> None:
    """Time it in turns with the plain loop, and print both and their ratio."""
    work()
    times, loops = [], []
    for _ in range(REPEATS):
        before = seconds_of(plain_loop)
        times.append(seconds_of(work))
        loops.append((before + seconds_of(plain_loop)) / 2)
    ratio = statistics.median(took / loop for took, loop in zip(times, loops, strict=True))
    print(
        f"  {name:30} {statistics.median(times):6.2f} s ({min(times):.2f} to {max(times):.2f}; wanted: {bound})"
        f" = {ratio:5.1f} plain loops of {statistics.median(loops) * 1e3:.0f} ms"
    )


def process(path: str, settings: list[str], *more: str) -> None:
    """The command as a user gives it."""
    command = [sys.executable, "-m", "coresim", "recommend", path, "--max-cores", str(MOST_CORES), *more]
    command += [part for setting in settings for part in ("--set", setting)]
    subprocess.run(command, capture_output=True, check=False, cwd=ROOT)


def simulation(scenario: Scenario, threads: int, engine: Callable[..., Run] = simulate) -> None:
    """All that is simulated for the command."""
    with ThreadPoolExecutor(threads) as executor:
        recommend(scenario, Study(engine, executor=executor if threads > 1 else None), max_cores=MOST_CORES)


def simulations(scenario: Scenario, *threads: int) -> None:
    """The simulation of a job, with what it counts."""
    counted = Counted()
    simulation(scenario, 1, counted)
    print(f"  {counted.runs} runs, {counted.events} events")
    for number in threads:
        bound = WANTED if number > 1 else "-"
        report(f"simulation, threads: {number}", lambda number=number: simulation(scenario, number), bound)


def main(path: str, *settings: str) -> None:
    """Measure one thing after another."""
    path, given, cores = str(Path(path).resolve()), list(settings), len(os.sched_getaffinity(0))
    print(f"Python {sys.version.split()[0]}, {cores} cores, load {os.getloadavg()[0]:.1f} at the start; medians")
    print(f"Recommendation over 1..{MOST_CORES} cores")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        report("process", lambda: process(path, given), "2.5")
        report("process, --json", lambda: process(path, given, "--json"), "2.5")
    simulations(read_input(path, given)[0], 1, cores)
    for changes in JOBS:
        print(", ".join(changes))
        simulations(read_input(path, [*given, *changes])[0], cores)
    print(f"Load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
