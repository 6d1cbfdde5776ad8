"""A report's surface read in Python: what the report's script computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from coresim.advise.surface import Surface


def read(surface: Surface, step: float, cost: float, cores: int) -> tuple[float, float]:
    """GPU idle, a share, and batches per second of one accelerator."""
    i, at = _place([math.log(value) for value in surface.steps], math.log(step))
    j, along = _place([math.log(value) for value in surface.costs], math.log(cost))
    k, up = _place([float(value) for value in surface.cores], float(cores))
    fast = _inverse(surface.steps, surface.accelerator, i, step)
    parts = list(_by_cores(surface, cost, i, at, j, along))
    slow, share = (parts[k][place] + up * (parts[k + 1][place] - parts[k][place]) for place in (0, 1))
    rate = share * min(fast, slow)
    first, last = surface.busy[i], surface.busy[i + 1]
    busy = first + (step - surface.steps[i]) / (surface.steps[i + 1] - surface.steps[i]) * (last - first)
    return max(0.0, 1.0 - rate * busy), rate


def _by_cores(surface: Surface, cost: float, i: int, at: float, j: int, along: float) -> Iterator[tuple[float, float]]:
    for most, table in zip(surface.loader, surface.share, strict=True):
        corner, far = table[i][j], table[i + 1][j + 1]
        # Two triangles: the side between them is the diagonal of equal changes.
        side, one, two = (table[i + 1][j], at, along) if at > along else (table[i][j + 1], along, at)
        yield _inverse(surface.costs, most, j, cost), corner + one * (side - corner) + two * (far - side)


def _inverse(places: Sequence[float], rates: Sequence[float], i: int, value: float) -> float:
    """A rate whose inverse is linear in between."""
    share = (value - places[i]) / (places[i + 1] - places[i])
    return 1.0 / (1.0 / rates[i] + share * (1.0 / rates[i + 1] - 1.0 / rates[i]))


def _place(values: Sequence[float], value: float) -> tuple[int, float]:
    """The cell, and how far into it; the ends hold on."""
    i = max(0, min(len(values) - 2, sum(found <= value for found in values) - 1))
    return i, max(0.0, min(1.0, (value - values[i]) / (values[i + 1] - values[i])))
