"""What the ranks of a watched program wait in their loaders, told by hooks inside of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import getpid

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

    def _totals(self) -> dict[int, tuple[float, float]]:
        told = self.folder.ranks().values()
        return {found["rank"]: (found["wait_s"], found["step_s"]) for found in told if "rank" in found}


def _shares(spans: dict[int, tuple[float, float]]) -> dict[int, float]:
    return {rank: wait / (wait + step) for rank, (wait, step) in sorted(spans.items()) if wait + step > 0}


@contextmanager
def watched_inside() -> Iterator[Inside]:
    """Hooks for a program that is watched and not stopped."""
    with session_folder() as folder:
        folder.write_plan(SessionPlan(parent=getpid(), only_watch=True))
        yield Inside(folder, environment(folder))
