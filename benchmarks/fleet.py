"""How long a plan of 200 workloads on every machine of the catalogue takes here, and how many tasks it comes to.

Run it with ``python benchmarks/fleet.py [workloads] [options]``, such as ``200 123``. The workloads are made up: every
one draws its batch, step, CPU time per sample and spread apart, so that no two are the same to simulate.
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import random
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from coresim.advise.refine import CONFIDENCE
from coresim.cli.plan import begin
from coresim.fleet.description import Fleet, FleetWorkload, candidate_of
from coresim.fleet.plan import _Schedule, plan_fleet
from coresim.fleet.task import FLEET_PLAN
from coresim.machines.catalogue import chip
from coresim.machines.machines import load_machines
from coresim.model.scenario import read_scenario


def workload(number: int) -> FleetWorkload:
    """A job with a step time on every GPU: as on an A100, times a made-up factor for each other chip."""
    draw = random.Random(number)
    batch, step = draw.choice((32, 64, 128, 256)), draw.uniform(0.05, 0.5)
    sample = step / batch * draw.uniform(0.5, 20.0)
    tables = {
        "workload": {
            "batch_size": batch,
            "preprocess": {"mean": f"{sample!r} s", "cv": draw.uniform(0.1, 1.0), "uncertainty": 0.05},
            "collate": f"{step * 0.02!r} s",
            "consumer": f"{step * 0.01!r} s",
        },
        "accelerator": {"step": f"{step!r} s", "launch": f"{step * 0.03!r} s", "name": "A100"},
        "host": {"speed": [1.0, 0.97, 0.95, 0.93]},
    }
    scenario = read_scenario(tables)
    chips = sorted({chip(machine.gpu) for machine in load_machines()})
    steps = {name: scenario.accelerator.step.scaled(draw.uniform(0.3, 4.0)) for name in chips}
    return FleetWorkload(f"job {number}", scenario, draw.uniform(10, 1000), "A100", "EPYC 7742", steps=steps)


def main() -> None:
    """Plan and print the time and what it was spent on."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    options = tuple(int(name) for name in (sys.argv[2] if len(sys.argv) > 2 else "2"))
    fleet = Fleet(tuple(workload(n) for n in range(count)), tuple(map(candidate_of, load_machines())), options)
    started = time.perf_counter()
    tasks = _Schedule(fleet, FLEET_PLAN, "fast", {}, CONFIDENCE).tasks()
    listed = time.perf_counter() - started
    started = time.perf_counter()
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, initializer=begin) as executor:
        found = plan_fleet(fleet, executor=executor)
    wall = time.perf_counter() - started
    pairs = f"{count} workloads x {len(fleet.candidates)} machines = {count * len(fleet.candidates)} pairs"
    print(f"{pairs}, {len(options)} options: {len(found.rows)} rows")
    print(f"{len(tasks)} tasks after merging equal inputs; {wall:.1f} s on {cores} cores, {listed:.1f} s to list them")
    used = sum(resource.getrusage(who)[0] for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"{used:.1f} CPU seconds, {1e3 * used / len(found.rows):.2f} ms per row: {used / cores:.1f} s on idle cores")


if __name__ == "__main__":
    main()
