"""One rank whose data are dearer: its reads wait longer than those of the others."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from coresim.model.pipeline import Pipeline
from coresim.sim.draws import Draws

#: The phase that waits for data, as `coresim.model.build` names it.
FETCH = "fetch"


def straggling(pipeline: Pipeline, draws: Draws, rows: int, factor: float) -> Draws:
    """The draws with the reads of rank 0 ``factor`` times as long, in its first ``rows`` batches.

    Each rank reads the times of a phase from a place of its own (`Draws.row`), so the first of as many equal parts as
    there are ranks is rank 0's alone.
    """
    if factor == 1.0:
        return draws
    ranks, service_times = pipeline.total_ranks, dict(draws.service_times)
    for key, phase, grain in pipeline.phases():
        if phase.name == FETCH:
            count = rows * (pipeline.batch_size if grain == "sample" else 1)
            drawn_times = np.resize(service_times[key], (count * ranks, service_times[key].shape[1]))
            drawn_times[:count] *= factor
            service_times[key] = drawn_times
    return Draws(MappingProxyType(service_times))
