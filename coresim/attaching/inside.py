"""How long the ranks of a watched program wait for their loaders, as hooks inside them report it."""

from __future__ import annotations

from coresim.attaching.session import Folder


class Inside:
    """The waiting of each rank, by its number; ``folder``: the session's."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._before = folder, dict[int, tuple[float, float]]()

    def since_last(self) -> dict[int, float]:
        """Share of its loop's time that each rank waited since the last call, without ranks that finished no batch."""
        now, before = self._totals(), self._before
        self._before = now
        gone = {rank: before.get(rank, (0.0, 0.0)) for rank in now}
        return _shares({rank: (now[rank][0] - gone[rank][0], now[rank][1] - gone[rank][1]) for rank in now})

    def overall(self) -> dict[int, float]:
        """The same since the training began."""
        return _shares(self._totals())

    def trainers(self) -> set[int]:
        """The processes that were seen to train, one for each rank; more where ranks were started again."""
        return {pid for pid, found in self._folder.ranks().items() if "rank" in found}

    def _totals(self) -> dict[int, tuple[float, float]]:
        totals: dict[int, tuple[float, float]] = {}
        for found in self._folder.ranks().values():
            if "rank" in found:
                wait, step = totals.get(found["rank"], (0.0, 0.0))
                totals[found["rank"]] = wait + found["wait_s"], step + found["step_s"]
        return totals


def _shares(spans: dict[int, tuple[float, float]]) -> dict[int, float]:
    return {rank: wait / (wait + step) for rank, (wait, step) in sorted(spans.items()) if wait + step > 0}
