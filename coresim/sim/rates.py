"""The rates of a pipeline for all populations at once: its own `core_rate`, `storage_rate` and `accelerator_rate`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import Pipeline


def rates(pipeline: Pipeline, number: Any) -> tuple[NDArray[Any], ...]:
    """Rates by population: of core tasks (a row for each number of spinning ones), storage phases, accelerators; and
    busy cores.

    ``number`` is the dtype, float64 or object. No rate is ever read for a population of none, or of fewer tasks than
    spin; the filler keeps the index equal to the population. Those in floats are kept, because a setting is simulated
    many times.
    """
    # Cores in exact numbers are equal to the same in floats, and their rates are not made alike.
    if number == np.float64 and isinstance(pipeline.cores, float):
        return _kept(pipeline)
    some = range(1, pipeline.busiest() + 1)
    core = [[pipeline.core_rate(tasks, min(spinning, tasks)) for tasks in some] for spinning in _spinning(pipeline)]
    return _tables(pipeline, core, number)


@lru_cache(maxsize=64)
def _kept(pipeline: Pipeline) -> tuple[NDArray[Any], ...]:
    """In floats, where numpy is ten times as quick at `Pipeline.core_rate`."""
    tasks, width = np.arange(1.0, pipeline.busiest() + 1), float(pipeline.width)
    spinning = np.array(_spinning(pipeline))[:, None]
    busy = np.minimum(tasks, width)
    at_work = np.where(spinning > 0, busy * (tasks - spinning) / tasks, busy)
    work = np.interp(at_work - 1, np.arange(len(pipeline.speed)), np.array(pipeline.speed, float)) * busy
    work *= 1 + float(pipeline.siblings) * np.clip((tasks - width) / width, 0, 1)
    found = _tables(pipeline, work / tasks, np.float64)
    for table in found:
        table.flags.writeable = False
    return found


def _spinning(pipeline: Pipeline) -> range:
    """How many trainers may spin."""
    return range(pipeline.ranks * pipeline.trainer.spin + 1)


def _tables(pipeline: Pipeline, core: Any, number: Any) -> tuple[NDArray[Any], ...]:
    some = range(1, pipeline.busiest() + 1)
    storage, device = map(pipeline.storage_rate, some), map(pipeline.accelerator_rate, (0, *some))
    busy = (min(tasks, pipeline.width) for tasks in (0, *some))
    core = np.insert(np.array(core, number), 0, pipeline.one, axis=1)
    return core, *(np.array([*table], number) for table in ([pipeline.one, *storage], device, busy))
