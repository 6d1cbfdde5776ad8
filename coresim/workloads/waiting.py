"""Reads that wait and hardly work: storage far away, emulated by sleeping."""

from __future__ import annotations

import math
import time
from functools import cached_property

import numpy as np

from coresim.workloads.arrays import TinyWorkload


class SlowReadsWorkload(TinyWorkload):
    """Table rows behind a slow store that is not there: a STAND-IN which sleeps before it reads each row.

    The sleeps are drawn once per row from a lognormal distribution whose mean, 10 ms, and heavy tail (the longest of a
    thousand is some thirteen times the mean) are chosen, not measured. A row takes about a hundredth of that of CPU
    time, so that many workers fit on a few cores.
    """

    name = "table rows behind a simulated store"
    batch_size = 16
    mean, spread, longest = 10e-3, 1.0, 0.3
    #: Rows with a sleep of their own; those beyond have the same again.
    drawn = 4096
    #: How many times as long every read waits: data of one rank that are dearer than those of the others.
    stretch = 1.0

    @cached_property
    def latencies(self) -> np.ndarray:
        """Seconds that each read waits."""
        rng = np.random.default_rng(11)
        drawn = rng.lognormal(math.log(self.mean) - self.spread**2 / 2, self.spread, self.drawn)
        return np.asarray(np.minimum(drawn, self.longest))

    def fetch(self, index: int) -> np.ndarray:
        """Wait, then a copy of the row."""
        time.sleep(self.stretch * float(self.latencies[index % self.drawn]))
        return super().fetch(index)
