"""The rates of a pipeline for all populations at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim.model import checks
from coresim.model.pipeline import Pipeline


def rates(pipeline: Pipeline, number: Any) -> tuple[NDArray[Any], ...]:
    """The rates of a pipeline; those in floats are kept, because a setting is simulated many times."""
    # Cores in exact numbers are equal to the same in floats, and their rates are not made alike.
    return _kept(pipeline) if number == np.float64 and isinstance(pipeline.cores, float) else _rates(pipeline, number)


@lru_cache(maxsize=64)
def _kept(pipeline: Pipeline) -> tuple[NDArray[Any], ...]:
    found = _rates(pipeline, np.float64)
    for table in found:
        table.flags.writeable = False
    return found


def _rates(pipeline: Pipeline, number: Any) -> tuple[NDArray[Any], ...]:
    """Rates by population: of core tasks (a row for each number of spinning ones), storage phases, accelerators; and
    busy cores.

    These are the pipeline's own `core_rate`, `storage_rate` and `accelerator_rate`; ``number`` is the dtype, float64 or
    object. None is ever read for a population of none; the filler keeps the index equal to the population.
    """
    at = np.arange(pipeline.busiest() + 1)
    one, tasks, cores = pipeline.one, at.astype(number), pipeline.width
    speed, slowdown = (np.array(table, number) for table in (pipeline.speed, pipeline.slowdown))
    crowded, tasks[0] = tasks > cores, 1
    core = speed[np.minimum(np.maximum(at - 1, 0), len(speed) - 1)] * tasks * one / tasks
    core[crowded] = checks.at(pipeline.speed, cores - 1) * cores * one / tasks[crowded]
    if pipeline.siblings or pipeline.sharing_loss:
        full = tasks >= cores
        full[0] = False
        core[full] = [pipeline.core_rate(int(count)) for count in at[full]]
    core = np.tile(core, (pipeline.ranks * pipeline.trainer.spin + 1, 1))
    for spinning in range(1, len(core)) if len(set(pipeline.speed)) > 1 else ():
        core[spinning, spinning:] = _beside(pipeline, spinning, at[spinning:], number)
    storage, streams = np.full(len(at), one, number), pipeline.storage_streams
    if streams is not None:
        storage[tasks > streams] = streams * one / tasks[tasks > streams]
    accelerator = one / slowdown[np.minimum(at, len(slowdown) - 1)]
    accelerator[crowded] = pipeline.accelerator_rate(len(at))
    return core, storage, accelerator, np.minimum(at.astype(number), cores)


def _beside(pipeline: Pipeline, spinning: int, tasks: NDArray[Any], number: Any) -> Any:
    """`Pipeline.core_rate` beside so many spinning tasks; in floats for all populations at once."""
    if number != np.float64 or pipeline.siblings or pipeline.sharing_loss:
        return [pipeline.core_rate(int(count), spinning) for count in tasks]
    busy = np.minimum(tasks, float(pipeline.width))
    at_work = busy * (tasks - spinning) / tasks
    return np.interp(at_work - 1, np.arange(len(pipeline.speed)), pipeline.speed) * busy / tasks
