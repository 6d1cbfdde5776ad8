"""Droop: how much more slowly cores run when all of them run, by a spin that touches no memory."""

from __future__ import annotations

from collections.abc import Sequence

from coresim.measure.processes import Link
from coresim.measure.protocol import Cleaning, Progress
from coresim.measure.worker_pool import physical_cpus, rounds, serve
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

#: Turns of the loop: about a millisecond, so that a change of the clock within it does not matter.
TURNS = 40_000
NAME = "spin."


def measure_droop(
    *,
    cpus: Sequence[int] | None = None,
    budget_s: float,
    progress: Progress = lambda done: None,
    cautions: list[HostWarning],
) -> list[Measurement]:
    """Measure ``spin.1`` and ``spin.K`` (s, CPU time of the same loop) on one and on all K cores at once.

    Args:
        cpus: the hardware threads to use, one per physical core by default.
        budget_s: wall seconds of measuring, both together.
        progress: told the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        CoresimError: a process died or hangs.
    """
    cpus = physical_cpus() if cpus is None else cpus
    if len(cpus) < 2:
        return []
    cleaning = Cleaning("spinning")
    found: dict[int, dict[int, list[float]]] = {1: {}, len(cpus): {}}
    turns = rounds(
        _spin, cpus=cpus, counts=list(found), budget_s=budget_s, cleaning=cleaning, doing="spinning on all cores",
        progress=progress,
    )  # fmt: skip
    for count, members in turns:
        for place, timings in members.items():
            found[count].setdefault(place, []).extend(timing.cpu for timing in timings)
    cautions += cleaning.cautions
    how = f"fresh processes, pinned to a core each, all at work at once; CPU time of {TURNS} turns of an empty loop"
    return [
        Measurement(f"{NAME}{count}", "s", tuple(map(tuple, members.values())), how) for count, members in found.items()
    ]


def _spin(link: Link) -> None:
    def turn() -> None:
        for _ in range(TURNS):
            pass

    serve(link, turn)
