"""The interpreter's lock: how much less threads get done together than one alone, when all of them need it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from coresim.measure import protocol
from coresim.measure.protocol import Progress
from coresim.model.measurement import Measurement

NAME = "lock."
COUNTS = (1, 2, 4, 8)
ROUNDS = 5
#: Turns of a loop between two looks at the clock: some tenths of a millisecond.
TURNS = 5_000


def measure_lock(
    *,
    counts: Sequence[int] = COUNTS,
    budget_s: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = None,
    cautions: protocol.Cautions = None,
) -> list[Measurement]:
    """Measure ``lock.K`` (s): wall time of one turn of pure Python with K threads at it, over all their turns.

    With nothing lost it is the same for every K. Rounds alternate between the counts; of each the fastest counts, since
    what else runs on the machine makes a round longer and never shorter.

    Args:
        counts: numbers of threads, from one up.
        budget_s: wall seconds of measuring, all counts together.
        clock: wall seconds.
        progress: told what is going on, and the fraction done.
        cautions: not used: a disturbed round is not the fastest.
    """
    seconds = budget_s / (ROUNDS * len(counts))
    found: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(ROUNDS):
        for place, count in enumerate(counts):
            protocol.tell(progress, f"{count} threads under one lock", (turn + place / len(counts)) / ROUNDS)
            found[count].append(_seconds_per_turn(count, seconds, clock))
    how = f"wall time of a loop of {TURNS} turns in pure Python, over the loops of all threads; fastest of the rounds"
    return [Measurement(f"{NAME}{count}", "s", ((min(values),),), how) for count, values in found.items()]


def _seconds_per_turn(count: int, seconds: float, clock: Callable[[], float]) -> float:
    start, done = threading.Barrier(count), [0] * count
    spans: list[tuple[float, float]] = []

    def work(place: int) -> None:
        start.wait()
        began = now = clock()
        while now < began + seconds:
            for _ in range(TURNS):
                pass
            done[place] += 1
            now = clock()
        spans.append((began, now))

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (max(end for _, end in spans) - min(begin for begin, _ in spans)) / sum(done)
