"""How the time to receive a batch changes with the number of workers, from what a profile measured of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from coresim.model.rebatch import PARTLY

if TYPE_CHECKING:
    from coresim.model.profile import Profile

SENDERS = f"{PARTLY['consumer']}."
#: What `coresim.measure.senders` measures, before the number of workers: CPU seconds of the trainer per batch, and wall
#: seconds per sample.
ALONE, FED = "handover.cpu.", "handover.fed."


def receiving_table(profile: Profile, grown: float = 1.0) -> list[float]:
    """Time to receive a batch with 1, 2, 3, ... workers over that with one worker, by means.

    Between the numbers that ran it is linear in the logarithm of the workers: each doubling of them halves the time
    between two batches, in which the trainer rests. Beyond the largest number that the job's loader ran with, it
    changes by as many seconds as in runs whose workers only sent, and falls by no larger a share: wake-ups and open
    files do not grow with the batch.

    Args:
        grown: time to receive a batch of the size that is asked for, over that of the measured batch.
    """
    one, found, alone = profile.get(PARTLY["consumer"]), profile.numbered(SENDERS), profile.numbered(ALONE)
    if one is None or not one.mean:
        return [1.0]
    points = {1: 1.0} | {count: more.mean / one.mean for count, more in found.items()}
    most = max(points)
    if 1 in alone:
        table = interpolated({count: more.mean for count, more in alone.items()}, math.log)
        own = table[min(most, len(table)) - 1]
        for count, many in alone.items():
            if count > most and own:
                longer = points[most] + (many.mean - own) / (grown * one.mean)
                points[count] = max(points[most] * min(1.0, many.mean / own), longer)
    return interpolated(points, math.log)


def interpolated(points: Mapping[int, float], place: Callable[[float], float] = float) -> list[float]:
    """The values at all whole numbers from the first point to the last, linear in ``place`` between points."""
    table = [points[min(points)]]
    for low, high in pairwise(sorted(points)):
        slope = (points[high] - points[low]) / (place(high) - place(low))
        table += [points[low] + slope * (place(k) - place(low)) for k in range(low + 1, high + 1)]
    return table
