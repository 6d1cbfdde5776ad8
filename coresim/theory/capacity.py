"""How much work cores do together: k of them, each at speed s(k), k s(k) CPU seconds per second."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coresim.model.pipeline import Number, Pipeline


def saturation(speed: tuple[Number, ...]) -> int | None:
    """The fewest k with k s(k) within 5 % of its maximum.

    None where s(k) is not known beyond one core, or k s(k) still grows at the table's end.
    """
    capacity = [k * float(each) for k, each in enumerate(speed, start=1)]
    found = next(k for k, work in enumerate(capacity, start=1) if work >= 0.95 * max(capacity))
    # Of a table that grows in proportion, the last 5 % of its cores lie within 5 % of its end.
    return found if len(speed) > 1 and found < 0.9 * len(speed) else None


def capacity(pipeline: Pipeline, tasks: int) -> float:
    """CPU seconds per second that so many tasks get at most while they run."""
    return most_work(pipeline.speed, float(pipeline.width), tasks, float(pipeline.siblings))


def sustained(pipeline: Pipeline) -> float:
    """CPU seconds per second that all tasks get at most in the long run.

    Under a quota, each core-second does at most the work of the quickest core.
    """
    most = capacity(pipeline, pipeline.busiest())
    quickest = max(pipeline.speed) * (1 + pipeline.siblings)
    return min(most, float(pipeline.cores * quickest)) if pipeline.has_quota else most


def most_at_once(pipeline: Pipeline) -> float:
    """CPU seconds per second that all cores do at most, whatever they do: at the largest s."""
    busy = min(float(pipeline.busiest()), float(pipeline.width))
    return float(max(pipeline.speed)) * busy * (1.0 + float(pipeline.siblings))


@lru_cache(maxsize=4096)
def most_work(speed: tuple[Number, ...], cores: float, tasks: int, siblings: float = 0.0) -> float:
    """Most CPU seconds per second that ``tasks`` tasks can get: the maximum of min(tasks, x) s(x) over x <= cores.

    s is linear between whole x, so the maximum is at a whole x, at the cores, or where x s(x) is level in between.
    Tasks beyond the cores add what ``siblings`` gives: at least what they add to the work of all cores.
    """
    whole, s, x, at = _turns(speed)
    within = x <= cores
    most = min(tasks, cores) * float(np.interp(cores, whole, s))
    most = max(most, float(np.max(np.minimum(tasks, x) * at, where=within, initial=0.0)))
    return most * (1.0 + siblings * min(1.0, max(0.0, tasks / cores - 1.0)))


@lru_cache(maxsize=64)
def _turns(speed: tuple[Number, ...]) -> tuple[NDArray[np.float64], ...]:
    """Whole cores and s there; every x below which more may be less work, and s there."""
    s, whole = np.asarray(speed, dtype=float), np.arange(1.0, len(speed) + 1)
    falls = np.flatnonzero(np.diff(s) < 0)
    level = np.clip(whole[falls] / 2 - s[falls] / (2 * np.diff(s)[falls]), whole[falls], whole[falls + 1])
    x = np.concatenate([whole, level])
    return whole, s, x, np.interp(x, whole, s)
