"""What the default recommendation costs: ``python benchmarks/recommend.py profile.json [KEY=VALUE ...]``.

The profile comes from ``coresim measure -o profile.json --step-time 98ms``; the settings are those of ``--set``.
Options 1 to 3 over 1..64 cores: as a process with warm machine code, and the simulation alone, in one thread and in as
many as there are cores. Beside each stands its ratio to a plain loop of Python that is timed right before and after it,
because seconds change with the machine and its other load, and ratios less. Medians of repeats; it is no test.
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


def main(path: str, *settings: str) -> None:
    """Measure one thing after another."""
    path, given = str(Path(path).resolve()), list(settings)
    scenario, _ = read_input(path, given)
    counted, cores = Counted(), len(os.sched_getaffinity(0))
    simulation(scenario, 1, counted)
    print(f"Python {sys.version.split()[0]}, {cores} cores, load {os.getloadavg()[0]:.1f} at the start; medians")
    print(f"Recommendation over 1..{MOST_CORES} cores: {counted.runs} runs, {counted.events} events")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        report("process", lambda: process(path, given), "2.5")
        report("process, --json", lambda: process(path, given, "--json"), "2.5")
    report("simulation in one thread", lambda: simulation(scenario, 1), "-")
    report(f"simulation in {cores} threads", lambda: simulation(scenario, cores), "1 on two cores")
    print(f"Load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
