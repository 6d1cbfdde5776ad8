"""The event kernel as an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coresim.errors import CoresimError
from coresim.model import pipeline as described
from coresim.sim.kernel.build import build
from coresim.sim.kernel.events import run
from coresim.sim.kernel.memory import Arena, nogil
from coresim.sim.kernel.results import result
from coresim.sim.run import Run, RunLength

if TYPE_CHECKING:
    from coresim.sim.draws import Draws


def simulate(pipeline: described.Pipeline, draws: Draws, length: RunLength, number: Any = np.float64) -> Run:
    """Run the job; ``number`` is the dtype of times: float64, or object for exact numbers (not in C).

    Raises:
        CoresimError: nothing can ever happen again in the described pipeline.
    """
    memory = Arena(number)
    job = build(memory, pipeline, draws, length)
    with nogil:
        moves = run(job)
    if not moves:
        raise CoresimError("the described pipeline is stuck: no batch can move; check its stages and buffers")
    return result(job, pipeline, length)


def footprint(pipeline: described.Pipeline, draws: Draws, length: RunLength) -> int:
    """Memory of a run beside its draws and its result: bytes in C, records and places of lists in Python."""
    memory = Arena()
    build(memory, pipeline, draws, length)
    return memory.size
