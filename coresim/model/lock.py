"""The interpreter's lock: threads that pass it from one to another lose more than they wait for it.

One of N threads that asks for the lock follows another one in 1 - 1 / N of all turns. Then the data that it works on is
in another core's caches, and the system has to wake it: that costs a share of the time for which the lock is held.
Published: 717 arrays/s by one thread, 631, 597, 565 and 544 by 2, 4, 8 and 32 (github:facebookresearch/spdl
docs/source/plots/data_format.txt), a share of 0.3. `coresim.measure.lock_passing` measures it where stages in threads
are calibrated; ``loader.lock_passing`` of a scenario takes it.
"""

from __future__ import annotations

#: The share where it was not measured, and its standard deviation: on two cores of ours pure Python showed 0.2 to 0.4,
#: loops with calls into C 0.2, reading small arrays from memory 0 to 0.2; in `calibration/probes/lock.json`, on other
#: two cores, they showed 0.11 and 0.07.
PASSING, DEVIATION = 0.15, 0.1


def longer(threads: int, passing: float = PASSING) -> float:
    """How many times longer the lock is held by each of so many threads than by one alone."""
    return 1.0 + passing * (1.0 - 1.0 / threads)
