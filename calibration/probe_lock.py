"""How much less threads get done together under the interpreter's lock: ``python calibration/probe_lock.py`` (quiet).

K threads do the same work, all of which needs the lock. ``turn_s`` is the wall time of one turn of the work over the
turns of all threads, the fastest of the rounds; with nothing lost it is the same for every K. ``passing`` is the share
that passing the lock from thread to thread adds, for 1 + passing (1 - 1 / K), by least squares
(`coresim.model.lock`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from probing import save

from coresim.measure.lock_passing import interpreted, passing, turn

COUNTS = (1, 2, 4, 8, 16)
ROUNDS, SECONDS = 6, 0.5


def into_c() -> None:
    """A call into C that keeps the lock."""
    sorted((3, 1, 2) * 8)


def run(work: Callable[[], None], seconds: float = SECONDS) -> dict[str, Any]:
    """One kind of work, by all numbers of threads in turn, round by round."""
    rounds = [{count: turn(work, count, seconds) for count in COUNTS} for _ in range(ROUNDS)]
    best = {count: min(found[count] for found in rounds) for count in COUNTS}
    return {"what": str(work.__doc__), "turn_s": best, "passing": round(passing(best), 4)}


def main() -> None:
    """Run all and write the record."""
    save("lock", f"CPython {platform.python_version()}", [run(work) for work in (interpreted, into_c)])


if __name__ == "__main__":
    main()
