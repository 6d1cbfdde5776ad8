"""A pool of servers that never pauses: it draws the times of a phase, and is compiled with the event kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import Number
from coresim.sim.kernel.memory import Memory, nogil


def pool_gaps(samples: NDArray[np.float64], servers: int) -> NDArray[np.float64]:
    """Times between the completions of successive batches in a pool of servers that never pauses, s.

    ``samples``: the service times, s; shape (batches, samples of each).
    """
    batches: int = samples.shape[0]
    size: int = samples.shape[1]
    pool: int = servers
    memory = Memory()
    times, free, gaps = memory.values(samples), memory.numbers(pool), memory.numbers(batches)
    with nogil:
        find_gaps(times, batches, size, free, pool, gaps)
    return np.array([gaps[batch] for batch in range(batches)])


def find_gaps(
    samples: list[Number], batches: int, size: int, free: list[Number], servers: int, gaps: list[Number]
) -> None:
    """Let the server that is free first take each sample; ``free``: when each server is next free."""
    last: Number = 0
    for batch in range(batches):
        completed = last
        for sample in range(batch * size, batch * size + size):
            first = 0
            for server in range(1, servers):
                if free[server] < free[first]:
                    first = server
            free[first] += samples[sample]
            completed = max(completed, free[first])
        gaps[batch] = completed - last
        last = completed
