"""A pool of servers that never pauses: it draws the times of a phase, and is compiled with the event kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import Number
from coresim.sim.kernel.memory import Arena, nogil


def pool_gaps(
    samples: NDArray[np.float64], free: NDArray[np.float64], completed: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Times between the completions of successive batches in a pool of servers that never pauses, s.

    ``samples``: the service times, s; shape (batches, samples of each). ``free``: when each server is next free, in
    rising order, and ``completed``: when the batch before was complete; both are given back for the batches to come.
    """
    batches: int = samples.shape[0]
    size: int = samples.shape[1]
    pool: int = free.shape[0]
    last: Number = completed
    memory = Arena()
    times, servers, gaps = memory.values(samples), memory.values(free.copy()), memory.numbers(batches)
    with nogil:
        last = find_gaps(times, batches, size, servers, pool, last, gaps)
    found = np.array([gaps[batch] for batch in range(batches)])
    return found, np.array([servers[server] for server in range(pool)]), last


def find_gaps(
    samples: list[Number], batches: int, size: int, free: list[Number], servers: int, last: Number, gaps: list[Number]
) -> Number:
    """Let the server that is free first take each sample; when the last batch is complete."""
    completed: Number = last
    until: Number = last
    place: int = 0
    for batch in range(batches):
        for sample in range(batch * size, batch * size + size):
            until = free[0] + samples[sample]
            place = 1
            # In rising order, so that the first server is the next one.
            while place < servers and free[place] < until:
                free[place - 1] = free[place]
                place += 1
            free[place - 1] = until
            completed = max(completed, until)
        gaps[batch] = completed - last
        last = completed
    return last
