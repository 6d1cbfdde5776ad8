"""What the ranks of a watched program wait in their loaders, told by hooks inside of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from coresim.attaching.launch import environment, session_folder
from coresim.attaching.session import Folder, SessionPlan


@dataclass
class Inside:
    """The waiting of each rank, by its number.

    Attributes:
        folder: the session's.
        environ: what the program is to be started with.
    """

    folder: Folder
    environ: dict[str, str]
    _before: dict[int, tuple[float, float]] = field(default_factory=dict)

    def since_last(self) -> dict[int, float]:
        """Share of its loop's time that each rank waited since the last call; none that finished no batch."""
        now, before = self._totals(), self._before
        self._before = now
        gone = {rank: before.get(rank, (0.0, 0.0)) for rank in now}
        return _shares({rank: (now[rank][0] - gone[rank][0], now[rank][1] - gone[rank][1]) for rank in now})

    def overall(self) -> dict[int, float]:
        """The same since the training began."""
        return _shares(self._totals())

    def trainers(self) -> set[int]:
        """The processes that were seen to train, one for each rank; more where ranks were started again."""
        return {pid for pid, found in self.folder.ranks().items() if "rank" in found}

    def _totals(self) -> dict[int, tuple[float, float]]:
        totals: dict[int, tuple[float, float]] = {}
        for found in self.folder.ranks().values():
            if "rank" in found:
                wait, step = totals.get(found["rank"], (0.0, 0.0))
                totals[found["rank"]] = wait + found["wait_s"], step + found["step_s"]
        return totals


def _shares(spans: dict[int, tuple[float, float]]) -> dict[int, float]:
    return {rank: wait / (wait + step) for rank, (wait, step) in sorted(spans.items()) if wait + step > 0}


@contextmanager
def watched_inside() -> Iterator[Inside]:
    """Hooks for a program that is watched and not stopped."""
    with session_folder() as folder:
        folder.write_plan(SessionPlan(only_watch=True))
        yield Inside(folder, environment(folder))
