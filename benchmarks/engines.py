"""What the event kernel costs, as ratios that are measured in one run: ``python benchmarks/engines.py``.

Against the SimPy reference (same model, same draws, same makespan), against Ciw on the closed queueing network that
both can express, and against a C loop of the plain line alone (``line.c``), which is what the generality costs. Every
number is a median of repeats in one process, on whatever machine this runs; ratios carry over, seconds do not. It is
no test.
"""

# ruff: noqa: T201

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from birth_death import closed_line, example  # noqa: E402

from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer  # noqa: E402
from coresim.model.service import Service  # noqa: E402
from coresim.sim import fast, reference  # noqa: E402
from coresim.sim.draws import draw  # noqa: E402
from coresim.sim.kernel import COMPILED, engine  # noqa: E402
from coresim.sim.run import RunLength  # noqa: E402


def median_of(repeats: int, work: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Median of the seconds that the call takes, and what it gave."""
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work(*args)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), result


def loader(workers: int, cores: float, step: float, **shared: Any) -> Pipeline:
    """A PyTorch-like loader with lognormal batches of 100 ms, two batches out per worker."""
    stage = Stage("load", workers, (Phase("pre", service=Service(0.1, 0.4, "lognormal")),), dispatch="round_robin")
    trainer = Trainer(copy_mode="none", spin=False)
    device = Phase("step", service=Service(step))
    return Pipeline((stage,), trainer, device, cores=cores, credits=2 * workers, **shared)


def against_simpy() -> None:
    """The reference and the kernel on the same jobs."""
    print("SimPy reference and kernel, 2,000 steps, whole call:")
    cases = (
        (8, 5.0, 0.022, "8 workers on 5 cores"),
        (8, 16.0, 0.015, "8 workers, ample cores"),
        (64, 96.0, 0.002, "64 workers"),
    )
    for workers, cores, step, name in cases:
        pipeline, length = loader(workers, cores, step), RunLength(2000)
        draws = draw(pipeline, 2000, 1)
        slow, by_reference = median_of(3, reference.simulate, pipeline, draws, length)
        quick, by_kernel = median_of(15, fast.simulate, pipeline, draws, length)
        apart = abs(by_kernel.makespan / by_reference.makespan - 1)
        print(
            f"  {name:24} {slow * 1e3:8.1f} ms / {quick * 1e3:6.2f} ms = {slow / quick:5.0f} x"
            f"   ({by_reference.events} and {by_kernel.events} events, {quick / by_kernel.events * 1e9:.0f} ns each;"
            f" makespans {apart:.0e} apart)"
        )


def against_ciw() -> None:
    """A closed network of W servers and one: the birth-death line with as many cores as workers."""
    if importlib.util.find_spec("ciw") is None:
        print("Ciw: not installed, skipped")
        return
    workers, credits, prepare, step, steps = 4, 8, 1.0, 0.3, 10_000
    theory = closed_line(workers, float(workers), credits, prepare, step)
    seconds, served = median_of(3, run_ciw, workers, credits, prepare, step, steps / theory.throughput)
    pipeline, length = example(workers, float(workers), credits, prepare, step), RunLength(steps)
    draws = draw(pipeline, steps, 1)
    quick, run = median_of(15, fast.simulate, pipeline, draws, length)
    print(f"Ciw and kernel, closed M/M/{workers} and M/M/1 with {credits + 1} customers, time per step:")
    print(
        f"  {seconds / served * 1e6:.1f} us / {quick / steps * 1e6:.3f} us = {seconds / served / (quick / steps):.0f} x"
        f"   (steps/s simulated: theory {theory.throughput:.3f}, Ciw {served / (steps / theory.throughput):.3f},"
        f" kernel {steps / run.makespan:.3f}; events per step: Ciw 2, kernel {run.events / steps:.0f})"
    )


def run_ciw(workers: int, credits: int, prepare: float, step: float, seconds: float) -> int:
    """Run it in Ciw; how many steps were made. All customers arrive at once, then circulate."""
    import ciw  # noqa: PLC0415

    never = ciw.dists.Deterministic(float("inf"))
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([1e-9, float("inf")]), never],
        batching_distributions=[ciw.dists.Deterministic(credits + 1), ciw.dists.Deterministic(1)],
        service_distributions=[ciw.dists.Exponential(1 / prepare), ciw.dists.Exponential(1 / step)],
        routing=[[0.0, 1.0], [1.0, 0.0]],
        number_of_servers=[workers, 1],
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(seconds)
    return sum(record.node == 2 for record in simulation.get_all_records())


def against_c() -> None:
    """A C loop of the recurrence that the plain overlapped loader follows, without any account."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        print("C loop: no C compiler here, skipped")
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "line.so"
        source = Path(__file__).with_name("line.c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        line = ctypes.CDLL(str(library)).line
        line.restype = ctypes.c_double
        print("Plain line (8 workers, 3 phases, ample cores), 100,000 steps, time per step; C is the loop alone by")
        print("cc -O2, the kernel a whole call with all accounts:")
        for step, run_ahead in ((0.014, 0), (0.014, 2), (0.005, 0), (0.005, 2)):
            compare_with(line, step, run_ahead)


def plain_line(step: float, run_ahead: int) -> Pipeline:
    """A line that a recurrence describes; no two phases have the same times."""

    def phase(name: str, mean: float, resource: str = "cores") -> Phase:
        return Phase(name, resource, Service(mean, 0.4, "lognormal"))

    phases = (phase("fetch", 0.03, "wait"), phase("decode", 0.06), phase("collate", 0.01))
    stage = Stage("load", 8, phases, dispatch="round_robin")
    calls = {
        "consumer": phase("consumer", 0.001),
        "copy": phase("copy", 0.001, "wait"),
        "launch": phase("launch", 0.001),
    }
    trainer = Trainer(**calls, run_ahead=run_ahead)
    return Pipeline((stage,), trainer, phase("step", step), cores=16.0, credits=16)


def compare_with(line: Any, step: float, run_ahead: int) -> None:
    """Time the loop in turns with the kernel; check that they agree."""
    pipeline, steps = plain_line(step, run_ahead), 100_000
    draws, length = draw(pipeline, steps, 1), RunLength(steps, warm_up=1000)
    columns = [np.ascontiguousarray(draws.service_times[key].ravel()) for key, _, _ in pipeline.phases()]
    service_times = (ctypes.c_void_p * len(columns))(*(column.ctypes.data for column in columns))
    settings = (ctypes.c_long(value) for value in (steps, 8, 16, run_ahead, 3, len(columns[0])))
    call = (*settings, service_times)
    turns = [(*median_of(1, line, *call), *median_of(1, fast.simulate, pipeline, draws, length)) for _ in range(9)]
    ratios = [kernel / c for c, _, kernel, _ in turns]
    bare, whole = (statistics.median(turn[at] for turn in turns) / steps * 1e9 for at in (0, 2))
    apart = abs(turns[0][1] / turns[0][3].makespan - 1)
    print(
        f"  step {step * 1e3:2.0f} ms, run-ahead {run_ahead}: kernel {whole:.0f} ns / C {bare:.1f} ns ="
        f" {statistics.median(ratios):.1f} x ({min(ratios):.1f} to {max(ratios):.1f}; makespans {apart:.0e} apart)"
    )


def curve() -> None:
    """What a sweep costs: each of 1..64 cores, 64 workers, 400 steps."""
    pipeline, length = loader(64, 1.0, 0.002), RunLength(400, warm_up=100)
    draws = draw(pipeline, 400, 1)

    def sweep() -> int:
        return sum(fast.simulate(replace(pipeline, cores=float(k)), draws, length).events for k in range(1, 65))

    seconds, events = median_of(7, sweep)
    print(f"Curve of 1..64 cores, 64 workers, 400 steps each: {seconds * 1e3:.0f} ms, {events} events")


def fleet() -> None:
    """1,024 ranks: 128 hosts of 8 accelerators with 4 workers each, a barrier at every step."""
    pipeline, length = loader(4, 24.0, 0.04, ranks=8, hosts=128, barrier=True, allreduce=0.002), RunLength(1000)
    draws = draw(pipeline, 64, 1)
    seconds, run = median_of(3, fast.simulate, pipeline, draws, length)
    memory = (COMPILED or engine).footprint(pipeline, draws, length)
    print(
        f"1,024 ranks (128 hosts x 8) with a barrier, 1,000 steps: {seconds:.2f} s, {run.events} events,"
        f" {seconds / run.events * 1e9:.0f} ns each, {memory / 1e6:.1f} MB"
    )


def growth() -> None:
    """Cost by steps and by workers."""
    print("Cost by steps, with the memory beside the draws (8 workers on 5 cores):")
    for steps in (1_000, 10_000, 100_000):
        report(loader(8, 5.0, 0.022), steps, f"{steps} steps")
    print("Cost by workers (5,000 steps, five cores for eight workers):")
    for workers in (4, 16, 64, 256, 1024):
        report(loader(workers, workers * 5 / 8, 0.176 / workers), 5_000, f"{workers} workers")


def report(pipeline: Pipeline, steps: int, name: str) -> None:
    """Time, events and time per event of one job, and the memory that it takes."""
    draws = draw(pipeline, min(steps, 20_000), 1)
    seconds, run = median_of(5, fast.simulate, pipeline, draws, RunLength(steps))
    memory = (COMPILED or engine).footprint(pipeline, draws, RunLength(steps))
    each = seconds / run.events * 1e9
    print(f"  {name:14} {seconds * 1e3:9.2f} ms  {run.events:8} events  {each:6.0f} ns each  {memory / 1e3:7.1f} kB")


def main() -> None:
    """Measure one thing after another."""
    if fast.SLOW:
        print(fast.SLOW)
    load = os.getloadavg()[0]
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, load {load:.1f} at the start; medians of repeats")
    for part in (against_simpy, against_ciw, against_c, curve, fleet, growth):
        part()
    print(f"Load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
