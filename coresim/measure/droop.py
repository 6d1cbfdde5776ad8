"""Droop: how much more slowly cores run when all of them run, by a spin that touches no memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coresim.measure import protocol
from coresim.measure.processes import Link
from coresim.measure.protocol import Cautions, Clock, Progress
from coresim.measure.worker_pool import physical_cpus, rounds, serve, worker_pool
from coresim.model.measurement import Measurement

#: Turns of the loop: about a millisecond, so that a change of the clock within it does not matter.
TURNS = 40_000
NAME = "spin."


def measure_droop(
    *,
    cpus: Sequence[int] | None = None,
    budget_s: float = 1.0,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``spin.1`` and ``spin.K`` (s, CPU time of the same loop) on one and on all K cores at once.

    Args:
        cpus: the hardware threads to use, one per physical core by default.
        budget_s: wall seconds of measuring, both together.
        progress: told what is going on, and the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        CoresimError: a process died or hangs.
    """
    cpus = physical_cpus() if cpus is None else cpus
    if len(cpus) < 2:
        return []
    found: dict[int, dict[int, list[float]]] = {1: {}, len(cpus): {}}
    total = kept = 0
    with worker_pool(_spin, cpus=cpus, doing="spinning on all cores") as children:
        for count, members in rounds(children, list(found), budget_s, partial(_tell, progress)):
            for place, timings in members.items():
                clean = protocol.clean(timings)
                total, kept = total + len(timings), kept + len(clean)
                found[count].setdefault(place, []).extend(timing.cpu for timing in clean)
    protocol.add(cautions, protocol.dirty_warning("spinning", total - kept, total))
    how = f"fresh processes, pinned to a core each, all at work at once; CPU time of {TURNS} turns of an empty loop"
    return [
        Measurement(f"{NAME}{count}", "s", tuple(map(tuple, members.values())), how) for count, members in found.items()
    ]


def _tell(progress: Progress, count: int, fraction: float) -> None:
    protocol.tell(progress, f"spinning on {count} cores at once", fraction)


def _spin(link: Link) -> None:
    def turn() -> None:
        for _ in range(TURNS):
            pass

    serve(link, partial(protocol.timed, turn, Clock()))
