"""Which share of a loader's reads misses Linux's page cache, when the data set is larger than the memory.

A loader reads every sample once per epoch, in a new random order. The kernel (`mm/workingset.c`, `mm/vmscan.c` and
`mm/swap.c` of Linux 6, without the multi-generational lists) keeps file pages in two lists. A page that is read for the
first time enters the inactive list and leaves at its end. A page that is read again while it is there moves to the
active list; so does a page that returns after fewer evictions than the active list is long. If pages returned so, or
the active list is longer than its bound, both lists age alike, and the oldest active pages go back to the inactive
list. `miss_share` plays these rules, one page per sample. Pure least-recently-used keeps less; a cache that holds on to
a fixed part of the set, as a loader with a cache of its own can, keeps more.

Checked in `calibration/page_cache.json` (runs in a control group of little memory) and against case 11 of
`calibration/CASES.md`.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple

#: Standard uncertainty of the share: half of the largest miss of `calibration/page_cache.json`, 0.08.
UNCERTAINTY = 0.04
#: The set as it is played: enough for the second digit.
SAMPLES, EPOCHS, FILLING = 1000, 14, 5


class Misses(NamedTuple):
    """The share of reads that miss, and its standard uncertainty."""

    share: float
    uncertainty: float


def miss_share(data_bytes: float, memory_bytes: float) -> Misses:
    """Misses of Linux's two lists.

    Args:
        data_bytes: of the whole set.
        memory_bytes: that the page cache has for it; what the job itself holds is not in it.
    """
    cached = memory_bytes / data_bytes
    if cached >= 1.0:
        return Misses(0.0, 0.0)
    return Misses(_two_lists(round(cached, 3), _longest_active(memory_bytes)), UNCERTAINTY)


def _longest_active(memory_bytes: float) -> int:
    """How many times as long as the inactive list the active one may be (`inactive_is_low` of mm/vmscan.c)."""
    gib = int(memory_bytes / 2**30)
    return math.isqrt(10 * gib) if gib else 1


@lru_cache(maxsize=64)
def _two_lists(cached: float, longest: int) -> float:
    """The rules played over a few epochs, of which the first fill the lists."""
    room = max(1, round(cached * SAMPLES))
    lists = _Lists(room, longest)
    order, generator, misses = list(range(SAMPLES)), random.Random(1), 0
    for epoch in range(EPOCHS):
        generator.shuffle(order)
        found = sum(not lists.read(sample) for sample in order)
        misses += found if epoch >= FILLING else 0
    return misses / (SAMPLES * (EPOCHS - FILLING))


class _Lists:
    """The two lists of at most ``room`` pages together, oldest first; ``age`` counts evictions and promotions."""

    def __init__(self, room: int, longest: int) -> None:
        self._room, self._longest = room, longest
        self._inactive: OrderedDict[int, None] = OrderedDict()
        self._active: OrderedDict[int, None] = OrderedDict()
        self._left_at: dict[int, int] = {}
        self._age, self._returned, self._due = 0, False, 0.0

    def read(self, page: int) -> bool:
        """Read a page: whether it was in a list; afterwards it is."""
        if page in self._active:
            return True
        if page in self._inactive:
            del self._inactive[page]
            self._promote(page)
            return True
        while len(self._inactive) + len(self._active) >= self._room:
            self._make_room()
        if page in self._left_at and self._age - self._left_at[page] <= len(self._active):
            self._promote(page)
            self._returned = True
        else:
            self._inactive[page] = None
        return False

    def _promote(self, page: int) -> None:
        self._active[page] = None
        self._age += 1

    def _make_room(self) -> None:
        if self._returned or len(self._inactive) * self._longest < len(self._active):
            # Both lists are scanned in proportion to their lengths.
            self._due += len(self._active) / max(1, len(self._inactive))
        self._returned = False
        while self._active and (self._due >= 1.0 or not self._inactive):
            self._inactive[self._active.popitem(last=False)[0]] = None
            self._due = max(0.0, self._due - 1.0)
        page = self._inactive.popitem(last=False)[0]
        self._left_at[page] = self._age
        self._age += 1
