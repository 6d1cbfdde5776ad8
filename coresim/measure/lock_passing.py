"""Measure what threads lose when they pass the interpreter's lock from one to another (`coresim.model.lock`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

#: Numbers of threads, rounds, and seconds of each.
COUNTS, ROUNDS, SECONDS = (1, 2, 4), 3, 0.1
#: Calls between two readings of the clock: some tenths of a millisecond.
CALLS = 200


def measure_passing() -> float:
    """The share that passing the lock adds to the time for which it is held, by the fastest turns of all rounds."""
    rounds = [{count: turn(interpreted, count, SECONDS) for count in COUNTS} for _ in range(ROUNDS)]
    return max(0.0, passing({count: min(found[count] for found in rounds) for count in COUNTS}))


def interpreted() -> None:
    """A loop of the interpreter alone."""
    for _ in range(25):
        pass


def turn(work: Callable[[], None], count: int, seconds: float) -> float:
    """Wall seconds over the turns of all of so many threads, each of which does ``work`` again and again."""
    start, done = threading.Barrier(count), [0] * count
    spans: list[tuple[float, float]] = []

    def loop(place: int) -> None:
        start.wait()
        began = now = time.perf_counter()
        while now < began + seconds:
            for _ in range(CALLS):
                work()
            done[place] += 1
            now = time.perf_counter()
        spans.append((began, now))

    threads = [threading.Thread(target=loop, args=(place,), daemon=True) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (max(end for _, end in spans) - min(begin for begin, _ in spans)) / sum(done)


def passing(turns: Mapping[int, float]) -> float:
    """The share p for which 1 + p (1 - 1 / K) is nearest to a turn of K threads over that of one: least squares."""
    shape = {count: 1.0 - 1.0 / count for count in turns if count > 1}
    lost = sum(share * (turns[count] / turns[1] - 1.0) for count, share in shape.items())
    return lost / sum(share**2 for share in shape.values())
