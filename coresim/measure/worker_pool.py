"""Fresh processes at work at the same time, each on a core of its own: how many, which cores, and in what order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coresim.measure.processes import START_TIMEOUT, TIMEOUT, Child, ChildJob, Link
from coresim.measure.protocol import Timing
from coresim.measure.system_root import SystemRoot
from coresim.measure.topology import allowed_cores

ROUNDS = 5


def physical_cpus(root: Path = Path("/")) -> tuple[int, ...]:
    """One hardware thread of each physical core that this process may use, lowest first."""
    return tuple(threads[0] for threads in allowed_cores(SystemRoot(root)))


def levels(most: int) -> list[int]:
    """The numbers of processes to run at once: all up to 8, then about half as many again each time."""
    chosen = list(range(1, min(8, most) + 1))
    while chosen[-1] < most:
        chosen.append(min(most, chosen[-1] * 3 // 2))
    return chosen


@contextlib.contextmanager
def worker_pool(job: ChildJob, *args: Any, cpus: Sequence[int], doing: str) -> Iterator[list[Child]]:
    """One pinned process per CPU, each of them ready (see `serve`) and at rest."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(job, *args, cpu=cpu, doing=doing)) for cpu in cpus]
        for child in children:
            child.receive(START_TIMEOUT)
        yield children


def serve(link: Link, unit: Callable[[], Timing], wall: Callable[[], float] = time.perf_counter) -> None:
    """A worker's life: work when told for how long, report, keep working until told to rest.

    ``unit`` does one unit of work. The first after a start is not counted: the others may still be starting.
    """
    link.send("ready")
    while (seconds := link.receive()) is not None:
        unit()
        until, timings = wall() + seconds, [unit(), unit()]
        while wall() < until:
            timings.append(unit())
        link.send("timings", timings)
        while not link.waiting():
            unit()
        link.receive()
        link.send("resting")


def work_at_once(children: Sequence[Child], seconds: float, timeout: float = TIMEOUT) -> list[list[Timing]]:
    """Let these workers work at the same time; each one's timings, taken while all were at work."""
    for child in children:
        child.send(seconds)
    answers: list[list[Timing]] = [child.receive(timeout + seconds)[1] for child in children]
    for child in children:
        child.send("rest")
    for child in children:
        child.receive(timeout)
    return answers


def rounds(
    children: Sequence[Child],
    counts: Sequence[int],
    budget: float,
    listen: Callable[[int, float], None],
    timeout: float = TIMEOUT,
) -> Iterator[tuple[int, dict[int, list[Timing]]]]:
    """Let 1, 2, ... workers work at once, five times over, other workers each time.

    The rounds alternate between the counts, so that a slow drift of the machine touches all alike. After the
    first, a round begins only while ``budget`` seconds are not used up.

    Yields:
        The number at work, and each worker's timings by its place in the pool.
    """
    started = time.monotonic()
    for number in range(ROUNDS):
        if number > 0 and time.monotonic() - started > budget:
            return
        for turn, count in enumerate(counts):
            listen(count, (number + turn / len(counts)) / ROUNDS)
            places = [(number + i) % len(children) for i in range(count)]
            chosen = [children[place] for place in places]
            timings = work_at_once(chosen, budget / (ROUNDS * len(counts)), timeout)
            yield count, dict(zip(places, timings, strict=True))
