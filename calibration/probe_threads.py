"""Run real threads with one bounded queue and controlled service times: ``python calibration/probe_threads.py``."""

from __future__ import annotations

import itertools
import platform
import queue
import threading
import time
from typing import Any

from probing import save, started_after_each


def credits(workers: int, room: int) -> dict[str, Any]:
    """Batches started at rest, after each one taken."""
    ready: queue.Queue[int] = queue.Queue(maxsize=room)
    numbers, seen, stop = itertools.count(), [0], threading.Event()

    def feed() -> None:
        while not stop.is_set():
            index = next(numbers)
            seen[0] = max(seen[0], index + 1)
            time.sleep(0.005)
            ready.put(index)

    for _ in range(workers):
        threading.Thread(target=feed, daemon=True).start()
    counts = started_after_each(ready.get, lambda: seen[0])
    stop.set()
    return {"what": "credits", "workers": workers, "prefetch": room, "started": counts}


def main() -> None:
    """Run all and write the record."""
    runs = [credits(*shape) for shape in ((1, 1), (2, 1), (3, 2), (4, 5))]
    save("threads", f"CPython {platform.python_version()}", runs)


if __name__ == "__main__":
    main()
