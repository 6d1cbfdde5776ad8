"""Fresh processes at work at the same time, each on a core of its own: how many, which cores, and in what order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coresim.measure.processes import START_TIMEOUT, TIMEOUT, Child, Link
from coresim.measure.protocol import Clocks, Context, Timing, cleaned, repeated
from coresim.measure.topology import allowed_cores

#: Rounds at the least, even if they take `LONGER` times the budget, and at the most.
LEAST_ROUNDS, ROUNDS, LONGER = 3, 5, 3.0


def physical_cpus(root: Path = Path("/")) -> tuple[int, ...]:
    """One hardware thread of each physical core that this process may use, lowest first."""
    return tuple(threads[0] for threads in allowed_cores(root))


def levels(most: int) -> list[int]:
    """The numbers of processes to run at once: all up to 8, then about half as many again each time."""
    chosen = list(range(1, min(8, most) + 1))
    while chosen[-1] < most:
        chosen.append(min(most, chosen[-1] * 3 // 2))
    return chosen


@contextlib.contextmanager
def worker_pool(job: Callable[..., Any], *args: Any, cpus: Sequence[int], doing: str) -> Iterator[list[Child]]:
    """One pinned process per CPU, each of them ready and at rest; they use no files."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(job, *args, cpu=cpu, doing=doing, own_files=False)) for cpu in cpus]
        for child in children:
            child.receive(START_TIMEOUT)
        yield children


def serve(link: Link, make: Callable[..., Callable[[], object]], *args: Any) -> None:
    """The loop of a worker: it gets how long to time its work, and for which share of the time to go on with it."""
    work = make(*args)
    link.send(("ready", None))
    while True:
        seconds, rate = link.recv()
        link.send(("timings", repeated(work, Clocks(), seconds, least=2) if seconds is not None else None))
        while rate > 0 and not link.poll():
            began = time.perf_counter()
            work()
            if rate < 1:
                time.sleep((time.perf_counter() - began) * (1 / rate - 1))


def press(children: Sequence[Child], count: int, rate: float) -> contextlib.AbstractContextManager[None]:
    """Let so many of them work for that share of the time, and the others rest; returns when they do."""
    for place, child in enumerate(children):
        child.send((None, rate if place < count else 0.0))
    for child in children:
        child.receive()
    return contextlib.nullcontext()


def _at_once(children: Sequence[Child], seconds: float) -> list[list[Timing]]:
    """Each one's timings, taken while all were at work."""
    for child in children:
        child.send((seconds, 1.0))
    answers: list[list[Timing]] = [child.receive(TIMEOUT + seconds)[1] for child in children]
    press(children, 0, 0.0)
    return answers


def rounds(
    make: Callable[..., Callable[[], object]],
    *args: Any,
    cpus: Sequence[int],
    counts: Sequence[int],
    context: Context,
    name: str,
    doing: str,
) -> list[tuple[int, dict[int, list[Timing]]]]:
    """Let 1, 2, ... workers work at once, up to `ROUNDS` times over, other workers each time.

    The rounds alternate between the counts, so that a slow drift of the machine touches all alike. They end with the
    budget, the first `LEAST_ROUNDS` with `LONGER` times the budget. ``name`` is what warnings call the measurement.
    ``make(*args)`` gives what does one unit of work. The first after a start is not counted: others may be starting.

    Returns:
        For each turn the number at work, and each worker's clean timings by its place in the pool.
    """
    found: list[tuple[int, dict[int, list[Timing]]]] = []
    with worker_pool(serve, make, *args, cpus=cpus, doing=doing) as children:
        started = time.monotonic()
        for number in range(ROUNDS):
            if number and time.monotonic() - started > context.budget_s * (LONGER if number < LEAST_ROUNDS else 1.0):
                break
            for turn, count in enumerate(counts):
                context.progress((number + turn / len(counts)) / ROUNDS)
                places = [(number + i) % len(children) for i in range(count)]
                timings = _at_once([children[place] for place in places], context.budget_s / (ROUNDS * len(counts)))
                found.append((count, dict(zip(places, timings, strict=True))))
    kept = iter(cleaned([own for _, members in found for own in members.values()], name, context.warnings))
    return [(count, {place: next(kept) for place in members}) for count, members in found]
