"""Both engines of sim: tandem lines with blocking beside Ciw, a simulator by others (Palmer et al., 2019)."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim import fast, reference
from coresim.sim.draws import Draws
from coresim.sim.run import RunLength

# Ciw has no loader, credits or shared cores; what it has is servers with bounded queues between them, where a customer
# that finds no room stays in its server (blocking after service). Given the same service times, every step must end
# when Ciw's last service does.
ciw = pytest.importorskip("ciw")
BATCHES = 300
#: No further customers come within the run.
NEVER = 1e9


def ends_by_ciw(servers: list[int], rooms: list[int], times: list[list[float]]) -> list[float]:
    """When each customer leaves the last node; all are in the first node's queue at the start."""
    nodes = len(servers)
    nothing = [None] * (nodes - 1)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([0.0, NEVER]), *nothing],
        batching_distributions=[ciw.dists.Deterministic(BATCHES)] * nodes,
        service_distributions=[ciw.dists.Sequential(own) for own in times],
        number_of_servers=servers,
        queue_capacities=[float("inf"), *rooms],
        routing=[[float(there == here + 1) for there in range(nodes)] for here in range(nodes)],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(NEVER / 2)
    return sorted(record.service_end_date for record in simulation.get_all_records() if record.node == nodes)


def ends_by_us(engine: Any, servers: list[int], rooms: list[int], times: list[list[float]]) -> list[float]:
    """When each step ends; the last node is the accelerator, and room stands behind the stage before."""
    *stages, _ = servers
    line = tuple(
        Stage(f"s{at}", count, (Phase("work", "wait"),), buffer=room, ordered=False)
        for at, (count, room) in enumerate(zip(stages, rooms, strict=True))
    )
    pipeline = Pipeline(line, Trainer(copy_mode="none", spin=False), Phase("step"), cores=64.0)
    known = {f"s{at}.work": own for at, own in enumerate(times[:-1])} | {"accelerator.step": times[-1]}
    service_times = {key: np.array([[time] for time in known.get(key, [0.0])]) for key, *_ in pipeline.phases()}
    (trace,) = engine(pipeline, Draws(service_times), RunLength(BATCHES, trace=True)).traces
    return list(trace.end)


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
@pytest.mark.parametrize("seed", range(6))
def test_a_tandem_of_single_servers_ends_every_step_when_ciw_does(engine: Any, seed: int) -> None:
    draw = random.Random(seed)
    nodes = draw.randint(2, 4)
    rooms = [draw.randint(1, 3) for _ in range(nodes - 1)]
    times = [[draw.expovariate(1.0) for _ in range(BATCHES)] for _ in range(nodes)]
    ours = ends_by_us(engine, [1] * nodes, rooms, times)
    assert ours == pytest.approx(ends_by_ciw([1] * nodes, rooms, times), rel=1e-9)
    # And something was blocked: without bounds the line is faster.
    free = ends_by_us(engine, [1] * nodes, [BATCHES] * (nodes - 1), times)
    assert free[-1] < ours[-1] and all(one <= other + 1e-9 for one, other in zip(free, ours, strict=True))


@pytest.mark.parametrize("engine", [reference.simulate, fast.simulate])
@pytest.mark.parametrize(("servers", "room"), [(2, 1), (3, 2), (5, 1)])
def test_several_servers_behind_one_queue_end_every_step_when_ciw_does(engine: Any, servers: int, room: int) -> None:
    draw = random.Random(servers)
    # Batches overtake one another in the first stage, so that those behind it must all take the same time.
    times = [[draw.expovariate(1.0 / servers) for _ in range(BATCHES)], [0.4] * BATCHES, [1.1] * BATCHES]
    ours = ends_by_us(engine, [servers, 1, 1], [room, 1], times)
    theirs = ends_by_ciw([servers, 1, 1], [room, 1], times)
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert min(after - before for before, after in pairwise(ours)) == pytest.approx(1.1)
