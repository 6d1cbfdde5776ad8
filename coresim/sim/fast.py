"""The fast engine: the event kernel, compiled if it could be compiled, behind the interface of the reference."""

from __future__ import annotations

from coresim.model.pipeline import Pipeline
from coresim.sim.draws import Draws
from coresim.sim.kernel import COMPILED, REMEDY, engine
from coresim.sim.run import Run, RunLength

#: The warning if the kernel is not compiled.
SLOW = "" if COMPILED else f"the simulator is not compiled and takes a hundred times as long; {REMEDY}"


def simulate(pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
    """Run the event kernel: compiled on floats, in Python and exact on Python numbers.

    Raises:
        CoresimError: nothing can ever happen again in the described pipeline.
    """
    if any(drawn_times.dtype == object for drawn_times in draws.service_times.values()):
        return engine.simulate(pipeline, draws, length, object)
    run: Run = (COMPILED or engine).simulate(pipeline, draws, length)
    return run
