"""How much less threads get done together under the interpreter's lock: ``python calibration/probe_lock.py`` (quiet).

K threads do the same work, all of which needs the lock. ``turn_s`` is the wall time of one turn of the work over the
turns of all threads, the fastest of the rounds; with nothing lost it is the same for every K. ``passing`` is the share
that passing the lock from thread to thread adds, for 1 + passing (1 - 1 / K), by least squares
(`coresim.model.lock`).
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from typing import Any

from probing import save

COUNTS = (1, 2, 4, 8, 16)
ROUNDS, SECONDS = 6, 0.5
#: Calls between two looks at the clock: some tenths of a millisecond.
CALLS = 200


def pure() -> None:
    """A loop of the interpreter alone."""
    for _ in range(25):
        pass


def into_c() -> None:
    """A call into C that keeps the lock."""
    sorted((3, 1, 2) * 8)


def turn(work: Callable[[], None], count: int, seconds: float) -> float:
    """Wall seconds of one turn over the turns of all threads."""
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


def run(work: Callable[[], None], seconds: float = SECONDS) -> dict[str, Any]:
    """One kind of work, by all numbers of threads in turn, round by round."""
    rounds = [{count: turn(work, count, seconds) for count in COUNTS} for _ in range(ROUNDS)]
    best = {count: min(found[count] for found in rounds) for count in COUNTS}
    shape = {count: 1 - 1 / count for count in COUNTS[1:]}
    fitted = sum(shape[count] * (best[count] / best[1] - 1) for count in shape)
    passing = fitted / sum(value**2 for value in shape.values())
    return {"what": str(work.__doc__), "turn_s": best, "passing": round(passing, 4)}


def main() -> None:
    """Run all and write the record."""
    save("lock", f"CPython {platform.python_version()}", [run(work) for work in (pure, into_c)])


if __name__ == "__main__":
    main()
